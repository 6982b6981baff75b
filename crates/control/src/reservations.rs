//! Reservations of bandwidth: what the API asks in names, decided by [`longhaul_circuits`] in
//! numbers, and reported in names again. Pure: no I/O, no clock; the journal is kept by
//! [`crate::store::reservations`], and written by [`writer`].
//!
//! | room | what it does |
//! |---|---|
//! | [`asker`] | who asks, and what that one may do |
//! | [`document`] | requests that stay signed, with the certificates of who signed |
//! | [`names`] | sites and links of the map as a network, under numbers that stay |
//! | [`recurrence`] | windows of a recurrence rule (RFC 5545) |
//! | [`wanted`] | what is asked for, in the terms of the network |
//! | [`streams`] | how the streams of a reservation are recognised: addresses, and source ports of each path |
//! | [`reported`] | what is answered, in the terms of the API |
//! | [`desk`] | the book, with whose is what: a command in, an answer and records for the journal out |
//! | [`writer`] | the one task that writes: decides, appends, answers. Not pure |

pub mod asker;
pub mod desk;
pub mod document;
pub mod names;
pub mod recurrence;
pub mod reported;
pub mod streams;
pub mod wanted;
pub mod writer;

pub use asker::Asker;
pub use desk::{Command, Desk, DeskError, Record, Settled};
pub use writer::{Book, Clock, Writer};

/// A moment of the book as one of the API.
pub(crate) fn api_moment(moment: i64) -> u64 {
    u64::try_from(moment).unwrap_or_default()
}

/// A moment of the API as one of the book.
pub(crate) fn book_moment(moment: u64) -> i64 {
    i64::try_from(moment).unwrap_or(i64::MAX)
}
