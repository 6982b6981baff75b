//! The peer of a connection, and the caller that a request proves to be from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use longhaul_proto::PublicKey;

/// Peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerIdentity {
    /// Process on this machine with this user ID; `None` if the system does not report one.
    Local(Option<u32>),
    /// Peer that connected over TCP.
    Network(SocketAddr),
}

/// Authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name of the user.
    pub user: String,
    /// Key that signed the request. `None` for the user that the service runs as, who needs none.
    pub key: Option<PublicKey>,
}

/// Returns the source that a connection is counted for. All programs on this machine are one
/// source.
pub(crate) fn source_address(peer: PeerIdentity) -> IpAddr {
    match peer {
        PeerIdentity::Network(address) => address.ip(),
        PeerIdentity::Local(_) => Ipv4Addr::LOCALHOST.into(),
    }
}
