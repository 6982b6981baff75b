//! A stream between the front and a worker: a Unix socket that tells an end from a death.
//!
//! A Unix socket has no reset: a peer that dies and one that ends its direction both look like an
//! end of stream. The front that dies or gives up closes its socket, which the worker sees as a
//! hang-up. A worker writes a byte into a pipe before it ends its direction. An end of stream
//! without it is a death (LH-END-3).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
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
    side: StreamSide,
    origin: Option<StreamOrigin>,
    /// True once the worker has ended its direction.
    has_ended: bool,
}

/// Process that has an end of a stream, and its end of the pipe.
#[derive(Debug)]
enum StreamSide {
    Front(OwnedFd),
    Worker(OwnedFd),
}

/// Descriptors from which a worker opens its end of a stream.
#[derive(Debug)]
pub(super) struct WorkerEnd {
    pub socket: OwnedFd,
    /// End of a pipe for the byte that announces the end.
    pub end_mark: OwnedFd,
}

impl LocalStream {
    /// Opens the front's end of a stream. Also returns the worker's. Must be called within a
    /// runtime.
    pub(super) fn open() -> io::Result<(Self, WorkerEnd)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let (reader, writer) = longhaul_platform::net::pipe()?;
        let end = WorkerEnd {
            socket: theirs.into(),
            end_mark: writer,
        };
        Ok((
            Self::new(ours.into(), StreamSide::Front(reader), None)?,
            end,
        ))
    }

    /// Opens the worker's end of a stream from `origin`. Must be called within a runtime.
    pub(super) fn at_worker(end: WorkerEnd, origin: StreamOrigin) -> io::Result<Self> {
        Self::new(end.socket, StreamSide::Worker(end.end_mark), Some(origin))
    }

    fn new(socket: OwnedFd, side: StreamSide, origin: Option<StreamOrigin>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            conn: Conn::new(socket)?,
            side,
            origin,
            has_ended: false,
        })
    }

    /// Judges an end of stream: returns true if the peer has ended its direction, and false if it
    /// has died.
    fn is_ended_by_peer(&mut self) -> bool {
        match &self.side {
            StreamSide::Front(end_mark) => {
                let has_mark = || rustix::io::read(end_mark, &mut [0; 1]) == Ok(1);
                self.has_ended = self.has_ended || has_mark();
                self.has_ended
            }
            // After the worker's own end, the front may be gone.
            StreamSide::Worker(_) => self.has_ended || !self.is_hung_up(),
        }
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
        match is_end && !self.is_ended_by_peer() {
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
        if let StreamSide::Worker(end_mark) = &self.side
            && !self.has_ended
        {
            rustix::io::write(end_mark, &[0])?;
            self.has_ended = true;
        }
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

    /// Returns the ends of a front and a worker.
    fn pair() -> (LocalStream, LocalStream) {
        let (front, end) = LocalStream::open().unwrap();
        let origin = StreamOrigin {
            from: None,
            local: None,
            is_tcp: false,
            route: String::new(),
            purpose: None,
        };
        (front, LocalStream::at_worker(end, origin).unwrap())
    }

    #[tokio::test]
    async fn worker_that_has_ended_may_be_gone() {
        let (mut front, mut worker) = pair();
        front.write_all(b"word").await.unwrap();
        front.shutdown().await.unwrap();
        let mut read = Vec::new();
        worker.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"word");
        worker.write_all(b"answer").await.unwrap();
        worker.shutdown().await.unwrap();
        drop(worker);
        read.clear();
        front.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"answer");
        assert_eq!(front.read(&mut [0]).await.unwrap(), 0, "the end stays");
    }

    #[tokio::test]
    async fn death_is_an_error_even_after_the_front_has_ended() {
        for has_ended in [false, true] {
            let (mut front, mut worker) = pair();
            if has_ended {
                front.shutdown().await.unwrap();
            }
            worker.write_all(b"word").await.unwrap();
            drop(worker);
            let mut read = Vec::new();
            assert!(front.read_to_end(&mut read).await.is_err(), "{has_ended}");
            assert_eq!(read, b"word");
        }
        let (front, mut worker) = pair();
        drop(front);
        assert!(worker.read_to_end(&mut Vec::new()).await.is_err());
    }
}
