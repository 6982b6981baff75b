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

use crate::life::{Event, Life, Moment, Refused, State, Wish};
use crate::retry::RetryPolicy;

/// Counts of a job's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// Parts that have not ended.
    pub left: u32,
    /// Parts among them that run.
    pub running: u32,
}

impl Parts {
    /// Counts `parts`.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a Life>) -> Self {
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

impl Life {
    /// Returns the life of a split job whose parts have these counts.
    #[must_use]
    pub fn with_parts(self, parts: Parts) -> Self {
        match (self.state, self.wish) {
            // It was submitted, resumed or retried.
            (State::Queued, _) if parts.left > 0 => self.at_rest(State::Split),
            // It keeps its due time, so jobs submitted since do not overtake it.
            (State::Split, Wish::Run) if parts.left == 0 => self.at_rest(State::Queued),
            (State::Split, Wish::Pause) if parts.running == 0 => self.at_rest(State::Paused),
            (State::Split, Wish::Cancel) if parts.running == 0 => self.at_rest(State::Cancelled),
            _ => self,
        }
    }
}

/// Returns a split job and its parts after a user's request.
///
/// # Errors
/// The event does not fit the job, and nothing changes.
pub fn ask_split(
    whole: Life,
    parts: &[Life],
    event: Event,
    now: Moment,
    policy: &RetryPolicy,
    seed: u64,
) -> Result<(Life, Vec<Life>), Refused> {
    let asked = |part: &Life| match for_part(event, whole.state, part.state) {
        // A part that refuses the event has ended or rests already, and stays as it is.
        true => part.after(event, now, policy, seed).unwrap_or(*part),
        false => *part,
    };
    let after: Vec<Life> = parts.iter().map(asked).collect();
    let whole = match (event, whole.state) {
        // The retry applies to parts that wait for their next attempt, or failed.
        (Event::Retry, State::Split) if whole.wish == Wish::Run && after != parts => whole,
        _ => whole.after(event, now, policy, seed)?,
    };
    Ok((whole.with_parts(Parts::of(&after)), after))
}

/// Returns true if a request to the job in this state also applies to a part in that state.
fn for_part(event: Event, whole: State, part: State) -> bool {
    match event {
        Event::Pause | Event::Resume | Event::Cancel => true,
        Event::Retry => match whole {
            State::Failed | State::Cancelled => matches!(part, State::Failed | State::Cancelled),
            State::Split => matches!(part, State::Failed | State::Waiting),
            // The job runs by itself already, and completes what its parts have left.
            _ => false,
        },
        Event::Claim { .. } | Event::Renew { .. } | Event::Ended { .. } | Event::Lost { .. } => {
            false
        }
    }
}

#[cfg(test)]
mod tests;
