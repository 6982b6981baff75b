//! A hop's TCP connection as the relay needs it: readiness from tokio, bytes by plain system
//! calls.
//!
//! Writes are attempted first, and wait only after the kernel refuses (`EAGAIN`). So a write costs
//! one system call in the common case. It also leaves the write side's readiness free for another
//! message, "this connection is broken". [`TcpConn::poll_broken`] waits for that even when there is
//! nothing to write.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use drs::TcpInfo;
use longhaul_platform::net::{SEND_FLAGS, stream_socket};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, Shutdown, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A connected, non-blocking TCP socket.
///
/// From the start it is set to end with a reset (SO_LINGER 0, by
/// [`HopOptions`](crate::HopOptions)). So neither a code path nor the death of the process can make
/// a truncated session look complete (LH-END-3). A clean end is explicit: by [`TcpConn::close`],
/// [`TcpConn::end_cleanly`], or by shutting it down as an asynchronous stream.
#[derive(Debug)]
pub struct TcpConn {
    /// `None` once the reactor has refused a new registration.
    reactor: Option<AsyncFd<Arc<OwnedFd>>>,
    socket: Arc<OwnedFd>,
    /// True if the reactor does not report bytes to read; see [`TcpConn::pause_reading`].
    reading_paused: bool,
    /// True if the last write was refused: the next waits until the kernel reports room.
    write_blocked: AtomicBool,
    /// Error of the socket that an operation other than a read received.
    ///
    /// The kernel reports it once. After that, reads of a reset socket return end of stream.
    taken_error: OnceLock<Errno>,
}

impl TcpConn {
    /// Wraps a non-blocking socket. Fails if it cannot be registered with tokio's reactor.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let socket = Arc::new(fd);
        let reactor = Some(register(&socket, Interest::READABLE | Interest::WRITABLE)?);
        Ok(Self {
            reactor,
            socket,
            reading_paused: false,
            write_blocked: AtomicBool::new(false),
            taken_error: OnceLock::new(),
        })
    }

    /// Connects to `addr`. `prepare` sets the options that are needed before the first packet.
    pub async fn connect(
        addr: SocketAddr,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<Self> {
        use rustix::net::AddressFamily;
        let family = if addr.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let fd = stream_socket(family)?;
        prepare(fd.as_fd())?;
        // Registered before it connects, so that no event is missed.
        let conn = match rustix::net::connect(&fd, &addr) {
            Ok(()) => return Self::new(fd),
            Err(Errno::INPROGRESS | Errno::INTR) => Self::new(fd)?,
            Err(error) => return Err(error.into()),
        };
        loop {
            let mut guard = conn.reactor()?.writable().await?;
            sockopt::socket_error(&conn.socket)??;
            // A spurious wake-up during the handshake: the socket has neither a peer nor an error.
            match rustix::net::getpeername(&conn.socket) {
                Ok(_) => break,
                Err(Errno::NOTCONN) => guard.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(conn)
    }

    /// Calls `read` when bytes, an end or an error may be available. Returns `PendingRoute` once it
    /// fails with `EAGAIN`. A muted connection then has no waker registered: call
    /// [`TcpConn::resume_reading`] next.
    ///
    /// `read` returns the number of bytes read. 0 is the end of stream, or becomes an error if the
    /// connection has failed (LH-END-3).
    pub fn poll_read_with(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let guard = if self.reading_paused {
                None
            } else {
                Some(ready!(self.reactor()?.poll_read_ready(cx))?)
            };
            match read(self.socket.as_fd()) {
                Err(Errno::AGAIN) => match guard {
                    Some(mut guard) => guard.clear_ready(),
                    None => return Poll::Pending,
                },
                Err(Errno::INTR) => {}
                Ok(0) => return Poll::Ready(self.check_end_of_stream().map(|()| 0)),
                other => return Poll::Ready(other.map_err(Into::into)),
            }
        }
    }

    /// Returns `Ok` for a genuine end of stream, or the error that a write already consumed.
    fn check_end_of_stream(&self) -> io::Result<()> {
        self.taken_error
            .get()
            .map_or(Ok(()), |&errno| Err(errno.into()))
    }

    /// Keeps an error for later reads.
    fn keep_error(&self, errno: Errno) {
        // EPIPE means that this direction had already ended, at this end or at the peer. The peer's
        // data is complete.
        if errno != Errno::PIPE {
            let _ = self.taken_error.set(errno);
        }
    }

    /// Completes when bytes, an end or an error may be available to read.
    ///
    /// A muted connection always reports ready. The first read that finds nothing must then be
    /// followed by [`TcpConn::resume_reading`].
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reading_paused {
            Poll::Ready(Ok(()))
        } else {
            self.reactor()?.poll_read_ready(cx).map_ok(drop)
        }
    }

    /// Stops the reactor from reporting bytes to read, if there are any. A reader that is held up
    /// elsewhere calls this, so that incoming packets do not wake its thread in vain.
    pub fn pause_reading(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.reading_paused || self.reactor()?.poll_read_ready(cx)?.is_pending() {
            return Ok(());
        }
        self.reading_paused = true;
        self.reregister(cx, Interest::WRITABLE)
    }

    /// Makes the reactor report bytes to read again.
    pub fn resume_reading(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.reading_paused {
            return Ok(());
        }
        self.reading_paused = false;
        self.reregister(cx, Interest::READABLE | Interest::WRITABLE)
    }

    fn reregister(&mut self, cx: &mut Context<'_>, interest: Interest) -> io::Result<()> {
        // The old registration must be dropped first: a reactor watches a socket only once.
        self.reactor = None;
        self.reactor = Some(register(&self.socket, interest)?);
        // Wakers of the old registration are lost, so everything is polled again.
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn reactor(&self) -> io::Result<&AsyncFd<Arc<OwnedFd>>> {
        self.reactor
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Calls `write` at once, or, if the last write was refused, when there is room again.
    pub fn poll_write_with<R>(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let guard = if self.write_blocked.load(Ordering::Relaxed) {
                Some(ready!(self.reactor()?.poll_write_ready(cx))?)
            } else {
                None
            };
            match write(self.socket.as_fd()) {
                Err(Errno::AGAIN) => {
                    self.write_blocked.store(true, Ordering::Relaxed);
                    if let Some(mut guard) = guard {
                        guard.clear_ready();
                    }
                }
                Err(Errno::INTR) => {}
                other => {
                    self.write_blocked.store(false, Ordering::Relaxed);
                    return Poll::Ready(other.map_err(|errno| {
                        self.keep_error(errno);
                        errno.into()
                    }));
                }
            }
        }
    }

    /// Completes once the connection is broken: reset, timed out, or both directions closed.
    ///
    /// Only a caller that has not shut down writing may poll this. A hang-up then means that the
    /// peer or the path has died.
    pub fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let reactor = match self.reactor() {
            Ok(reactor) => reactor,
            Err(error) => return Poll::Ready(error),
        };
        loop {
            match reactor.poll_write_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Ready(Ok(mut guard)) => {
                    if guard.ready().is_write_closed() {
                        return Poll::Ready(self.take_error());
                    }
                    if self.write_blocked.load(Ordering::Relaxed) {
                        // This event reports room for a refused write. It belongs to the writer, so
                        // it is not cleared here.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    guard.clear_ready();
                }
            }
        }
    }

    /// Completes when the connection is broken; see [`TcpConn::poll_broken`].
    pub async fn broken(&self) -> io::Error {
        std::future::poll_fn(|cx| self.poll_broken(cx)).await
    }

    /// Returns the address of the peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = rustix::net::getpeername(&self.socket)?;
        peer.and_then(|peer| SocketAddr::try_from(peer).ok())
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = rustix::net::getsockname(&self.socket)?;
        Ok(SocketAddr::try_from(local)?)
    }

    /// Ends this direction (FIN), and leaves the other open.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.socket, Shutdown::Write)?)
    }

    /// Closes without a reset. Used once both directions have ended.
    pub fn close(self) {
        self.end_cleanly();
    }

    /// Makes a later close clean instead of a reset. Used by callers that end their direction in
    /// another way, or that do not signal an end.
    pub fn end_cleanly(&self) {
        // Fails only on a socket that is already dead, which leaves nobody to report to.
        let _ = sockopt::set_socket_linger(&self.socket, None);
    }

    /// Returns the kernel's TCP_INFO of the connection.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn info(&self) -> io::Result<TcpInfo> {
        TcpInfo::read(self).map_err(io::Error::other)
    }

    /// Returns the pending error of the socket, and clears it.
    fn take_error(&self) -> io::Error {
        match sockopt::socket_error(&self.socket) {
            Ok(Err(errno)) | Err(errno) => {
                self.keep_error(errno);
                errno.into()
            }
            Ok(Ok(())) => io::ErrorKind::ConnectionReset.into(),
        }
    }
}

/// Registers `socket` with the current runtime's reactor.
pub(crate) fn register(
    socket: &Arc<OwnedFd>,
    interest: Interest,
) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    #[allow(
        unsafe_code,
        reason = "AsyncFd requires this guarantee since tokio 1.54"
    )]
    // SAFETY: an OwnedFd names the same open descriptor until it is dropped, and the AsyncFd holds
    // it for as long as it lives: what the reactor watches is what was registered.
    let registered = unsafe { AsyncFd::register_with_interest(Arc::clone(socket), interest) };
    Ok(registered?)
}

impl AsyncRead for TcpConn {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let reactor = self.reactor()?;
        loop {
            let mut guard = ready!(reactor.poll_read_ready(cx))?;
            let room = buffer.initialize_unfilled();
            let wanted = room.len();
            match rustix::net::recv(&self.socket, room, RecvFlags::empty()) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
                Ok((0, _)) if wanted > 0 => return Poll::Ready(self.check_end_of_stream()),
                Ok((received, _)) => {
                    // A short read has emptied the socket, so the next read need not try.
                    if received < wanted {
                        guard.clear_ready();
                    }
                    buffer.advance(received);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for TcpConn {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |fd| rustix::net::send(fd, data, SEND_FLAGS))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |fd| {
            let mut none = SendAncillaryBuffer::default();
            rustix::net::sendmsg(fd, data, &mut none, SEND_FLAGS)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends this direction, and makes the later close a clean one.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shutdown_write()?;
        self.end_cleanly();
        Poll::Ready(Ok(()))
    }
}

impl AsFd for TcpConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
