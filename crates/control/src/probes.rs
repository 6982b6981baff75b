//! Schedule of measurements between depots. No depot is an end of two measurements at a time, and
//! measurements use a bounded share of each link. Pure: the schedule depends only on the map's
//! depots and the time, so all controllers of a fleet agree on it.
//!
//! Time is divided into slots. In each slot depots are paired as in a round-robin tournament (the
//! circle method: one stays, the others rotate). After as many slots as there are depots, less one,
//! each pair has had its turn.

use longhaul_control_api::probes::ProbeKind;

/// Length of a slot, in milliseconds. A train over the longest paths on Earth takes eight round
/// trips of a third of a second.
pub const SLOT_MS: u64 = 3_000;
/// Maximum share of a link's capacity that measurements of one pair use on average.
pub const MAX_SHARE: f64 = 0.01;
/// Maximum size of one measurement, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;
/// Size of a measurement over a link of unknown capacity, in bytes.
pub const UNKNOWN_LINK_BYTES: u64 = 1 << 20;
/// Maximum size of a measurement after ones that ended before the path's rate was visible, in
/// bytes.
pub const MAX_UNSEEN_BYTES: u64 = 16 << 20;
/// Minimum size of a train, in bytes. A smaller one does not show a rate, so only round trips are
/// measured.
const MIN_TRAIN_BYTES: u64 = 128 << 10;
/// Number of exchanges when measuring round trips.
const ROUND_TRIPS: u32 = 10;
/// Number of turns of a pair in a cycle: one for each direction.
const TURNS: u64 = 2;

/// Turn of a depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Number of the slot.
    pub slot: u64,
    /// Index of the target depot.
    pub to: usize,
}

/// Returns the turns in which the depot at index `place` among `depots` starts a measurement, in
/// `slots` slots from `first` on.
pub fn turns(depots: usize, place: usize, first: u64, slots: u64) -> impl Iterator<Item = Turn> {
    (first..first.saturating_add(slots)).filter_map(move |slot| {
        let (to, turn) = partner(depots, place, slot)?;
        // The depots of a pair take turns in starting.
        let begins = (turn % 2 == 0) == (place < to);
        begins.then_some(Turn { slot, to })
    })
}

/// Returns the depot that a depot is paired with in a slot, and the number of their turn.
fn partner(depots: usize, place: usize, slot: u64) -> Option<(usize, u64)> {
    if depots < 2 || place >= depots {
        return None;
    }
    // If the number of depots is odd, one of them rests.
    let seats = depots + depots % 2;
    let (last, rounds) = (seats - 1, (seats - 1) as u64);
    let round = usize::try_from(slot % rounds).ok()?;
    let to = if place == last {
        // The last depot meets the one whose index on the circle, doubled, is the round.
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

/// Knowledge about a path to measure.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KnownPath {
    /// Capacity in bits per second, as stated on the map or measured.
    pub rate_bps: Option<f64>,
    /// Size of the last train, if it ended before its rate was visible.
    pub unseen_bytes: Option<u64>,
}

/// Returns the kind of measurement for a turn among `depots` depots.
#[must_use]
pub fn kind(depots: usize, path: &KnownPath) -> ProbeKind {
    match bulk_bytes(depots, path) {
        bytes if bytes < MIN_TRAIN_BYTES => ProbeKind::RoundTrips { count: ROUND_TRIPS },
        bytes => ProbeKind::Bulk { bytes },
    }
}

/// Returns the size of a measurement that keeps the pair within its share. It is twice the previous
/// size if that did not show the rate.
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
