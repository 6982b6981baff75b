//! Errors of a measurement, each displayed as one line.

use std::{io, time::Duration};

/// Reason why a measurement did not complete.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session could not be established; the text names the hop and the reason.
    #[error(transparent)]
    Connect(longhaul_session::Error),
    /// The server refuses this measurement: ask for less, try later, or use another server.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The client's key may not measure here any more, so the server ended its measurement. Its
    /// grant was withdrawn, or its certificate has ended or was revoked: ask the operator.
    #[error(
        "this key may not measure any more: its grant was withdrawn, or its certificate has ended \
         or was revoked"
    )]
    Withdrawn,
    /// The peer violated the protocol: check that both ends run the same release.
    #[error("the peer violated the measurement protocol: {0}; do both ends run the same release?")]
    Protocol(String),
    /// A session ended in the middle: a hop or the peer died.
    #[error("the measurement broke off: {0}")]
    Cut(#[source] io::Error),
    /// A session did not move for too long: the path or the peer is gone. Large packets may be
    /// lost: see `longhaul doctor HOST`.
    #[error("the measurement broke off: nothing moved for {} s while {doing}", after.as_secs())]
    Silent {
        /// Action that was waiting.
        doing: &'static str,
        /// Time that it waited.
        after: Duration,
    },
    /// Both ends finished, but their counts contradict each other.
    #[error(
        "the ends disagree: {sent} bytes were sent, but {received} bytes are reported as \
        received"
    )]
    Disagreement {
        /// Bytes sent.
        sent: u64,
        /// Bytes that arrived, by the receiver's count.
        received: u64,
    },
    /// The kernel rejected a socket operation that the measurement needs.
    #[error("cannot {doing}: {source}")]
    Socket {
        /// Attempted action.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
}

impl From<longhaul_session::Error> for Error {
    fn from(error: longhaul_session::Error) -> Self {
        if error.is_missing_service() {
            let advice = "it accepts no measurements: start it with --perf, or run longhaul perf \
                          --serve there";
            return Self::Refused(advice.to_owned());
        }
        Self::Connect(error)
    }
}
