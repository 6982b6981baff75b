//! A receiver's knowledge of the path from what its program reads: round trips, and the bytes in
//! each.
//!
//! The round trip is that of Dynamic Right-Sizing (Fisk and Feng 2001). Data beyond the window on
//! offer cannot arrive before the offer was received and answered. So reading one window of data
//! takes at least a round trip, and the least such time is the estimate. It needs only a count of
//! bytes and a clock.

use std::time::Duration;

/// One round: its bytes and its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    pub bytes: u64,
    pub lasted: Duration,
}

impl Round {
    /// Returns the bytes in `span` at this round's rate.
    pub(crate) fn bytes_in(self, span: Duration) -> u64 {
        let nanos = self.lasted.as_nanos().max(1);
        u64::try_from(u128::from(self.bytes) * span.as_nanos() / nanos).unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct WindowTimer {
    mark: Option<(Duration, u64)>,
    least: Option<Duration>,
}

impl WindowTimer {
    /// Returns the least time so far in which a window was read. `read` counts all bytes read,
    /// `window` is what is on offer.
    pub(crate) fn observe(&mut self, at: Duration, read: u64, window: u64) -> Option<Duration> {
        match self.mark {
            None => self.mark = Some((at, read.saturating_add(window))),
            Some((since, goal)) if read >= goal => {
                let took = at.saturating_sub(since);
                if !took.is_zero() {
                    self.least = Some(self.least.map_or(took, |least| least.min(took)));
                }
                self.mark = Some((at, read.saturating_add(window)));
            }
            Some(_) => {}
        }
        self.least
    }
}

/// Divides the stream of samples into rounds of about a given length.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rounds {
    open: Option<(Duration, u64)>,
}

impl Rounds {
    pub(crate) fn observe(&mut self, at: Duration, read: u64, rtt: Duration) -> Option<Round> {
        let (since, before) = *self.open.get_or_insert((at, read));
        let lasted = at.saturating_sub(since);
        if lasted < rtt || lasted.is_zero() {
            return None;
        }
        self.open = Some((at, read));
        Some(Round {
            bytes: read.saturating_sub(before),
            lasted,
        })
    }
}
