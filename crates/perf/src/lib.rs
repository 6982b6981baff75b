//! Measures a path from memory to memory, and calculates the requirements of a long path.
//!
//! [`measure`] moves bytes between this end and a [`Server`], over sessions of `longhaul-session`
//! and so over any route. Its result is an [`Outcome`] with both ends' counts, and [`report`]
//! writes it with the field names of `iperf3 --json`. [`plan`] calculates, from rate, round trip
//! and segment size, the conditions for a flow to fill a long path. [`record`] judges a measurement
//! by the rules of the Internet2 Land Speed Record.
//!
//! The rules that the code cites (`LH-PERF-1`) are those of `docs/protocol.md`.

mod carry;
mod client;
mod cpu;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod limits;
pub mod plan;
mod pump;
pub mod record;
pub mod report;
mod server;
mod watch;
mod window;
pub mod wire;

pub use carry::{Carried, StreamTotal};
pub use client::{Connection, Outcome, StreamOutcome, Test, measure};
pub use error::Error;
pub use limits::Limits;
pub use server::Server;
pub use watch::{Interval, StreamInterval};
