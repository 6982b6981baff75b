//! Counters and connection state of each stream of a copy.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drs::Tally;
use longhaul_session::{FlowWatch, Seen};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::flow_report::ReportSchedule;
use crate::wire::FlowReport;

/// Counters of one stream over all its connections. A stream that is lost and reopened continues
/// them.
#[derive(Debug)]
pub struct StreamCounters {
    /// Number of the stream, from 0 in the order of opening.
    pub number: u32,
    /// Route of the stream.
    pub route: String,
    /// Bytes of file data that the stream carried.
    pub bytes: AtomicU64,
    /// Segments that its connections on this host retransmitted. Known when one has ended.
    pub retransmits: AtomicU64,
    /// True if `retransmits` is known.
    pub retransmits_known: AtomicBool,
    /// True if the stream is open.
    pub open: AtomicBool,
    /// True at the server's end, which reports its state to the client.
    reports: bool,
    ends: Mutex<KnownEnds>,
    /// True if the stream must end once all that it carries is answered.
    retiring: watch::Sender<bool>,
    /// Copy of [`Progress::max_streams`](super::Progress::max_streams).
    max_streams: watch::Sender<Option<usize>>,
    /// True while this end waits for data. False while it is busy with data that has arrived.
    is_waiting: AtomicBool,
    /// Hash of the addresses at both ends of the first hop, or zero if unknown.
    addresses: AtomicU64,
    /// True if the server has accepted the current connection.
    accepted: AtomicBool,
    /// Copy of [`Progress::arrivals`](super::Progress::arrivals).
    arrivals: Arc<AtomicU64>,
}

/// Knowledge about a stream's connections.
#[derive(Debug)]
struct KnownEnds {
    /// Watch of this end's connection, if it is watched.
    watch: Option<Arc<FlowWatch>>,
    /// Last report of the server.
    reported: Option<FlowReport>,
    /// Schedule of the reports to the other end.
    schedule: ReportSchedule,
    /// Totals of the connections that have ended.
    ended: Ends,
}

impl KnownEnds {
    fn of(watch: Option<Arc<FlowWatch>>) -> Self {
        Self {
            watch,
            reported: None,
            schedule: ReportSchedule::default(),
            ended: Ends::default(),
        }
    }

    fn all(&self) -> Ends {
        let here = self
            .watch
            .as_ref()
            .map(|watch| watch.seen())
            .unwrap_or_default();
        let mut ends = self.ended.clone();
        ends.go_on(Ends {
            here,
            there: self
                .reported
                .map(|report| report.tally())
                .unwrap_or_default(),
            advised_there: self
                .reported
                .map(|report| report.streams.into())
                .filter(|&streams| streams > 0),
            retransmits_there: self.reported.map(|report| report.retransmits),
        });
        ends
    }
}

/// Observations of a stream's two connections, by their own ends.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// Observations of this end.
    pub here: Seen,
    /// Limits of the server's end, as far as it has reported them.
    pub there: Tally,
    /// Number of streams that the server advises.
    pub advised_there: Option<u32>,
    /// Segments that the server retransmitted.
    pub retransmits_there: Option<u64>,
}

/// Maximum number of right-sizing actions that are kept for a stream that reconnects.
const MAX_ACTIONS: usize = 32;

impl Ends {
    /// Adds the next connection. Counters add up, and momentary values are those of the later one.
    fn go_on(&mut self, later: Self) {
        let before = std::mem::replace(self, later);
        let (here, now) = (before.here, &mut self.here);
        let mut tally = here.tally;
        tally.merge(&now.tally);
        now.tally = tally;
        now.advice = now.advice.or(here.advice);
        let mut actions = here.actions;
        actions.append(&mut now.actions);
        actions.truncate(MAX_ACTIONS);
        now.actions = actions;
        if now.rtt.is_zero() {
            now.rtt = here.rtt;
        }
        now.retransmits = now.retransmits.saturating_add(here.retransmits);
        now.out_of_order = now.out_of_order.saturating_add(here.out_of_order);
        now.sent = now.sent.saturating_add(here.sent);
        now.moved = now.moved.saturating_add(here.moved);
        let mut there = before.there;
        there.merge(&self.there);
        self.there = there;
        self.advised_there = self.advised_there.or(before.advised_there);
        self.retransmits_there = match (before.retransmits_there, self.retransmits_there) {
            (Some(before), Some(now)) => Some(before.saturating_add(now)),
            (before, now) => before.or(now),
        };
    }
}

impl StreamCounters {
    pub(super) fn new(
        number: u32,
        route: &str,
        flow: Option<Arc<FlowWatch>>,
        reports: bool,
        max_streams: watch::Sender<Option<usize>>,
        arrivals: Arc<AtomicU64>,
    ) -> Self {
        Self {
            number,
            route: route.to_owned(),
            bytes: AtomicU64::new(0),
            retransmits: AtomicU64::new(0),
            retransmits_known: AtomicBool::new(false),
            open: AtomicBool::new(true),
            reports,
            ends: Mutex::new(KnownEnds::of(flow)),
            retiring: watch::Sender::new(false),
            max_streams,
            is_waiting: AtomicBool::new(false),
            addresses: AtomicU64::new(0),
            accepted: AtomicBool::new(false),
            arrivals,
        }
    }

    pub(crate) fn receive(&self, report: FlowReport) {
        self.ends.lock().reported = Some(report);
    }

    /// Returns the state of this end, if it is reported to the other one.
    pub(crate) fn report(&self) -> Option<FlowReport> {
        let ends = self.ends.lock();
        let watch = ends.watch.as_ref().filter(|_| self.reports)?;
        Some(FlowReport::of(&watch.seen()))
    }

    /// Returns the report of this end, if one is due.
    pub(crate) fn due_report(&self) -> Option<FlowReport> {
        let due = self.reports() && self.ends.lock().schedule.is_due(Instant::now());
        due.then(|| self.report()).flatten()
    }

    /// Returns true if this end reports its state.
    pub(crate) fn reports(&self) -> bool {
        self.reports && self.ends.lock().watch.is_some()
    }

    /// Returns the observations of both ends.
    pub fn ends(&self) -> Ends {
        self.ends.lock().all()
    }

    /// Continues the stream over another connection, watched by `watch`.
    pub(crate) fn reopen(&self, watch: Option<Arc<FlowWatch>>) {
        let mut ends = self.ends.lock();
        let ended = ends.all();
        *ends = KnownEnds {
            ended,
            ..KnownEnds::of(watch)
        };
        drop(ends);
        self.retiring.send_replace(false);
        self.accepted.store(false, Ordering::Relaxed);
        self.open.store(true, Ordering::Relaxed);
    }

    /// Notes that the connection has ended, with its retransmitted segments if known.
    pub(crate) fn closed(&self, retransmits: Option<u64>) {
        if let Some(retransmits) = retransmits {
            self.retransmits.fetch_add(retransmits, Ordering::Relaxed);
            self.retransmits_known.store(true, Ordering::Relaxed);
        }
        self.open.store(false, Ordering::Relaxed);
    }

    /// Notes that the server has accepted the stream, and reported the maximum of a copy
    /// (LH-COPY-9).
    pub(crate) fn accepted(&self, max_streams: u16) {
        self.accepted.store(true, Ordering::Relaxed);
        self.arrived();
        let max_streams = Some(usize::from(max_streams).max(1));
        self.max_streams.send_if_modified(|known| {
            let is_new = *known != max_streams;
            *known = max_streams;
            is_new
        });
    }

    /// Stores a hash of the addresses at both ends of the first hop.
    pub(crate) fn set_addresses(&self, addresses: Option<(IpAddr, IpAddr)>) {
        let hash = addresses.map_or(0, |(here, there)| {
            let hash = blake3::hash(format!("{here} {there}").as_bytes());
            hash.as_bytes()
                .first_chunk()
                .copied()
                .map_or(0, u64::from_le_bytes)
        });
        self.addresses.store(hash, Ordering::Relaxed);
    }

    /// Returns the hash of the addresses at both ends of the first hop, if they are known.
    pub(crate) fn addresses(&self) -> Option<u64> {
        Some(self.addresses.load(Ordering::Relaxed)).filter(|hash| *hash != 0)
    }

    /// Returns true if the server has accepted the current connection.
    pub(crate) fn is_accepted(&self) -> bool {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Notes that data has arrived. A refusal is no sign that the copy is alive, so only accepted
    /// streams count.
    pub(crate) fn arrived(&self) {
        self.is_waiting.store(false, Ordering::Relaxed);
        if self.is_accepted() {
            self.arrivals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that nothing has arrived, and this end waits for it.
    pub(crate) fn waits(&self) {
        self.is_waiting.store(true, Ordering::Relaxed);
    }

    /// Returns true if this end is busy with data that has arrived, and does not check for more.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_accepted() && !self.is_waiting.load(Ordering::Relaxed)
    }

    /// Marks the stream to end once all that it carries is answered.
    pub(crate) fn retire(&self) {
        self.retiring.send_replace(true);
    }

    /// Waits until the stream is marked to end.
    pub(crate) async fn retirement(&self) {
        // `self` holds the sender, so it cannot be gone.
        let _ = self
            .retiring
            .subscribe()
            .wait_for(|retiring| *retiring)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Progress;
    use super::*;

    #[test]
    fn reopened_stream_continues_its_counters() {
        let progress = Progress::default();
        let counters = progress.add_stream("direct", None, false);
        for reconnect in 1..=10u64 {
            counters.receive(FlowReport {
                held_ms: [100; 9],
                retransmits: 3,
                ..FlowReport::default()
            });
            counters.closed(Some(7));
            counters.reopen(None);
            assert_eq!(progress.streams().len(), 1);
            assert_eq!(counters.retransmits.load(Ordering::Relaxed), 7 * reconnect);
            let ends = counters.ends();
            assert_eq!(ends.retransmits_there, Some(3 * reconnect));
            assert_eq!(ends.there.total().as_millis(), u128::from(900 * reconnect));
        }
    }

    #[test]
    fn totals_include_ended_connections_and_state_is_the_latest() {
        let mut ends = Ends::default();
        for (moved, millis) in [(10, 50), (5, 40), (0, 0)] {
            ends.go_on(Ends {
                here: Seen {
                    moved,
                    sent: 2 * moved,
                    retransmits: 1,
                    rtt: Duration::from_millis(millis),
                    ..Seen::default()
                },
                ..Ends::default()
            });
        }
        assert_eq!(
            (ends.here.moved, ends.here.sent, ends.here.retransmits),
            (15, 30, 3)
        );
        assert_eq!(ends.here.rtt.as_millis(), 40, "none yet: the one before");
    }
}
