//! The states of a reservation: three machines, as the NSI Connection Service 2 has them (GFD.212,
//! section 5): whether it is reserved, whether it is provisioned, and its life. An event in; the
//! new states and what is to be done out.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::time::{Moment, Window};

/// Where a reservation, or a change of one, stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reserve {
    /// Nothing is under way.
    Start,
    /// It is looked whether there is room.
    Checking,
    /// Room is held until it is committed, aborted, or too late.
    Held,
    /// What is held is being made what is promised.
    Committing,
    /// There was no room.
    Failed,
    /// It was committed too late, or never.
    Timeout,
    /// What was held is being given back.
    Aborting,
}

/// Whether a reservation's routes are set up in its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provision {
    /// They aren't.
    Released,
    /// They are to be.
    Provisioning,
    /// They are.
    Provisioned,
    /// They are to be no more.
    Releasing,
}

/// Where the life of a reservation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// It can be used.
    Created,
    /// What carries it failed.
    Failed,
    /// Its window is over.
    PassedEndTime,
    /// It is being ended.
    Terminating,
    /// It is ended: nothing of it is left.
    Terminated,
}

/// What happens to a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It is asked for, or a change of it is.
    Reserve,
    /// There is room, which is held.
    ReserveConfirmed,
    /// There is no room.
    ReserveFailed,
    /// It was held for as long as was said.
    HoldTimeout,
    /// What is held is taken.
    Commit,
    /// It is promised.
    CommitConfirmed,
    /// It could not be promised.
    CommitFailed,
    /// What is held is not wanted.
    Abort,
    /// It was given back.
    AbortConfirmed,
    /// Its routes are wanted in its window.
    Provision,
    /// They are, or will be, set up.
    ProvisionConfirmed,
    /// Its routes are not wanted for now.
    Release,
    /// They are torn down.
    ReleaseConfirmed,
    /// What carries it failed for good.
    ForcedEnd,
    /// Its window ended.
    EndTime,
    /// It is not wanted any more.
    Terminate,
    /// Nothing of it is left.
    TerminateConfirmed,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Look for room, and confirm or fail.
    Check,
    /// Hold what was found, and let it time out.
    Hold,
    /// Make what is held what is promised, and confirm.
    Commit,
    /// Give back what is held.
    GiveBackHeld,
    /// Confirm that it was given back.
    ConfirmAbort,
    /// Report to whoever asked that it was held for too long.
    ReportTimeout,
    /// Set the routes up when the window begins, and confirm.
    SetUp,
    /// Tear the routes down, and confirm.
    TearDown,
    /// Report to whoever asked that it failed.
    ReportFailed,
    /// Tear down what is set up, and confirm the end.
    End,
    /// Give back all that is promised.
    GiveBackAll,
}

/// The states of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Machine {
    /// Whether it, or a change of it, is reserved.
    pub reserve: Reserve,
    /// Whether it is provisioned; none before it was committed once.
    pub provision: Option<Provision>,
    /// Its life.
    pub life: Life,
}

/// An event that its state has no place for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "{event:?} can't be while the reservation is {reserve:?}, {provision:?}, {life:?}: ask for its state, and do what that allows"
)]
pub struct NotNow {
    /// What happened.
    pub event: Event,
    /// Whether it was reserved.
    pub reserve: Reserve,
    /// Whether it was provisioned.
    pub provision: Option<Provision>,
    /// Its life.
    pub life: Life,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            reserve: Reserve::Start,
            provision: None,
            life: Life::Created,
        }
    }
}

impl Machine {
    /// The states behind an event, and what is to be done.
    ///
    /// # Errors
    /// [`NotNow`], with the states as they were.
    pub fn on(mut self, event: Event) -> Result<(Self, Vec<Action>), NotNow> {
        let not_now = self.not_now(event);
        let actions = self.step(event).ok_or(not_now)?;
        Ok((self, actions))
    }

    /// That these states have no place for an event.
    pub(crate) const fn not_now(self, event: Event) -> NotNow {
        NotNow {
            event,
            reserve: self.reserve,
            provision: self.provision,
            life: self.life,
        }
    }

    fn step(&mut self, event: Event) -> Option<Vec<Action>> {
        use Event as E;
        match event {
            E::Reserve
            | E::ReserveConfirmed
            | E::ReserveFailed
            | E::HoldTimeout
            | E::Commit
            | E::CommitConfirmed
            | E::CommitFailed
            | E::Abort
            | E::AbortConfirmed => self.reserve(event),
            E::Provision | E::ProvisionConfirmed | E::Release | E::ReleaseConfirmed => {
                self.provision(event)
            }
            E::ForcedEnd | E::EndTime | E::Terminate | E::TerminateConfirmed => self.live(event),
        }
    }

    fn reserve(&mut self, event: Event) -> Option<Vec<Action>> {
        use Reserve as R;
        // What was held can be given back at any time; new room only in a life that goes on.
        let giving_back = matches!(
            event,
            Event::Abort | Event::AbortConfirmed | Event::HoldTimeout
        );
        if self.life != Life::Created && !giving_back {
            return None;
        }
        let (next, actions) = match (self.reserve, event) {
            (R::Start, Event::Reserve) => (R::Checking, vec![Action::Check]),
            (R::Checking, Event::ReserveConfirmed) => (R::Held, vec![Action::Hold]),
            (R::Checking, Event::ReserveFailed) => (R::Failed, vec![]),
            (R::Held, Event::HoldTimeout) => (
                R::Timeout,
                vec![Action::GiveBackHeld, Action::ReportTimeout],
            ),
            (R::Held, Event::Commit) => (R::Committing, vec![Action::Commit]),
            (R::Held, Event::Abort) => (
                R::Aborting,
                vec![Action::GiveBackHeld, Action::ConfirmAbort],
            ),
            (R::Failed | R::Timeout, Event::Abort) => (R::Aborting, vec![Action::ConfirmAbort]),
            (R::Aborting, Event::AbortConfirmed) => (R::Start, vec![]),
            (R::Committing, Event::CommitFailed) => (R::Start, vec![Action::GiveBackHeld]),
            (R::Committing, Event::CommitConfirmed) => {
                self.provision = self.provision.or(Some(Provision::Released));
                (R::Start, vec![])
            }
            _ => return None,
        };
        self.reserve = next;
        Some(actions)
    }

    fn provision(&mut self, event: Event) -> Option<Vec<Action>> {
        use Provision as P;
        let confirms = matches!(event, Event::ProvisionConfirmed | Event::ReleaseConfirmed);
        if self.life != Life::Created && !confirms {
            return None;
        }
        let (next, actions) = match (self.provision?, event) {
            (P::Released, Event::Provision) => (P::Provisioning, vec![Action::SetUp]),
            (P::Provisioning, Event::ProvisionConfirmed) => (P::Provisioned, vec![]),
            (P::Provisioned, Event::Release) => (P::Releasing, vec![Action::TearDown]),
            (P::Releasing, Event::ReleaseConfirmed) => (P::Released, vec![]),
            _ => return None,
        };
        self.provision = Some(next);
        Some(actions)
    }

    fn live(&mut self, event: Event) -> Option<Vec<Action>> {
        let (next, actions) = match (self.life, event) {
            (Life::Created, Event::ForcedEnd) => (Life::Failed, vec![Action::ReportFailed]),
            (Life::Created, Event::EndTime) => {
                let up = matches!(
                    self.provision,
                    Some(Provision::Provisioning | Provision::Provisioned)
                );
                (
                    Life::PassedEndTime,
                    if up { vec![Action::TearDown] } else { vec![] },
                )
            }
            (Life::Created | Life::Failed | Life::PassedEndTime, Event::Terminate) => {
                (Life::Terminating, vec![Action::End])
            }
            (Life::Terminating, Event::TerminateConfirmed) => {
                let held = matches!(self.reserve, Reserve::Held | Reserve::Committing);
                self.reserve = Reserve::Start;
                self.provision = self.provision.map(|_| Provision::Released);
                let mut actions = if held {
                    vec![Action::GiveBackHeld]
                } else {
                    vec![]
                };
                actions.push(Action::GiveBackAll);
                (Life::Terminated, actions)
            }
            _ => return None,
        };
        self.life = next;
        Some(actions)
    }

    /// Whether its routes are to carry something now.
    #[must_use]
    pub fn carries(&self, window: Window, now: Moment) -> bool {
        self.life == Life::Created
            && self.provision == Some(Provision::Provisioned)
            && window.holds(now)
    }
}
