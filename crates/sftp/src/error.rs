//! Errors of copies by SFTP.

use std::time::Duration;

use longhaul_transfer::{Failure, FailureKind};

/// Reasons why a copy by SFTP does not begin, or ends early. Hosts are named as they were typed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text behind `sftp://` is not a host and a path. Write `sftp://user@host:port/path`.
    #[error("{text}: not a host and a path; write sftp://user@host:port/path")]
    Location {
        /// Text as typed.
        text: String,
    },
    /// The login works, but the server has no SFTP, or does not allow it to this login. Ask its
    /// administrator, or use longhaul there.
    #[error("{host} has no sftp for this login: {reason}; ask its administrator for it")]
    NoSftp {
        /// Host.
        host: String,
        /// Reason that ssh gives.
        reason: String,
    },
    /// The host's answer is not SFTP. Usually, a startup file prints to standard output there:
    /// have it print to terminals only.
    #[error(
        "{host} does not answer as an SFTP server: {reason}; have its startup files print to \
         terminals only"
    )]
    NotSftp {
        /// Host.
        host: String,
        /// Reason.
        reason: String,
    },
    /// No connection to the server works any more, and none could be opened for `--patience`. The
    /// same command resumes.
    #[error("the copy broke off: {host} did not answer for {} s: {reason}", silence.as_secs())]
    BrokeOff {
        /// Host.
        host: String,
        /// Time without an answer.
        silence: Duration,
        /// Reason of the last failure.
        reason: String,
    },
    /// An option has no meaning with SFTP. Leave it out, or use longhaul at the host.
    #[error("{option} is not possible by sftp: {reason}")]
    Unsupported {
        /// The option.
        option: &'static str,
        /// Reason.
        reason: &'static str,
    },
    /// A path at the host cannot be used.
    #[error("{path}: {failure}")]
    Path {
        /// Path as the user gave it.
        path: String,
        /// Reason.
        failure: Failure,
    },
    /// ssh could not log in.
    #[error(transparent)]
    Login(#[from] longhaul_remote::Error),
    /// The local end cannot be used.
    #[error(transparent)]
    Copy(#[from] longhaul_transfer::Error),
}

/// Status of a request that the server refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    NotFound,
    Denied,
    /// Anything else that went wrong there, such as a full disk, or a name that exists.
    Failure,
    /// The request is malformed or too long.
    Invalid,
    /// The server does not know the request.
    Unsupported,
}

/// Reason why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The connection has ended. Another one may answer.
    Lost,
    /// The server refuses.
    Refused(Status, String),
    /// The answer cannot be decoded.
    Unreadable,
}

impl RequestError {
    /// Returns true if the server says that there is no such entry.
    pub(crate) const fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(Status::NotFound, _))
    }
}

/// A lost connection is not reported of an entry: its request is repeated.
impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let (status, message) = match error {
            RequestError::Refused(status, message) => (status, message),
            RequestError::Lost => {
                return Self::with_detail(FailureKind::Io, "the connection was lost");
            }
            RequestError::Unreadable => {
                return Self::with_detail(
                    FailureKind::RefusedPath,
                    "the server's answer cannot be read: names must be UTF-8 for copies by sftp",
                );
            }
        };
        let message = longhaul_proto::text::printable(message.as_bytes());
        match status {
            Status::NotFound => Self::new(FailureKind::NotFound),
            Status::Denied => Self::new(FailureKind::PermissionDenied),
            Status::Failure => Self::with_detail(
                FailureKind::Io,
                format!(
                    "the SFTP server reports \"{message}\" and no reason: a full disk or quota is \
                     the most frequent one"
                ),
            ),
            Status::Invalid => {
                let why = format!("the SFTP server refuses the name or request: \"{message}\"");
                Self::with_detail(FailureKind::Io, why)
            }
            Status::Unsupported => {
                let why = format!("the SFTP server does not know this request: \"{message}\"");
                Self::with_detail(FailureKind::Io, why)
            }
        }
    }
}
