//! Moments, windows, and what a rate carries in a window.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, or since any other origin that all of a book's callers share.
pub type Moment = i64;

/// Bits a second.
pub type Rate = u64;

/// The largest rate of a link or a request, in bit/s: sums of many and products with long windows
/// stay within their integers.
pub const MAX_RATE: Rate = 1 << 53;

/// The furthest that a moment is from the origin, in milliseconds (about 8,900 years).
pub const MAX_MOMENT: Moment = 1 << 48;

/// Bits that a rate of 1 bit/s carries in 1 ms, times this, are one byte.
const RATE_MILLISECONDS_A_BYTE: u128 = 8_000;

/// From a moment until, and without, another: two windows that only touch have nothing in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The first millisecond within.
    pub start: Moment,
    /// The first millisecond behind.
    pub end: Moment,
}

impl Window {
    /// From `start` until, and without, `end`.
    #[must_use]
    pub const fn new(start: Moment, end: Moment) -> Self {
        Self { start, end }
    }

    /// How long, in milliseconds; 0 where it ends before it starts.
    #[must_use]
    pub const fn length(self) -> u64 {
        if self.end > self.start {
            self.end.abs_diff(self.start)
        } else {
            0
        }
    }

    /// Whether it holds no moment.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether it holds a moment.
    #[must_use]
    pub const fn holds(self, moment: Moment) -> bool {
        self.start <= moment && moment < self.end
    }

    /// What both have in common, which may be empty.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Whether some moment is in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        !self.and(other).is_empty()
    }

    /// As long, from another start.
    #[must_use]
    pub const fn from_start(self, start: Moment) -> Self {
        Self::new(start, start.saturating_add_unsigned(self.length()))
    }

    /// Whether both ends are within [`MAX_MOMENT`] of the origin.
    #[must_use]
    pub const fn in_range(self) -> bool {
        self.start.unsigned_abs() <= MAX_MOMENT.unsigned_abs()
            && self.end.unsigned_abs() <= MAX_MOMENT.unsigned_abs()
    }
}

/// What is carried, in bit/s times milliseconds: exact where bytes would be rounded.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Volume(pub u128);

impl Volume {
    /// What these bytes need.
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Self {
        Self(bytes as u128 * RATE_MILLISECONDS_A_BYTE)
    }

    /// What a rate carries in so many milliseconds.
    #[must_use]
    pub const fn carried(rate: Rate, milliseconds: u64) -> Self {
        Self(rate as u128 * milliseconds as u128)
    }

    /// Whole bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::try_from(self.0 / RATE_MILLISECONDS_A_BYTE).unwrap_or(u64::MAX)
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left without the other; nothing where that is more.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The least whole rate that carries it in so many milliseconds; none in no time, or above
    /// [`MAX_RATE`].
    #[must_use]
    pub fn rate_within(self, milliseconds: u64) -> Option<Rate> {
        if milliseconds == 0 {
            return (self.0 == 0).then_some(0);
        }
        let rate = Rate::try_from(self.0.div_ceil(u128::from(milliseconds))).ok()?;
        (rate <= MAX_RATE).then_some(rate)
    }

    /// The least whole milliseconds in which a rate carries it; none at no rate.
    #[must_use]
    pub fn time_at(self, rate: Rate) -> Option<u64> {
        if rate == 0 {
            return (self.0 == 0).then_some(0);
        }
        u64::try_from(self.0.div_ceil(u128::from(rate))).ok()
    }
}
