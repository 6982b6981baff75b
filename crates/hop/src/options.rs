//! The socket options of every hop, on connections both accepted and dialled.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};

/// A silent peer is probed after this long, and this often; it is given up after [`Options::unacknowledged`], which on Linux takes the
/// place of a number of probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// What is set on a hop's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long sent data may go unacknowledged, and a silent peer unnoticed (TCP_USER_TIMEOUT, RFC 5482). Linux counts a window that
    /// stays shut as well (since 5.11), so this also bounds how long the far end may stop reading: long enough for a disk that stalls,
    /// far from the 15 minutes of the default.
    pub unacknowledged: Duration,
    /// Congestion control by its kernel name; the system's default if `None`.
    pub congestion: Option<String>,
    /// The address of this host that a connection is dialled from; the system's choice if `None`. Of no account to what listens.
    pub source: Option<IpAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            unacknowledged: Duration::from_secs(180),
            congestion: None,
            source: None,
        }
    }
}

/// The kernel does not let this process use that congestion control: choose one of those it lists.
#[derive(Debug, thiserror::Error)]
#[error("congestion control {name:?} is not available here ({source}); the kernel has: {available}")]
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

    /// Binds a socket that is to connect to the address that it is dialled from.
    pub(crate) fn bind_source(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(source) = self.source {
            rustix::net::bind(fd, &SocketAddr::new(source, 0))?;
        }
        Ok(())
    }

    /// Sets all of it but the source, before the socket connects or listens; what is accepted inherits it. Closing resets unless told otherwise: see
    /// [`Conn`](crate::Conn).
    pub(crate) fn apply(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        sockopt::set_socket_linger(fd, Some(Duration::ZERO))?;
        sockopt::set_tcp_nodelay(fd, true)?;
        sockopt::set_socket_keepalive(fd, true)?;
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(fd, KEEPALIVE_AFTER.min(self.unacknowledged / 3).max(second))?;
        sockopt::set_tcp_keepintvl(fd, KEEPALIVE_INTERVAL.min(self.unacknowledged / 6).max(second))?;
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
