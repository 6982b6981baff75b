//! Numbers and sizes of classes: who has which share of an interface.

use longhaul_circuits::time::Rate;

use super::config::{Numbers, SLOTS};

/// The class below which all others stand: the link.
pub(super) const ROOT_CLASS: u16 = 1;
/// The class of packets without a circuit.
pub(super) const REST_CLASS: u16 = 2;
/// The class of slot 0.
const FIRST_CLASS: u16 = 0x10;

/// Packets without a circuit have at least this part of the link, whatever is reserved: one in so
/// many.
const MIN_REST_DIVISOR: Rate = 100;

/// A class may send so much at once, in milliseconds of its rate: timers are not finer on every
/// machine.
const BURST_MILLISECONDS: u64 = 1;
/// The least that a class may send at once, in bytes: a packet as large as the kernel makes them.
const LEAST_BURST: u64 = 64 << 10;

/// How long a packet waits at most in a circuit's queue, in milliseconds: longer than senders that
/// are paced to the rate ever need.
const QUEUE_MILLISECONDS: u64 = 50;
/// The least that a queue holds, in bytes: a few packets as large as the kernel makes them.
const LEAST_QUEUE: u64 = 256 << 10;
/// The most that a queue holds, in bytes: `tc` takes no more than 32 bits.
const MOST_QUEUE: u64 = 1 << 30;

const BITS_A_BYTE_AND_MILLISECONDS_A_SECOND: u64 = 8 * 1_000;

/// The class of a slot as `tc` writes it.
pub(super) fn class_of(numbers: &Numbers, slot: u16) -> String {
    format!("{:x}:{:x}", numbers.handle, FIRST_CLASS + slot)
}

/// The slot of a class.
pub(super) fn slot_of_class(minor: u16) -> Option<u16> {
    let slot = minor.checked_sub(FIRST_CLASS)?;
    (slot < SLOTS).then_some(slot)
}

/// What packets without a circuit have of a link for themselves, in bit/s.
pub(super) fn rest(link: Rate, circuits: Rate) -> Rate {
    link.saturating_sub(circuits)
        .max(link / MIN_REST_DIVISOR)
        .max(1)
}

/// What a class of a rate may send at once, in bytes.
pub(super) fn burst(rate: Rate) -> u64 {
    bytes_in(rate, BURST_MILLISECONDS).max(LEAST_BURST)
}

/// What a circuit's queue holds, in bytes.
pub(super) fn queue(rate: Rate) -> u64 {
    bytes_in(rate, QUEUE_MILLISECONDS).clamp(LEAST_QUEUE, MOST_QUEUE)
}

const fn bytes_in(rate: Rate, milliseconds: u64) -> u64 {
    rate.saturating_mul(milliseconds) / BITS_A_BYTE_AND_MILLISECONDS_A_SECOND
}
