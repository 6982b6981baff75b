//! A split job: its parts are jobs of their own that any agent takes, and the job itself runs when
//! none of them is left.
//!
//! ```text
//!                   no part is left                  as any job
//!      split ─────────────────────────────> queued ──────────────> ...
//!        ^ │ pause, cancel: when no part runs any more
//!        │ └───────────────────────────────────────> paused, cancelled
//!        └──── resume, retry: if parts are left ─────────┘
//! ```
//!
//! A failed part does not fail the job: the job's own run finds and copies what is missing.
//! Requests to the job also apply to its parts; a part alone accepts no requests.

use super::life::{EventRefusal, JobEvent, JobLife, State, StopWish};
use super::moment::Moment;
use super::retry::RetryPolicy;

/// Counts of a job's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartCounts {
    /// Parts that have not ended.
    pub left: u32,
    /// Parts among them that run.
    pub running: u32,
}

impl PartCounts {
    /// Counts `parts`.
    pub fn count<'a>(parts: impl IntoIterator<Item = &'a JobLife>) -> Self {
        let mut counted = Self::default();
        for part in parts {
            counted.left = counted.left.saturating_add(u32::from(!part.state.is_end()));
            counted.running = counted
                .running
                .saturating_add(u32::from(part.state == State::Running));
        }
        counted
    }
}

impl JobLife {
    /// Returns the life of a split job whose parts have these counts.
    #[must_use]
    pub fn update_from_parts(self, parts: PartCounts) -> Self {
        match (self.state, self.wish) {
            // It was submitted, resumed or retried.
            (State::Queued, _) if parts.left > 0 => self.rest_in(State::Split),
            // It keeps its due time, so jobs submitted since do not overtake it.
            (State::Split, StopWish::Run) if parts.left == 0 => self.rest_in(State::Queued),
            (State::Split, StopWish::Pause) if parts.running == 0 => self.rest_in(State::Paused),
            (State::Split, StopWish::Cancel) if parts.running == 0 => {
                self.rest_in(State::Cancelled)
            }
            _ => self,
        }
    }
}

/// Returns a split job and its parts after a user's request.
///
/// # Errors
/// The event does not fit the job, and nothing changes.
pub fn apply_to_split(
    whole: JobLife,
    parts: &[JobLife],
    event: JobEvent,
    now: Moment,
    policy: &RetryPolicy,
    seed: u64,
) -> Result<(JobLife, Vec<JobLife>), EventRefusal> {
    let asked = |part: &JobLife| match applies_to_part(event, whole.state, part.state) {
        // A part that refuses the event has ended or rests already, and stays as it is.
        true => part.apply(event, now, policy, seed).unwrap_or(*part),
        false => *part,
    };
    let after: Vec<JobLife> = parts.iter().map(asked).collect();
    let whole = match (event, whole.state) {
        // The retry applies to parts that wait for their next attempt, or failed.
        (JobEvent::Retry, State::Split) if whole.wish == StopWish::Run && after != parts => whole,
        _ => whole.apply(event, now, policy, seed)?,
    };
    Ok((whole.update_from_parts(PartCounts::count(&after)), after))
}

/// Returns true if a request to the job in this state also applies to a part in that state.
fn applies_to_part(event: JobEvent, whole: State, part: State) -> bool {
    match event {
        JobEvent::Pause | JobEvent::Resume | JobEvent::Cancel => true,
        JobEvent::Retry => match whole {
            State::Failed | State::Cancelled => matches!(part, State::Failed | State::Cancelled),
            State::Split => matches!(part, State::Failed | State::Waiting),
            // The job runs by itself already, and completes what its parts have left.
            _ => false,
        },
        JobEvent::Claim { .. }
        | JobEvent::Renew { .. }
        | JobEvent::Ended { .. }
        | JobEvent::Lost { .. } => false,
    }
}

#[cfg(test)]
mod tests;
