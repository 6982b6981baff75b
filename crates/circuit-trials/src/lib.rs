//! Trials with random bandwidth requests on real networks. An independent checker verifies each
//! answer.
//!
//! | module | purpose |
//! |---|---|
//! | [`networks`] | ESnet, and three networks of the Internet Topology Zoo |
//! | [`requests`] | the requests, the same for the same seed |
//! | [`trial`] | makes the requests and checks the answers; applies OSCARS' published rule, too |
//! | [`check`] | an independent, slow and simple check of answers |
//! | [`oscars`] | admission by OSCARS' published rule, for comparison |
//! | [`load`] | duration of a decision with many existing reservations |
//!
//! For tests and figures only; no decision depends on it.

pub mod check;
pub mod load;
pub mod networks;
pub mod oscars;
pub mod requests;
pub mod trial;

use longhaul_circuits::time::MomentMs;

/// A minute, in milliseconds.
pub const MINUTE: MomentMs = 60_000;
/// An hour, in milliseconds.
pub const HOUR: MomentMs = 60 * MINUTE;

/// Error that ends a trial.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A network is unsuitable, or its file cannot be read.
    #[error("{network}: {why}")]
    Network {
        /// Name of the network.
        network: &'static str,
        /// Cause.
        why: String,
    },
    /// The checker found an answer to be wrong.
    #[error("request {number}: {what}")]
    Wrong {
        /// Index of the request, from 0.
        number: usize,
        /// Description of the error.
        what: String,
    },
    /// The book refused its own entry.
    #[error("the book: {0}")]
    Book(String),
    /// More is promised on a link than it can carry.
    #[error("a link is overbooked: {0}")]
    Overbooked(String),
}
