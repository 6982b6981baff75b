//! What can be watched while a copy runs: counters to look at, and events as they happen.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drs::Tally;
use longhaul_session::{FlowWatch, Seen};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::error::Failure;
use crate::flow_report::ReportSchedule;
use crate::lock::Locked;
use crate::tree_hash::Hash;
use crate::wire::{FlowReport, Written};

/// Counters of one copy; entries are files, directories and links.
#[derive(Debug, Default)]
pub struct Progress {
    /// Entries the walk has found.
    pub entries_found: AtomicU64,
    /// Bytes of files the walk has found.
    pub bytes_found: AtomicU64,
    /// Whether the walk is over, so that the two above are final.
    pub walk_complete: AtomicBool,
    /// Entries in place and verified, or failed.
    pub entries_done: AtomicU64,
    /// Files among them that are in place.
    pub files_done: AtomicU64,
    /// Bytes of files written (acknowledged by the receiver), holes included.
    pub bytes_done: AtomicU64,
    /// Bytes among them that an earlier copy had left in place.
    pub bytes_resumed: AtomicU64,
    /// Bytes of file data that travelled in the clear.
    pub bytes_clear: AtomicU64,
    /// Files among those in place that were there already and did not travel.
    pub files_unchanged: AtomicU64,
    /// Bytes of them.
    pub bytes_unchanged: AtomicU64,
    /// Files among those in place that are other names of one of them, and did not travel for that.
    pub files_linked: AtomicU64,
    /// Bytes of them.
    pub bytes_linked: AtomicU64,
    /// Entries that failed.
    pub failures: AtomicU64,
    streams: Mutex<Vec<Arc<StreamCounters>>>,
    /// The walk has found more, or is over.
    found: Notify,
    /// Streams that the server allows, once it has told.
    max_streams: watch::Sender<Option<usize>>,
    standstill: watch::Sender<Option<Standstill>>,
}

/// Counters of one stream, over all the connections that it had: one that is lost and opened again goes on with the same ones.
#[derive(Debug)]
pub struct StreamCounters {
    /// Counted from 0 in the order in which streams were opened.
    pub number: u32,
    /// The route it takes.
    pub route: String,
    /// Bytes of file data this stream carried.
    pub bytes: AtomicU64,
    /// Segments its connections on this host sent again; known when one has ended.
    pub retransmits: AtomicU64,
    /// Whether `retransmits` is known.
    pub retransmits_known: AtomicBool,
    /// Whether it is open.
    pub open: AtomicBool,
    /// This is the server's end, which tells the other one how it does.
    tells: bool,
    ends: Mutex<KnownEnds>,
    /// Whether it is to end once all that it carries is answered.
    retiring: watch::Sender<bool>,
    /// The copy's own ([`Progress::max_streams`]).
    max_streams: watch::Sender<Option<usize>>,
}

/// What is known of a stream's connections.
#[derive(Debug)]
struct KnownEnds {
    /// How this end's connection does, where it is watched.
    watch: Option<Arc<FlowWatch>>,
    /// What the server told last.
    told: Option<FlowReport>,
    /// When the next report to the other end is due.
    schedule: ReportSchedule,
    /// Of the connections that have ended.
    ended: Ends,
}

impl KnownEnds {
    fn of(watch: Option<Arc<FlowWatch>>) -> Self {
        Self {
            watch,
            told: None,
            schedule: ReportSchedule::default(),
            ended: Ends::default(),
        }
    }

    fn all(&self) -> Ends {
        let here = self.watch.as_ref().map(|watch| watch.seen()).unwrap_or_default();
        let mut ends = self.ended.clone();
        ends.go_on(Ends {
            here,
            there: self.told.map(|report| report.tally()).unwrap_or_default(),
            advised_there: self
                .told
                .map(|report| report.streams.into())
                .filter(|&streams| streams > 0),
            retransmits_there: self.told.map(|report| report.retransmits),
        });
        ends
    }
}

/// How a stream's two connections do, as the two ends see their own.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// This end's.
    pub here: Seen,
    /// The server's, as far as it has told.
    pub there: Tally,
    /// How many streams the server advises.
    pub advised_there: Option<u32>,
    /// Segments that the server sent again.
    pub retransmits_there: Option<u64>,
}

/// Most actions of right-sizing kept of a stream whose connections come and go.
const MAX_ACTIONS: usize = 32;

impl Ends {
    /// Goes on with the next connection: counters add up, and what is known of the moment is the later one's.
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
    pub(crate) fn hear(&self, report: FlowReport) {
        self.ends.locked().told = Some(report);
    }

    /// How this end does, where the other one is to be told.
    pub(crate) fn report(&self) -> Option<FlowReport> {
        let ends = self.ends.locked();
        let watch = ends.watch.as_ref().filter(|_| self.tells)?;
        Some(FlowReport::of(&watch.seen()))
    }

    /// The same, when it is time to tell it.
    pub(crate) fn due_report(&self) -> Option<FlowReport> {
        let due = self.tells() && self.ends.locked().schedule.is_due(Instant::now());
        due.then(|| self.report()).flatten()
    }

    /// Whether there is something to tell.
    pub(crate) fn tells(&self) -> bool {
        self.tells && self.ends.locked().watch.is_some()
    }

    /// What both ends have seen.
    pub fn ends(&self) -> Ends {
        self.ends.locked().all()
    }

    /// The stream goes on over another connection, watched by `watch`.
    pub(crate) fn reopen(&self, watch: Option<Arc<FlowWatch>>) {
        let mut ends = self.ends.locked();
        let ended = ends.all();
        *ends = KnownEnds {
            ended,
            ..KnownEnds::of(watch)
        };
        drop(ends);
        self.retiring.send_replace(false);
        self.open.store(true, Ordering::Relaxed);
    }

    /// The connection has ended, having sent so many segments again, where that is known.
    pub(crate) fn closed(&self, retransmits: Option<u64>) {
        if let Some(retransmits) = retransmits {
            self.retransmits.fetch_add(retransmits, Ordering::Relaxed);
            self.retransmits_known.store(true, Ordering::Relaxed);
        }
        self.open.store(false, Ordering::Relaxed);
    }

    /// The server has accepted the stream, and told how many a copy may have (LH-COPY-9).
    pub(crate) fn accepted(&self, max_streams: u16) {
        let max_streams = Some(usize::from(max_streams).max(1));
        self.max_streams.send_if_modified(|known| {
            let is_new = *known != max_streams;
            *known = max_streams;
            is_new
        });
    }

    /// The stream is to end once all that it carries is answered.
    pub(crate) fn retire(&self) {
        self.retiring.send_replace(true);
    }

    /// Resolves when it is.
    pub(crate) async fn retirement(&self) {
        // The sender lives in here: it can't be gone.
        let _ = self.retiring.subscribe().wait_for(|retiring| *retiring).await;
    }
}

impl Progress {
    /// So many bytes more were in place already.
    pub(crate) fn resumed(&self, bytes: u64) {
        self.bytes_resumed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// One more file of so many bytes is in place: counted, if it did not travel.
    pub(crate) fn in_place(&self, written: Written, bytes: u64) {
        let (files, all_bytes) = match written {
            Written::New | Written::Same => return,
            Written::Unchanged => (&self.files_unchanged, &self.bytes_unchanged),
            Written::Linked => (&self.files_linked, &self.bytes_linked),
        };
        files.fetch_add(1, Ordering::Relaxed);
        all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes in place that have travelled: not those that an earlier copy had left, nor those of files that were there or are other
    /// names of one.
    pub fn bytes_travelled(&self) -> u64 {
        let not = [&self.bytes_resumed, &self.bytes_unchanged, &self.bytes_linked];
        let done = self.bytes_done.load(Ordering::Relaxed);
        not.iter().fold(done, |travelled, bytes| {
            travelled.saturating_sub(bytes.load(Ordering::Relaxed))
        })
    }

    /// How many bytes of files there are, as soon as that is known; none, as soon as there are `many` and the walk goes on.
    pub async fn size(&self, many: u64) -> Option<u64> {
        loop {
            // From here on nothing that is found goes unnoticed.
            let found = self.found.notified();
            let (is_complete, bytes) = (
                self.walk_complete.load(Ordering::Acquire),
                self.bytes_found.load(Ordering::Relaxed),
            );
            match is_complete {
                true => return Some(bytes),
                false if bytes >= many => return None,
                false => found.await,
            }
        }
    }

    /// How many streams the server allows the copy, once it has told.
    pub(crate) fn max_streams(&self) -> watch::Receiver<Option<usize>> {
        self.max_streams.subscribe()
    }

    /// How the copy stands still, while it does: for whoever may know another route.
    pub fn standstill(&self) -> watch::Receiver<Option<Standstill>> {
        self.standstill.subscribe()
    }

    /// The copy stands still like that, or does not.
    pub(crate) fn stands_still(&self, standstill: Option<Standstill>) {
        self.standstill.send_if_modified(|known| {
            let is_new = *known != standstill;
            *known = standstill;
            is_new
        });
    }

    /// The counters of every stream opened so far, in the order in which they were opened first.
    pub fn streams(&self) -> Vec<Arc<StreamCounters>> {
        self.streams.locked().clone()
    }

    /// Counters of a new stream over `route`, watched by `flow`; `tells` at a server's end.
    pub(crate) fn add_stream(
        &self,
        route: &str,
        flow: Option<Arc<FlowWatch>>,
        tells: bool,
    ) -> Arc<StreamCounters> {
        let mut streams = self.streams.locked();
        let counters = Arc::new(StreamCounters {
            number: streams.len() as u32,
            route: route.to_owned(),
            bytes: AtomicU64::new(0),
            retransmits: AtomicU64::new(0),
            retransmits_known: AtomicBool::new(false),
            open: AtomicBool::new(true),
            tells,
            ends: Mutex::new(KnownEnds::of(flow)),
            retiring: watch::Sender::new(false),
            max_streams: self.max_streams.clone(),
        });
        streams.push(counters.clone());
        counters
    }

    /// Forgets a stream that has ended, where nobody asks for it any more.
    pub(crate) fn remove_stream(&self, counters: &Arc<StreamCounters>) {
        self.streams.locked().retain(|one| !Arc::ptr_eq(one, counters));
    }

    /// Takes over what another side's walk has found.
    pub(crate) fn mirror_found(&self, other: &Progress) {
        let (entries, bytes) = (&other.entries_found, &other.bytes_found);
        self.set_found(
            entries.load(Ordering::Relaxed),
            bytes.load(Ordering::Relaxed),
            true,
        );
    }

    pub(crate) fn set_found(&self, entries: u64, bytes: u64, complete: bool) {
        self.entries_found.fetch_max(entries, Ordering::Relaxed);
        self.bytes_found.fetch_max(bytes, Ordering::Relaxed);
        if complete {
            self.walk_complete.store(true, Ordering::Release);
        }
        self.found.notify_waiters();
    }
}

/// Something that happened. Paths are ready for a person to read, destination-side names as the user would give them.
#[derive(Debug, Clone)]
pub enum Event {
    /// A stream is open.
    StreamOpened {
        /// Its number.
        stream: u32,
        /// Its route.
        route: String,
    },
    /// A stream was lost; its unanswered blocks go to others.
    StreamLost {
        /// Its number, if it ever opened.
        stream: Option<u32>,
        /// Its route.
        route: String,
        /// What happened, naming the hop if that is known.
        reason: String,
    },
    /// A route has another share of the streams from now on; only of routes that somebody else than the user chose.
    RouteJudged {
        /// Which.
        route: String,
        /// How it stands.
        standing: RouteStanding,
        /// Why, for people.
        reason: String,
    },
    /// A file is gone on with that an earlier copy has left some of.
    Resumed {
        /// Which.
        path: String,
        /// Bytes of it that are there, and need not be sent.
        bytes: u64,
        /// Bytes of all of it.
        size: u64,
    },
    /// An entry is in place and verified.
    Done {
        /// Which.
        path: String,
        /// Its size; none for directories and links.
        bytes: Option<u64>,
        /// Its BLAKE3 hash; none for directories and links, and for a file that was known by its size and time.
        hash: Option<Hash>,
        /// It was there before, identical, and was left alone.
        same: bool,
    },
    /// An entry failed.
    Failed {
        /// Which.
        path: String,
        /// Why.
        failure: Failure,
    },
}

/// That a copy stands still: it opens a stream over each other route that was chosen for it, however small it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standstill {
    /// No stream has ever been open.
    Unopened,
    /// One has, and nothing moves.
    Silent,
}

impl Standstill {
    /// How long that must have been so.
    #[must_use]
    pub const fn after(self) -> Duration {
        match self {
            // By then the first connection's SYN was lost, which is sent again after a second (RFC 6298, section 2), or the path is a very long one.
            Self::Unopened => Duration::from_secs(1),
            // A connection that has lost packets sends again before that, several times.
            Self::Silent => Duration::from_secs(3),
        }
    }
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Unopened => "the direct route was not open after",
            Self::Silent => "nothing had moved for",
        };
        write!(f, "{what} {}", quantities::Time(self.after()))
    }
}

/// How a route stands beside the direct one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteStanding {
    /// It joined the copy.
    Joined,
    /// It left the copy: whoever chose it no longer does.
    Left,
    /// It has as many streams as each other.
    Even,
    /// Its streams carry more: it has all but one of them.
    Better,
    /// Its streams carry less: it has one.
    Slower,
    /// It is not open when it should be: one stream is tried.
    Late,
    /// It moved nothing: what its streams carried goes elsewhere.
    Stalled,
    /// No attempt can succeed.
    Gone,
}

impl RouteStanding {
    /// In one word, as reports have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Left => "left",
            Self::Even => "even",
            Self::Better => "better",
            Self::Slower => "slower",
            Self::Late => "late",
            Self::Stalled => "stalled",
            Self::Gone => "gone",
        }
    }

    /// Whether whoever chose it was wrong.
    #[must_use]
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::Slower | Self::Late | Self::Stalled | Self::Gone)
    }
}

/// Hears events. Called from several threads; must not block.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn event(&self, event: Event);
}

/// Hears nothing.
impl Observer for () {
    fn event(&self, _: Event) {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stream_that_comes_back_goes_on_with_its_counters() {
        let progress = Progress::default();
        let counters = progress.add_stream("direct", None, false);
        for reconnect in 1..=10u64 {
            counters.hear(FlowReport {
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
    fn what_ended_connections_counted_stays_and_the_moment_is_the_latest() {
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
