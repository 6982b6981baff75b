//! The session itself: an ordinary byte stream that ends cleanly or not at all.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use drs::TcpInfo;
use longhaul_hop::Conn;
use longhaul_proto::{Endpoint, Open, PublicKey, Route, Service, SessionId, Status};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::timeout,
};

use crate::{Clear, FlowWatch, secured::Secured};

/// How long [`Session::close`] waits for the peer to close its half.
const CLOSE: Duration = Duration::from_secs(5);

/// One end of a session.
///
/// `shutdown` closes this end's half: TLS close_notify, then FIN; reading goes on until the peer
/// closes its own. An end of file without the peer's close_notify is
/// [`io::ErrorKind::UnexpectedEof`], so what was cut short never looks complete (LH-END-2). A
/// session dropped without `shutdown` is reset, and so is one whose process dies (LH-END-3).
#[derive(Debug)]
pub struct Session {
    tls: Secured<Conn>,
    info: SessionInfo,
    watch: Option<Arc<FlowWatch>>,
}

/// What is known of a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Which session it is, at every hop.
    pub session_id: SessionId,
    /// The route it took: direct after a fall-back, whatever was asked for.
    pub route: Route,
    /// The other end's key, proved by the handshake.
    pub peer: PublicKey,
    /// The address at the other end of the first hop (the last one, at the acceptor).
    pub first_hop: Option<SocketAddr>,
    /// What each hop answered, in order; empty at the acceptor.
    pub statuses: Vec<Status>,
    /// What the initiator asked for.
    pub service: Service,
    /// What the initiator said the transfer is for, in words for a log.
    pub purpose: Option<String>,
    /// Bytes that the initiator said it means to send.
    pub size: Option<u64>,
    /// Bits a second that the initiator said it would use.
    pub rate: Option<u64>,
    /// For how many seconds it said it would.
    pub duration: Option<u64>,
    /// The ordinary TCP server at which an off-ramp ends the session.
    pub onward: Option<Endpoint>,
    /// Why the route was given up for a direct connection, if it was.
    pub fell_back: Option<String>,
}

impl SessionInfo {
    /// Of a session whose OPEN came in from `first_hop`.
    pub(crate) fn accepted(open: Open, first_hop: Option<SocketAddr>) -> Self {
        Self {
            session_id: open.session_id,
            route: open.route,
            peer: open.principal,
            first_hop,
            statuses: Vec::new(),
            service: open.service,
            purpose: open.purpose,
            size: open.size,
            rate: open.rate,
            duration: open.duration,
            onward: open.onward,
            fell_back: None,
        }
    }
}

impl Session {
    pub(crate) const fn new(tls: Secured<Conn>, info: SessionInfo) -> Self {
        Self {
            tls,
            info,
            watch: None,
        }
    }

    pub(crate) fn having_fallen_back(mut self, reason: String) -> Self {
        self.info.fell_back = Some(reason);
        self
    }

    /// What is known of it.
    #[must_use]
    pub const fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// The address at this end of its hop: at the acceptor that which the session came to.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.hop().local().ok()
    }

    /// What the kernel knows of this end's hop.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.hop().info()
    }

    /// Watches, and right-sizes as `mode` allows, the flow of this end's hop from now on. `side`
    /// says whether this end sends the bulk of the data.
    pub fn watch(&mut self, mode: drs::Mode, side: drs::Side) -> Arc<FlowWatch> {
        let watch = Arc::new(FlowWatch::new(mode, side));
        self.watch = Some(watch.clone());
        watch
    }

    fn look(&self) {
        if let Some(watch) = &self.watch {
            watch.look(self.hop());
        }
    }

    /// Closes this end's half and waits for the peer to close its own, discarding what it still
    /// sends, so that no reset overtakes what was sent. Gives up after 5 s.
    ///
    /// # Errors
    /// When the session ends uncleanly, or the peer does not close in time.
    pub async fn close(mut self) -> io::Result<()> {
        let closing = async {
            self.shutdown().await?;
            let mut discarded = vec![0; 16 * 1024];
            while self.read(&mut discarded).await? != 0 {}
            Ok(())
        };
        timeout(CLOSE, closing)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// This session's bytes without TLS, once both ends have agreed to that inside it (LH-PLAIN-1).
    /// No byte may go through the session itself any more, and its drop no longer resets the
    /// connection: an end of file here proves nothing (LH-PLAIN-2).
    pub fn unprotected(&mut self) -> Unprotected<'_> {
        self.hop().end_cleanly();
        Unprotected(self)
    }

    /// Where it is said which of the next bytes travel as they are, while all others stay protected
    /// (LH-CLEAR-1).
    #[must_use]
    pub fn clear(&self) -> Arc<Clear> {
        self.tls.clear().clone()
    }

    /// Ready once this end's hop is broken, though nobody reads or writes. Only while this end has
    /// not shut its half down ([`Conn::poll_broken`]).
    pub fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.hop().poll_broken(cx)
    }

    fn hop(&self) -> &Conn {
        self.tls.hop().inner()
    }
}

/// The connection of this end's hop, to measure it and to set its options.
impl Drop for Session {
    /// Who looks at the flow afterwards does not hold its connection (LH-END-3).
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.let_rate_go();
        }
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hop().as_fd()
    }
}

impl AsyncRead for Session {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.look();
        Pin::new(&mut self.tls)
            .poll_read(cx, buffer)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the session was cut short: a hop died, or the peer went without closing it",
                ),
                _ => error,
            })
    }
}

impl AsyncWrite for Session {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.look();
        Pin::new(&mut self.tls).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

/// See [`Session::unprotected`].
#[derive(Debug)]
pub struct Unprotected<'a>(&'a mut Session);

impl AsyncRead for Unprotected<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.tls.poll_read_unprotected(cx, buffer)
    }
}

impl AsyncWrite for Unprotected<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.tls.poll_write_unprotected(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.tls.poll_shutdown_unprotected(cx)
    }
}
