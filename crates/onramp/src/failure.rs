//! Why a connection was not made: in words, and as `connect` reports it.

use std::io;

use longhaul_proto::{FailureKind, StatusCode};
use longhaul_session::Error;
use rustix::io::Errno;

/// A connection that was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failed {
    /// As `connect` reports it.
    pub errno: Errno,
    /// What failed, where, in one line.
    pub what: String,
}

impl Failed {
    pub(crate) fn new(errno: Errno, what: impl Into<String>) -> Self {
        Self {
            errno,
            what: what.into(),
        }
    }

    /// Of a direct connection.
    pub(crate) fn direct(error: &io::Error) -> Self {
        Self::new(errno_of(error), error.to_string())
    }

    /// Of a session.
    pub(crate) fn session(error: &Error) -> Self {
        Self::new(session_errno(error), error.to_string())
    }
}

/// The number that an error of the system has, or would have.
pub(crate) fn errno_of(error: &io::Error) -> Errno {
    if let Some(number) = error.raw_os_error() {
        return Errno::from_raw_os_error(number);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => Errno::CONNRESET,
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        io::ErrorKind::NetworkUnreachable => Errno::NETUNREACH,
        io::ErrorKind::AddrNotAvailable => Errno::ADDRNOTAVAIL,
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        // A name that does not exist among them: there is no host to reach.
        _ => Errno::HOSTUNREACH,
    }
}

/// What a program is told of a session that did not come about. An error that it knows from TCP is told only where it is the
/// destination's: a depot that is not there is no network to the program.
fn session_errno(error: &Error) -> Errno {
    match error {
        Error::Hop(failure) => match failure.kind {
            FailureKind::Acceptor(code) => match code {
                StatusCode::DialRefused | StatusCode::Overloaded | StatusCode::Draining => Errno::CONNREFUSED,
                StatusCode::DialTimeout => Errno::TIMEDOUT,
                StatusCode::DialUnreachable | StatusCode::NameNotFound => Errno::HOSTUNREACH,
                other => by_code(other),
            },
            FailureKind::Depot(StatusCode::DialTimeout) | FailureKind::TimedOut => Errno::TIMEDOUT,
            FailureKind::Depot(code) => by_code(code),
            FailureKind::NotConnected | FailureKind::Closed => Errno::NETUNREACH,
            FailureKind::Garbled(_) | FailureKind::OutOfOrder | FailureKind::Forged => Errno::PROTO,
        },
        Error::NotConnected { depot, source, .. } => match (errno_of(source), depot) {
            (Errno::TIMEDOUT, _) => Errno::TIMEDOUT,
            (errno, false) => errno,
            (_, true) => Errno::NETUNREACH,
        },
        Error::FellBack { direct, .. } => session_errno(direct),
        Error::ServerKey { .. } | Error::UnknownServer { .. } => Errno::ACCESS,
        Error::Tls { source, .. } if source.kind() == io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        Error::Tls { .. } => Errno::PROTO,
        _ => Errno::INVAL,
    }
}

const fn by_code(code: StatusCode) -> Errno {
    match code {
        StatusCode::Unauthorised | StatusCode::Refused | StatusCode::BadSignature => Errno::ACCESS,
        _ => Errno::NETUNREACH,
    }
}
