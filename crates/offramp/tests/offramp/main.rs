//! An off-ramp between real sockets on loopback. Nothing here sleeps or knows a port: what is
//! waited for is an event.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says by panicking that it failed"
)]

mod bed;
mod bytes;
mod life;
mod refusals;
