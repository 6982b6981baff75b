//! Promised bandwidth: paths and their rates over time.

use std::collections::BTreeSet;

use crate::{Moment, carried};

/// ID of a granted path, unique during a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// Paths over one period.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Start of the period.
    pub start: Moment,
    /// End of the period, exclusive.
    pub end: Moment,
    /// Paths with their rates in bit/s.
    pub paths: Vec<(PathId, f64)>,
}

/// Time before the end of a grant at which its path is left, in milliseconds, or an eighth of the
/// grant's time if that is less. Data in flight is then still delivered at the circuit's rate.
pub const LEFT_BEFORE_MS: Moment = 2000;
/// Divisor of a grant's time: at most that part of it goes unused.
const TIME_OVER_LEFT_BEFORE: Moment = 8;

/// Returns the time until which a grant's path is counted on. If the network recognises streams by
/// their ports, the path is used to its end, but that is not counted on.
#[must_use]
pub fn used_until(start: Moment, end: Moment) -> Moment {
    let time = end.saturating_sub(start);
    end.saturating_sub(LEFT_BEFORE_MS.min(time / TIME_OVER_LEFT_BEFORE))
}

/// All promised paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promise {
    /// Pieces, ordered by time.
    pub pieces: Vec<Piece>,
}

impl Promise {
    /// Returns the bytes that the promised rates carry from a point in time on.
    #[must_use]
    pub fn left(&self, from: Moment) -> f64 {
        self.bytes(from, Moment::MAX, &BTreeSet::new(), |piece| piece.end)
    }

    /// Returns the bytes carried between two points in time, over paths that have not failed, while
    /// they are used.
    #[must_use]
    pub fn carries(&self, from: Moment, to: Moment, failed: &BTreeSet<PathId>) -> f64 {
        self.bytes(from, to, failed, |piece| used_until(piece.start, piece.end))
    }

    fn bytes(
        &self,
        from: Moment,
        to: Moment,
        failed: &BTreeSet<PathId>,
        until: impl Fn(&Piece) -> Moment,
    ) -> f64 {
        let within = self.pieces.iter().map(|piece| {
            let (start, end) = (piece.start.max(from), until(piece).min(to));
            let bps: f64 = piece
                .paths
                .iter()
                .filter(|(path, _)| !failed.contains(path))
                .map(|(_, bps)| bps.max(0.0))
                .sum();
            carried(bps, end.saturating_sub(start))
        });
        within.sum()
    }

    /// Returns the end of the last piece; 0 if there is none.
    #[must_use]
    pub fn end(&self) -> Moment {
        self.pieces.iter().map(|piece| piece.end).max().unwrap_or(0)
    }

    /// Returns the paths at a point in time, with their rates in bit/s.
    pub fn at(&self, now: Moment) -> impl Iterator<Item = (PathId, f64)> + '_ {
        let open = self
            .pieces
            .iter()
            .filter(move |piece| piece.start <= now && now < piece.end);
        open.flat_map(|piece| piece.paths.iter().copied())
    }
}
