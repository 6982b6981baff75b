//! Supervises the streams of a copy: opens them, reopens lost ones, retires surplus ones, and
//! detects the end of the copy.
//!
//! The supervisor wakes when a stream opens or ends, or when a lost one is due again. Unless the
//! user fixed the number of streams, it also observes the copy: often while bytes move, seldom
//! while none do.
//!
//! | module | purpose |
//! |---|---|
//! | [`slot`] | a slot for one stream, and its state |
//! | [`number`] | the number of streams: opens and retires them |
//! | [`routes`] | the routes that streams may use, and the number on each |
//! | [`endings`] | handles streams that have ended, and the end of the copy |
//! | [`outage`] | detects outages, and limits the time of waiting |

mod endings;
mod number;
mod outage;
mod routes;
mod slot;

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::slot::{Slot, SlotState};
use super::attempt::{AttemptEnd, ClosingStream, StreamAttempt};
use super::joining::JoinPolicy;
use super::patience::OutageState;
use super::steering::RouteSteering;
use super::stream_count::{LearnedStreams, StreamCount};
use super::{Client, Connector, OPEN_TIMEOUT, RoutePlan, RunState};
use crate::error::Error;
use crate::half::Half;
use crate::route_info::RouteInfo;

/// Maximum number of streams that are lost before the server has accepted any. The server may crash
/// each time that it receives the request.
const MAX_UNACCEPTED_LOSSES: u32 = 10;

pub(super) struct Supervisor<'a, C> {
    client: &'a Client<C>,
    run: &'a mut RunState,
    routes: Vec<RouteInfo>,
    /// Routes in use, if these may change.
    plan: Option<watch::Receiver<RoutePlan>>,
    steering: Option<RouteSteering>,
    /// True if routes other than the direct one are worth opening, and the logic that decides it.
    spreads: bool,
    joining: JoinPolicy,
    /// True once the connector was told of random losses, or of those that may be unseen.
    told_of_losses: bool,
    half: Half,
    tasks: JoinSet<AttemptEnd>,
    slots: Vec<Slot>,
    /// Number of open streams.
    open: watch::Sender<u32>,
    /// Number of streams that are closed on this side, but not yet on the server's, which still
    /// counts them.
    leaving: watch::Sender<u32>,
    /// Time before which no stream is added to others, because the server refused a surplus one.
    no_more_before: Instant,
    ever_open: bool,
    /// True once the server has accepted a stream of this copy, and reported the maximum.
    accepted: bool,
    /// Number of streams that were lost before the server had accepted any.
    unaccepted_losses: u32,
    outlook: OutageState,
    /// Waiting time at the last observation, if the observer was told that the copy waits.
    reported_wait: Option<Duration>,
    next_outlook: Instant,
    without_stream_since: Option<Instant>,
    /// Streams that saw the end of the copy and are closing.
    finished: Vec<ClosingStream>,
    last_error: Option<Error>,
    begun: Instant,
    count: StreamCount,
    /// Bytes moved at the last observation, and the time since which they have not changed.
    moved: (u64, Instant),
    /// Time when the shares of the streams were marked.
    shares_marked: Instant,
    next_look: Instant,
}

impl<'a, C: Connector> Supervisor<'a, C> {
    pub(super) fn new(
        client: &'a Client<C>,
        run: &'a mut RunState,
        routes: Vec<RouteInfo>,
        half: Half,
        count: StreamCount,
    ) -> Self {
        let now = Instant::now();
        let plan = client.connector.plan();
        let ever_open = run.patience.was_established();
        Self {
            client,
            run,
            routes,
            steering: plan.as_ref().map(|_| RouteSteering::default()),
            plan,
            spreads: false,
            joining: JoinPolicy::default(),
            told_of_losses: false,
            half,
            tasks: JoinSet::new(),
            slots: Vec::new(),
            open: watch::Sender::new(0),
            leaving: watch::Sender::new(0),
            no_more_before: now,
            ever_open,
            accepted: false,
            unaccepted_losses: 0,
            outlook: OutageState::Opening,
            reported_wait: None,
            next_outlook: now,
            without_stream_since: None,
            finished: Vec::new(),
            last_error: None,
            begun: now,
            count,
            moved: (0, now),
            shares_marked: now,
            next_look: now,
        }
    }

    /// Returns the number of streams that the destination turned out to need, if that showed.
    pub(super) fn streams_needed(&self) -> Option<LearnedStreams> {
        self.count.needed()
    }

    pub(super) async fn supervise(&mut self) -> Result<JoinSet<()>, Error> {
        let mut opened = self.open.subscribe();
        let mut leaving = self.leaving.subscribe();
        let mut accepted = self.client.progress.terms();
        loop {
            if self.is_over() {
                self.report_silence(None);
                return Ok(self.wind_down().await);
            }
            let terms = *accepted.borrow_and_update();
            self.accepted = terms.is_some();
            if let Some(terms) = terms {
                self.count.lower_maximum(terms.max_streams);
                self.client.connector.on_accepted(terms.member);
            }
            self.check_outage();
            if let OutageState::Lost(outage) = self.outlook {
                return Err(self.outage_error(outage));
            }
            self.follow_plan();
            self.observe();
            self.steer();
            self.resize();
            self.start_due();
            if *opened.borrow_and_update() > 0 {
                self.ever_open = true;
                self.without_stream_since = None;
            } else {
                self.without_stream_since.get_or_insert_with(Instant::now);
                if self.is_hopeless() {
                    return Err(self.give_up());
                }
            }
            let wake = self.next_wake();
            tokio::select! {
                Some(ended) = self.tasks.join_next() => {
                    let ended = match ended {
                        Ok(ended) => ended,
                        // The stream was given up.
                        Err(error) if error.is_cancelled() => continue,
                        Err(_) => {
                            let why = "an internal task of a stream failed on this side";
                            return Err(Error::StreamsLost(why.into()));
                        }
                    };
                    self.handle_end(ended)?;
                }
                // `self` holds the sender, so it cannot be gone.
                _ = opened.changed() => self.next_look = Instant::now(),
                // `self` holds the sender, so it cannot be gone.
                _ = leaving.changed() => {}
                _ = accepted.changed() => {}
                () = plan_changed(&mut self.plan) => {}
                () = pull_concluded(&self.half) => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Ends the remaining streams of a copy that is given up.
    pub(super) async fn abandon(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Returns the time of the next action that no event triggers.
    fn next_wake(&self) -> Option<Instant> {
        let startable = self.slots.iter().filter(|slot| self.may_start(slot));
        let due = startable.filter_map(Slot::due).min();
        let has_streams = self.without_stream_since.is_none() || !self.ever_open;
        let looks = self.steering.is_some() || (!self.count.is_fixed() && has_streams);
        let look = looks.then_some(self.next_look);
        let alone = self
            .without_stream_since
            .filter(|_| !self.run.patience.was_established())
            .map(|since| since + OPEN_TIMEOUT)
            .filter(|at| *at > Instant::now());
        let outlook = Some(self.next_outlook);
        [due, look, alone, outlook].into_iter().flatten().min()
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        for number in 0..self.slots.len() {
            let is_due =
                |slot: &&Slot| slot.due().is_some_and(|at| at <= now) && self.may_start(slot);
            if self.slots.get(number).filter(is_due).is_none() {
                continue;
            }
            let Some(slot) = self.slots.get_mut(number) else {
                continue;
            };
            slot.stream = SlotState::Running;
            slot.attempts += 1;
            let attempt = StreamAttempt {
                connector: self.client.connector.clone(),
                route: slot.route,
                route_info: self.routes.get(slot.route).cloned().unwrap_or_default(),
                half: self.half.clone(),
                hello: self.run.hello.clone(),
                progress: self.client.progress.clone(),
                observer: self.client.observer.clone(),
                counters: slot.counters.clone(),
                open: self.open.clone(),
                number: slot.attempts,
                tokens: self.run.tokens.clone(),
            };
            slot.under_way = Some(self.tasks.spawn(attempt.run(number)));
        }
    }

    fn is_over(&self) -> bool {
        match &self.half {
            Half::Sending(queue) => queue.conclusion() == Some(true),
            Half::Receiving(receiver) => receiver.is_finished(),
        }
    }

    /// Returns true if no stream is running and none is due.
    fn has_no_stream_left(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| !slot.is_running() && slot.due().is_none())
    }

    /// Returns true if no stream is running and none can be expected.
    fn is_hopeless(&self) -> bool {
        // Others open once the server has closed those that leave.
        let none_left = self.has_no_stream_left() && *self.leaving.borrow() == 0;
        if self.run.patience.was_established() {
            return none_left && !self.awaits_routes();
        }
        let too_long = self
            .without_stream_since
            .is_some_and(|since| since.elapsed() >= OPEN_TIMEOUT);
        match too_long || self.unaccepted_losses >= MAX_UNACCEPTED_LOSSES {
            true => self.ever_open || none_left,
            false => none_left && !self.awaits_routes(),
        }
    }

    /// Returns true if a route that is still looked for may open although the others did not. A
    /// refusal by the server itself holds for every route.
    fn awaits_routes(&self) -> bool {
        let is_looked_for = self.plan.as_ref().is_some_and(|plan| plan.borrow().awaited);
        is_looked_for && matches!(self.last_error, Some(Error::Connect(_)))
    }

    fn give_up(&mut self) -> Error {
        match self.last_error.take() {
            Some(Error::Connect(reason)) if self.ever_open => Error::StreamsLost(reason),
            Some(Error::Stream(error)) => Error::StreamsLost(error.to_string()),
            Some(error) => error,
            None => Error::StreamsLost("no stream could be reopened in time".into()),
        }
    }
}

/// Waits until the plan has changed. Never resolves without a plan.
async fn plan_changed(plan: &mut Option<watch::Receiver<RoutePlan>>) {
    if let Some(followed) = plan {
        if followed.changed().await.is_ok() {
            return;
        }
        // The sender is gone, so the plan no longer changes.
        *plan = None;
    }
    std::future::pending().await
}

/// Waits until a pull has received everything. A push needs no such signal, as its streams end.
async fn pull_concluded(half: &Half) {
    match half {
        Half::Receiving(receiver) => receiver.wait_finished().await,
        Half::Sending(_) => std::future::pending().await,
    }
}
