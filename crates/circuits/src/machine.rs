//! States of a reservation, as the three state machines of the NSI Connection Service 2 (GFD.212,
//! section 5): reservation, provisioning and lifecycle. An event yields the new states and the
//! actions to take.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::time::{Moment, Window};

/// State of a reservation request, or of a change of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reserve {
    /// The initial state: no request is under way.
    Start,
    /// Admission is in progress.
    Checking,
    /// Bandwidth is held until it is committed, aborted, or times out.
    Held,
    /// The held bandwidth is being promised.
    Committing,
    /// There was not enough bandwidth.
    Failed,
    /// The hold expired before a commit.
    Timeout,
    /// The held bandwidth is being returned.
    Aborting,
}

/// State of the setup of a reservation's routes within its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provision {
    /// The routes are not set up.
    Released,
    /// The routes are to be set up.
    Provisioning,
    /// The routes are, or will be, set up.
    Provisioned,
    /// The routes are to be torn down.
    Releasing,
}

/// State in the lifecycle of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// The reservation is usable.
    Created,
    /// The reservation's routes failed.
    Failed,
    /// The reservation's window is over.
    PassedEndTime,
    /// The reservation is being terminated.
    Terminating,
    /// The reservation is terminated; nothing of it is left.
    Terminated,
}

/// Event in the life of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A reservation, or a change of one, is requested.
    Reserve,
    /// Bandwidth is available and held.
    ReserveConfirmed,
    /// Not enough bandwidth is available.
    ReserveFailed,
    /// The hold expired.
    HoldTimeout,
    /// The held bandwidth is to be promised.
    Commit,
    /// The held bandwidth is promised.
    CommitConfirmed,
    /// The held bandwidth could not be promised.
    CommitFailed,
    /// The held bandwidth is not wanted.
    Abort,
    /// The held bandwidth was returned.
    AbortConfirmed,
    /// Routes are wanted in the window.
    Provision,
    /// The routes are, or will be, set up.
    ProvisionConfirmed,
    /// The routes are not wanted for now.
    Release,
    /// The routes are torn down.
    ReleaseConfirmed,
    /// The routes failed permanently.
    ForcedEnd,
    /// The window ended.
    EndTime,
    /// The reservation is no longer wanted.
    Terminate,
    /// The termination is complete.
    TerminateConfirmed,
}

/// Action to take after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Look for bandwidth, and confirm or fail.
    Check,
    /// Hold the bandwidth until it times out.
    Hold,
    /// Promise the held bandwidth, and confirm.
    Commit,
    /// Return the held bandwidth.
    GiveBackHeld,
    /// Confirm that it was returned.
    ConfirmAbort,
    /// Report to the requester that the hold expired.
    ReportTimeout,
    /// Set up the routes when the window begins, and confirm.
    SetUp,
    /// Tear down the routes, and confirm.
    TearDown,
    /// Report the failure to the requester.
    ReportFailed,
    /// Tear down what is set up, and confirm the end.
    End,
    /// Return all promised bandwidth.
    GiveBackAll,
}

/// States of a reservation in its three state machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Machine {
    /// State of the reservation, or of a change of it.
    pub reserve: Reserve,
    /// Provisioning state. `None` before the first commit.
    pub provision: Option<Provision>,
    /// Lifecycle state.
    pub life: Life,
}

/// An event that the current states do not allow: read the states, and do what they allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "{event:?} can't be while the reservation is {reserve:?}, {provision:?}, {life:?}: ask for its \
    state, and do what that allows"
)]
pub struct NotNow {
    /// The event.
    pub event: Event,
    /// Reservation state.
    pub reserve: Reserve,
    /// Provisioning state.
    pub provision: Option<Provision>,
    /// Lifecycle state.
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
    /// Applies an event. Returns the new states and the actions to take.
    ///
    /// # Errors
    /// [`NotNow`] if the current states do not allow the event.
    pub fn on(mut self, event: Event) -> Result<(Self, Vec<Action>), NotNow> {
        let not_now = self.not_now(event);
        let actions = self.step(event).ok_or(not_now)?;
        Ok((self, actions))
    }

    /// Returns the error that these states do not allow an event.
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
        // Held bandwidth can be returned at any time; new bandwidth needs a reservation that is
        // alive.
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

    /// Returns true if the routes should carry traffic now.
    #[must_use]
    pub fn carries(&self, window: Window, now: Moment) -> bool {
        self.life == Life::Created
            && self.provision == Some(Provision::Provisioned)
            && window.holds(now)
    }
}
