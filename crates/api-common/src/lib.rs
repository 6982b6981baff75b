//! Parts of HTTP services that their clients share.
//!
//! | module | purpose |
//! |---|---|
//! | [`Problem`] | typed errors (RFC 9457) |
//! | [`signatures`] | signs requests (RFC 9421) and verifies signatures. Pure |
//! | [`tls`] | certificate of a service, and how clients verify it |

mod problem;
pub mod signatures;
pub mod tls;

pub use problem::{Problem, ProblemKind};
