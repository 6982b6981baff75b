//! The socket options of every hop, on connections both accepted and dialled.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// Most ports of a range that are tried for one connection: each costs a system call.
const MAX_PORTS_TRIED: usize = 4096;
/// Where the next connection begins to look in a range, so that not each finds those before it
/// there.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// A silent peer is probed after this long, and this often; it is given up after
/// [`Options::unacknowledged`], which on Linux takes the place of a number of probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// What is set on a hop's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long sent data may go unacknowledged, and a silent peer unnoticed (TCP_USER_TIMEOUT, RFC
    /// 5482). Linux counts a window that stays shut as well (since 5.11), so this also bounds how
    /// long the far end may stop reading: long enough for a disk that stalls, far from the 15
    /// minutes of the default.
    pub unacknowledged: Duration,
    /// Congestion control by its kernel name; the system's default if `None`.
    pub congestion: Option<String>,
    /// The address of this host that a connection is dialled from; the system's choice if `None`.
    /// Of no account to what listens.
    pub source: Option<IpAddr>,
    /// The ports of this host, one of which a connection is dialled from; the system's choice if
    /// `None`. Circuits find by them which streams are theirs.
    pub source_ports: Option<RangeInclusive<u16>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            unacknowledged: Duration::from_secs(180),
            congestion: None,
            source: None,
            source_ports: None,
        }
    }
}

/// The kernel does not let this process use that congestion control: choose one of those it lists.
#[derive(Debug, thiserror::Error)]
#[error(
    "congestion control {name:?} is not available here ({source}); the kernel has: {available}"
)]
pub struct CongestionError {
    /// Its name.
    pub name: String,
    /// What there is instead.
    pub available: String,
    /// Why.
    pub source: io::Error,
}

impl Options {
    /// With this congestion control.
    #[must_use]
    pub fn with_congestion(congestion: Option<String>) -> Self {
        Self {
            congestion,
            ..Self::default()
        }
    }

    /// The same, dialled from this address of the host's.
    #[must_use]
    pub fn dialled_from(self, source: Option<IpAddr>) -> Self {
        Self { source, ..self }
    }

    /// The same, dialled from one of these ports.
    #[must_use]
    pub fn from_ports(self, source_ports: Option<RangeInclusive<u16>>) -> Self {
        Self {
            source_ports,
            ..self
        }
    }

    /// Binds a socket that is to connect to `to` to the address and the port that it is dialled
    /// from.
    pub(crate) fn bind_source(&self, fd: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
        let Some(ports) = &self.source_ports else {
            if let Some(source) = self.source {
                rustix::net::bind(fd, &SocketAddr::new(source, 0))?;
            }
            return Ok(());
        };
        let any: IpAddr = match to.is_ipv4() {
            true => Ipv4Addr::UNSPECIFIED.into(),
            false => Ipv6Addr::UNSPECIFIED.into(),
        };
        let source = self.source.unwrap_or(any);
        let first = usize::from(NEXT_PORT.fetch_add(1, Ordering::Relaxed)) % ports.len().max(1);
        let from_first = ports.clone().skip(first).chain(ports.clone().take(first));
        for port in from_first.take(MAX_PORTS_TRIED) {
            match rustix::net::bind(fd, &SocketAddr::new(source, port)) {
                // Another program's, or of a connection that has just ended.
                Err(Errno::ADDRINUSE | Errno::ACCESS) => {}
                bound => return Ok(bound?),
            }
        }
        Err(Errno::ADDRINUSE.into())
    }

    /// Sets all of it but the source and its ports, before the socket connects or listens; what is
    /// accepted inherits it. Closing resets unless told otherwise: see [`Conn`](crate::Conn).
    pub(crate) fn apply(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        sockopt::set_socket_linger(fd, Some(Duration::ZERO))?;
        sockopt::set_tcp_nodelay(fd, true)?;
        sockopt::set_socket_keepalive(fd, true)?;
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(fd, KEEPALIVE_AFTER.min(self.unacknowledged / 3).max(second))?;
        sockopt::set_tcp_keepintvl(
            fd,
            KEEPALIVE_INTERVAL.min(self.unacknowledged / 6).max(second),
        )?;
        let millis = u32::try_from(self.unacknowledged.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(fd, millis)?;
        // Before connecting, so that the handshake and slow start are already under it.
        if let Some(name) = &self.congestion {
            sockopt::set_tcp_congestion(fd, name)?;
        }
        Ok(())
    }
}

/// Finds out at start, not at the first session, that a congestion control is not to be had.
///
/// # Errors
/// [`CongestionError`], with those that are.
pub fn check_congestion(name: &str) -> Result<(), CongestionError> {
    let tried = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
        .and_then(|fd| sockopt::set_tcp_congestion(fd.as_fd(), name));
    tried.map_err(|source| CongestionError {
        name: name.to_owned(),
        available: std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
            .map_or_else(|_| "unknown".to_owned(), |list| list.trim().to_owned()),
        source: source.into(),
    })
}
