//! Errors of sessions, each displayed as one line: the failure, its location, and the remedy.

use std::{io, net::SocketAddr, path::PathBuf};

use longhaul_hop::{CongestionError, QuotaExceeded};
use longhaul_proto::{
    ChainFailure, Endpoint, EndpointError, FailureKind, KeyError, OpenError, OpenRefusal,
    PublicKey, RouteError, StatusCode,
};

/// Error of a session, an identity or a list of known hosts.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A hop of the route failed or refused: fix it, or use another route.
    #[error(transparent)]
    Hop(Box<ChainFailure>),
    /// The first hop of the route could not be reached, so nothing was sent.
    #[error("cannot connect to {place} {endpoint}: {}", reason(endpoint, source))]
    NotConnected {
        /// Endpoint that was dialled.
        endpoint: Endpoint,
        /// Kind of the first hop.
        place: FirstHop,
        /// Cause.
        source: io::Error,
    },
    /// Both the route and the direct connection failed. The message has both reasons.
    #[error("the route failed: {route}; the direct connection failed as well: {direct}")]
    FellBack {
        /// Failure of the route.
        route: Box<Error>,
        /// Failure of the direct connection.
        direct: Box<Error>,
    },
    /// The server's key differs from the expected one: continue only if you know that it was
    /// changed.
    #[error(
        "the server at {destination} shows key {found}, but {expected} is expected: someone may \
         be intercepting the connection"
    )]
    ServerKey {
        /// The server.
        destination: Endpoint,
        /// Key that is pinned or known.
        expected: PublicKey,
        /// Key that the server has.
        found: PublicKey,
    },
    /// The server is not known yet: compare its key with its operator's, then add it.
    #[error(
        "the server at {destination} is not known: compare its key {found} with its operator's \
         before trusting it"
    )]
    UnknownServer {
        /// The server.
        destination: Endpoint,
        /// Key that the server has.
        found: PublicKey,
    },
    /// The server answered, but no secure session was established. The releases differ, or a device
    /// in between changes bytes.
    #[error("no secure session with the server at {destination}: {source}")]
    Tls {
        /// The server.
        destination: Endpoint,
        /// Cause.
        source: io::Error,
    },
    /// The kernel does not offer that congestion control: load its module, or name another.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// The address cannot be listened on. If the address is in use, another server runs; ports
    /// below 1024 need root.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The listener has stopped.
    #[error("the listener has stopped")]
    Stopped,
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// Attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A private key is readable by others: remove their access, or create a new key if they may
    /// have read it.
    #[error(
        "{} may be read by others (mode {mode:04o}): run chmod 600 on it, or make a new identity",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// A private key's file belongs to another user, who can read and change it: make it your own,
    /// or create a new identity.
    #[error(
        "{} belongs to user {owner}, not to user {user} who runs this: make it yours (chown \
         {user}) if you know where the key comes from, or make a new identity",
        path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// User id of the process.
        user: u32,
    },
    /// The contents of a file are invalid.
    #[error("{}{}: {why}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line of the fault, if it can be located.
        line: Option<usize>,
        /// Description of the fault.
        why: &'static str,
    },
    /// A key could not be created or used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The route is ill-formed.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// An endpoint is ill-formed.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The request cannot be encoded as an OPEN.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// At the listener: the OPEN was refused.
    #[error("refused the OPEN: {0}")]
    Refused(#[from] OpenRefusal),
    /// At the listener: the principal has reached its limit of pending set-ups.
    #[error("refused the OPEN: {0}")]
    QuotaExceeded(#[from] QuotaExceeded),
    /// At the listener: the service refused the session and reported why.
    #[error("refused the OPEN: it {code}: {detail}")]
    Declined {
        /// Code of the answer.
        code: StatusCode,
        /// Details in words.
        detail: String,
    },
    /// At the listener: the peer registered a voucher, and asked for no session. This is no fault.
    #[error("the peer registered a voucher, and asked for no session")]
    Registered,
    /// At the listener: the peer did not complete the set-up. A client or a scanner went away; this
    /// is harmless if it is rare.
    #[error("the peer did not complete the set-up: {0}")]
    Peer(#[source] io::Error),
}

/// Kind of the first hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstHop {
    /// A depot.
    Depot,
    /// An off-ramp through which the server is reached.
    Offramp,
    /// The server itself.
    Server,
}

impl std::fmt::Display for FirstHop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Depot => "depot 1",
            Self::Offramp => "the off-ramp",
            Self::Server => "the server",
        })
    }
}

impl Error {
    /// Returns true if no payload can have reached the server, so another attempt repeats nothing
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

    /// Returns true if the server does not offer the requested service.
    #[must_use]
    pub fn is_missing_service(&self) -> bool {
        match self {
            Self::Hop(failure) => failure.kind == FailureKind::Acceptor(StatusCode::NoService),
            Self::FellBack { direct, .. } => direct.is_missing_service(),
            _ => false,
        }
    }

    /// Returns true if the error concerns the identity or the permissions of a party. It then
    /// persists until a person changes a grant, a policy or a key.
    #[must_use]
    pub fn is_identity_error(&self) -> bool {
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
            Self::FellBack { route, direct } => {
                route.is_identity_error() && direct.is_identity_error()
            }
            _ => false,
        }
    }

    /// Returns true if the acceptor does not know this key.
    #[must_use]
    pub fn is_unknown_key(&self) -> bool {
        match self {
            Self::Hop(failure) => {
                matches!(
                    failure.kind,
                    FailureKind::Acceptor(StatusCode::Unauthorised)
                )
            }
            Self::FellBack { direct, .. } => direct.is_unknown_key(),
            _ => false,
        }
    }

    /// Returns true if two clocks differ too much. The error persists until a person sets one of
    /// them.
    #[must_use]
    pub fn is_clock_error(&self) -> bool {
        match self {
            Self::Hop(failure) => matches!(
                failure.kind,
                FailureKind::Depot(StatusCode::Expired)
                    | FailureKind::Acceptor(StatusCode::Expired)
            ),
            Self::FellBack { direct, .. } => direct.is_clock_error(),
            _ => false,
        }
    }

    /// Returns true if a depot or the server rejected the grant of a circuit (LH-GRANT-2,
    /// LH-GRANT-3).
    #[must_use]
    pub fn is_grant_error(&self) -> bool {
        let Self::Hop(failure) = self else {
            return false;
        };
        matches!(
            failure.kind,
            FailureKind::Depot(StatusCode::GrantRefused)
                | FailureKind::Acceptor(StatusCode::GrantRefused)
        )
    }

    /// Returns the endpoint of the failed hop, if known: the one that a depot could not reach, else
    /// the one that refused or fell silent.
    #[must_use]
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Hop(failure) => match (failure.kind, &failure.tried) {
                (FailureKind::Depot(code) | FailureKind::Acceptor(code), Some(tried))
                    if code.is_dial_failure() =>
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

/// Formats the reason why an endpoint was not reached. Names the address that was dialled if it
/// differs from the endpoint.
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
            place: FirstHop::Server,
            source: io::Error::other("192.0.2.1:9: Connection refused (os error 111)"),
        };
        assert_eq!(
            error("192.0.2.1:9").to_string(),
            "cannot connect to the server 192.0.2.1:9: Connection refused (os error 111)"
        );
        assert_eq!(
            error("h.example:9").to_string(),
            "cannot connect to the server h.example:9: 192.0.2.1:9: Connection refused (os error \
             111)"
        );
    }
}
