//! Wall clock in the form that OPENs carry.

use std::time::SystemTime;

/// Returns the current time in milliseconds since 1970-01-01 UTC.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
