//! What was reserved, and what of it was returned before its time.

use crate::Moment;
use crate::promise::Promise;

/// In bytes that go at the promised rates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Account {
    /// All that was ever promised: what a change replaced counts as far as its time was over.
    pub reserved: f64,
    /// What of it was given back before its time.
    pub returned: f64,
    /// The most paths at once.
    pub paths: usize,
}

impl Account {
    /// Another promise takes the place of the one before.
    pub(super) fn promised(&mut self, now: Moment, before: Option<&Promise>, after: &Promise) {
        self.reserved -= before.map_or(0.0, |before| before.left(now));
        self.reserved += after.left(now);
        let paths = after.pieces.iter().map(|piece| piece.paths.len()).max();
        self.paths = self.paths.max(paths.unwrap_or(0));
    }

    /// What is left of a promise will not be kept.
    pub(super) fn lost(&mut self, now: Moment, promise: &Promise) {
        self.reserved -= promise.left(now);
    }

    /// All of a promise is given back.
    pub(super) fn returned(&mut self, now: Moment, promise: &Promise) {
        self.returned += promise.left(now);
    }
}
