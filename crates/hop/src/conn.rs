//! A hop's connection, whatever its transport.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_proto::{HopDetails, PublicKey, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::TcpConn;

/// A connected byte stream that has no TCP socket of its own, such as a stream of a QUIC
/// connection.
///
/// Like a [`TcpConn`], it ends with a reset unless it is ended explicitly (LH-END-3).
/// `poll_shutdown` ends the sending direction, and makes a later drop clean.
pub trait TransportStream: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Sync + Unpin {
    /// Completes once the stream is broken, even without a read or write. Polled only while the
    /// sending direction is open.
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error>;

    /// Ends the sending direction once everything written before has been sent.
    ///
    /// # Errors
    /// The stream is broken.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Makes a later drop clean instead of a reset.
    fn end_cleanly(&mut self);

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The connection is closed.
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// Returns the local address.
    ///
    /// # Errors
    /// The connection is closed.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Returns the measurement, once the connection has a round trip. `None` if the connection is
    /// replaced by others over time.
    fn measurement(&self) -> Option<StreamMeasurement> {
        None
    }

    /// Returns the smoothed round trip, once measured.
    fn round_trip(&self) -> Option<Duration> {
        self.measurement().map(|measured| measured.round_trip)
    }

    /// Records that the peer has proved its right to a session on the connection.
    fn mark_verified(&self) {}

    /// Calls `measure` with the TCP connection that carries the stream now, if there is one, and
    /// with its number: later connections have higher ones.
    fn measure(&self, _measure: &mut dyn FnMut(&TcpConn, u32)) {}
}

/// Measurement of a stream and of the connection that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamMeasurement {
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Minimum round trip.
    pub min_round_trip: Duration,
    /// Packets that this end sent, for all streams of the connection.
    pub sent_packets: u64,
    /// Packets of this end that were lost, of all streams of the connection.
    pub lost_packets: u64,
    /// Bytes that this end sent on the stream and the peer had acknowledged at the last write.
    pub acknowledged_bytes: u64,
    /// Bytes that this end received on the stream.
    pub received_bytes: u64,
}

impl StreamMeasurement {
    /// Returns the measurement as a sample for a [`drs::FlowWatch`] of this side.
    #[must_use]
    pub const fn sample(&self, side: drs::Side) -> drs::TransportSample {
        drs::TransportSample {
            rtt: self.round_trip,
            min_rtt: self.min_round_trip,
            moved: match side {
                drs::Side::Sending => self.acknowledged_bytes,
                drs::Side::Receiving => self.received_bytes,
            },
            packets: drs::PacketCounts {
                sent: self.sent_packets,
                lost: self.lost_packets,
            },
        }
    }
}

/// Future of a stream that is being opened.
pub type OpeningStream<'a> = Pin<Box<dyn Future<Output = io::Result<Conn>> + Send + 'a>>;

/// Opener of streams by a transport other than TCP.
pub trait StreamDialler: std::fmt::Debug + Send + Sync {
    /// Opens a stream to the server at `address`, which must prove `key` if one is given.
    ///
    /// # Errors
    /// Of the future: the server does not answer before `deadline`, refuses, or has another key.
    fn open(
        &self,
        address: SocketAddr,
        key: Option<PublicKey>,
        deadline: Instant,
    ) -> OpeningStream<'_>;
}

/// Future of a stream that is being accepted.
pub type AcceptingStream<'a> = Pin<Box<dyn Future<Output = (Conn, SocketAddr)> + Send + 'a>>;

/// Listener for streams of a transport other than TCP.
pub trait StreamListener: std::fmt::Debug + Send {
    /// Returns the next stream, and the address of its peer.
    fn accept(&mut self) -> AcceptingStream<'_>;
}

/// A hop's connection: an asynchronous byte stream that ends cleanly only on request (LH-END-3).
///
/// A clean end is explicit: by [`Conn::close`], [`Conn::end_cleanly`], or by shutting it down as an
/// asynchronous stream. Otherwise dropping it resets it.
#[derive(Debug)]
pub enum Conn {
    /// A TCP connection. It lends its descriptor to splice(2), and the kernel measures it.
    Tcp(TcpConn),
    /// A stream of another transport.
    Stream(Box<dyn TransportStream>),
}

impl Conn {
    /// Wraps a non-blocking TCP socket. Fails if it cannot be registered with tokio's reactor.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        TcpConn::new(fd).map(Self::Tcp)
    }

    /// Returns the TCP connection, if it is one. Its socket can be measured, tuned and spliced.
    #[must_use]
    pub const fn tcp(&self) -> Option<&TcpConn> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Stream(_) => None,
        }
    }

    /// Returns the TCP connection, if it is one; see [`Conn::tcp`].
    pub const fn tcp_mut(&mut self) -> Option<&mut TcpConn> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Stream(_) => None,
        }
    }

    /// Completes once the connection is broken: reset, timed out, or both directions closed.
    ///
    /// Only a caller that has not shut down writing may poll this. A hang-up then means that the
    /// peer or the path has died.
    pub fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match self {
            Self::Tcp(tcp) => tcp.poll_broken(cx),
            Self::Stream(stream) => stream.poll_broken(cx),
        }
    }

    /// Completes when the connection is broken; see [`Conn::poll_broken`].
    pub async fn broken(&self) -> io::Error {
        std::future::poll_fn(|cx| self.poll_broken(cx)).await
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.peer_addr(),
            Self::Stream(stream) => stream.peer_addr(),
        }
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr(),
            Self::Stream(stream) => stream.local_addr(),
        }
    }

    /// Returns the smoothed round trip, once measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        match self {
            Self::Tcp(tcp) => tcp.info().ok().map(|info| info.rtt),
            Self::Stream(stream) => stream.round_trip(),
        }
    }

    /// Returns the transport. TCP counts as paced while its sending rate is limited.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match self {
            Self::Tcp(tcp) => match tcp.info() {
                Ok(info) if info.max_pacing_rate.is_some() => Transport::Paced,
                _ => Transport::Tcp,
            },
            Self::Stream(_) => Transport::Quic,
        }
    }

    /// Returns what is known of the connection: its transport, round trip and congestion control.
    #[must_use]
    pub fn details(&self) -> HopDetails {
        let congestion = |tcp: &TcpConn| longhaul_platform::net::congestion(tcp);
        HopDetails {
            transport: self.transport(),
            round_trip: self.round_trip(),
            congestion: self.tcp().and_then(congestion),
        }
    }

    /// Limits what this end sends to `rate`, in bit/s of payload (`SO_MAX_PACING_RATE`). A
    /// transport other than TCP paces itself.
    pub fn pace(&self, rate: u64) {
        let Some(tcp) = self.tcp() else { return };
        let bytes_per_second = (rate / u64::from(u8::BITS)).max(1);
        if let Err(error) = drs::set_max_pacing_rate(tcp, Some(bytes_per_second)) {
            // Depots enforce a granted rate in any case, only less smoothly.
            tracing::debug!(%error, "cannot pace a hop");
        }
    }

    /// Records that the peer has proved its right to a session. Transports that carry several
    /// sessions then stop treating the connection as a stranger's.
    pub fn mark_verified(&self) {
        if let Self::Stream(stream) = self {
            stream.mark_verified();
        }
    }

    /// Calls `measure` with the TCP connection that carries the bytes now; see
    /// [`TransportStream::measure`]. It may be tuned as well, but not read or written.
    pub fn measure(&self, measure: &mut dyn FnMut(&TcpConn, u32)) {
        match self {
            Self::Tcp(tcp) => measure(tcp, 0),
            Self::Stream(stream) => stream.measure(measure),
        }
    }

    /// Ends this direction, and leaves the other open.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.shutdown_write(),
            Self::Stream(stream) => stream.shutdown_write(),
        }
    }

    /// Closes without a reset. Used once both directions have ended.
    pub fn close(mut self) {
        self.end_cleanly();
    }

    /// Makes a later close clean instead of a reset. Used by callers that end their direction in
    /// another way, or that do not signal an end.
    pub fn end_cleanly(&mut self) {
        match self {
            Self::Tcp(tcp) => tcp.end_cleanly(),
            Self::Stream(stream) => stream.end_cleanly(),
        }
    }
}

impl From<TcpConn> for Conn {
    fn from(tcp: TcpConn) -> Self {
        Self::Tcp(tcp)
    }
}

impl AsyncRead for Conn {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Stream(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Conn {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, data),
            Self::Stream(stream) => Pin::new(stream.as_mut()).poll_write(cx, data),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, data),
            Self::Stream(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, data),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_write_vectored(),
            Self::Stream(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Stream(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    /// Ends this direction, and makes the later close a clean one.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Stream(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
