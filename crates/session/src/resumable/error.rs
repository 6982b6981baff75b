//! Errors that end a resumable session.

use std::io;
use std::time::Duration;

use longhaul_resume::CloseReason;

/// Reason why a resumable session ended early. It is the source of the [`io::Error`] that reads and
/// writes return.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The connection was lost, and no route carried the session on in time. Check the depots of
    /// the route, and name a second route (`alternatives` in `routes.toml`).
    #[error(
        "the connection was lost ({loss}), and no route resumed the session within {} s{}",
        .within.as_secs_f64(),
        .last_failure.as_ref().map(|why| format!("; last attempt: {why}")).unwrap_or_default()
    )]
    NotResumed {
        /// Maximum time without a connection.
        within: Duration,
        /// Reason why the connection was lost.
        loss: String,
        /// Reason why the last attempt failed, at the end that makes them.
        last_failure: Option<String>,
    },
    /// The connection was lost, and the off-ramp does not know the session any more: it was
    /// restarted, or it gave up earlier. Connect again.
    #[error("the connection was lost, and the other end cannot resume the session: {0}")]
    Refused(String),
    /// The other end broke a rule of the protocol. Use the same release at both ends.
    #[error("the other end broke the rules of a resumable session: {0}")]
    Violation(&'static str),
    /// The other end reset the session.
    #[error("the other end reset the session")]
    Reset,
}

impl ResumeError {
    /// Returns the error of a stream that is over; `None` if it finished.
    pub(super) fn from_reason(reason: &CloseReason) -> Option<Self> {
        Some(match reason {
            CloseReason::Finished => return None,
            CloseReason::ResetByPeer | CloseReason::ResetHere => Self::Reset,
            CloseReason::NotResumed {
                within,
                loss,
                last_failure,
            } => Self::NotResumed {
                within: *within,
                loss: loss.to_string(),
                last_failure: last_failure.clone(),
            },
            CloseReason::Refused(why) => Self::Refused(why.clone()),
            CloseReason::Violation(what) => Self::Violation(what),
        })
    }
}

impl From<ResumeError> for io::Error {
    fn from(error: ResumeError) -> Self {
        let kind = match &error {
            ResumeError::NotResumed { .. } => io::ErrorKind::TimedOut,
            ResumeError::Violation(_) => io::ErrorKind::InvalidData,
            ResumeError::Refused(_) | ResumeError::Reset => io::ErrorKind::ConnectionReset,
        };
        Self::new(kind, error)
    }
}
