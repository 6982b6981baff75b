//! A depot between real sockets on loopback. The tests do not sleep or use fixed ports: they wait
//! for events, and timeouts run in tokio's paused time.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "failed tests panic"
)]

mod bed;
mod ends;
mod faults;
mod grants;
mod hostile;
mod life;
mod loose;
mod probes;
mod refusals;
mod reload;
mod session;
