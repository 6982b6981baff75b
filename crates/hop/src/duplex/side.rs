//! Requirements of a [`Duplex`](super::Duplex) on its sides.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Conn, TcpConn};

/// One side of a [`Duplex`](super::Duplex). Dropping it resets the connection, unless it has been
/// closed.
pub trait DuplexSide: AsyncRead + AsyncWrite + Unpin {
    /// Ends the direction towards this side, and lets a later drop still reset it. Needed only for
    /// [`EndPolicy::Revocable`](super::EndPolicy::Revocable); by default it is `poll_shutdown`.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_shutdown(cx)
    }

    /// Completes once the side is broken, even without a read or write. Polled only while the
    /// direction towards it is open.
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error>;

    /// Closes a side that has ended in both directions.
    fn close(self);

    /// Returns the TCP connection that carries exactly the bytes of this stream, if there is one.
    /// Its socket may be spliced.
    fn splice_conn(&mut self) -> Option<&mut TcpConn> {
        None
    }
}

impl DuplexSide for Conn {
    fn poll_end(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_write())
    }

    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Self::poll_broken(self, cx)
    }

    fn close(self) {
        Self::close(self);
    }

    fn splice_conn(&mut self) -> Option<&mut TcpConn> {
        self.tcp_mut()
    }
}
