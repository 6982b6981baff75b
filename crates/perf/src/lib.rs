//! Measures a path from memory to memory, and plans what a long path needs.
//!
//! [`measure`] moves bytes between this end and a [`Server`], over sessions of `longhaul-session`
//! and so over any route; what both ends counted is an [`Outcome`], and [`report`] writes it in the
//! field names of `iperf3 --json`. [`plan`] works out, from rate, round trip and segment size, what
//! has to hold for a flow to fill a long path. [`record`] judges a measurement by the rules of the
//! Internet2 Land Speed Record.
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
