//! Where a connection is to lead, and what it is for.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use longhaul_proto::{Endpoint, Host};

/// A destination as it was asked for: by address, by name, or by the name and the address that it
/// resolved to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    host: Host,
    /// What the name was found to be, by whoever asked.
    resolved: Option<IpAddr>,
    /// Its TCP port, not 0.
    port: u16,
}

/// What a connection is for, as far as whoever asked for it knows. It rides in the OPEN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// Words for the logs and policies of depots.
    pub purpose: Option<String>,
    /// Bytes that will be carried.
    pub size: Option<u64>,
    /// Bits a second that are wished for.
    pub rate: Option<u64>,
    /// Seconds that it may take.
    pub duration: Option<u64>,
}

impl Destination {
    /// By address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        let ip = address.ip().to_canonical();
        Self {
            host: Host::Ip(ip),
            resolved: Some(ip),
            port: address.port(),
        }
    }

    /// By name or address, as text.
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

    /// By the name and the address that it resolved to, as far as each is known; `None` if neither
    /// is, or if the port is 0. A name that is none (it reads as an address, or has characters that
    /// no name has) counts as unknown.
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

    /// The address, if it is known.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        self.resolved
    }

    /// The name, if there is one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Name(name) => Some(name),
            Host::Ip(_) => None,
        }
    }

    /// The TCP port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where a connection is made to: the address, or, where only the name is known, the name. In a
    /// session that is resolved at its far side.
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
