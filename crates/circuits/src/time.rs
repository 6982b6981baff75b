//! Moments, windows, rates and volumes.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, or since any other origin that all callers of a book share.
pub type MomentMs = i64;

/// Rate in bits per second.
pub type BitsPerSecond = u64;

/// Maximum rate of a link or a request, in bit/s. Sums of many, and products with long windows, do
/// not overflow.
pub const MAX_RATE: BitsPerSecond = 1 << 53;

/// Maximum distance of a moment from the origin, in milliseconds (about 8,900 years).
pub const MAX_MOMENT: MomentMs = 1 << 48;

/// Factor between a byte and the volume that 1 bit/s carries in 1 ms.
const RATE_MILLISECONDS_PER_BYTE: u128 = 8_000;

/// Half-open window: it includes its start but not its end, so adjacent windows do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// First millisecond within.
    pub start: MomentMs,
    /// First millisecond after.
    pub end: MomentMs,
}

impl Window {
    /// Creates the window from `start` (included) to `end` (excluded).
    #[must_use]
    pub const fn new(start: MomentMs, end: MomentMs) -> Self {
        Self { start, end }
    }

    /// Returns the length in milliseconds; 0 if the window ends before it starts.
    #[must_use]
    pub const fn length(self) -> u64 {
        if self.end > self.start {
            self.end.abs_diff(self.start)
        } else {
            0
        }
    }

    /// Returns true if the window contains no moment.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns true if the window contains a moment.
    #[must_use]
    pub const fn contains(self, moment: MomentMs) -> bool {
        self.start <= moment && moment < self.end
    }

    /// Returns the intersection of two windows, which may be empty.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Returns true if some moment is in both windows.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// Returns a window of the same length from another start.
    #[must_use]
    pub const fn starting_at(self, start: MomentMs) -> Self {
        Self::new(start, start.saturating_add_unsigned(self.length()))
    }

    /// Returns true if both ends are within [`MAX_MOMENT`] of the origin.
    #[must_use]
    pub const fn is_in_range(self) -> bool {
        self.start.unsigned_abs() <= MAX_MOMENT.unsigned_abs()
            && self.end.unsigned_abs() <= MAX_MOMENT.unsigned_abs()
    }
}

/// Volume in bit/s times milliseconds. It is exact where bytes would be rounded.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Volume(pub u128);

impl Volume {
    /// Returns the volume of so many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes as u128 * RATE_MILLISECONDS_PER_BYTE)
    }

    /// Returns the volume that a rate carries in a time.
    #[must_use]
    pub const fn carried(rate: BitsPerSecond, milliseconds: u64) -> Self {
        Self(rate as u128 * milliseconds as u128)
    }

    /// Returns the volume in bytes, rounded down.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::try_from(self.0 / RATE_MILLISECONDS_PER_BYTE).unwrap_or(u64::MAX)
    }

    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or zero if `other` is larger.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the least whole rate that carries the volume in a time. Returns `None` if there is
    /// no time, or the rate exceeds [`MAX_RATE`].
    #[must_use]
    pub fn min_rate_within(self, milliseconds: u64) -> Option<BitsPerSecond> {
        if milliseconds == 0 {
            return (self.0 == 0).then_some(0);
        }
        let rate = BitsPerSecond::try_from(self.0.div_ceil(u128::from(milliseconds))).ok()?;
        (rate <= MAX_RATE).then_some(rate)
    }

    /// Returns the least whole milliseconds in which a rate carries the volume, or `None` if the
    /// rate is 0.
    #[must_use]
    pub fn duration_at(self, rate: BitsPerSecond) -> Option<u64> {
        if rate == 0 {
            return (self.0 == 0).then_some(0);
        }
        u64::try_from(self.0.div_ceil(u128::from(rate))).ok()
    }
}
