//! Socket options of every hop, for both accepted and dialled connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use longhaul_platform::net;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// Maximum number of ports of a range that are tried for one connection: each costs a system call.
const MAX_PORTS_TRIED: usize = 4096;
/// Start of the search in a range for the next connection, so that it skips ports already in use.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Idle time before keepalive probes, and their interval. A silent peer is given up after
/// [`HopOptions::user_timeout`], which on Linux replaces the number of probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Socket options of a hop's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopOptions {
    /// Maximum time for which sent data may stay unacknowledged and a silent peer unnoticed
    /// (TCP_USER_TIMEOUT, RFC 5482).
    ///
    /// Since 5.11, Linux also counts a zero window, so this bounds how long the peer may stop
    /// reading. It is long enough for a stalled disk, and far below the default of 15 minutes.
    pub user_timeout: Duration,
    /// Congestion control by its kernel name; the system's default if `None`.
    pub congestion: Option<String>,
    /// Local address from which a connection is dialled; chosen by the system if `None`. Listeners
    /// ignore it.
    pub source: Option<IpAddr>,
    /// Local ports from which a connection is dialled; chosen by the system if `None`. Circuits use
    /// them to identify their streams.
    pub source_ports: Option<RangeInclusive<u16>>,
}

impl Default for HopOptions {
    fn default() -> Self {
        Self {
            user_timeout: Duration::from_secs(180),
            congestion: None,
            source: None,
            source_ports: None,
        }
    }
}

/// Error: the kernel does not let this process use that congestion control; choose a listed one.
/// Choose one that the message lists. Users without privileges may choose those in
/// `/proc/sys/net/ipv4/tcp_allowed_congestion_control`.
#[derive(Debug, thiserror::Error)]
#[error(
    "congestion control {name:?} is not available here ({source}); the kernel has: {available}"
)]
pub struct CongestionError {
    /// Name of the congestion control.
    pub name: String,
    /// Names of those that are available.
    pub available: String,
    /// Cause.
    pub source: io::Error,
}

impl HopOptions {
    /// Returns the default options with this congestion control.
    #[must_use]
    pub fn with_congestion(congestion: Option<String>) -> Self {
        Self {
            congestion,
            ..Self::default()
        }
    }

    /// Sets the local address to dial from.
    #[must_use]
    pub fn with_source(self, source: Option<IpAddr>) -> Self {
        Self { source, ..self }
    }

    /// Sets the local ports to dial from.
    #[must_use]
    pub fn with_source_ports(self, source_ports: Option<RangeInclusive<u16>>) -> Self {
        Self {
            source_ports,
            ..self
        }
    }

    /// Binds a socket that will connect to `to` to the configured source address and port.
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
                // The port belongs to another program, or to a connection that has just ended.
                Err(Errno::ADDRINUSE | Errno::ACCESS) => {}
                bound => return Ok(bound?),
            }
        }
        Err(Errno::ADDRINUSE.into())
    }

    /// Sets all options except the source and its ports, before the socket connects or listens.
    /// Accepted connections inherit them. Closing resets unless told otherwise: see
    /// [`Conn`](crate::Conn).
    pub(crate) fn apply(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        sockopt::set_socket_linger(fd, Some(Duration::ZERO))?;
        sockopt::set_tcp_nodelay(fd, true)?;
        sockopt::set_socket_keepalive(fd, true)?;
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE.min(self.user_timeout / 3).max(second))?;
        sockopt::set_tcp_keepintvl(
            fd,
            KEEPALIVE_INTERVAL.min(self.user_timeout / 6).max(second),
        )?;
        let millis = u32::try_from(self.user_timeout.as_millis()).unwrap_or(u32::MAX);
        net::set_user_timeout(fd, millis)?;
        // Set before connecting, so that it covers the handshake and slow start.
        if let Some(name) = &self.congestion {
            net::set_congestion(fd, name)?;
        }
        Ok(())
    }
}

/// Checks at start-up that a congestion control is available, instead of at the first session.
///
/// # Errors
/// [`CongestionError`], with the available ones.
pub fn check_congestion(name: &str) -> Result<(), CongestionError> {
    let tried = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
        .and_then(|fd| net::set_congestion(fd.as_fd(), name));
    tried.map_err(|source| CongestionError {
        name: name.to_owned(),
        available: net::available_congestion().unwrap_or_else(|| "unknown".to_owned()),
        source: source.into(),
    })
}
