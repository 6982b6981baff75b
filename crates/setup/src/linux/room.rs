//! Numbers and sizes of the classes on an interface.

use longhaul_circuits::time::Rate;

use super::config::{Numbers, SLOTS};

/// Parent of all other classes: the whole link.
pub(super) const ROOT_CLASS: u16 = 1;
/// Class of packets without a circuit.
pub(super) const REST_CLASS: u16 = 2;
/// Class of slot 0.
const FIRST_CLASS: u16 = 0x10;

/// Reciprocal of the minimum share of a link for packets without a circuit, whatever is reserved.
const MIN_REST_DIVISOR: Rate = 100;

/// Burst of a class, in milliseconds of its rate. Timers are not finer on every machine.
const BURST_MILLISECONDS: u64 = 1;
/// Minimum burst of a class, in bytes: the largest packet that the kernel builds.
const LEAST_BURST: u64 = 64 << 10;

/// Maximum delay in a circuit's queue, in milliseconds. Senders that pace to the rate never need as
/// much.
const QUEUE_MILLISECONDS: u64 = 50;
/// Minimum length of a queue, in bytes: a few of the largest packets that the kernel builds.
const LEAST_QUEUE: u64 = 256 << 10;
/// Maximum length of a queue, in bytes: `tc` takes 32 bits.
const MOST_QUEUE: u64 = 1 << 30;

const BITS_A_BYTE_AND_MILLISECONDS_A_SECOND: u64 = 8 * 1_000;

/// Returns the class of a slot in the format of `tc`.
pub(super) fn class_of(numbers: &Numbers, slot: u16) -> String {
    format!("{:x}:{:x}", numbers.handle, FIRST_CLASS + slot)
}

/// Returns the slot of a class.
pub(super) fn slot_of_class(minor: u16) -> Option<u16> {
    let slot = minor.checked_sub(FIRST_CLASS)?;
    (slot < SLOTS).then_some(slot)
}

/// Returns the rate of a link that is guaranteed to packets without a circuit, in bit/s.
pub(super) fn rest(link: Rate, circuits: Rate) -> Rate {
    link.saturating_sub(circuits)
        .max(link / MIN_REST_DIVISOR)
        .max(1)
}

/// Returns the burst of a class, in bytes.
pub(super) fn burst(rate: Rate) -> u64 {
    bytes_in(rate, BURST_MILLISECONDS).max(LEAST_BURST)
}

/// Returns the length of a circuit's queue, in bytes.
pub(super) fn queue(rate: Rate) -> u64 {
    bytes_in(rate, QUEUE_MILLISECONDS).clamp(LEAST_QUEUE, MOST_QUEUE)
}

const fn bytes_in(rate: Rate, milliseconds: u64) -> u64 {
    rate.saturating_mul(milliseconds) / BITS_A_BYTE_AND_MILLISECONDS_A_SECOND
}
