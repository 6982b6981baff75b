//! Destination of a connection, and its stated use.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use longhaul_proto::{Endpoint, Host};

/// A requested destination: an address, a name, or a name and the address that it resolved to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    host: Host,
    /// Address that the client resolved the name to.
    resolved: Option<IpAddr>,
    /// TCP port, not 0.
    port: u16,
}

/// Stated use of a connection, as far as the client knows it. It is sent in the OPEN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// Purpose, for the logs and policies of depots.
    pub purpose: Option<String>,
    /// Number of bytes that will be carried.
    pub size: Option<u64>,
    /// Desired rate, in bit/s.
    pub rate: Option<u64>,
    /// Expected duration, in seconds.
    pub duration: Option<u64>,
}

impl Destination {
    /// Returns the destination at an address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        let ip = address.ip().to_canonical();
        Self {
            host: Host::Ip(ip),
            resolved: Some(ip),
            port: address.port(),
        }
    }

    /// Returns the destination for a name or address in text form.
    #[must_use]
    pub fn of(endpoint: Endpoint) -> Self {
        match endpoint.host {
            Host::Ip(ip) => Self::at(SocketAddr::new(ip, endpoint.port)),
            name => Self {
                host: name,
                resolved: None,
                port: endpoint.port,
            },
        }
    }

    /// Returns the destination with this name and address, as far as each is known.
    ///
    /// Returns `None` if neither is known, or if the port is 0. A name that reads as an address, or
    /// has characters that names cannot have, counts as unknown.
    #[must_use]
    pub fn known_as(name: Option<&str>, address: Option<IpAddr>, port: u16) -> Option<Self> {
        if port == 0 {
            return None;
        }
        let address = address.map(|ip| ip.to_canonical());
        let host = match name.and_then(|name| Host::parse(name).ok()) {
            Some(Host::Name(name)) => Host::Name(name),
            Some(Host::Ip(ip)) => Host::Ip(address.unwrap_or(ip.to_canonical())),
            None => Host::Ip(address?),
        };
        let resolved = match host {
            Host::Ip(ip) => Some(ip),
            Host::Name(_) => address,
        };
        Some(Self {
            host,
            resolved,
            port,
        })
    }

    /// Returns the address, if it is known.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        self.resolved
    }

    /// Returns the name, if there is one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Name(name) => Some(name),
            Host::Ip(_) => None,
        }
    }

    /// Returns the TCP port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the endpoint to connect to: the address, or the name if only that is known. In a
    /// session, the far side resolves the name.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        let host = self.resolved.map_or_else(|| self.host.clone(), Host::Ip);
        Endpoint::new(host, self.port)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)?;
        match (&self.host, self.resolved) {
            (Host::Name(_), Some(ip)) => write!(f, " ({ip})"),
            _ => Ok(()),
        }
    }
}
