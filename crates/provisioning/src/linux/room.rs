//! Numbers and sizes of the classes on an interface.

use longhaul_circuits::time::BitsPerSecond;

use super::config::{KernelNumbers, MAX_SLOTS};

/// Parent of all other classes: the whole link.
pub(super) const ROOT_CLASS: u16 = 1;
/// Class of packets without a circuit.
pub(super) const REST_CLASS: u16 = 2;
/// Class of slot 0.
const FIRST_CLASS: u16 = 0x10;

/// Reciprocal of the minimum share of a link for packets without a circuit, whatever is reserved.
const MIN_REST_DIVISOR: BitsPerSecond = 100;

/// Burst of a class, in milliseconds of its rate. Timers are not finer on every machine.
const BURST_MILLISECONDS: u64 = 1;
/// Minimum burst of a class, in bytes: the largest packet that the kernel builds.
const MIN_BURST_BYTES: u64 = 64 << 10;

/// Maximum delay in a circuit's queue, in milliseconds. Senders that pace to the rate never need as
/// much.
const QUEUE_MILLISECONDS: u64 = 50;
/// Minimum length of a queue, in bytes: a few of the largest packets that the kernel builds.
const MIN_QUEUE_BYTES: u64 = 256 << 10;
/// Maximum length of a queue, in bytes: `tc` takes 32 bits.
const MAX_QUEUE_BYTES: u64 = 1 << 30;

const BITS_A_BYTE_AND_MILLISECONDS_A_SECOND: u64 = 8 * 1_000;

/// Returns the class of a slot in the format of `tc`.
pub(super) fn class_id(numbers: &KernelNumbers, slot: u16) -> String {
    format!("{:x}:{:x}", numbers.handle, FIRST_CLASS + slot)
}

/// Returns the slot of a class.
pub(super) fn slot_of_class(minor: u16) -> Option<u16> {
    let slot = minor.checked_sub(FIRST_CLASS)?;
    (slot < MAX_SLOTS).then_some(slot)
}

/// Returns the rate of a link that is guaranteed to packets without a circuit, in bit/s.
pub(super) fn unreserved_rate(link: BitsPerSecond, circuits: BitsPerSecond) -> BitsPerSecond {
    link.saturating_sub(circuits)
        .max(link / MIN_REST_DIVISOR)
        .max(1)
}

/// Returns the burst of a class, in bytes.
pub(super) fn burst_bytes(rate: BitsPerSecond) -> u64 {
    bytes_in(rate, BURST_MILLISECONDS).max(MIN_BURST_BYTES)
}

/// Returns the length of a circuit's queue, in bytes.
pub(super) fn queue_bytes(rate: BitsPerSecond) -> u64 {
    bytes_in(rate, QUEUE_MILLISECONDS).clamp(MIN_QUEUE_BYTES, MAX_QUEUE_BYTES)
}

const fn bytes_in(rate: BitsPerSecond, milliseconds: u64) -> u64 {
    rate.saturating_mul(milliseconds) / BITS_A_BYTE_AND_MILLISECONDS_A_SECOND
}
