//! An off-ramp between real sockets on loopback. The tests do not sleep or use fixed ports: they
//! wait for events.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "failed tests panic"
)]

mod bed;
mod bytes;
mod life;
mod refusals;
mod resume_attacks;
mod resuming;
