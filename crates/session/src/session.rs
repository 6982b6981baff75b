//! The session itself: an ordinary byte stream that ends cleanly or with an error.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use drs::{FlowWatch, TcpInfo};
use longhaul_hop::{Conn, StreamMeasurement, TcpConn};
use longhaul_proto::{
    Delegation, Endpoint, Open, PublicKey, Route, ServiceName, SessionId, Status,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::timeout,
};

use crate::flow_watch::{sample_conn, watch_flow};
use crate::{PlaintextRanges, secured::TlsStream};

/// Time for which [`Session::close`] waits for the peer to close its half.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// One end of a session.
///
/// `shutdown` closes this end's half: TLS close_notify, then FIN. Reads continue until the peer
/// closes its own half. An end of file without the peer's close_notify is
/// [`io::ErrorKind::UnexpectedEof`], so a truncated stream never looks complete (LH-END-2). A
/// session dropped without `shutdown` is reset, and so is one whose process dies (LH-END-3).
#[derive(Debug)]
pub struct Session {
    tls: TlsStream<Conn>,
    info: SessionInfo,
    watch: Option<Arc<FlowWatch>>,
}

/// Facts about a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Identifier of the session, the same at every hop.
    pub session_id: SessionId,
    /// Route that the session took: direct after a fallback, whatever was requested.
    pub route: Route,
    /// Key of the other end, proved by the handshake.
    pub peer: PublicKey,
    /// Address at the other end of the first hop (the last one, at the acceptor).
    pub first_hop: Option<SocketAddr>,
    /// Answers of the hops, in order; empty at the acceptor.
    pub statuses: Vec<Status>,
    /// Service that the initiator requested.
    pub service: ServiceName,
    /// Purpose of the transfer as stated by the initiator, for logs.
    pub purpose: Option<String>,
    /// Number of bytes that the initiator expects to send.
    pub size: Option<u64>,
    /// Rate that the initiator expects to use, in bit/s.
    pub rate: Option<u64>,
    /// Duration that the initiator expects, in seconds.
    pub duration: Option<u64>,
    /// Ordinary TCP server at which an off-ramp ends the session.
    pub onward: Option<Endpoint>,
    /// Maximum time that the session may be without a connection; `None` if it ends with its
    /// connection.
    pub resumable: Option<Duration>,
    /// Delegation under which the peer acts, verified, at the acceptor. The session has the rights
    /// of its principal, and not those of the peer.
    pub delegation: Option<Box<Delegation>>,
    /// Reason for the fallback from the route to a direct connection, if there was one.
    pub fell_back: Option<String>,
}

impl SessionInfo {
    /// Returns the facts about a session whose OPEN arrived from `first_hop`.
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
            resumable: None,
            delegation: open.delegation,
            fell_back: None,
        }
    }

    /// Returns the key whose rights and limits the session has: the peer's, or that of the
    /// delegation's principal.
    #[must_use]
    pub fn principal(&self) -> PublicKey {
        let delegation = self.delegation.as_ref();
        delegation.map_or(self.peer, |delegation| delegation.principal)
    }
}

impl Session {
    pub(crate) const fn new(tls: TlsStream<Conn>, info: SessionInfo) -> Self {
        Self {
            tls,
            info,
            watch: None,
        }
    }

    pub(crate) fn with_fall_back_reason(mut self, reason: String) -> Self {
        self.info.fell_back = Some(reason);
        self
    }

    /// Returns facts about the session.
    #[must_use]
    pub const fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Returns the local address of this end's hop. At the acceptor, it is the address that was
    /// dialled.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.hop().local_addr().ok()
    }

    /// Returns the kernel's TCP_INFO of this end's hop.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.tcp()
            .map_or_else(|| Err(io::ErrorKind::Unsupported.into()), TcpConn::info)
    }

    /// Returns the measurement of this end's hop. `None` for TCP: see [`Self::tcp_info`].
    #[must_use]
    pub fn stream_measurement(&self) -> Option<StreamMeasurement> {
        match self.hop() {
            Conn::Tcp(_) => None,
            Conn::Stream(stream) => stream.measurement(),
        }
    }

    /// Starts to watch the flow of this end's hop, and to right-size it as `mode` allows. `side` is
    /// the side that this end takes in the transfer of the bulk data.
    pub fn watch(&mut self, mode: drs::Mode, side: drs::Side) -> Arc<FlowWatch> {
        let watch = Arc::new(watch_flow(mode, side));
        self.watch = Some(watch.clone());
        watch
    }

    fn sample_flow(&self) {
        if let Some(watch) = &self.watch {
            sample_conn(watch, self.hop());
        }
    }

    /// Closes this end's half and waits until the peer closes its own, so that no reset overtakes
    /// sent data. Data that still arrives is discarded. Gives up after 5 s.
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
        timeout(CLOSE_TIMEOUT, closing)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Returns this session's byte stream without TLS, once both ends have agreed to that inside
    /// the session (LH-PLAIN-1).
    ///
    /// No byte may use the session itself any more, and dropping it no longer resets the
    /// connection. An end of file here proves nothing (LH-PLAIN-2).
    pub fn plaintext_stream(&mut self) -> PlaintextStream<'_> {
        self.tls.hop_mut().inner_mut().end_cleanly();
        PlaintextStream(self)
    }

    /// Returns the handle that marks the next bytes as plaintext, while all others stay protected
    /// (LH-CLEAR-1).
    #[must_use]
    pub fn plaintext_ranges(&self) -> Arc<PlaintextRanges> {
        self.tls.plaintext_ranges().clone()
    }

    /// Completes once this end's hop is broken, even without a read or write. Works only until this
    /// end shuts its half down ([`Conn::poll_broken`]).
    pub fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.hop().poll_broken(cx)
    }

    /// Returns the TCP connection of this end's hop, to measure and tune it; `None` if the hop has
    /// another transport, or the session can be resumed over other connections.
    #[must_use]
    pub fn tcp(&self) -> Option<&TcpConn> {
        self.hop().tcp()
    }

    /// Records that the peer has proved its right to the session; see [`Conn::mark_verified`].
    pub(crate) fn mark_verified(&self) {
        self.hop().mark_verified();
    }

    fn hop(&self) -> &Conn {
        self.tls.hop().inner()
    }
}

impl Drop for Session {
    /// Releases the fitted rate, so that a later reader of the watch does not keep the connection
    /// open (LH-END-3).
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.stop_fitting();
        }
    }
}

impl AsyncRead for Session {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.sample_flow();
        Pin::new(&mut self.tls)
            .poll_read(cx, buffer)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the session was cut short: a hop failed, or the peer ended without closing it",
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
        self.sample_flow();
        Pin::new(&mut self.tls).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

/// Plaintext byte stream of a session, returned by [`Session::plaintext_stream`].
#[derive(Debug)]
pub struct PlaintextStream<'a>(&'a mut Session);

impl AsyncRead for PlaintextStream<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.tls.poll_read_plaintext(cx, buffer)
    }
}

impl AsyncWrite for PlaintextStream<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.tls.poll_write_plaintext(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.tls.poll_shutdown_plaintext(cx)
    }
}
