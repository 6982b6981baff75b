//! The on-ramp's entries, over loopback, with sessions to programs that listen through another
//! on-ramp.

// Failed tests panic, also in helpers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod programs;
mod proxies;
mod spread;
mod world;
