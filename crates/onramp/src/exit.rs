//! Outgoing side of a connection: an ordinary TCP connection, or a session.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_hop::Conn;
use longhaul_session::Session;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// An established connection towards the destination. Dropping it before both directions have ended
/// resets it.
#[derive(Debug)]
pub(crate) enum Exit {
    /// A TCP connection to the destination.
    Direct(Conn),
    /// A session to an off-ramp, or to a destination that speaks the session protocol.
    Session(Box<Session>),
}

impl Exit {
    /// Returns the local address, if it is meaningful to the client.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Direct(conn) => conn.local_addr().ok(),
            Self::Session(_) => None,
        }
    }

    /// Returns the minimum round-trip time of a direct connection, which excludes queueing.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        match self {
            Self::Direct(conn) => {
                let info = conn.tcp()?.info().ok()?;
                Some(info.min_rtt.unwrap_or(info.rtt)).filter(|rtt| !rtt.is_zero())
            }
            Self::Session(_) => None,
        }
    }
}

impl AsyncRead for Exit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Direct(conn) => Pin::new(conn).poll_read(cx, buffer),
            Self::Session(session) => Pin::new(session).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Exit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Direct(conn) => Pin::new(conn).poll_write(cx, data),
            Self::Session(session) => Pin::new(session).poll_write(cx, data),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Direct(conn) => Pin::new(conn).poll_flush(cx),
            Self::Session(session) => Pin::new(session).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Direct(conn) => Pin::new(conn).poll_shutdown(cx),
            Self::Session(session) => Pin::new(session).poll_shutdown(cx),
        }
    }
}
