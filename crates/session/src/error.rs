//! What can go wrong, in one line each: what, where, what to do.

use std::{io, net::SocketAddr, path::PathBuf};

use longhaul_hop::{CongestionError, NoRoom};
use longhaul_proto::{
    ChainFailure, Endpoint, EndpointError, FailureKind, KeyError, OpenError, PublicKey, Refusal,
    RouteError, StatusCode,
};

/// Why a session, an identity or a list of known hosts is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A hop of the route failed or refused: mend it, or take another route.
    #[error(transparent)]
    Hop(Box<ChainFailure>),
    /// The first place of the route could not be reached, so nothing was sent.
    #[error("cannot connect to {place} {endpoint}: {}", reason(endpoint, source))]
    NotConnected {
        /// Whom.
        endpoint: Endpoint,
        /// What it is.
        place: FirstPlace,
        /// Why.
        source: io::Error,
    },
    /// Neither the route nor the direct way worked.
    #[error("the route failed: {route}; and so did the direct connection: {direct}")]
    FellBack {
        /// Why the route failed.
        route: Box<Error>,
        /// Why the direct way failed.
        direct: Box<Error>,
    },
    /// The server's key is another than expected: do not go on unless you know that it was changed.
    #[error(
        "the server at {destination} shows key {found}, but {expected} is expected: somebody may be in between"
    )]
    ServerKey {
        /// The server.
        destination: Endpoint,
        /// The key that is pinned or known.
        expected: PublicKey,
        /// The key it has.
        found: PublicKey,
    },
    /// The server is not known yet: compare its key with what its operator says, then add it.
    #[error(
        "the server at {destination} is not known: compare its key {found} with its operator's before trusting it"
    )]
    UnknownServer {
        /// The server.
        destination: Endpoint,
        /// The key it has.
        found: PublicKey,
    },
    /// The server answered, but no secure session came about.
    #[error("no secure session with the server at {destination}: {source}")]
    Tls {
        /// The server.
        destination: Endpoint,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not offer that congestion control: load its module, or name another.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The listener has stopped.
    #[error("the listener has stopped")]
    Stopped,
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read a private key: take it away from them, or make a new one if they may have.
    #[error("{} may be read by others (mode {mode:04o}): run chmod 600 on it, or make a new identity", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A private key's file belongs to somebody else, who can read and change it: make it your own,
    /// or make a new identity.
    #[error("{} belongs to user {owner}, not to user {user} who runs this: make it yours (chown {user}) if you know where the key comes from, or make a new identity", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Whose it is, as a user's number.
        owner: u32,
        /// Who runs the program, likewise.
        user: u32,
    },
    /// A file holds something else than it should.
    #[error("{}{}: {why}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, if one is to blame.
        line: Option<usize>,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A key could not be made or used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The route is ill-formed.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// An endpoint is ill-formed.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// What was asked for fits no OPEN.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// At the listener: the OPEN was refused.
    #[error("refused the OPEN: {0}")]
    Refused(#[from] Refusal),
    /// At the listener: its principal has as many set-ups under way as fit.
    #[error("refused the OPEN: {0}")]
    NoRoom(#[from] NoRoom),
    /// At the listener: the service takes no such session, and has said why.
    #[error("refused the OPEN: it {code}: {detail}")]
    Declined {
        /// What was answered.
        code: StatusCode,
        /// More, in words.
        detail: String,
    },
    /// At the listener: the peer did not go through with the set-up.
    #[error("the peer did not complete the set-up: {0}")]
    Peer(#[source] io::Error),
}

/// What the first place of a route is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstPlace {
    /// A depot.
    Depot,
    /// An off-ramp, by which the server is to be reached.
    Offramp,
    /// The server itself.
    Server,
}

impl std::fmt::Display for FirstPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Depot => "depot 1",
            Self::Offramp => "the off-ramp",
            Self::Server => "the server",
        })
    }
}

impl Error {
    /// Whether no payload can have reached the server, so that another attempt repeats nothing
    /// (LH-FALLBACK-1).
    #[must_use]
    pub fn nothing_forwarded(&self) -> bool {
        match self {
            Self::Hop(failure) => failure.nothing_forwarded,
            Self::NotConnected { .. } => true,
            Self::FellBack { direct, .. } => direct.nothing_forwarded(),
            _ => false,
        }
    }

    /// Whether the server does not offer the service that was asked for.
    #[must_use]
    pub fn is_about_the_service(&self) -> bool {
        match self {
            Self::Hop(failure) => failure.kind == FailureKind::Acceptor(StatusCode::NoService),
            Self::FellBack { direct, .. } => direct.is_about_the_service(),
            _ => false,
        }
    }

    /// Whether it is about who one side is, so that nothing changes until a person changes a grant,
    /// a policy or a key.
    #[must_use]
    pub fn is_about_who(&self) -> bool {
        match self {
            Self::Hop(failure) => matches!(
                failure.kind,
                FailureKind::Depot(
                    StatusCode::Unauthorised
                        | StatusCode::Refused
                        | StatusCode::WishRefused
                        | StatusCode::GrantRefused
                ) | FailureKind::Acceptor(
                    StatusCode::Unauthorised
                        | StatusCode::Refused
                        | StatusCode::WishRefused
                        | StatusCode::GrantRefused
                )
            ),
            Self::ServerKey { .. } | Self::UnknownServer { .. } => true,
            Self::FellBack { route, direct } => route.is_about_who() && direct.is_about_who(),
            _ => false,
        }
    }

    /// Returns whether two clocks are too far apart, which stays so until a person sets one.
    #[must_use]
    pub fn is_about_clock(&self) -> bool {
        match self {
            Self::Hop(failure) => matches!(
                failure.kind,
                FailureKind::Depot(StatusCode::Expired)
                    | FailureKind::Acceptor(StatusCode::Expired)
            ),
            Self::FellBack { direct, .. } => direct.is_about_clock(),
            _ => false,
        }
    }

    /// Whether a depot or the server did not take the grant of a circuit (LH-GRANT-2, LH-GRANT-3).
    #[must_use]
    pub fn is_about_grant(&self) -> bool {
        let Self::Hop(failure) = self else {
            return false;
        };
        matches!(
            failure.kind,
            FailureKind::Depot(StatusCode::GrantRefused)
                | FailureKind::Acceptor(StatusCode::GrantRefused)
        )
    }

    /// The hop that is to blame, as far as it is known: whom a depot could not reach, else who
    /// refused or fell silent.
    #[must_use]
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Hop(failure) => match (failure.kind, &failure.tried) {
                (FailureKind::Depot(code) | FailureKind::Acceptor(code), Some(tried))
                    if code.is_dial() =>
                {
                    Some(tried)
                }
                _ => failure.endpoint.as_ref(),
            },
            Self::NotConnected { endpoint, .. } => Some(endpoint),
            Self::FellBack { direct, .. } => direct.endpoint(),
            Self::ServerKey { destination, .. }
            | Self::UnknownServer { destination, .. }
            | Self::Tls { destination, .. } => Some(destination),
            _ => None,
        }
    }
}

/// Why an endpoint was not reached. The address that was tried is named where it is not the
/// endpoint itself.
fn reason(endpoint: &Endpoint, source: &io::Error) -> String {
    let (endpoint, source) = (endpoint.to_string(), source.to_string());
    match source
        .strip_prefix(&endpoint)
        .and_then(|rest| rest.strip_prefix(": "))
    {
        Some(rest) => rest.to_owned(),
        None => source,
    }
}

impl From<Box<ChainFailure>> for Error {
    fn from(failure: Box<ChainFailure>) -> Self {
        Self::Hop(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_reported_once() {
        let error = |endpoint: &str| Error::NotConnected {
            endpoint: endpoint.parse().unwrap(),
            place: FirstPlace::Server,
            source: io::Error::other("192.0.2.1:9: Connection refused (os error 111)"),
        };
        assert_eq!(
            error("192.0.2.1:9").to_string(),
            "cannot connect to the server 192.0.2.1:9: Connection refused (os error 111)"
        );
        assert_eq!(
            error("h.example:9").to_string(),
            "cannot connect to the server h.example:9: 192.0.2.1:9: Connection refused (os error 111)"
        );
    }
}
