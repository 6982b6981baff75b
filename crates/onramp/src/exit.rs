//! Where a connection goes on: an ordinary TCP connection, or a session.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_hop::Conn;
use longhaul_session::Session;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that stands, towards the destination. Dropped, it is reset; both its directions ended, it has ended cleanly.
#[derive(Debug)]
pub enum Exit {
    /// Made from here to the destination.
    Direct(Conn),
    /// To an off-ramp, or to a destination that speaks the session protocol.
    Session(Box<Session>),
}

impl Exit {
    /// The round-trip time of a direct connection: the least that was seen, which queues do not add to.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        match self {
            Self::Direct(conn) => {
                let info = conn.info().ok()?;
                Some(info.min_rtt.unwrap_or(info.rtt)).filter(|rtt| !rtt.is_zero())
            }
            Self::Session(_) => None,
        }
    }

    /// From now on right-sizes what the kernel does not size itself. `sending` says which way most bytes go.
    pub(crate) fn right_size(&mut self, sending: bool) {
        // A direct connection is as the program's own would be.
        if let Self::Session(session) = self {
            let side = if sending {
                drs::Side::Sending
            } else {
                drs::Side::Receiving
            };
            drop(session.watch(drs::Mode::Auto, side));
        }
    }

    /// Ready once a direct connection is broken. A session's death is met by reading it.
    pub(crate) fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match self {
            Self::Direct(conn) => conn.poll_broken(cx),
            Self::Session(_) => Poll::Pending,
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Direct(conn) => Pin::new(conn).poll_read(cx, buffer),
            Self::Session(session) => Pin::new(session).poll_read(cx, buffer),
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Direct(conn) => Pin::new(conn).poll_write(cx, data),
            Self::Session(session) => Pin::new(session).poll_write(cx, data),
        }
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Direct(_) => Poll::Ready(Ok(())),
            Self::Session(session) => Pin::new(session).poll_flush(cx),
        }
    }

    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // The close stays a reset until the other direction has ended, too.
            Self::Direct(conn) => Poll::Ready(conn.shutdown_write()),
            Self::Session(session) => Pin::new(session).poll_shutdown(cx),
        }
    }

    /// Closes what has ended both ways.
    pub(crate) fn close(self) {
        if let Self::Direct(conn) = self {
            conn.close();
        }
    }
}
