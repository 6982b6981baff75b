//! States of a reservation, as the three state machines of the NSI Connection Service 2 (GFD.212,
//! section 5): reservation, provisioning and lifecycle. An event yields the new states and the
//! actions to take.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::time::{MomentMs, Window};

pub use longhaul_reservation_terms::{LifeState, ProvisionState, ReserveState};

/// Event in the life of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationEvent {
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
pub enum ReservationAction {
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
pub struct ReservationMachine {
    /// State of the reservation, or of a change of it.
    pub reserve: ReserveState,
    /// Provisioning state. `None` before the first commit.
    pub provision: Option<ProvisionState>,
    /// Lifecycle state.
    pub life: LifeState,
}

/// An event that the current states do not allow: read the states, and do what they allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "{event:?} is not possible while the reservation is {reserve:?}, {provision:?}, {life:?}: look \
     at its state first"
)]
pub struct InvalidTransition {
    /// The event.
    pub event: ReservationEvent,
    /// Reservation state.
    pub reserve: ReserveState,
    /// Provisioning state.
    pub provision: Option<ProvisionState>,
    /// Lifecycle state.
    pub life: LifeState,
}

impl Default for ReservationMachine {
    fn default() -> Self {
        Self {
            reserve: ReserveState::Start,
            provision: None,
            life: LifeState::Created,
        }
    }
}

impl ReservationMachine {
    /// Applies an event. Returns the new states and the actions to take.
    ///
    /// # Errors
    /// [`InvalidTransition`] if the current states do not allow the event.
    pub fn apply(
        mut self,
        event: ReservationEvent,
    ) -> Result<(Self, Vec<ReservationAction>), InvalidTransition> {
        let not_now = self.invalid_transition(event);
        let actions = self.step(event).ok_or(not_now)?;
        Ok((self, actions))
    }

    /// Returns the error that these states do not allow an event.
    pub(crate) const fn invalid_transition(self, event: ReservationEvent) -> InvalidTransition {
        InvalidTransition {
            event,
            reserve: self.reserve,
            provision: self.provision,
            life: self.life,
        }
    }

    fn step(&mut self, event: ReservationEvent) -> Option<Vec<ReservationAction>> {
        use ReservationEvent as E;
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
            E::ForcedEnd | E::EndTime | E::Terminate | E::TerminateConfirmed => {
                self.lifecycle(event)
            }
        }
    }

    fn reserve(&mut self, event: ReservationEvent) -> Option<Vec<ReservationAction>> {
        use ReserveState as R;
        // Held bandwidth can be returned at any time; new bandwidth needs a reservation that is
        // alive.
        let giving_back = matches!(
            event,
            ReservationEvent::Abort
                | ReservationEvent::AbortConfirmed
                | ReservationEvent::HoldTimeout
        );
        if self.life != LifeState::Created && !giving_back {
            return None;
        }
        let (next, actions) = match (self.reserve, event) {
            (R::Start, ReservationEvent::Reserve) => (R::Checking, vec![ReservationAction::Check]),
            (R::Checking, ReservationEvent::ReserveConfirmed) => {
                (R::Held, vec![ReservationAction::Hold])
            }
            (R::Checking, ReservationEvent::ReserveFailed) => (R::Failed, vec![]),
            (R::Held, ReservationEvent::HoldTimeout) => (
                R::Timeout,
                vec![
                    ReservationAction::GiveBackHeld,
                    ReservationAction::ReportTimeout,
                ],
            ),
            (R::Held, ReservationEvent::Commit) => (R::Committing, vec![ReservationAction::Commit]),
            (R::Held, ReservationEvent::Abort) => (
                R::Aborting,
                vec![
                    ReservationAction::GiveBackHeld,
                    ReservationAction::ConfirmAbort,
                ],
            ),
            (R::Failed | R::Timeout, ReservationEvent::Abort) => {
                (R::Aborting, vec![ReservationAction::ConfirmAbort])
            }
            (R::Aborting, ReservationEvent::AbortConfirmed) => (R::Start, vec![]),
            (R::Committing, ReservationEvent::CommitFailed) => {
                (R::Start, vec![ReservationAction::GiveBackHeld])
            }
            (R::Committing, ReservationEvent::CommitConfirmed) => {
                self.provision = self.provision.or(Some(ProvisionState::Released));
                (R::Start, vec![])
            }
            _ => return None,
        };
        self.reserve = next;
        Some(actions)
    }

    fn provision(&mut self, event: ReservationEvent) -> Option<Vec<ReservationAction>> {
        use ProvisionState as P;
        let confirms = matches!(
            event,
            ReservationEvent::ProvisionConfirmed | ReservationEvent::ReleaseConfirmed
        );
        if self.life != LifeState::Created && !confirms {
            return None;
        }
        let (next, actions) = match (self.provision?, event) {
            (P::Released, ReservationEvent::Provision) => {
                (P::Provisioning, vec![ReservationAction::SetUp])
            }
            (P::Provisioning, ReservationEvent::ProvisionConfirmed) => (P::Provisioned, vec![]),
            (P::Provisioned, ReservationEvent::Release) => {
                (P::Releasing, vec![ReservationAction::TearDown])
            }
            (P::Releasing, ReservationEvent::ReleaseConfirmed) => (P::Released, vec![]),
            _ => return None,
        };
        self.provision = Some(next);
        Some(actions)
    }

    fn lifecycle(&mut self, event: ReservationEvent) -> Option<Vec<ReservationAction>> {
        let (next, actions) = match (self.life, event) {
            (LifeState::Created, ReservationEvent::ForcedEnd) => {
                (LifeState::Failed, vec![ReservationAction::ReportFailed])
            }
            (LifeState::Created, ReservationEvent::EndTime) => {
                let up = matches!(
                    self.provision,
                    Some(ProvisionState::Provisioning | ProvisionState::Provisioned)
                );
                (
                    LifeState::PassedEndTime,
                    if up {
                        vec![ReservationAction::TearDown]
                    } else {
                        vec![]
                    },
                )
            }
            (
                LifeState::Created | LifeState::Failed | LifeState::PassedEndTime,
                ReservationEvent::Terminate,
            ) => (LifeState::Terminating, vec![ReservationAction::End]),
            (LifeState::Terminating, ReservationEvent::TerminateConfirmed) => {
                let held = matches!(self.reserve, ReserveState::Held | ReserveState::Committing);
                self.reserve = ReserveState::Start;
                self.provision = self.provision.map(|_| ProvisionState::Released);
                let mut actions = if held {
                    vec![ReservationAction::GiveBackHeld]
                } else {
                    vec![]
                };
                actions.push(ReservationAction::GiveBackAll);
                (LifeState::Terminated, actions)
            }
            _ => return None,
        };
        self.life = next;
        Some(actions)
    }

    /// Returns true if the routes should carry traffic now.
    #[must_use]
    pub fn carries_traffic(&self, window: Window, now: MomentMs) -> bool {
        self.life == LifeState::Created
            && self.provision == Some(ProvisionState::Provisioned)
            && window.contains(now)
    }
}
