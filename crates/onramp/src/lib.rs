//! The on-ramp: brings connections of programs that are unaware of it onto routes.
//!
//! Programs connect through a proxy protocol, a port that leads to one destination, a firewall's
//! redirection, or the Unix socket for hooks and the C API (`crates/ramp-protocol`). For each
//! connection, [`choose`](choose::choose) decides between a direct connection and a route. Then its
//! bytes are carried, and an end at one side becomes the same kind of end at the other.
//!
//! [`Onramp::start`] runs all of it.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)] // most input comes from other programs
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::time::Duration;

mod asker;
pub mod choose;
mod circuit;
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
mod metrics;
mod onramp;
mod peers;
mod resuming;
mod route;
mod socks;
mod spread;
mod status;
mod table;
mod unix;
mod waiting;

pub use config::{Forward, GuestPolicy, OnrampConfig, ProxyLogin};
pub use destination::{OnrampDestination, SessionWish};
pub use destinations::DestinationMemory;
pub use error::OnrampError;
pub use longhaul_session::ResumeLimits;
pub use onramp::{Onramp, OnrampAddresses};
pub use spread::{MAX_SHARE, PathShares, ReservedPath, ReservedPaths, SharesError};
pub use status::request_status;
pub use unix::has_listener;

/// Time for which a program on this machine may leave its data unread. A stopped program is not
/// dead, and the kernel reports dead ones.
const PROGRAM_UNACKNOWLEDGED: Duration = Duration::from_secs(24 * 3600);
/// Pause after an accept that failed for lack of descriptors or memory.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);
