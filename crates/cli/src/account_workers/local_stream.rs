//! A stream between the front and a worker: a Unix socket that tells an end from a death.
//!
//! A Unix socket has no reset: a peer that dies and one that ends its direction both look like an
//! end of stream. The peer that ends its direction keeps its socket open until the other direction
//! has ended, too. So an end of stream with a hang-up is a death (LH-END-3).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use longhaul_hop::{Conn, DuplexSide};
use longhaul_transfer::{StreamOrigin, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One end of such a stream.
#[derive(Debug)]
pub(super) struct LocalStream {
    conn: Conn,
    origin: Option<StreamOrigin>,
    /// True once this end has ended its direction. The peer may be gone afterwards.
    has_ended: bool,
}

impl LocalStream {
    /// Wraps a socket. Must be called within a runtime.
    pub(super) fn new(socket: OwnedFd, origin: Option<StreamOrigin>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            conn: Conn::new(socket)?,
            origin,
            has_ended: false,
        })
    }

    /// Returns true if the peer has closed its socket.
    fn is_hung_up(&self) -> bool {
        let Some(socket) = self.conn.tcp() else {
            return false;
        };
        let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::empty())];
        let now = Timespec::default();
        let is_polled = poll(&mut polled, Some(&now)).is_ok();
        let [polled] = &polled;
        is_polled && polled.revents().contains(PollFlags::HUP)
    }
}

impl AsyncRead for LocalStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        ready!(Pin::new(&mut self.conn).poll_read(cx, buffer))?;
        let is_end = room > 0 && buffer.remaining() == room;
        match is_end && !self.has_ended && self.is_hung_up() {
            true => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            false => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.conn).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.conn).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.conn.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.conn).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_ended = true;
        Pin::new(&mut self.conn).poll_shutdown(cx)
    }
}

impl DuplexSide for LocalStream {
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.conn.poll_broken(cx)
    }

    fn close(self) {
        self.conn.close();
    }
}

impl Transport for LocalStream {
    fn origin(&self) -> Option<StreamOrigin> {
        self.origin.clone()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (LocalStream, LocalStream) {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let new = |socket: std::os::unix::net::UnixStream| LocalStream::new(socket.into(), None);
        (new(one).unwrap(), new(other).unwrap())
    }

    #[tokio::test]
    async fn end_is_an_end_and_death_is_an_error() {
        let (mut one, mut other) = pair();
        one.write_all(b"word").await.unwrap();
        one.shutdown().await.unwrap();
        let mut read = Vec::new();
        other.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"word");
        other.write_all(b"answer").await.unwrap();
        drop(other);
        read.clear();
        // This end has said everything, so it does not matter that the peer is gone.
        one.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"answer");

        let (mut one, mut other) = pair();
        one.write_all(b"word").await.unwrap();
        drop(one);
        read.clear();
        assert!(other.read_to_end(&mut read).await.is_err());
        assert_eq!(read, b"word");
    }
}
