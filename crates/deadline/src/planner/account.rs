//! Account of what was reserved, and of what was returned early.

use crate::Moment;
use crate::promise::Promise;

/// Volumes in bytes at the promised rates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Account {
    /// Total ever promised. A replaced promise counts as far as its time had passed.
    pub reserved: f64,
    /// Volume that was returned early.
    pub returned: f64,
    /// Maximum number of paths at once.
    pub paths: usize,
}

impl Account {
    /// Records a promise that replaces the one before.
    pub(super) fn promised(&mut self, now: Moment, before: Option<&Promise>, after: &Promise) {
        self.reserved -= before.map_or(0.0, |before| before.left(now));
        self.reserved += after.left(now);
        let paths = after.pieces.iter().map(|piece| piece.paths.len()).max();
        self.paths = self.paths.max(paths.unwrap_or(0));
    }

    /// Records that the rest of a promise will not be kept.
    pub(super) fn lost(&mut self, now: Moment, promise: &Promise) {
        self.reserved -= promise.left(now);
    }

    /// Records that the rest of a promise is returned.
    pub(super) fn returned(&mut self, now: Moment, promise: &Promise) {
        self.returned += promise.left(now);
    }
}
