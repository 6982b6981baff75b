//! The time in which a grant is in force, and the effect of a withdrawal. Pure.

use std::time::Duration;

use longhaul_hop::unix_ms;
use longhaul_proto::{MAX_GRANT_LIFETIME, SIGNING_AHEAD};
use tokio::time::Instant;

/// Time for which a withdrawal is remembered. Any grant issued before it has ended by then, even if
/// the controller's clock is ahead.
const WITHDRAWAL_MEMORY: Duration = MAX_GRANT_LIFETIME.saturating_add(SIGNING_AHEAD);

/// One moment on both clocks: grants use the wall clock, and timers use the monotonic one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Wall clock in milliseconds since 1970-01-01 UTC.
    pub(crate) unix_ms: u64,
    pub(crate) instant: Instant,
}

impl Now {
    /// Reads both clocks.
    pub(crate) fn read() -> Self {
        Self {
            unix_ms: unix_ms(),
            instant: Instant::now(),
        }
    }
}

/// State of a grant for one of its holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// In force until this moment (exclusive).
    Until(Instant),
    /// Withdrawn by its controller at this moment.
    Withdrawn(Instant),
}

impl Standing {
    /// Returns the state of a grant that is in force until a moment of the wall clock.
    pub(super) fn until(end_unix_ms: u64, now: Now) -> Self {
        let left = Duration::from_millis(end_unix_ms.saturating_sub(now.unix_ms));
        // The addition cannot overflow: grants with a longer lifetime were refused.
        Self::Until(now.instant.checked_add(left).unwrap_or(now.instant))
    }

    /// Returns true if its sessions have the circuit's rate.
    pub(super) fn is_in_force(self, now: Now) -> bool {
        self.end().is_some_and(|end| now.instant < end)
    }

    /// Returns the moment from which on it is not in force; `None` once it was withdrawn.
    pub(super) const fn end(self) -> Option<Instant> {
        match self {
            Self::Until(end) => Some(end),
            Self::Withdrawn(_) => None,
        }
    }

    /// Returns true if grants of this holder are refused, because they may have been issued before
    /// the withdrawal.
    pub(super) fn refuses(self, now: Now) -> bool {
        match self {
            Self::Until(_) => false,
            Self::Withdrawn(at) => now.instant.saturating_duration_since(at) < WITHDRAWAL_MEMORY,
        }
    }

    /// Returns true if the state can be forgotten.
    pub(super) fn is_over(self, now: Now) -> bool {
        !self.is_in_force(now) && !self.refuses(now)
    }

    /// Extends it to the end of another grant, if that ends later. Returns true if it changed.
    pub(super) fn extend(&mut self, other: Self) -> bool {
        match (*self, other) {
            (Self::Until(end), Self::Until(new)) if new <= end => false,
            _ => {
                *self = other;
                true
            }
        }
    }

    /// Withdraws it. A second withdrawal does not extend the time for which the first is
    /// remembered. Returns true if it changed.
    pub(super) fn withdraw(&mut self, now: Now) -> bool {
        let is_new = matches!(self, Self::Until(_));
        if is_new {
            *self = Self::Withdrawn(now.instant);
        }
        is_new
    }
}
