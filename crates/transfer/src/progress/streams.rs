//! Counters and connection state of each stream of a copy.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drs::{FlowObservations, FlowWatch, LimitTally};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::flow_report::ReportSchedule;
use crate::route_info::RouteInfo;
use crate::stripe::MemberId;
use crate::wire::FlowReport;

/// Counters of one stream over all its connections. A stream that is lost and reopened continues
/// them.
#[derive(Debug)]
pub struct StreamCounters {
    /// Number of the stream, from 0 in the order of opening.
    pub number: u32,
    /// Route of the stream.
    pub route: RouteInfo,
    /// Bytes of file data that the stream carried.
    pub bytes: AtomicU64,
    /// Bytes among them that compression and existing files have kept off the network.
    pub saved: AtomicU64,
    /// Segments that its connections on this host retransmitted. Known when one has ended.
    pub retransmits: AtomicU64,
    /// True if `retransmits` is known.
    pub retransmits_known: AtomicBool,
    /// True if the stream is open.
    pub open: AtomicBool,
    /// True at the server's end, which reports its state to the client.
    reports: bool,
    ends: Mutex<ConnectionState>,
    /// True if the stream must end once all that it carries is answered.
    retiring: watch::Sender<bool>,
    /// Copy of [`TransferProgress::terms`](super::TransferProgress::terms).
    terms: watch::Sender<Option<CopyTerms>>,
    /// True while this end waits for data. False while it is busy with data that has arrived.
    is_waiting: AtomicBool,
    /// Hash of the addresses at both ends of the first hop, or zero if unknown.
    addresses: AtomicU64,
    /// True if the server has accepted the current connection.
    accepted: AtomicBool,
    /// Copy of [`TransferProgress::arrivals`](super::TransferProgress::arrivals).
    arrivals: Arc<AtomicU64>,
}

/// Terms on which a server accepts the streams of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyTerms {
    /// Maximum number of streams (LH-COPY-9).
    pub max_streams: usize,
    /// Member of a striped server that has the copy (LH-COPY-76).
    pub member: Option<MemberId>,
}

/// Knowledge about a stream's connections.
#[derive(Debug)]
struct ConnectionState {
    /// Watch of this end's connection, if it is watched.
    watch: Option<Arc<FlowWatch>>,
    /// Last report of the server.
    reported: Option<FlowReport>,
    /// Schedule of the reports to the other end.
    schedule: ReportSchedule,
    /// Totals of the connections that have ended.
    ended: ConnectionEnds,
}

impl ConnectionState {
    fn from_watch(watch: Option<Arc<FlowWatch>>) -> Self {
        Self {
            watch,
            reported: None,
            schedule: ReportSchedule::default(),
            ended: ConnectionEnds::default(),
        }
    }

    fn all(&self) -> ConnectionEnds {
        let here = self
            .watch
            .as_ref()
            .map(|watch| watch.observations())
            .unwrap_or_default();
        let mut ends = self.ended.clone();
        ends.continue_with(ConnectionEnds {
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
pub struct ConnectionEnds {
    /// Observations of this end.
    pub here: FlowObservations,
    /// Limits of the server's end, as far as it has reported them.
    pub there: LimitTally,
    /// Number of streams that the server advises.
    pub advised_there: Option<u32>,
    /// Segments that the server retransmitted.
    pub retransmits_there: Option<u64>,
}

/// Maximum number of right-sizing actions that are kept for a stream that reconnects.
const MAX_KEPT_ACTIONS: usize = 32;

impl ConnectionEnds {
    /// Adds the next connection. Counters add up, and momentary values are those of the later one.
    fn continue_with(&mut self, later: Self) {
        let before = std::mem::replace(self, later);
        let (here, now) = (before.here, &mut self.here);
        let mut tally = here.tally;
        tally.merge(&now.tally);
        now.tally = tally;
        now.advice = now.advice.or(here.advice);
        let mut actions = here.actions;
        actions.append(&mut now.actions);
        actions.truncate(MAX_KEPT_ACTIONS);
        now.actions = actions;
        if now.rtt.is_zero() {
            now.rtt = here.rtt;
        }
        now.packets = now.packets.or(here.packets);
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
        route: &RouteInfo,
        flow: Option<Arc<FlowWatch>>,
        reports: bool,
        terms: watch::Sender<Option<CopyTerms>>,
        arrivals: Arc<AtomicU64>,
    ) -> Self {
        Self {
            number,
            route: route.clone(),
            bytes: AtomicU64::new(0),
            saved: AtomicU64::new(0),
            retransmits: AtomicU64::new(0),
            retransmits_known: AtomicBool::new(false),
            open: AtomicBool::new(true),
            reports,
            ends: Mutex::new(ConnectionState::from_watch(flow)),
            retiring: watch::Sender::new(false),
            terms,
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
        Some(FlowReport::from_observation(&watch.observations()))
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
    pub fn ends(&self) -> ConnectionEnds {
        self.ends.lock().all()
    }

    /// Continues the stream over another connection, watched by `watch`.
    pub(crate) fn reopen(&self, watch: Option<Arc<FlowWatch>>) {
        let mut ends = self.ends.lock();
        let ended = ends.all();
        *ends = ConnectionState {
            ended,
            ..ConnectionState::from_watch(watch)
        };
        drop(ends);
        self.retiring.send_replace(false);
        self.accepted.store(false, Ordering::Relaxed);
        self.open.store(true, Ordering::Relaxed);
    }

    /// Notes that the connection has ended, with its retransmitted segments if known.
    pub(crate) fn record_closed(&self, retransmits: Option<u64>) {
        if let Some(retransmits) = retransmits {
            self.retransmits.fetch_add(retransmits, Ordering::Relaxed);
            self.retransmits_known.store(true, Ordering::Relaxed);
        }
        self.open.store(false, Ordering::Relaxed);
    }

    /// Notes that the server has accepted the stream, with the maximum number of streams of a copy
    /// (LH-COPY-9), and the member that has it.
    pub(crate) fn record_accepted(&self, max_streams: u16, member: Option<MemberId>) {
        self.accepted.store(true, Ordering::Relaxed);
        self.record_arrival();
        let terms = Some(CopyTerms {
            max_streams: usize::from(max_streams).max(1),
            member,
        });
        self.terms.send_if_modified(|known| {
            let is_new = *known != terms;
            *known = terms;
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
    pub(crate) fn record_arrival(&self) {
        self.is_waiting.store(false, Ordering::Relaxed);
        if self.is_accepted() {
            self.arrivals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that nothing has arrived, and this end waits for it.
    pub(crate) fn record_wait(&self) {
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
    pub(crate) async fn wait_retired(&self) {
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

    use super::super::TransferProgress;
    use super::*;

    #[test]
    fn reopened_stream_continues_its_counters() {
        let progress = TransferProgress::default();
        let counters = progress.add_stream(&RouteInfo::direct(), None, false);
        for reconnect in 1..=10u64 {
            counters.receive(FlowReport {
                held_ms: [100; 9],
                retransmits: 3,
                ..FlowReport::default()
            });
            counters.record_closed(Some(7));
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
        let mut ends = ConnectionEnds::default();
        for (moved, millis) in [(10, 50), (5, 40), (0, 0)] {
            ends.continue_with(ConnectionEnds {
                here: FlowObservations {
                    moved,
                    sent: 2 * moved,
                    retransmits: 1,
                    rtt: Duration::from_millis(millis),
                    ..FlowObservations::default()
                },
                ..ConnectionEnds::default()
            });
        }
        assert_eq!(
            (ends.here.moved, ends.here.sent, ends.here.retransmits),
            (15, 30, 3)
        );
        assert_eq!(ends.here.rtt.as_millis(), 40, "none yet: the one before");
    }
}
