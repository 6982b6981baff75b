//! A job that is split: its parts are jobs of their own, which any agent takes, and it runs itself
//! when none of them is left.
//!
//! ```text
//!                   no part is left                  as any job
//!      split ─────────────────────────────> queued ──────────────> ...
//!        ^ │ pause, cancel: when no part runs any more
//!        │ └───────────────────────────────────────> paused, cancelled
//!        └──── resume, retry: if parts are left ─────────┘
//! ```
//!
//! How a part ends is not how the job ends: a part that failed is left to the job's own run, which
//! finds what is missing. What is asked of the job is asked of its parts, and of them alone nothing
//! can be asked.

use crate::life::{Event, Life, Moment, Refused, State, Wish};
use crate::retry::RetryPolicy;

/// How the parts of a job stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// Those that have not ended.
    pub left: u32,
    /// Of these, those that run.
    pub running: u32,
}

impl Parts {
    /// Those of `parts`.
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
    /// What a job that is split is now that its parts stand so.
    #[must_use]
    pub fn with_parts(self, parts: Parts) -> Self {
        match (self.state, self.wish) {
            // It was submitted, resumed or retried.
            (State::Queued, _) if parts.left > 0 => self.at_rest(State::Split),
            // As old as it is: what was submitted since is not before it.
            (State::Split, Wish::Run) if parts.left == 0 => self.at_rest(State::Queued),
            (State::Split, Wish::Pause) if parts.running == 0 => self.at_rest(State::Paused),
            (State::Split, Wish::Cancel) if parts.running == 0 => self.at_rest(State::Cancelled),
            _ => self,
        }
    }
}

/// What a job that is split and its parts are after a person has asked something of it.
///
/// # Errors
/// The event does not fit the job; then nothing has changed.
pub fn ask_split(
    whole: Life,
    parts: &[Life],
    event: Event,
    now: Moment,
    policy: &RetryPolicy,
    seed: u64,
) -> Result<(Life, Vec<Life>), Refused> {
    let asked = |part: &Life| match for_part(event, whole.state, part.state) {
        // What does not fit a part is of no concern to it: it has ended, or rests already.
        true => part.after(event, now, policy, seed).unwrap_or(*part),
        false => *part,
    };
    let after: Vec<Life> = parts.iter().map(asked).collect();
    let whole = match (event, whole.state) {
        // Of parts that wait for their next attempt, or failed.
        (Event::Retry, State::Split) if whole.wish == Wish::Run && after != parts => whole,
        _ => whole.after(event, now, policy, seed)?,
    };
    Ok((whole.with_parts(Parts::of(&after)), after))
}

/// Whether what is asked of the whole, in its state, is asked of a part in that state as well.
fn for_part(event: Event, whole: State, part: State) -> bool {
    match event {
        Event::Pause | Event::Resume | Event::Cancel => true,
        Event::Retry => match whole {
            State::Failed | State::Cancelled => matches!(part, State::Failed | State::Cancelled),
            State::Split => matches!(part, State::Failed | State::Waiting),
            // It runs by itself already, and mends what parts have left.
            _ => false,
        },
        Event::Claim { .. } | Event::Renew { .. } | Event::Ended { .. } | Event::Lost { .. } => {
            false
        }
    }
}

#[cfg(test)]
mod tests;
