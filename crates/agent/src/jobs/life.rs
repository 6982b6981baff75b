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
//! Every state except an end state allows pausing and cancelling. A running job is first asked to
//! stop ([`StopWish`]), and is paused or cancelled once it has stopped. A split job has a state of
//! its own while its parts are worked on: [`super::split`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::moment::Moment;
use super::retry::RetryPolicy;

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = JobState)]
pub enum State {
    /// It runs when it is due and its turn has come.
    Queued,
    /// Its parts, which are jobs of their own, are worked on; it runs itself when none is left.
    Split,
    /// An agent holds its lease and runs it.
    Running,
    /// A user paused it.
    Paused,
    /// It broke off, and is retried when it is due.
    Waiting,
    /// Everything was copied.
    Done,
    /// It ended with an error that a retry cannot fix, or was retried in vain too often.
    Failed,
    /// A user cancelled it.
    Cancelled,
}

impl State {
    /// All states.
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

    /// Returns the word by which it is stored and shown.
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

    /// Returns the state of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Returns true if the job stays in this state unless a user acts.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// Wish for a job that runs, or whose parts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopWish {
    /// Continue.
    Run,
    /// Stop, and rest until resumed.
    Pause,
    /// Stop for good.
    Cancel,
}

impl StopWish {
    /// All wishes.
    pub const ALL: [Self; 3] = [Self::Run, Self::Pause, Self::Cancel];

    /// Returns the word by which it is stored and shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Pause => "pause",
            Self::Cancel => "cancel",
        }
    }

    /// Returns the wish of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wish| wish.word() == word)
    }
}

/// An agent's exclusive right to run a job for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Moment from which the agent may be considered dead.
    pub until: Moment,
    /// Number of this lease among the job's leases. Messages under an older lease are refused.
    pub fence: i64,
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// Everything was copied.
    Done,
    /// It failed with an error that a retry cannot fix.
    Failed,
    /// It broke off, and may resume later.
    BrokeOff {
        /// True if it copied something before that.
        advanced: bool,
    },
    /// It was stopped, by a wish or because its agent ends.
    Stopped,
}

/// An event in the life of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEvent {
    /// An agent claims it.
    Claim {
        /// End of the lease.
        until: Moment,
    },
    /// Its agent is alive, and renews the lease.
    Renew {
        /// Number of the agent's lease.
        fence: i64,
        /// New end of the lease.
        until: Moment,
    },
    /// Its attempt ended.
    Ended {
        /// Number of the agent's lease.
        fence: i64,
        /// Result of the attempt.
        end: AttemptResult,
    },
    /// Its agent is gone.
    Lost {
        /// True if that is certain although the lease has not expired.
        known: bool,
    },
    /// A user pauses it.
    Pause,
    /// A user resumes it.
    Resume,
    /// A user cancels it.
    Cancel,
    /// A user wants an immediate retry.
    Retry,
}

/// Reasons why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventRefusal {
    /// The state does not permit it.
    #[error("the job is {}", .0.word())]
    State(State),
    /// It is not due yet. The agent asks again.
    #[error("the job is not due yet")]
    NotDue,
    /// Another agent has taken the job since. This agent did not renew its lease in time, and
    /// leaves the job to the other one.
    #[error("another agent has taken the job since")]
    Stale,
    /// The lease has not expired.
    #[error("the job's agent is alive")]
    Held,
}

/// The stored part of a job's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLife {
    /// The state.
    pub state: State,
    /// The wish while the job or its parts run; [`StopWish::Run`] otherwise.
    pub wish: StopWish,
    /// Earliest start.
    pub due: Moment,
    /// Number of attempts begun.
    pub attempts: u32,
    /// Number of latest consecutive attempts that copied nothing before they broke off.
    pub in_vain: u32,
    /// The lease while it runs.
    pub lease: Option<Lease>,
    /// Number of leases so far.
    pub fence: i64,
}

impl JobLife {
    /// Creates the life of a new job.
    pub fn new(due: Moment) -> Self {
        Self {
            state: State::Queued,
            wish: StopWish::Run,
            due,
            attempts: 0,
            in_vain: 0,
            lease: None,
            fence: 0,
        }
    }

    /// Returns the life after `event` at `now`. `seed` varies pauses from job to job.
    ///
    /// # Errors
    /// The event does not fit the state, and nothing changes.
    pub fn apply(
        self,
        event: JobEvent,
        now: Moment,
        policy: &RetryPolicy,
        seed: u64,
    ) -> Result<Self, EventRefusal> {
        match event {
            JobEvent::Claim { until } => self.claimed(until, now),
            JobEvent::Renew { fence, until } => {
                let lease = self.lease_of(fence)?;
                Ok(Self {
                    lease: Some(Lease { until, ..lease }),
                    ..self
                })
            }
            JobEvent::Ended { fence, end } => {
                self.lease_of(fence)?;
                Ok(self.ended(end, now, policy, seed))
            }
            JobEvent::Lost { known } => match self.lease {
                None => Err(EventRefusal::State(self.state)),
                Some(lease) if now < lease.until && !known => Err(EventRefusal::Held),
                Some(_) => Ok(self.stopped(now)),
            },
            JobEvent::Pause => self.request_stop(StopWish::Pause, State::Paused),
            JobEvent::Cancel => self.request_stop(StopWish::Cancel, State::Cancelled),
            JobEvent::Resume => self.resumed(now),
            JobEvent::Retry => self.retried(now),
        }
    }

    /// Returns its lease if it has number `fence`.
    fn lease_of(&self, fence: i64) -> Result<Lease, EventRefusal> {
        self.lease
            .filter(|lease| lease.fence == fence)
            .ok_or(EventRefusal::Stale)
    }

    fn claimed(self, until: Moment, now: Moment) -> Result<Self, EventRefusal> {
        match self.state {
            State::Queued | State::Waiting if now < self.due => Err(EventRefusal::NotDue),
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
            other => Err(EventRefusal::State(other)),
        }
    }

    fn ended(self, end: AttemptResult, now: Moment, policy: &RetryPolicy, seed: u64) -> Self {
        match end {
            AttemptResult::Done => self.rest_in(State::Done),
            AttemptResult::Failed => self.rest_in(State::Failed),
            AttemptResult::Stopped => self.stopped(now),
            AttemptResult::BrokeOff { .. } if self.wish != StopWish::Run => self.stopped(now),
            AttemptResult::BrokeOff { advanced } => {
                let in_vain = match advanced {
                    true => 0,
                    false => self.in_vain.saturating_add(1),
                };
                match policy.pause(in_vain, seed) {
                    Some(pause) => Self {
                        in_vain,
                        due: now.saturating_add(pause),
                        ..self.rest_in(State::Waiting)
                    },
                    None => Self {
                        in_vain,
                        ..self.rest_in(State::Failed)
                    },
                }
            }
        }
    }

    /// Returns the life after it stopped running without a failure of its own.
    fn stopped(self, now: Moment) -> Self {
        match self.wish {
            StopWish::Run => Self {
                due: now,
                ..self.rest_in(State::Queued)
            },
            StopWish::Pause => self.rest_in(State::Paused),
            StopWish::Cancel => self.rest_in(State::Cancelled),
        }
    }

    fn request_stop(self, wish: StopWish, state: State) -> Result<Self, EventRefusal> {
        match self.state {
            // A cancelled job cannot be resumed later.
            State::Running | State::Split
                if self.wish == StopWish::Cancel && wish == StopWish::Pause =>
            {
                Err(EventRefusal::State(State::Cancelled))
            }
            State::Running | State::Split => Ok(Self { wish, ..self }),
            State::Queued | State::Waiting => Ok(self.rest_in(state)),
            State::Paused if wish == StopWish::Cancel => Ok(self.rest_in(state)),
            other => Err(EventRefusal::State(other)),
        }
    }

    fn resumed(self, now: Moment) -> Result<Self, EventRefusal> {
        match self.state {
            State::Paused => Ok(Self {
                due: now,
                ..self.rest_in(State::Queued)
            }),
            // If it has stopped meanwhile, it is queued once that is known.
            State::Running | State::Split if self.wish == StopWish::Pause => Ok(Self {
                wish: StopWish::Run,
                ..self
            }),
            other => Err(EventRefusal::State(other)),
        }
    }

    fn retried(self, now: Moment) -> Result<Self, EventRefusal> {
        match self.state {
            State::Failed | State::Cancelled | State::Waiting => Ok(Self {
                due: now,
                in_vain: 0,
                ..self.rest_in(State::Queued)
            }),
            other => Err(EventRefusal::State(other)),
        }
    }

    pub(crate) fn rest_in(self, state: State) -> Self {
        Self {
            state,
            wish: StopWish::Run,
            lease: None,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
