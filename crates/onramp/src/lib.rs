//! The on-ramp: brings connections of programs that know nothing of it onto routes.
//!
//! Programs come in by a proxy's protocol, by a port that leads to one destination, by a firewall's
//! redirection, or by the Unix socket where a hook or the C API asks for them (`crates/ramp`). For
//! each connection [`choose`](choose::choose) decides whether it goes directly or by a route; then
//! its bytes are carried, and how it ends at one side is how it ends at the other.
//!
//! [`Onramp::start`] is the whole of it.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)] // much of what is read here comes from other programs
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::time::Duration;

mod asker;
pub mod choose;
mod config;
mod destination;
mod destinations;
mod door;
mod engine;
mod error;
mod exit;
mod failure;
mod file_stamp;
mod forward;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod listening;
mod metrics;
mod onramp;
mod peers;
mod route;
mod socks;
mod status;
mod table;
mod unix;
mod waiting;

pub use config::{Forward, Guests, Login, OnrampConfig};
pub use destination::{Destination, Wish};
pub use destinations::Destinations;
pub use error::OnrampError;
pub use onramp::{Onramp, Places};
pub use status::status;
pub use unix::answers;

/// How long a program on this machine may not read what is for it. A stopped program is not a dead
/// one, and the kernel tells of dead ones.
const PROGRAM_UNACKNOWLEDGED: Duration = Duration::from_secs(24 * 3600);
/// Wait after an accept that failed for want of descriptors or memory.
const RETRY: Duration = Duration::from_millis(100);
