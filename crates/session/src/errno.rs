//! Error numbers (errno) for programs whose `connect` is carried by a session.
//!
//! Errors at the server to which the program connects keep the number that the kernel would report.
//! Errors on the path, which the program does not know about, become `ENETUNREACH`, or `ETIMEDOUT`
//! for timeouts. A program without permission gets `EACCES`, as from a local firewall.

use std::io;

use longhaul_proto::{ChainFailure, FailureKind, StatusCode};
use rustix::io::Errno;

use crate::{Error, FirstPlace};

impl Error {
    /// Returns the operating system's error number that the program's `connect` reports; never 0.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.as_errno().raw_os_error()
    }

    fn as_errno(&self) -> Errno {
        match self {
            Self::Hop(failure) => of_chain(failure),
            Self::NotConnected { place, source, .. } => {
                let errno = of_io(source);
                match place {
                    FirstPlace::Server => errno,
                    FirstPlace::Depot | FirstPlace::Offramp if errno == Errno::TIMEDOUT => errno,
                    FirstPlace::Depot | FirstPlace::Offramp => Errno::NETUNREACH,
                }
            }
            Self::FellBack { direct, .. } => direct.as_errno(),
            Self::ServerKey { .. } | Self::UnknownServer { .. } => Errno::ACCESS,
            Self::Tls { source, .. } if source.kind() == io::ErrorKind::TimedOut => Errno::TIMEDOUT,
            Self::Tls { .. } => Errno::PROTO,
            _ => Errno::NETUNREACH,
        }
    }
}

/// Returns the error number of a connection that was dialled directly; never 0.
#[must_use]
pub fn errno_of(error: &io::Error) -> i32 {
    of_io(error).raw_os_error()
}

fn of_chain(failure: &ChainFailure) -> Errno {
    match failure.kind {
        FailureKind::Depot(code) | FailureKind::Acceptor(code) => of_code(code, failure.at_server),
        FailureKind::TimedOut => Errno::TIMEDOUT,
        _ => Errno::NETUNREACH,
    }
}

/// Maps a status code. `at_server` is true if the reported party is the server itself.
const fn of_code(code: StatusCode, at_server: bool) -> Errno {
    match (code, at_server) {
        (StatusCode::DialRefused, true) => Errno::CONNREFUSED,
        (StatusCode::DialUnreachable | StatusCode::NameNotFound, true) => Errno::HOSTUNREACH,
        (StatusCode::DialTimeout | StatusCode::SetupTimeout | StatusCode::HeaderTimeout, _) => {
            Errno::TIMEDOUT
        }
        (
            StatusCode::Unauthorised
            | StatusCode::Refused
            | StatusCode::WishRefused
            | StatusCode::GrantRefused,
            _,
        ) => Errno::ACCESS,
        _ => Errno::NETUNREACH,
    }
}

fn of_io(error: &io::Error) -> Errno {
    // An error wrapped with its location still contains the number.
    let inside = || {
        let mut source = error.get_ref().and_then(|inner| inner.source());
        while let Some(cause) = source {
            if let Some(number) = cause
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error)
            {
                return Some(number);
            }
            source = cause.source();
        }
        None
    };
    let number = error.raw_os_error().or_else(inside);
    if let Some(errno) = number
        .filter(|number| (1..4096).contains(number))
        .map(Errno::from_raw_os_error)
    {
        return errno;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        io::ErrorKind::ConnectionReset => Errno::CONNRESET,
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        io::ErrorKind::NetworkUnreachable => Errno::NETUNREACH,
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        io::ErrorKind::AddrNotAvailable => Errno::ADDRNOTAVAIL,
        _ => Errno::HOSTUNREACH,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::Endpoint;

    use super::*;

    fn endpoint() -> Endpoint {
        "server.example:7512".parse().unwrap()
    }

    fn reported(kind: FailureKind, at_server: bool) -> Error {
        Error::Hop(Box::new(ChainFailure {
            clock_ahead_ms: None,
            kind,
            hop: 2,
            endpoint: Some(endpoint()),
            tried: None,
            offramp: true,
            at_server,
            detail: String::new(),
            nothing_forwarded: false,
        }))
    }

    #[test]
    fn an_offramps_dial_error_has_the_kernels_errno() {
        for (code, errno) in [
            (StatusCode::DialRefused, Errno::CONNREFUSED),
            (StatusCode::DialUnreachable, Errno::HOSTUNREACH),
            (StatusCode::NameNotFound, Errno::HOSTUNREACH),
            (StatusCode::DialTimeout, Errno::TIMEDOUT),
        ] {
            let error = reported(FailureKind::Acceptor(code), true);
            assert_eq!(error.errno(), errno.raw_os_error(), "{error}");
        }
        for code in [
            StatusCode::Refused,
            StatusCode::Unauthorised,
            StatusCode::WishRefused,
        ] {
            let error = reported(FailureKind::Acceptor(code), false);
            assert_eq!(error.errno(), Errno::ACCESS.raw_os_error(), "{error}");
        }
    }

    #[test]
    fn errors_on_the_path_are_not_the_servers() {
        for (code, errno) in [
            (StatusCode::DialRefused, Errno::NETUNREACH),
            (StatusCode::NameNotFound, Errno::NETUNREACH),
            (StatusCode::Overloaded, Errno::NETUNREACH),
            (StatusCode::DialTimeout, Errno::TIMEDOUT),
        ] {
            let error = reported(FailureKind::Depot(code), false);
            assert_eq!(error.errno(), errno.raw_os_error(), "{error}");
        }
        let refused = |place| Error::NotConnected {
            endpoint: endpoint(),
            place,
            source: io::ErrorKind::ConnectionRefused.into(),
        };
        for (place, errno) in [
            (FirstPlace::Server, Errno::CONNREFUSED),
            (FirstPlace::Offramp, Errno::NETUNREACH),
            (FirstPlace::Depot, Errno::NETUNREACH),
        ] {
            assert_eq!(refused(place).errno(), errno.raw_os_error(), "{place}");
        }
        let both = Error::FellBack {
            route: Box::new(refused(FirstPlace::Depot)),
            direct: Box::new(refused(FirstPlace::Server)),
        };
        assert_eq!(both.errno(), Errno::CONNREFUSED.raw_os_error());
    }

    #[test]
    fn every_code_has_a_number() {
        for &code in StatusCode::ALL {
            for (kind, at_server) in [
                (FailureKind::Acceptor(code), true),
                (FailureKind::Acceptor(code), false),
                (FailureKind::Depot(code), false),
            ] {
                assert!(reported(kind, at_server).errno() > 0);
            }
        }
    }

    #[test]
    fn a_wrapped_errno_is_found() {
        let address = "192.0.2.1:9".parse().unwrap();
        for errno in [
            Errno::CONNREFUSED,
            Errno::HOSTUNREACH,
            Errno::NETUNREACH,
            Errno::MFILE,
        ] {
            let wrapped = io::Error::from(longhaul_hop::DialError::Failed {
                address,
                source: errno.into(),
            });
            assert_eq!(errno_of(&wrapped), errno.raw_os_error());
        }
        assert_eq!(
            errno_of(&longhaul_hop::DialError::Timeout(address).into()),
            Errno::TIMEDOUT.raw_os_error()
        );
    }
}
