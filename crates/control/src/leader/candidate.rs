//! The task that requests the lock, over a connection used only for that.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::election::{Election, ElectionEvent, ElectionState};
use super::{Leader, Leadership};
use crate::store::leaders::LockSession;
use crate::store::{ControllerStore, StoreError};

/// Interval between requests of the leader.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between requests of the others, which bounds the time until a killed leader is
/// replaced.
const TRY_INTERVAL: Duration = Duration::from_millis(300);
/// Maximum wait for an answer; then all connections are abandoned.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Candidate for the lead.
#[derive(Debug)]
pub struct Candidate {
    store: ControllerStore,
    me: Leader,
    election: Election,
    leadership: watch::Sender<Leadership>,
    /// Leader, as last read from the store.
    known: Option<Leader>,
    /// Epoch that was taken with the lock.
    epoch: i64,
    began: Instant,
}

impl Candidate {
    /// Creates a candidate, and the receiver of its leadership. `me` is shown to others while it
    /// leads.
    #[must_use]
    pub fn new(store: ControllerStore, me: Leader) -> (Self, watch::Receiver<Leadership>) {
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

    /// Requests the lock until `end` is true, then releases it. With a store of its own, it leads
    /// without requests.
    pub async fn run(mut self, mut end: watch::Receiver<bool>) {
        if !self.store.is_shared() {
            let _ = end.wait_for(|end| *end).await;
            return;
        }
        let mut seat = None;
        tokio::select! {
            () = self.campaign(&mut seat) => {}
            _ = end.wait_for(|end| *end) => {}
        }
        self.handle_event(ElectionEvent::Broken);
        if let Some(seat) = seat {
            let _ = timeout(ANSWER_TIMEOUT, seat.leave()).await;
        }
    }

    /// Opens one connection after another.
    async fn campaign(&mut self, seat: &mut Option<LockSession>) {
        loop {
            let next = Instant::now() + ASK_INTERVAL;
            match timeout(CONNECT_TIMEOUT, self.store.seat()).await {
                Ok(Ok(new)) => {
                    self.handle_event(ElectionEvent::Connected);
                    self.hold_seat(seat.insert(new)).await;
                    *seat = None;
                    self.handle_event(ElectionEvent::Broken);
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the store does not answer: the leader is not known");
                }
                Err(_) => tracing::warn!("the store does not answer: the leader is not known"),
            }
            sleep_until(next).await;
        }
    }

    /// Requests the lock over one connection until that fails.
    async fn hold_seat(&mut self, seat: &mut LockSession) {
        loop {
            let (asked, sent) = (Instant::now(), self.now());
            // A leader stops in time, with or without an answer.
            let mut by = asked + ANSWER_TIMEOUT;
            if let ElectionState::Leading { until, .. } = self.election.standing() {
                by = by.min(self.began + Duration::from_millis(until));
            }
            match timeout_at(by, self.ask(seat)).await {
                Ok(Ok(is_held)) => {
                    let event = match is_held {
                        true => ElectionEvent::Held { sent },
                        false => ElectionEvent::NotHeld,
                    };
                    if self.handle_event(event) == ElectionState::Lost {
                        return;
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(
                        %error,
                        "the connection to the store broke: the leader is not known"
                    );
                    return;
                }
                Err(_) => {
                    self.handle_event(ElectionEvent::Broken);
                    tracing::warn!("the store no longer answers: closing the connections to it");
                    self.store.give_up();
                    return;
                }
            }
            let pause = match self.election.standing() {
                ElectionState::Leading { .. } => ASK_INTERVAL,
                ElectionState::Following | ElectionState::Lost => TRY_INTERVAL,
            };
            sleep_until(asked + pause).await;
        }
    }

    async fn ask(&mut self, seat: &mut LockSession) -> Result<bool, StoreError> {
        if matches!(self.election.standing(), ElectionState::Leading { .. }) {
            return seat.is_held().await;
        }
        let (is_held, leader) = seat.ask().await?;
        if is_held {
            // Over the connection with the lock, so a controller that has lost it changes nothing.
            self.epoch = seat.lead(&self.me).await?;
        }
        self.known = leader;
        Ok(is_held)
    }

    /// Processes an event, and publishes the resulting leadership.
    fn handle_event(&mut self, event: ElectionEvent) -> ElectionState {
        let standing = self.election.handle_event(event, self.now());
        let leadership = match standing {
            ElectionState::Leading { .. } => Leadership::Leading { epoch: self.epoch },
            ElectionState::Following => Leadership::Following {
                leader: self.known.clone(),
            },
            ElectionState::Lost => Leadership::Lost,
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
                    tracing::info!(epoch, "this controller is now the leader");
                }
                (_, true) => tracing::warn!("this controller is no longer the leader"),
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
