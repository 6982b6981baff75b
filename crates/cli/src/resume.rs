//! Options of resumable sessions.

use std::time::Duration;

use longhaul_session::ResumeLimits;
use quantities::Time;

/// Minimum of `--resume-within`: the wire counts milliseconds, and 0 would mean never.
const MIN_WITHIN: Duration = Duration::from_millis(1);

/// Returns the limits of resumable sessions; `None` if sessions end with their connection.
pub fn resume_limits(within: Option<Time>, is_off: bool) -> Option<ResumeLimits> {
    let mut limits = ResumeLimits::default();
    if let Some(Time(within)) = within {
        limits.within = within.max(MIN_WITHIN);
    }
    (!is_off).then_some(limits)
}
