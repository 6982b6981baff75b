//! Reservations of bandwidth. Requests of the API are in names; [`longhaul_circuits`] decides them
//! in numbers, and answers are in names again. Pure: no I/O, no clock.
//! [`crate::store::reservations`] stores the journal, and [`writer`] writes it.
//!
//! | module | purpose |
//! |---|---|
//! | [`asker`] | the caller and its rights |
//! | [`document`] | signed requests, with the certificates of their signers |
//! | [`names`] | sites and links of the map as a network with stable numbers |
//! | [`parse`] | requests as they are received, checked once |
//! | [`recurrence`] | windows of a recurrence rule (RFC 5545) |
//! | [`wanted`] | requests in the terms of the network |
//! | [`streams`] | recognition of streams: addresses, and source ports of each path |
//! | [`reported`] | answers in the terms of the API |
//! | [`delegated`] | requests of delegates, and what their delegations permit |
//! | [`desk`] | the book with owners and names: executes commands, returns journal records |
//! | [`writer`] | the only task that writes: decides, appends, answers. Not pure |

pub mod asker;
pub mod delegated;
pub mod desk;
pub mod document;
pub mod names;
pub mod parse;
pub mod record;
pub mod recurrence;
pub mod reported;
pub mod streams;
pub mod wanted;
pub mod writer;

pub use asker::ReservationCaller;
pub use desk::{CircuitResult, ReservationCommand, ReservationError, ReservationStore};
pub use record::Record;
pub use writer::{Clock, JournalWriter, ReservationsHandle};

/// Converts a time of the book into one of the API.
pub(crate) fn api_moment(moment: i64) -> u64 {
    u64::try_from(moment).unwrap_or_default()
}

/// Converts a time of the API into one of the book.
pub(crate) fn book_moment(moment: u64) -> i64 {
    i64::try_from(moment).unwrap_or(i64::MAX)
}
