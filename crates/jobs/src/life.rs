//! The life of one job: a state machine.
//!
//! ```text
//!                 claim                    ended: done
//!      queued ───────────────> running ──────────────────> done
//!       ^  ^                    │ │ │      ended: failed
//!       │  └── lease expired ───┘ │ └────────────────────> failed ──┐
//!       │                         │ ended: broke off          ^      │ retry
//!       │<──── due ── waiting <───┘ ── too often in vain ─────┘      │
//!       └────────────────────────────────────────────────────────────┘
//! ```
//!
//! Pausing and cancelling work from every state that is not an end. A job that runs is asked to
//! stop first ([`Wish`]): it is paused or cancelled when it has. A job that is split begins in
//! another state, in which its parts are worked on: [`crate::split`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::retry::RetryPolicy;

/// Milliseconds since the Unix epoch.
pub type Moment = i64;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = JobState)]
pub enum State {
    /// It runs as soon as it is its turn, and it is due.
    Queued,
    /// Its parts, which are jobs of their own, are worked on; it runs itself when none is left.
    Split,
    /// An agent holds its lease and carries it out.
    Running,
    /// Somebody wanted it to rest.
    Paused,
    /// It broke off, and is tried again when it is due.
    Waiting,
    /// All was copied.
    Done,
    /// It ended with an error that trying again does not mend, or was tried in vain too often.
    Failed,
    /// Somebody did not want it any more.
    Cancelled,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Split,
        Self::Running,
        Self::Paused,
        Self::Waiting,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// In one word, as it is stored and shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Split => "split",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether nothing happens to it any more unless somebody asks.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// What is wanted of a job that runs, or whose parts do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// That it goes on.
    Run,
    /// That it stops, and rests until it is resumed.
    Pause,
    /// That it stops for good.
    Cancel,
}

impl Wish {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Run, Self::Pause, Self::Cancel];

    /// In one word, as it is stored and shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Pause => "pause",
            Self::Cancel => "cancel",
        }
    }

    /// The wish of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wish| wish.word() == word)
    }
}

/// Until when a job that runs is one agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// From then on it may be taken to be dead.
    pub until: Moment,
    /// The number of this lease among those of the job: what is said under an older one is refused.
    pub fence: i64,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All was copied.
    Done,
    /// Trying again does not mend it.
    Failed,
    /// It broke off; it may go on another time.
    BrokeOff {
        /// It copied something before that.
        advanced: bool,
    },
    /// It was stopped, because somebody wanted that or because its agent ends.
    Stopped,
}

/// What happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An agent takes it, until then.
    Claim {
        /// The end of its lease.
        until: Moment,
    },
    /// Its agent is alive.
    Renew {
        /// Of the agent's lease.
        fence: i64,
        /// The new end of its lease.
        until: Moment,
    },
    /// Its attempt ended.
    Ended {
        /// Of the agent's lease.
        fence: i64,
        /// How.
        end: End,
    },
    /// Its agent is gone.
    Lost {
        /// Known to be, although its lease has not run out.
        known: bool,
    },
    /// Somebody wants it to rest.
    Pause,
    /// Somebody wants it to go on.
    Resume,
    /// Somebody does not want it any more.
    Cancel,
    /// Somebody wants it to be tried again, now.
    Retry,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The state does not allow it.
    #[error("the job is {}", .0.word())]
    State(State),
    /// It is not due yet.
    #[error("the job is not due yet")]
    NotDue,
    /// Another agent has had the job since.
    #[error("another agent has had the job since")]
    Stale,
    /// The lease has not run out.
    #[error("the job's agent is alive")]
    Held,
}

/// A job's place in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// Where it stands.
    pub state: State,
    /// What is wanted of it while it runs or its parts do; [`Wish::Run`] otherwise.
    pub wish: Wish,
    /// It does not begin before this.
    pub due: Moment,
    /// Attempts that were begun.
    pub attempts: u32,
    /// Of the last ones, those in a row that copied nothing before they broke off.
    pub in_vain: u32,
    /// While it runs.
    pub lease: Option<Lease>,
    /// Leases that there have been.
    pub fence: i64,
}

impl Life {
    /// That of a new job.
    pub fn new(due: Moment) -> Self {
        Self {
            state: State::Queued,
            wish: Wish::Run,
            due,
            attempts: 0,
            in_vain: 0,
            lease: None,
            fence: 0,
        }
    }

    /// What it is after `event` at `now`. `seed` varies pauses from job to job.
    ///
    /// # Errors
    /// The event does not fit; then nothing has changed.
    pub fn after(
        self,
        event: Event,
        now: Moment,
        policy: &RetryPolicy,
        seed: u64,
    ) -> Result<Self, Refused> {
        match event {
            Event::Claim { until } => self.claimed(until, now),
            Event::Renew { fence, until } => {
                let lease = self.lease_of(fence)?;
                Ok(Self {
                    lease: Some(Lease { until, ..lease }),
                    ..self
                })
            }
            Event::Ended { fence, end } => {
                self.lease_of(fence)?;
                Ok(self.ended(end, now, policy, seed))
            }
            Event::Lost { known } => match self.lease {
                None => Err(Refused::State(self.state)),
                Some(lease) if now < lease.until && !known => Err(Refused::Held),
                Some(_) => Ok(self.stopped(now)),
            },
            Event::Pause => self.wanted(Wish::Pause, State::Paused),
            Event::Cancel => self.wanted(Wish::Cancel, State::Cancelled),
            Event::Resume => self.resumed(now),
            Event::Retry => self.retried(now),
        }
    }

    /// Its lease, if that is the one of `fence`.
    fn lease_of(&self, fence: i64) -> Result<Lease, Refused> {
        self.lease
            .filter(|lease| lease.fence == fence)
            .ok_or(Refused::Stale)
    }

    fn claimed(self, until: Moment, now: Moment) -> Result<Self, Refused> {
        match self.state {
            State::Queued | State::Waiting if now < self.due => Err(Refused::NotDue),
            State::Queued | State::Waiting => {
                let fence = self.fence.saturating_add(1);
                Ok(Self {
                    state: State::Running,
                    attempts: self.attempts.saturating_add(1),
                    lease: Some(Lease { until, fence }),
                    fence,
                    ..self
                })
            }
            other => Err(Refused::State(other)),
        }
    }

    fn ended(self, end: End, now: Moment, policy: &RetryPolicy, seed: u64) -> Self {
        match end {
            End::Done => self.at_rest(State::Done),
            End::Failed => self.at_rest(State::Failed),
            End::Stopped => self.stopped(now),
            End::BrokeOff { .. } if self.wish != Wish::Run => self.stopped(now),
            End::BrokeOff { advanced } => {
                let in_vain = match advanced {
                    true => 0,
                    false => self.in_vain.saturating_add(1),
                };
                match policy.pause(in_vain, seed) {
                    Some(pause) => Self {
                        in_vain,
                        due: now.saturating_add(pause),
                        ..self.at_rest(State::Waiting)
                    },
                    None => Self {
                        in_vain,
                        ..self.at_rest(State::Failed)
                    },
                }
            }
        }
    }

    /// It does not run any more, through no fault of its own.
    fn stopped(self, now: Moment) -> Self {
        match self.wish {
            Wish::Run => Self {
                due: now,
                ..self.at_rest(State::Queued)
            },
            Wish::Pause => self.at_rest(State::Paused),
            Wish::Cancel => self.at_rest(State::Cancelled),
        }
    }

    fn wanted(self, wish: Wish, state: State) -> Result<Self, Refused> {
        match self.state {
            // Who has cancelled a job can't mean to resume it later.
            State::Running | State::Split if self.wish == Wish::Cancel && wish == Wish::Pause => {
                Err(Refused::State(State::Cancelled))
            }
            State::Running | State::Split => Ok(Self { wish, ..self }),
            State::Queued | State::Waiting => Ok(self.at_rest(state)),
            State::Paused if wish == Wish::Cancel => Ok(self.at_rest(state)),
            other => Err(Refused::State(other)),
        }
    }

    fn resumed(self, now: Moment) -> Result<Self, Refused> {
        match self.state {
            State::Paused => Ok(Self {
                due: now,
                ..self.at_rest(State::Queued)
            }),
            // If it has been stopped meanwhile, it is queued when that is known.
            State::Running | State::Split if self.wish == Wish::Pause => Ok(Self {
                wish: Wish::Run,
                ..self
            }),
            other => Err(Refused::State(other)),
        }
    }

    fn retried(self, now: Moment) -> Result<Self, Refused> {
        match self.state {
            State::Failed | State::Cancelled | State::Waiting => Ok(Self {
                due: now,
                in_vain: 0,
                ..self.at_rest(State::Queued)
            }),
            other => Err(Refused::State(other)),
        }
    }

    pub(crate) fn at_rest(self, state: State) -> Self {
        Self {
            state,
            wish: Wish::Run,
            lease: None,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
