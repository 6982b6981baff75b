//! Time limits of an agent.

/// Milliseconds in a second.
const SECOND: u64 = 1_000;

/// Time limits, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Time in which all legs must hold their segments.
    pub reserve: u64,
    /// Time in which all legs must promise theirs.
    pub commit: u64,
    /// Time for which a promised segment waits for its first renewal.
    pub confirm: u64,
    /// Time for which a renewed segment waits for the next renewal.
    pub lease: u64,
    /// Pause before a request is repeated. It doubles with each repetition.
    pub retry: u64,
    /// Maximum pause before a request is repeated.
    pub max_retry: u64,
    /// Time for which a terminated connection is remembered, so that late messages find it.
    pub memory: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            reserve: 30 * SECOND,
            commit: 30 * SECOND,
            confirm: 120 * SECOND,
            lease: 3_600 * SECOND,
            retry: SECOND,
            max_retry: 30 * SECOND,
            memory: 24 * 3_600 * SECOND,
        }
    }
}

impl Timing {
    /// Returns the pause after this number of attempts.
    #[must_use]
    pub fn pause(&self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(u64::BITS - 1);
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.retry.saturating_mul(factor).min(self.max_retry)
    }

    /// Returns the pause before a promise with this lease is renewed: a third of the lease, so that
    /// two renewals may be lost.
    #[must_use]
    pub const fn renewal_pause(lease: u64) -> u64 {
        lease / 3
    }
}
