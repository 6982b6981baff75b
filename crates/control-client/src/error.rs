//! Why a service could not be asked.

use std::path::PathBuf;

use longhaul_api::Problem;
use longhaul_api::signatures::SignatureError;
use longhaul_proto::{Endpoint, PublicKey};

/// A service cannot be asked, or says no.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at the socket.
    #[error("nothing answers at {}: {source}", longhaul_config::home::shown(.path))]
    NoSocket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nobody answers there.
    #[error("cannot connect to the {service} at {server}: {source}")]
    Unreachable {
        /// What was asked, in a word.
        service: &'static str,
        /// Where.
        server: Endpoint,
        /// Why.
        source: std::io::Error,
    },
    /// What answers there is not known.
    #[error(
        "the server {server} is not known and shows key {found}: if that is its key, give --host-key {found}, or --accept-new to \
         remember it"
    )]
    Unknown {
        /// Where.
        server: Endpoint,
        /// The key that it showed.
        found: PublicKey,
    },
    /// It is not who it was.
    #[error(
        "the {service} at {server} shows key {found}, but {expected} is expected: somebody may be in between"
    )]
    OtherKey {
        /// What was asked, in a word.
        service: &'static str,
        /// Where.
        server: Endpoint,
        /// The key that is pinned or known.
        expected: PublicKey,
        /// The key that it showed.
        found: PublicKey,
    },
    /// TLS did not come about.
    #[error(
        "no secure connection to the {service} at {server}: {source}; --ca FILE names the authority of its certificate"
    )]
    NotSecure {
        /// What was asked, in a word.
        service: &'static str,
        /// Where.
        server: Endpoint,
        /// Why.
        source: std::io::Error,
    },
    /// The request cannot be signed.
    #[error(transparent)]
    Sign(#[from] SignatureError),
    /// The request cannot be made.
    #[error("cannot ask the {service} that: {why}")]
    Request {
        /// What was asked, in a word.
        service: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// It says why not.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// It ended in between.
    #[error("the {service} broke off: {why}")]
    BrokeOff {
        /// What was asked, in a word.
        service: &'static str,
        /// How.
        why: String,
    },
    /// It did not answer in time.
    #[error("the {service} did not answer within {} ms", .within.as_millis())]
    Silent {
        /// What was asked, in a word.
        service: &'static str,
        /// The bound.
        within: std::time::Duration,
    },
    /// It is of another release.
    #[error(
        "the {service}'s answer is not understood: {why}; if it is of another release, start it anew"
    )]
    Answer {
        /// What was asked, in a word.
        service: &'static str,
        /// What is not.
        why: String,
    },
}

impl ClientError {
    /// Whether the same request may be answered at another time: nothing is wrong with it, or with
    /// who asks.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NoSocket { .. }
            | Self::Unreachable { .. }
            | Self::NotSecure { .. }
            | Self::BrokeOff { .. }
            | Self::Silent { .. } => true,
            Self::Refused(problem) => problem.status >= 500 || matches!(problem.status, 408 | 429),
            _ => false,
        }
    }
}
