//! What can go wrong, in one line each.

use std::{io, time::Duration};

/// Why a measurement did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No session came about: the text names the hop and why.
    #[error(transparent)]
    Connect(longhaul_session::Error),
    /// The server does not take this measurement: ask for less, later, or another server.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The peer sent what the protocol does not allow: do both ends run the same release?
    #[error("the peer broke the measurement's protocol: {0}; do both ends run the same release?")]
    Protocol(String),
    /// A session ended in the middle: a hop or the peer died.
    #[error("the measurement broke off: {0}")]
    Cut(#[source] io::Error),
    /// A session stood still for too long: the path or the peer is gone.
    #[error("the measurement broke off: nothing moved for {} s while {doing}", after.as_secs())]
    Silent {
        /// What was waited for.
        doing: &'static str,
        /// For how long.
        after: Duration,
    },
    /// Both ends finished and their counts cannot both be true.
    #[error("the ends disagree: {sent} bytes were sent and {received} are said to have arrived")]
    Disagreement {
        /// Bytes sent.
        sent: u64,
        /// Bytes that arrived, by the receiver's count.
        received: u64,
    },
    /// The kernel did not do what the measurement needs of a socket.
    #[error("cannot {doing}: {source}")]
    Socket {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl From<longhaul_session::Error> for Error {
    fn from(error: longhaul_session::Error) -> Self {
        if error.is_about_the_service() {
            let advice = "it takes no measurements: start it with --perf, or run longhaul perf --serve there";
            return Self::Refused(advice.to_owned());
        }
        Self::Connect(error)
    }
}
