//! Choices for all classes of sizes between two ends. A client keeps them for times when it cannot
//! reach a controller.

use super::choice::{Choice, Chooser, RouteRequest};
use super::explore::ExplorationAccount;
use super::{NodeId, Transfer};

/// Maximum size of each class but the last, in bytes.
pub const CLASS_ENDS: [u64; 7] = [
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
    1 << 30,
];
/// Number of size classes.
pub const CLASS_COUNT: usize = CLASS_ENDS.len() + 1;
/// Typical size of each class in bytes, for which the table is made.
pub const TYPICAL_BYTES: [u64; CLASS_COUNT] = [
    128 << 10,
    512 << 10,
    2 << 20,
    8 << 20,
    32 << 20,
    128 << 20,
    512 << 20,
    4 << 30,
];
/// Validity of a table, in seconds.
pub const MAX_VALIDITY_SECONDS: f64 = 3600.0;

/// Returns the class of a size.
#[must_use]
pub fn size_class(bytes: u64) -> usize {
    CLASS_ENDS.partition_point(|end| *end < bytes)
}

/// Returns the request for a class of sizes. An invalid class yields a size of 0 bytes.
#[must_use]
pub fn class_request(
    from: NodeId,
    to: NodeId,
    class: usize,
    streams: u16,
    now: f64,
) -> RouteRequest {
    let bytes = TYPICAL_BYTES.get(class).copied().unwrap_or_default();
    RouteRequest {
        from,
        to,
        transfer: Transfer { bytes, streams },
        urgent: true,
        now,
        seed: 0,
    }
}

/// Returns the choice for each class.
#[must_use]
pub fn class_choices(
    chooser: &mut Chooser<'_>,
    from: NodeId,
    to: NodeId,
    streams: u16,
    now: f64,
) -> [Choice; CLASS_COUNT] {
    std::array::from_fn(|class| {
        chooser.choose(
            &class_request(from, to, class, streams, now),
            None,
            &ExplorationAccount::default(),
        )
    })
}

/// Returns true if all classes go direct.
#[must_use]
pub fn all_direct(choices: &[Choice; CLASS_COUNT]) -> bool {
    let goes_direct = |choice: &Choice| choice.via.is_direct() && choice.at_once.len() <= 1;
    choices.iter().all(goes_direct)
}

#[cfg(test)]
mod tests;
