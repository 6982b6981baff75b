//! What a controller has promised: paths and their rates, for stretches of time.

use std::collections::BTreeSet;

use crate::{Moment, carried};

/// Tells a granted path from others, for as long as a copy lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// Paths, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The first moment of it.
    pub start: Moment,
    /// The first moment behind it.
    pub end: Moment,
    /// Which, each with its rate in bit/s.
    pub paths: Vec<(PathId, f64)>,
}

/// So long before the end of a grant its way is left, in milliseconds, or one part in eight of its
/// time if that is less: what is under way is delivered with the rate of the circuit.
pub const LEFT_BEFORE_MS: Moment = 2000;
/// One part in so many of a grant's time goes unused at most.
const TIME_OVER_LEFT_BEFORE: Moment = 8;

/// Until when the way of a grant is used. Where the network tells its streams by their ports it is
/// used to the end; no more is counted on.
#[must_use]
pub fn used_until(start: Moment, end: Moment) -> Moment {
    let time = end.saturating_sub(start);
    end.saturating_sub(LEFT_BEFORE_MS.min(time / TIME_OVER_LEFT_BEFORE))
}

/// All that is promised.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promise {
    /// In order of time.
    pub pieces: Vec<Piece>,
}

impl Promise {
    /// Bytes that could go from a moment on, at the promised rates.
    #[must_use]
    pub fn left(&self, from: Moment) -> f64 {
        self.bytes(from, Moment::MAX, &BTreeSet::new(), |piece| piece.end)
    }

    /// Bytes that go between two moments, over paths that have not failed, for as long as they are
    /// used.
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

    /// The first moment at which nothing more is promised; 0 where nothing is.
    #[must_use]
    pub fn end(&self) -> Moment {
        self.pieces.iter().map(|piece| piece.end).max().unwrap_or(0)
    }

    /// The paths of a moment, with their rates in bit/s.
    pub fn at(&self, now: Moment) -> impl Iterator<Item = (PathId, f64)> + '_ {
        let open = self
            .pieces
            .iter()
            .filter(move |piece| piece.start <= now && now < piece.end);
        open.flat_map(|piece| piece.paths.iter().copied())
    }
}
