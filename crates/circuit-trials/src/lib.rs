//! Random requests for bandwidth on real networks: every answer is looked over by the independent
//! checker of `longhaul-circuits`.
//!
//! | module | what it does |
//! |---|---|
//! | [`networks`] | ESnet, and three networks of the Internet Topology Zoo |
//! | [`requests`] | the requests, always the same for one seed |
//! | [`trial`] | asks for all of them and checks the answers; what OSCARS' published rule grants of the same ones |
//! | [`load`] | how long a decision takes with many reservations on the books |
//!
//! For tests and figures; nothing that decides uses it.

pub mod load;
pub mod networks;
pub mod requests;
pub mod trial;

use longhaul_circuits::time::Moment;

/// A minute, in milliseconds.
pub const MINUTE: Moment = 60_000;
/// An hour, in milliseconds.
pub const HOUR: Moment = 60 * MINUTE;

/// Why a trial could not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A network is not what the book can work with, or its file cannot be read.
    #[error("{network}: {why}")]
    Network {
        /// Which.
        network: &'static str,
        /// Why, for people.
        why: String,
    },
    /// An answer is wrong.
    #[error("request {number}: {what}")]
    Wrong {
        /// Which request, from 0.
        number: usize,
        /// What is wrong, for people.
        what: String,
    },
    /// The book refuses its own entry.
    #[error("the book: {0}")]
    Book(String),
    /// More is promised than there is.
    #[error("a link is overbooked: {0}")]
    Overbooked(String),
}
