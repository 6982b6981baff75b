//! Congestion control of QUIC hops: measures the path's rate and round trip, paces packets at that
//! rate, and tells random loss from overflowing queues. Events in, decisions out, without I/O,
//! clock or locks, so that all of it is tested in virtual time.
//!
//! | module | purpose |
//! |---|---|
//! | [`controller`] | the state machine: events of the connection in, window and pacing out |
//! | `delivery` | rounds, and samples of the delivery rate |
//! | `maximum` | maximum of recent rounds |
//! | `base` | smallest round trip, and its measurement |
//! | `mode` | start-up, draining, and the cycle |
//! | `loss` | comparison of losses with and without a queue |
//! | `limit` | amount in flight after congestion |
//! | `aggregation` | bytes that bursts of acknowledgements need in addition |
//! | `cycle` | probing for more bandwidth |
//! | `pacer` | departure times |
//!
//! # The rules
//!
//! 1. The bandwidth is the maximum of the delivery rate over ten rounds. The base round trip is the
//!    minimum over ten seconds. If it was not seen for that long, less is kept in flight for a
//!    moment, to see it again.
//! 2. Packets leave at the bandwidth times a gain: 2.77 in start-up, 0.36 to drain the queue of the
//!    start-up, then a cycle of 1.25, 0.75 and six times 1.0. Random loss is added to the rate, so
//!    that what arrives fills the path.
//! 3. At most two bandwidth-delay products are in flight, and what bursts of acknowledgements need.
//! 4. Loss is congestion only if packets that met a queue are lost significantly more often than
//!    packets that met none. Then the amount in flight shrinks, and grows back slowly.
//!
//! # Why rule 4
//!
//! A controller that slows down at each loss needs one loss in 10^8 packets or fewer to fill long
//! paths. One that ignores loss starves other flows, because it never yields when a queue
//! overflows. A bound on the loss rate (2 % in some controllers) is both: too low for bad paths,
//! too high for good ones. An overflow has a sign that random loss lacks: it happens when the queue
//! is full, so the round trip is long. Rule 4 compares the two loss rates by a likelihood-ratio
//! test over several rounds, because a single round of a hundred packets cannot show 0.1 %.
//!
//! # Limits
//!
//! Where the queue is much shorter than the bandwidth-delay product, CUBIC flows on the same path
//! get little: they shrink at each overflow, and this controller keeps what fills the path. Where
//! jitter is longer than a twentieth of the round trip, it looks like a queue, so loss counts as
//! congestion rather early.
//!
//! # Units
//!
//! Times are durations since an origin that the caller chooses once. Rates are bytes per second,
//! and sizes are bytes of UDP payload.

#![forbid(unsafe_code)]

mod aggregation;
mod base;
pub mod controller;
mod cycle;
mod delivery;
mod limit;
mod loss;
mod maximum;
mod mode;
mod pacer;

pub use controller::{Controller, RoundTrip};
pub use delivery::PacketStamp;
