//! The task that asks for the lock, over a connection that it keeps for that alone.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::election::{Election, Event, Standing};
use super::{Leader, Leadership};
use crate::store::leaders::Seat;
use crate::store::{Store, StoreError};

/// How often the server is asked by the one that leads.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// And by one that would: so soon another leads in place of one that was killed.
const TRY_INTERVAL: Duration = Duration::from_millis(300);
/// How long an answer may take: then the connection is given up, and with it all others.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub struct Candidate {
    store: Store,
    me: Leader,
    election: Election,
    leadership: watch::Sender<Leadership>,
    /// Who leads, as was read last.
    known: Option<Leader>,
    /// What was taken with the lock.
    epoch: i64,
    began: Instant,
}

impl Candidate {
    /// One for the store's lock, and what comes of it. `me` is reported to others when it leads.
    #[must_use]
    pub fn new(store: Store, me: Leader) -> (Self, watch::Receiver<Leadership>) {
        let first = match store.is_shared() {
            true => Leadership::Lost,
            false => Leadership::Alone,
        };
        let (leadership, receiver) = watch::channel(first);
        let this = Self {
            store,
            me,
            election: Election::default(),
            leadership,
            known: None,
            epoch: 0,
            began: Instant::now(),
        };
        (this, receiver)
    }

    /// Asks until `end` is true: then the lock is free at once. With a store of its own it leads,
    /// and asks nobody.
    pub async fn run(mut self, mut end: watch::Receiver<bool>) {
        if !self.store.is_shared() {
            let _ = end.wait_for(|end| *end).await;
            return;
        }
        let mut seat = None;
        tokio::select! {
            () = self.stand(&mut seat) => {}
            _ = end.wait_for(|end| *end) => {}
        }
        self.take(Event::Broken);
        if let Some(seat) = seat {
            let _ = timeout(ANSWER_TIMEOUT, seat.leave()).await;
        }
    }

    /// One connection after the other.
    async fn stand(&mut self, seat: &mut Option<Seat>) {
        loop {
            let next = Instant::now() + ASK_INTERVAL;
            match timeout(CONNECT_TIMEOUT, self.store.seat()).await {
                Ok(Ok(new)) => {
                    self.take(Event::Connected);
                    self.hold(seat.insert(new)).await;
                    *seat = None;
                    self.take(Event::Broken);
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the store does not answer: who leads is not known");
                }
                Err(_) => tracing::warn!("the store does not answer: who leads is not known"),
            }
            sleep_until(next).await;
        }
    }

    /// Asks over one connection, until it is of no use any more.
    async fn hold(&mut self, seat: &mut Seat) {
        loop {
            let (asked, sent) = (Instant::now(), self.now());
            // Whoever leads stops in time, answer or not.
            let mut by = asked + ANSWER_TIMEOUT;
            if let Standing::Leading { until, .. } = self.election.standing() {
                by = by.min(self.began + Duration::from_millis(until));
            }
            match timeout_at(by, self.ask(seat)).await {
                Ok(Ok(is_held)) => {
                    let event = match is_held {
                        true => Event::Held { sent },
                        false => Event::NotHeld,
                    };
                    if self.take(event) == Standing::Lost {
                        return;
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the connection to the store broke: who leads is not known");
                    return;
                }
                Err(_) => {
                    self.take(Event::Broken);
                    tracing::warn!(
                        "the store does not answer any more: connections to it are given up"
                    );
                    self.store.give_up();
                    return;
                }
            }
            let pause = match self.election.standing() {
                Standing::Leading { .. } => ASK_INTERVAL,
                Standing::Following | Standing::Lost => TRY_INTERVAL,
            };
            sleep_until(asked + pause).await;
        }
    }

    async fn ask(&mut self, seat: &mut Seat) -> Result<bool, StoreError> {
        if matches!(self.election.standing(), Standing::Leading { .. }) {
            return seat.is_held().await;
        }
        let (is_held, leader) = seat.ask().await?;
        if is_held {
            // Over the connection that has the lock: whoever has it no more takes and says nothing.
            self.epoch = seat.lead(&self.me).await?;
        }
        self.known = leader;
        Ok(is_held)
    }

    /// Takes what happened, and reports it to those who wait for it.
    fn take(&mut self, event: Event) -> Standing {
        let standing = self.election.take(event, self.now());
        let leadership = match standing {
            Standing::Leading { .. } => Leadership::Leading { epoch: self.epoch },
            Standing::Following => Leadership::Following {
                leader: self.known.clone(),
            },
            Standing::Lost => Leadership::Lost,
        };
        let was_leading = self.leadership.borrow().term().is_some();
        let is_new = self.leadership.send_if_modified(|known| {
            let is_new = *known != leadership;
            *known = leadership.clone();
            is_new
        });
        if is_new {
            match (&leadership, was_leading) {
                (Leadership::Leading { epoch }, _) => {
                    tracing::info!(epoch, "this controller leads from now on");
                }
                (_, true) => tracing::warn!("this controller leads no longer"),
                (
                    Leadership::Following {
                        leader: Some(leader),
                    },
                    false,
                ) => {
                    tracing::info!(leader = leader.name, "another controller leads");
                }
                _ => {}
            }
        }
        standing
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
