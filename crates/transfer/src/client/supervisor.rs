//! Keeps the streams of a copy going: opens them, opens lost ones again, retires those that are too
//! many, and knows when it is over.
//!
//! It wakes when a stream opens or ends, when a lost one is due again, and, unless the user gave
//! the number of streams, to see how the copy does: often while bytes move, seldom while nothing
//! does.
//!
//! | room | what it does |
//! |---|---|
//! | [`slot`] | a place for one stream, and how that stands |
//! | [`number`] | how many streams there are: opens and retires them |
//! | [`routes`] | which routes they may go over, and how many over each |
//! | [`endings`] | what becomes of a stream that has ended, and of all when the copy is over |
//! | [`outage`] | whether the copy is carried, and how long it waits if it is not |

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
use super::attempt::{Attempt, Closing, Ended};
use super::joining::Joining;
use super::patience::Outlook;
use super::steering::Steering;
use super::stream_count::StreamCount;
use super::{Client, Connector, LearnedStreams, OPEN_TIMEOUT, RoutePlan, Run, Side};
use crate::error::Error;

/// Streams that may be lost before the server has accepted any: it may crash each time that it
/// hears of the copy.
const MAX_UNACCEPTED_LOSSES: u32 = 10;

pub(super) struct Supervisor<'a, C> {
    client: &'a Client<C>,
    run: &'a mut Run,
    routes: Vec<String>,
    /// Which routes are used, where that may change.
    plan: Option<watch::Receiver<RoutePlan>>,
    steering: Option<Steering>,
    /// Whether it is worth opening more than the direct route, and what says so.
    spreads: bool,
    joining: Joining,
    side: Side,
    tasks: JoinSet<Ended>,
    slots: Vec<Slot>,
    /// How many streams are open.
    open: watch::Sender<u32>,
    /// How many are closed on this side, and not yet on the server's: it counts them still.
    leaving: watch::Sender<u32>,
    /// The server has refused one that was too many: none is added before this.
    no_more_before: Instant,
    ever_open: bool,
    /// The server has accepted a stream of this copy, and reported how many it allows.
    accepted: bool,
    /// Streams that were lost before the server had accepted any.
    unaccepted_losses: u32,
    outlook: Outlook,
    /// The observer was told that the copy waits, and for how long it had at the last look.
    reported_wait: Option<Duration>,
    next_outlook: Instant,
    without_stream_since: Option<Instant>,
    /// Streams that saw the end of the copy, and close.
    finished: Vec<Closing>,
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
    pub(super) fn new(
        client: &'a Client<C>,
        run: &'a mut Run,
        routes: Vec<String>,
        side: Side,
        count: StreamCount,
    ) -> Self {
        let now = Instant::now();
        let plan = client.connector.plan();
        let ever_open = run.patience.has_stood();
        Self {
            client,
            run,
            routes,
            steering: plan.as_ref().map(|_| Steering::default()),
            plan,
            spreads: false,
            joining: Joining::default(),
            side,
            tasks: JoinSet::new(),
            slots: Vec::new(),
            open: watch::Sender::new(0),
            leaving: watch::Sender::new(0),
            no_more_before: now,
            ever_open,
            accepted: false,
            unaccepted_losses: 0,
            outlook: Outlook::Opening,
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

    /// How many streams the destination turned out to need, where that showed.
    pub(super) fn streams_needed(&self) -> Option<LearnedStreams> {
        self.count.needed()
    }

    pub(super) async fn supervise(&mut self) -> Result<JoinSet<()>, Error> {
        let mut opened = self.open.subscribe();
        let mut leaving = self.leaving.subscribe();
        let mut accepted = self.client.progress.max_streams();
        loop {
            if self.over() {
                self.report_silence(None);
                return Ok(self.wind_down().await);
            }
            let allowed = *accepted.borrow_and_update();
            self.accepted = allowed.is_some();
            if let Some(allowed) = allowed {
                self.count.at_most(allowed);
            }
            self.look_for_outage();
            if let Outlook::Lost(outage) = self.outlook {
                return Err(self.lose_patience(outage));
            }
            self.follow_plan();
            self.look();
            self.steer();
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
                    let ended = match ended {
                        Ok(ended) => ended,
                        // It was given up.
                        Err(error) if error.is_cancelled() => continue,
                        Err(_) => return Err(Error::StreamsLost("a stream's task failed on this side".into())),
                    };
                    self.ended(ended)?;
                }
                // The sender lives in here: it can't be gone.
                _ = opened.changed() => self.next_look = Instant::now(),
                // The sender lives in here: it can't be gone.
                _ = leaving.changed() => {}
                _ = accepted.changed() => {}
                () = changed(&mut self.plan) => {}
                () = concluded(&self.side) => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Ends what is left of the streams of a copy that is given up.
    pub(super) async fn abandon(&mut self) {
        self.tasks.shutdown().await;
    }

    /// When there is something to do although nothing happens.
    fn next_wake(&self) -> Option<Instant> {
        let startable = self.slots.iter().filter(|slot| self.may_start(slot));
        let due = startable.filter_map(Slot::due).min();
        let has_streams = self.without_stream_since.is_none() || !self.ever_open;
        let looks = self.steering.is_some() || (!self.count.is_fixed() && has_streams);
        let look = looks.then_some(self.next_look);
        let alone = self
            .without_stream_since
            .filter(|_| !self.run.patience.has_stood())
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
            let attempt = Attempt {
                connector: self.client.connector.clone(),
                route: slot.route,
                route_name: self.routes.get(slot.route).cloned().unwrap_or_default(),
                side: self.side.clone(),
                hello: self.run.hello.clone(),
                progress: self.client.progress.clone(),
                observer: self.client.observer.clone(),
                counters: slot.counters.clone(),
                open: self.open.clone(),
                number: slot.attempts,
            };
            slot.under_way = Some(self.tasks.spawn(attempt.run(number)));
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
        let none_left = self.none_left();
        if self.run.patience.has_stood() {
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

    /// Whether a route that is still looked for may open where none did. What the server itself
    /// refused, it refuses over any.
    fn awaits_routes(&self) -> bool {
        let is_looked_for = self.plan.as_ref().is_some_and(|plan| plan.borrow().awaited);
        is_looked_for && matches!(self.last_error, Some(Error::Connect(_)))
    }

    fn give_up(&mut self) -> Error {
        match self.last_error.take() {
            Some(Error::Connect(reason)) if self.ever_open => Error::StreamsLost(reason),
            Some(Error::Stream(error)) => Error::StreamsLost(error.to_string()),
            Some(error) => error,
            None => Error::StreamsLost("no stream came back in time".into()),
        }
    }
}

/// Resolves when the plan has changed, where there is one that may.
async fn changed(plan: &mut Option<watch::Receiver<RoutePlan>>) {
    if let Some(followed) = plan {
        if followed.changed().await.is_ok() {
            return;
        }
        // Nobody is left who would change it.
        *plan = None;
    }
    std::future::pending().await
}

/// Resolves when a pull has all it asked for. A push that is over ends its streams, which shows it.
async fn concluded(side: &Side) {
    match side {
        Side::Pull(receiver) => receiver.concluded().await,
        Side::Push(_) => std::future::pending().await,
    }
}
