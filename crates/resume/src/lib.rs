//! A byte stream that continues over another connection when its connection dies. Events and the
//! time in, bytes and decisions out, without I/O, clock or locks, so that all of it is tested in
//! virtual time.
//!
//! | module | purpose |
//! |---|---|
//! | [`end`](ResumableEnd) | the state machine of one end |
//! | `frame` | frames on a connection, and their decoder |
//! | `queue` | bytes by their offset in the stream |
//! | [`proof`](ResumeSecret) | proof that a party belongs to the stream |
//! | [`attempts`](AttemptPlan) | which route is tried next, and when |
//!
//! # The rules
//!
//! 1. Every byte has an offset. The sender keeps each byte until the peer has acknowledged it. A
//!    new connection begins with the offset up to which each end has received, and the sender
//!    repeats what is behind it. So each byte is delivered once and in order.
//! 2. The end of a direction occupies one offset behind the last byte, and is acknowledged in the
//!    same way. A stream is settled when both ends have been acknowledged.
//! 3. Each connection has a number, its *epoch*. The acceptor takes only a higher one than before,
//!    so an older connection that reappears is fenced off.
//! 4. The receiver always reads, and says how far the sender may send. So acknowledgements never
//!    wait behind data that nobody reads, and memory is bounded.
//! 5. A connection is dead if it ends, or if nothing arrives for several round trips while an
//!    answer is outstanding. Pings make sure that an answer is outstanding often enough.
//! 6. Without a connection for longer than the limit, the stream ends with an error.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // input from the network
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod attempts;
mod end;
mod frame;
mod proof;
mod queue;

pub use attempts::AttemptPlan;
pub use end::{
    AttachError, CloseReason, INITIAL_WINDOW_BYTES, LinkLoss, MemoryAllowance, OUTPUT_PARTS,
    ReadOutcome, ResumableEnd, ResumeAttempt, Role, StreamCounts, StreamLimits,
};
pub use frame::MAX_FRAME_DATA_BYTES;
pub use proof::{PROOF_BYTES, ResumeSecret};
