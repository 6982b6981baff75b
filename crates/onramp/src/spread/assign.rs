//! Choice of the path for a new connection. Pure.

use std::str::FromStr;

/// Greatest share of a path in [`PathShares::Stated`].
pub const MAX_SHARE: u32 = 1_000_000;
/// Maximum number of stated shares: the greatest number of paths of a reservation.
const MAX_SHARES: usize = 8;

/// Rule for the number of connections of each path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PathShares {
    /// In proportion to what each path carries: its reserved rate, then its measured one.
    #[default]
    Rate,
    /// The same number for each path.
    Even,
    /// In proportion to these numbers, in the order of the reservation's paths. A path with 0, or
    /// beyond the last number, is not used.
    Stated(Vec<u32>),
}

/// Error: a rule for the shares of paths is malformed. Write `rate`, `even`, or a number for each
/// path, such as `70:30`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write rate, even, or a share from 0 to {MAX_SHARE} for each path, such as 70:30")]
pub struct SharesError;

impl FromStr for PathShares {
    type Err = SharesError;

    fn from_str(text: &str) -> Result<Self, SharesError> {
        match text {
            "rate" => return Ok(Self::Rate),
            "even" => return Ok(Self::Even),
            _ => {}
        }
        let share = |part: &str| part.parse().ok().filter(|share| *share <= MAX_SHARE);
        let shares: Option<Vec<u32>> = text.split(':').map(share).collect();
        let shares = shares.ok_or(SharesError)?;
        match shares.len() <= MAX_SHARES && shares.iter().any(|share| *share > 0) {
            true => Ok(Self::Stated(shares)),
            false => Err(SharesError),
        }
    }
}

impl std::fmt::Display for PathShares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rate => f.write_str("rate"),
            Self::Even => f.write_str("even"),
            Self::Stated(shares) => {
                let texts: Vec<String> = shares.iter().map(u32::to_string).collect();
                f.write_str(&texts.join(":"))
            }
        }
    }
}

impl PathShares {
    /// Returns the weight of the path at a place, which carries `rate` in bit/s.
    pub(super) fn weight(&self, place: usize, rate: f64) -> f64 {
        match self {
            Self::Rate => rate,
            Self::Even => 1.0,
            Self::Stated(shares) => shares.get(place).copied().map_or(0.0, f64::from),
        }
    }
}

/// A path to choose from.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathCandidate {
    /// Part of all connections that it should have, relative to the other paths' weights.
    pub(super) weight: f64,
    /// Number of its open connections.
    pub(super) connections: usize,
    /// If true, it has a free source port.
    pub(super) has_port: bool,
}

/// Returns the place of the path where a further connection would have the highest rate, if all
/// connections of a path shared it evenly.
///
/// This is D'Hondt's method. A program that gives all of its connections the same amount of data is
/// as slow as its slowest connection, and the method makes that one as fast as possible. Among
/// equals, the path with the highest weight comes first.
pub(super) fn choose_path(paths: &[PathCandidate]) -> Option<usize> {
    let expected = |path: &PathCandidate| path.weight / (path.connections as f64 + 1.0);
    let usable = paths
        .iter()
        .enumerate()
        .filter(|(_, path)| path.has_port && path.weight.is_finite() && path.weight > 0.0);
    let best = usable.min_by(|(first, a), (second, b)| {
        let by_rate = expected(b).total_cmp(&expected(a));
        by_rate
            .then(b.weight.total_cmp(&a.weight))
            .then(first.cmp(second))
    });
    best.map(|(place, _)| place)
}

#[cfg(test)]
mod tests;
