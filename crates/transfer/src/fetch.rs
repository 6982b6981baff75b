//! Copies between two servers: one of them fetches from the other in the name of a client, by a
//! session with the service `fetch` (`docs/fetch-protocol.md`, whose rules are cited as
//! `LH-FETCH-1`). No file data passes through the client.
//!
//! [`fetch`] is the client's side. The server's is [`crate::serve_fetch`].

mod client;
pub mod message;

use std::time::Duration;

pub use client::{FetchOutcome, FetchView, fetch};

/// Version of the messages (LH-FETCH-1).
pub const FETCH_VERSION: u16 = 1;
/// Time for which each delegation is valid. The client renews it while it stays (LH-FETCH-4).
pub const DELEGATION_LIFETIME: Duration = Duration::from_secs(3600);
/// Time for which a delegation is valid before it is signed, as the clocks of client and server
/// differ.
pub const CLOCK_MARGIN: Duration = Duration::from_secs(300);
/// Interval at which the client renews the delegation (LH-FETCH-4).
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1200);
/// Interval at which the client looks whether it must renew the delegation.
const RENEWAL_CHECKS: Duration = Duration::from_secs(30);
