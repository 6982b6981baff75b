//! Keeps the streams of a copy going: opens them, opens lost ones again, retires those that are too many, and knows when it is over.
//!
//! It wakes when a stream opens or ends, when a lost one is due again, and, unless the user gave the number of streams, to see how the
//! copy does: often while bytes move, seldom while nothing does.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quantities::path::CongestionControl;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::attempt::{Attempt, CLOSE_TIMEOUT, Ended, Lost};
use super::stream_count::{RoundTrips, RouteRtt, StreamCount, View};
use super::{Client, Connector, RECONNECT_TIMEOUT, Side};
use crate::error::Error;
use crate::progress::{Event, StreamCounters};
use crate::receive::StreamEnd;

/// Streams that a client opens before the server has told how many it allows (LH-COPY-9), or one for each route: a server that allows
/// fewer refuses the rest, and the copy goes on without them.
const MAX_STREAMS_BEFORE_ACCEPT: usize = 16;
/// First pause before a lost stream is opened again; it doubles each time up to the second.
const FIRST_RETRY_AFTER: Duration = Duration::from_millis(250);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(4);
/// How long the report of a finished copy waits for its streams to end on this side.
const REPORT_WAITS_FOR_STREAMS: Duration = Duration::from_millis(30);
/// Total from which every given route gets a stream.
const ALL_ROUTES_FROM_BYTES: u64 = 1 << 20;
/// Pauses between looks at a copy whose bytes move, and at one that stands still.
const MIN_LOOK_PAUSE: Duration = Duration::from_millis(25);
const MAX_LOOK_PAUSE: Duration = Duration::from_secs(1);
/// A copy that stands still is looked at after this part of the time for which it has done so.
const LOOK_PAUSE_DIVISOR: u32 = 4;
/// What the streams carry is compared over once to twice this time, when one of them is to be retired.
const SHARE_SPAN: Duration = Duration::from_secs(1);

/// A place for one stream on one route.
struct Slot {
    route: usize,
    stream: SlotState,
    failures: u32,
    /// Of the streams that were open here, once there was one.
    counters: Arc<OnceLock<Arc<StreamCounters>>>,
    share: Share,
}

/// What the streams of a slot had moved, in bytes, at the last two marks.
#[derive(Clone, Copy, Default)]
struct Share {
    before: u64,
    marked: u64,
}

impl Share {
    fn mark(&mut self, moved: u64) {
        self.before = self.marked;
        self.marked = moved;
    }

    /// Bytes moved since the mark before the last one.
    fn of(self, moved: u64) -> u64 {
        moved.saturating_sub(self.before)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    /// It is to be opened (again) at this moment.
    Due(Instant),
    /// It opens, or is open.
    Running,
    /// It is open and takes no more work.
    Retiring,
    /// It was retired; there may be another one.
    Free,
    /// It failed for good: another attempt would fail like it.
    Failed,
}

impl Slot {
    fn new(route: usize) -> Self {
        Self {
            route,
            stream: SlotState::Due(Instant::now()),
            failures: 0,
            counters: Arc::default(),
            share: Share::default(),
        }
    }

    /// Bytes that the connections of its streams have moved.
    fn moved(&self) -> u64 {
        self.counters
            .get()
            .map_or(0, |counters| counters.ends().here.moved)
    }

    fn is_running(&self) -> bool {
        matches!(self.stream, SlotState::Running | SlotState::Retiring)
    }

    fn due(&self) -> Option<Instant> {
        match self.stream {
            SlotState::Due(at) => Some(at),
            _ => None,
        }
    }

    /// Whether it counts towards the number of streams; what has failed for good is not replaced.
    fn counts(&self) -> bool {
        !matches!(self.stream, SlotState::Retiring | SlotState::Free)
    }

    fn open(&self) -> Option<&Arc<StreamCounters>> {
        let counters = self.counters.get()?;
        (self.stream == SlotState::Running && counters.open.load(Ordering::Relaxed)).then_some(counters)
    }
}

pub(super) struct Supervisor<'a, C> {
    client: &'a Client<C>,
    routes: Vec<String>,
    side: Side,
    tasks: JoinSet<Ended>,
    slots: Vec<Slot>,
    /// How many streams are open.
    open: watch::Sender<u32>,
    ever_open: bool,
    /// The server has told how many streams it allows.
    accepted: bool,
    without_stream_since: Option<Instant>,
    last_error: Option<Error>,
    begun: Instant,
    count: StreamCount,
    /// Bytes moved at the last look, and since when it is so many.
    moved: (u64, Instant),
    /// When the shares of the streams were marked.
    shares_marked: Instant,
    next_look: Instant,
}

impl<'a, C: Connector> Supervisor<'a, C> {
    pub(super) fn new(client: &'a Client<C>, routes: Vec<String>, side: Side, count: StreamCount) -> Self {
        let now = Instant::now();
        Self {
            client,
            routes,
            side,
            tasks: JoinSet::new(),
            slots: Vec::new(),
            open: watch::Sender::new(0),
            ever_open: false,
            accepted: false,
            without_stream_since: None,
            last_error: None,
            begun: now,
            count,
            moved: (0, now),
            shares_marked: now,
            next_look: now,
        }
    }

    /// How many streams the destination turned out to need, where that showed.
    pub(super) fn streams_needed(&self) -> Option<u32> {
        self.count.needed()
    }

    pub(super) async fn supervise(&mut self) -> Result<JoinSet<()>, Error> {
        let mut closing = JoinSet::new();
        let mut opened = self.open.subscribe();
        let mut accepted = self.client.progress.max_streams();
        loop {
            if self.over() {
                return Ok(self.wind_down(closing).await);
            }
            let allowed = *accepted.borrow_and_update();
            self.accepted = allowed.is_some();
            if let Some(allowed) = allowed {
                self.count.at_most(allowed);
            }
            self.look();
            self.resize();
            self.start_due();
            if *opened.borrow_and_update() > 0 {
                self.ever_open = true;
                self.without_stream_since = None;
            } else {
                self.without_stream_since.get_or_insert_with(Instant::now);
                if self.hopeless() {
                    return Err(self.give_up());
                }
            }
            let wake = self.next_wake();
            tokio::select! {
                Some(ended) = self.tasks.join_next() => {
                    let Ok(mut ended) = ended else {
                        return Err(Error::StreamsLost("a stream's task failed on this side".into()));
                    };
                    if let Some(ended) = ended.closing.take() {
                        closing.spawn(async move { ended.join_all().await; });
                    }
                    self.ended(ended)?;
                }
                // The sender lives in here: it can't be gone.
                _ = opened.changed() => self.next_look = Instant::now(),
                _ = accepted.changed() => {}
                () = concluded(&self.side) => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// When there is something to do although nothing happens.
    fn next_wake(&self) -> Option<Instant> {
        let due = self.slots.iter().filter_map(Slot::due).min();
        let looks = !self.count.is_fixed() && (self.without_stream_since.is_none() || !self.ever_open);
        let look = looks.then_some(self.next_look);
        let alone = self
            .without_stream_since
            .filter(|_| self.ever_open)
            .map(|since| since + RECONNECT_TIMEOUT);
        [due, look, alone].into_iter().flatten().min()
    }

    /// Looks how the copy does, when that is due.
    fn look(&mut self) {
        let now = Instant::now();
        if self.count.is_fixed() || now < self.next_look {
            return;
        }
        let found = self.client.progress.bytes_found.load(Ordering::Relaxed);
        if found >= ALL_ROUTES_FROM_BYTES {
            self.count.at_least(self.routes.len());
        }
        let view = self.view();
        let before = self.count.wanted();
        self.count.observe(&view);
        if now.duration_since(self.shares_marked) >= SHARE_SPAN {
            self.shares_marked = now;
            for slot in &mut self.slots {
                slot.share.mark(slot.moved());
            }
        }
        let streams = self.count.wanted();
        if streams != before {
            tracing::debug!(
                streams,
                before,
                moved = view.moved,
                left = view.left,
                rtt = ?view.rtt,
                min_rtt = ?view.min_rtt,
                limit = ?view.sending.chief(),
                "another number of streams"
            );
        }
        if view.moved != self.moved.0 {
            self.moved = (view.moved, now);
        }
        let still = now.duration_since(self.moved.1) / LOOK_PAUSE_DIVISOR;
        self.next_look = now + still.clamp(MIN_LOOK_PAUSE, MAX_LOOK_PAUSE);
    }

    /// Adds slots, or retires streams, until there are as many as there should be.
    fn resize(&mut self) {
        let routes = self.routes.len().max(1);
        let most = match self.accepted {
            true => usize::MAX,
            false => routes.max(MAX_STREAMS_BEFORE_ACCEPT),
        };
        let wanted = self.count.wanted().min(most);
        let mut counting = self.slots.iter().filter(|slot| slot.counts()).count();
        while counting < wanted {
            match self.slots.iter_mut().find(|slot| slot.stream == SlotState::Free) {
                Some(free) => free.stream = SlotState::Due(Instant::now()),
                None => self.slots.push(Slot::new(self.slots.len() % routes)),
            }
            counting += 1;
        }
        while counting > wanted && self.retire_one() {
            counting -= 1;
        }
        // Before anything is open, a route that fails is replaced by the next one not tried yet.
        let tried = self.slots.len();
        if !self.ever_open && tried < routes && self.none_left() {
            self.slots.push(Slot::new(tried));
        }
    }

    /// Has the stream that carries least take no more work, of those that their route can do without: what it gives up the others take over
    /// soonest. Streams that still open are left alone until they are.
    fn retire_one(&mut self) -> bool {
        let shared = |slot: &Slot| {
            let same_route = |other: &&Slot| other.route == slot.route && other.open().is_some();
            slot.open().is_some() && self.slots.iter().filter(same_route).count() > 1
        };
        let slots = self.slots.iter().enumerate();
        let least = slots
            .filter(|(_, slot)| shared(slot))
            .min_by_key(|(number, slot)| (slot.share.of(slot.moved()), std::cmp::Reverse(*number)))
            .map(|(number, _)| number);
        let Some(slot) = least.and_then(|number| self.slots.get_mut(number)) else {
            return false;
        };
        if let Some(counters) = slot.open() {
            match &self.side {
                Side::Push(queue) => queue.retire(counters.number),
                Side::Pull(_) => counters.retire(),
            }
        }
        slot.stream = SlotState::Retiring;
        true
    }

    /// What the number of streams is decided by.
    fn view(&self) -> View {
        let progress = &self.client.progress;
        let done = progress.bytes_done.load(Ordering::Relaxed);
        let found = progress.bytes_found.load(Ordering::Relaxed);
        let is_told = found > 0 || progress.walk_complete.load(Ordering::Relaxed);
        let mut view = View {
            now: self.begun.elapsed(),
            left: found.saturating_sub(done),
            is_unopened: !self.ever_open && *self.open.borrow() == 0,
            is_size_unknown: !is_told && matches!(self.side, Side::Pull(_)),
            ..View::default()
        };
        let streams = progress.streams();
        let mut on_routes = BTreeMap::<&str, RouteRtt>::new();
        for stream in &streams {
            let ends = stream.ends();
            let here = &ends.here;
            view.moved = view.moved.saturating_add(here.moved);
            view.mss = view.mss.max(here.mss);
            let mut round_trips = (here.rtt, here.min_rtt);
            match self.side {
                Side::Push(_) => {
                    view.sending.merge(&here.tally);
                    view.lost = view.lost.saturating_add(here.retransmits.into());
                    view.loss_signs = view.lost;
                    view.congestion = here.congestion.as_str().parse::<CongestionControl>().ok();
                }
                Side::Pull(_) => {
                    view.sending.merge(&ends.there);
                    view.receiving.merge(&here.tally);
                    view.lost = view.lost.saturating_add(ends.retransmits_there.unwrap_or(0));
                    view.loss_signs = view.loss_signs.saturating_add(here.out_of_order.into());
                    // This end's own answers go through no queue of the data's, but what acknowledges them does: later news than
                    // the sending end's, and less of it.
                    if let Some(told) = ends.there.evidence() {
                        round_trips = (told.rtt.max(here.rtt), told.min_rtt.min(here.min_rtt));
                    }
                }
            }
            if !stream.open.load(Ordering::Relaxed) || here.rtt.is_zero() {
                continue;
            }
            view.open += 1;
            let route = on_routes.entry(&stream.route).or_default();
            route.add(round_trips.0, round_trips.1);
            view.largest_window = [view.largest_window, here.largest_window]
                .into_iter()
                .flatten()
                .min();
        }
        let RoundTrips { mean, least, queue } = RouteRtt::of_all(on_routes.into_values());
        View {
            rtt: mean,
            min_rtt: least,
            queue,
            ..view
        }
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.due().is_none_or(|at| at > now) {
                continue;
            }
            slot.stream = SlotState::Running;
            let mut hello = self.client.hello.clone();
            // A server that was started again has nothing of the copy: it is to offer what has arrived by now.
            if matches!(self.side, Side::Pull(_)) && slot.counters.get().is_some() {
                hello.offer.get_or_insert(self.client.compare);
            }
            let attempt = Attempt {
                connector: self.client.connector.clone(),
                route: slot.route,
                route_name: self.routes.get(slot.route).cloned().unwrap_or_default(),
                side: self.side.clone(),
                hello,
                progress: self.client.progress.clone(),
                observer: self.client.observer.clone(),
                counters: slot.counters.clone(),
                open: self.open.clone(),
            };
            self.tasks.spawn(attempt.run(number));
        }
    }

    fn over(&self) -> bool {
        match &self.side {
            Side::Push(queue) => queue.conclusion() == Some(true),
            Side::Pull(receiver) => receiver.conclusion().is_some(),
        }
    }

    /// No stream, and none to come.
    fn none_left(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| !slot.is_running() && slot.due().is_none())
    }

    /// No stream, and none to hope for.
    fn hopeless(&self) -> bool {
        let too_long = self
            .without_stream_since
            .is_some_and(|since| since.elapsed() >= RECONNECT_TIMEOUT);
        self.none_left() || (self.ever_open && too_long)
    }

    fn give_up(&mut self) -> Error {
        match self.last_error.take() {
            Some(Error::Connect(reason)) if self.ever_open => Error::StreamsLost(reason),
            Some(Error::Stream(error)) => Error::StreamsLost(error.to_string()),
            Some(error) => error,
            None => Error::StreamsLost("no stream came back in time".into()),
        }
    }

    fn ended(&mut self, ended: Ended) -> Result<(), Error> {
        let Some(slot) = self.slots.get_mut(ended.slot) else {
            return Ok(());
        };
        let retired = std::mem::replace(&mut slot.stream, SlotState::Free) == SlotState::Retiring;
        if ended.opened.is_some() {
            slot.failures = 0;
            self.ever_open = true;
        }
        let route = self.routes.get(slot.route).cloned().unwrap_or_default();
        let (error, retry) = match ended.result {
            Ok(StreamEnd::Finished) => return Ok(()),
            // What it still carried has gone back to the queue, whichever way it ended.
            Ok(StreamEnd::Closed) | Err(Lost::Stream(Error::Stream(_))) if retired => return Ok(()),
            Ok(StreamEnd::Closed) => (
                Error::StreamsLost(format!("the server closed the stream over route {route}")),
                true,
            ),
            Err(Lost::Stream(error @ (Error::Disagreement | Error::Forgotten))) => return Err(error),
            Err(Lost::Stream(Error::Stream(error))) => (
                Error::StreamsLost(format!("the stream over route {route} was lost: {error}")),
                true,
            ),
            Err(Lost::Stream(error)) => (error, false),
            Err(Lost::Connect(error)) => {
                let retry = error.retry && (self.ever_open || *self.open.borrow() > 0);
                let text = format!("route {route}: {}", error.message);
                (error.into_error(text), retry)
            }
        };
        let reason = error.to_string();
        self.client.observer.event(Event::StreamLost {
            stream: ended.opened,
            route,
            reason,
        });
        slot.stream = if retry {
            let pause = FIRST_RETRY_AFTER
                .saturating_mul(1 << slot.failures.min(8))
                .min(MAX_RETRY_PAUSE);
            slot.failures += 1;
            SlotState::Due(Instant::now() + pause)
        } else {
            SlotState::Failed
        };
        // What was said of who asks, or by the hop itself, tells more than a later echo.
        if !matches!(
            (&self.last_error, &error),
            (
                Some(Error::Connect(_) | Error::Unauthorised(_)),
                Error::StreamsLost(_)
            )
        ) {
            self.last_error = Some(error);
        }
        Ok(())
    }

    /// The copy is over: streams close by themselves; one that hangs on a dead path is left behind.
    async fn wind_down(&mut self, mut closing: JoinSet<()>) -> JoinSet<()> {
        let mut tasks = std::mem::take(&mut self.tasks);
        // Those that are open end at once, and what they counted belongs in the report.
        let open = async {
            while *self.open.borrow() > 0
                && let Some(ended) = tasks.join_next().await
            {
                if let Ok(Ended {
                    closing: Some(ended), ..
                }) = ended
                {
                    closing.spawn(async move {
                        ended.join_all().await;
                    });
                }
            }
        };
        let _ = timeout(REPORT_WAITS_FOR_STREAMS, open).await;
        closing.spawn(async move {
            let all = async {
                while let Some(ended) = tasks.join_next().await {
                    if let Ok(Ended {
                        closing: Some(closing),
                        ..
                    }) = ended
                    {
                        closing.join_all().await;
                    }
                }
            };
            let _ = timeout(CLOSE_TIMEOUT, all).await;
        });
        closing
    }
}

/// Resolves when a pull has all it asked for. A push that is over ends its streams, which is heard of.
async fn concluded(side: &Side) {
    match side {
        Side::Pull(receiver) => receiver.concluded().await,
        Side::Push(_) => std::future::pending().await,
    }
}
