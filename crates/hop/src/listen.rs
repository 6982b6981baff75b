//! Accepting connections. Errors of one connection are skipped; a shortage of descriptors or memory
//! is waited out.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use longhaul_platform::net::{accept_stream, stream_socket};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::inherited::{OfferedSocket, offer, take_inherited};
use crate::tcp_conn::register;
use crate::{CongestionError, HopOptions, check_congestion};

const BACKLOG: i32 = 1024;
/// Initial and maximum pause after an accept that failed for lack of descriptors or memory.
const MIN_ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const MAX_ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Address and congestion control of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Address to listen on.
    pub address: SocketAddr,
    /// Congestion control (such as `bbr`) of accepted connections, for the bytes sent on them; the
    /// kernel's default when `None`.
    pub congestion: Option<String>,
}

impl ListenerConfig {
    /// Returns a listener at `address` with the kernel's congestion control.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            congestion: None,
        }
    }

    /// Opens the listener. Sent bytes must be acknowledged within `unacknowledged`
    /// ([`HopOptions::user_timeout`]).
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn open(&self, unacknowledged: Duration) -> Result<Listener, ListenError> {
        let options = HopOptions {
            user_timeout: unacknowledged,
            congestion: self.congestion.clone(),
            source: None,
            source_ports: None,
        };
        Listener::bind(self.address, &options)
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: AsyncFd<Arc<OwnedFd>>,
    pause: Duration,
    _offered: OfferedSocket,
}

/// Reason why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The kernel does not have the congestion control.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// The address cannot be bound: check for another program on it, or a port below 1024.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Listener {
    /// Listens on `address`, or takes over the socket that systemd or the predecessor of this
    /// process has opened there. A process that replaces this one can take it over. Accepted
    /// connections inherit the options. An unspecified IPv6 address accepts both families.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(address: SocketAddr, options: &HopOptions) -> Result<Self, ListenError> {
        Self::bind_prepared(address, options, |_| Ok(()))
    }

    /// Listens on `address` like [`Listener::bind`]. `prepare` sets further options that are needed
    /// before the socket is bound.
    ///
    /// # Errors
    /// [`ListenError`], including errors of `prepare`.
    pub fn bind_prepared(
        address: SocketAddr,
        options: &HopOptions,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Result<Self, ListenError> {
        if let Some(name) = &options.congestion {
            check_congestion(name)?;
        }
        let socket = bind_socket(address, options, prepare)?;
        Ok(Self {
            _offered: offer(socket.get_ref()).map_err(ListenError::Io)?,
            socket,
            pause: MIN_ACCEPT_PAUSE,
        })
    }

    /// Returns the local address, with the actual port if port 0 was requested.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getsockname(self.socket.get_ref())?;
        Ok(SocketAddr::try_from(address)?)
    }

    /// Returns the next connection, for [`Conn::new`](crate::Conn::new) on the thread that will
    /// serve it.
    ///
    /// `failed` is called when the system cannot accept for the moment. Connections then wait in
    /// the backlog until closing ones free descriptors.
    pub async fn accept(&mut self, mut failed: impl FnMut(&io::Error)) -> (OwnedFd, SocketAddr) {
        loop {
            match self.accept_fd().await {
                Ok(accepted) => {
                    self.pause = MIN_ACCEPT_PAUSE;
                    return accepted;
                }
                Err(error) if is_about_the_connection(&error) => {}
                Err(error) => {
                    failed(&error);
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(MAX_ACCEPT_PAUSE);
                }
            }
        }
    }
}

impl Listener {
    /// Accepts the next connection without registering it with a reactor. The thread that serves it
    /// does so.
    async fn accept_fd(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        loop {
            let mut guard = self.socket.readable().await?;
            match accept_stream(self.socket.get_ref()) {
                Ok((fd, Some(peer))) => return Ok((fd, SocketAddr::try_from(peer)?)),
                Ok((_, None)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn bind_socket(
    address: SocketAddr,
    options: &HopOptions,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    if let Some(fd) = take_inherited(address) {
        rustix::io::ioctl_fionbio(&fd, true)?;
        options.apply(fd.as_fd())?;
        return register(&Arc::new(fd), Interest::READABLE);
    }
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let fd = stream_socket(family)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, !address.ip().is_unspecified())?;
    }
    options.apply(fd.as_fd())?;
    prepare(fd.as_fd())?;
    rustix::net::bind(&fd, &address)?;
    rustix::net::listen(&fd, BACKLOG)?;
    register(&Arc::new(fd), Interest::READABLE)
}

/// Returns true for errors of a connection that died in the backlog (accept(2)); the listener is
/// fine.
fn is_about_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
    )
}
