//! What depots are to measure between each other, and when: no depot is at an end of two
//! measurements at a time, and what they carry is a stated share of each link. Pure: who measures
//! what in a moment hangs on the depots of the map and the moment alone, so that every controller
//! of a fleet says the same.
//!
//! Time is divided into slots, and in each slot depots are paired as in a round-robin tournament
//! (the circle method: all but one go round, one stays): after as many slots as there are depots,
//! less one, each pair has had its turn.

use longhaul_control_api::probes::ProbeKind;

/// How long a pair has to itself, in milliseconds: a train over the longest paths on Earth takes
/// eight round trips of a third of a second.
pub const SLOT_MS: u64 = 3_000;
/// Of what a link carries, the most that measurements of one pair take of it on average.
pub const MAX_SHARE: f64 = 0.01;
/// The most that one measurement carries, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;
/// What one carries where nobody knows what the link does, in bytes.
pub const UNKNOWN_LINK_BYTES: u64 = 1 << 20;
/// The most that one carries where those before it were over before their path's rate could be
/// seen, in bytes.
pub const MAX_UNSEEN_BYTES: u64 = 16 << 20;
/// A train of fewer bytes says nothing of a rate: then round trips alone are measured.
const MIN_TRAIN_BYTES: u64 = 128 << 10;
/// Exchanges of a measurement of round trips.
const ROUND_TRIPS: u32 = 10;
/// Turns of a pair until everything comes again: either direction.
const TURNS: u64 = 2;

/// A turn of a depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The number of the slot.
    pub slot: u64,
    /// Towards which depot, by its place in the list.
    pub to: usize,
}

/// The turns of the depot at `place` among `depots` in which it begins a measurement, from `first`
/// on, in so many slots.
pub fn turns(depots: usize, place: usize, first: u64, slots: u64) -> impl Iterator<Item = Turn> {
    (first..first.saturating_add(slots)).filter_map(move |slot| {
        let (to, turn) = partner(depots, place, slot)?;
        // In every other turn the other one begins.
        let begins = (turn % 2 == 0) == (place < to);
        begins.then_some(Turn { slot, to })
    })
}

/// With whom a depot is paired in a slot, and which turn of theirs it is.
fn partner(depots: usize, place: usize, slot: u64) -> Option<(usize, u64)> {
    if depots < 2 || place >= depots {
        return None;
    }
    // Where their number is odd, one of them rests.
    let seats = depots + depots % 2;
    let (last, rounds) = (seats - 1, (seats - 1) as u64);
    let round = usize::try_from(slot % rounds).ok()?;
    let to = if place == last {
        // The one with whom the sum of places, on the circle, is the round: twice the place.
        match round % 2 {
            0 => round / 2,
            _ => (round + last) / 2,
        }
    } else {
        let across = (round + last - place) % last;
        if across == place { last } else { across }
    };
    (to < depots).then_some((to, slot / rounds % TURNS))
}

/// What is known of a path that is to be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KnownPath {
    /// What it carries, in bits per second, as the map states it or as it was measured.
    pub rate_bps: Option<f64>,
    /// The bytes of the last train over it, if that was over before its rate could be seen.
    pub unseen_bytes: Option<u64>,
}

/// How a turn is used among so many depots.
#[must_use]
pub fn kind(depots: usize, path: &KnownPath) -> ProbeKind {
    match bulk_bytes(depots, path) {
        bytes if bytes < MIN_TRAIN_BYTES => ProbeKind::RoundTrips { count: ROUND_TRIPS },
        bytes => ProbeKind::Bulk { bytes },
    }
}

/// What one measurement may carry so that all of a pair stay within their share; twice as much as
/// the one before where that did not show the rate.
fn bulk_bytes(depots: usize, path: &KnownPath) -> u64 {
    let longer = path
        .unseen_bytes
        .unwrap_or(0)
        .saturating_mul(2)
        .min(MAX_UNSEEN_BYTES);
    let Some(rate) = path.rate_bps else {
        return UNKNOWN_LINK_BYTES.max(longer);
    };
    let seats = depots + depots % 2;
    let between_seconds = (seats.saturating_sub(1) as u64 * TURNS * SLOT_MS) as f64 / 1000.0;
    let bytes = rate * MAX_SHARE * between_seconds / 8.0;
    (bytes as u64).max(longer).min(MAX_BYTES)
}

#[cfg(test)]
mod tests;
