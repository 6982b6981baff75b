//! What is chosen for sizes of all kinds between two ends: what a client keeps for the time that it
//! can ask nobody.

use super::choice::{Choice, Chooser, Request};
use super::explore::Account;
use super::{NodeId, Transfer};

/// The largest size of each class but the last, in bytes; beyond is the last one.
pub const CLASS_ENDS: [u64; 7] = [
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
    1 << 30,
];
/// How many classes of sizes there are.
pub const CLASSES: usize = CLASS_ENDS.len() + 1;
/// The typical size of each class, in bytes: what a table is made for.
pub const TYPICAL_BYTES: [u64; CLASSES] = [
    128 << 10,
    512 << 10,
    2 << 20,
    8 << 20,
    32 << 20,
    128 << 20,
    512 << 20,
    4 << 30,
];
/// How long a table is good for, in seconds.
pub const LONGEST_VALIDITY: f64 = 3600.0;

/// The class of a size.
#[must_use]
pub fn class(bytes: u64) -> usize {
    CLASS_ENDS.partition_point(|end| *end < bytes)
}

/// What is asked for a class of sizes; of one that there is not, for a size of no bytes.
#[must_use]
pub fn request(from: NodeId, to: NodeId, class: usize, streams: u16, now: f64) -> Request {
    let bytes = TYPICAL_BYTES.get(class).copied().unwrap_or_default();
    Request {
        from,
        to,
        transfer: Transfer { bytes, streams },
        urgent: true,
        now,
        seed: 0,
    }
}

/// What is chosen for each class.
#[must_use]
pub fn choices(
    chooser: &mut Chooser<'_>,
    from: NodeId,
    to: NodeId,
    streams: u16,
    now: f64,
) -> [Choice; CLASSES] {
    std::array::from_fn(|class| {
        chooser.choose(
            &request(from, to, class, streams, now),
            None,
            &Account::default(),
        )
    })
}

/// Whether all classes simply go direct.
#[must_use]
pub fn all_direct(choices: &[Choice; CLASSES]) -> bool {
    let goes_direct = |choice: &Choice| choice.via.is_direct() && choice.at_once.len() <= 1;
    choices.iter().all(goes_direct)
}

#[cfg(test)]
mod tests;
