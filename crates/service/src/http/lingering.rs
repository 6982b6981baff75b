//! Stream of a connection that reads what the peer still sends after the last answer.
//!
//! A service may answer before it has read the whole request, as when a body is too large. Closing
//! a socket with unread bytes resets the connection, which can destroy the answer before the peer
//! has read it. RFC 9112, section 9.6, describes this remedy: end the own direction, then read and
//! discard.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

/// Maximum number of bytes that are discarded: several times the largest body of any service.
pub(super) const MAX_DISCARDED_BYTES: usize = 16 << 20;
/// Size of a read, in bytes.
const READ_BYTES: usize = 8 << 10;

/// Stream whose shutdown completes when the peer has ended its direction too, after
/// [`MAX_DISCARDED_BYTES`], or when the time is over. When the service stops, it does not wait.
pub(super) struct LingeringStream<S> {
    stream: S,
    time: Duration,
    stop: watch::Receiver<bool>,
    /// Limits of the discarding, once this direction has ended.
    discard: Option<DiscardLimits>,
}

struct DiscardLimits {
    bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> LingeringStream<S> {
    /// Wraps `stream`, whose peer has `time` to end its direction.
    pub(super) const fn new(stream: S, time: Duration, stop: watch::Receiver<bool>) -> Self {
        Self {
            stream,
            time,
            stop,
            discard: None,
        }
    }
}

impl<S: AsyncRead + Unpin> LingeringStream<S> {
    /// Discards what arrives until a limit is reached. Errors end it, as nobody waits for more.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limits) = &mut self.discard else {
            return Poll::Ready(());
        };
        let mut chunk = [0; READ_BYTES];
        while limits.bytes > 0 {
            let mut chunk = ReadBuf::new(&mut chunk);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut chunk);
            let length = chunk.filled().len();
            match read {
                Poll::Ready(Ok(())) if length > 0 => {
                    limits.bytes = limits.bytes.saturating_sub(length);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return limits.deadline.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.discard.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            let deadline = Box::pin(sleep(self.time));
            self.discard = Some(DiscardLimits {
                bytes: MAX_DISCARDED_BYTES,
                deadline,
            });
        }
        // A connection is polled again when the service stops.
        if *self.stop.borrow() {
            return Poll::Ready(Ok(()));
        }
        self.poll_discard(cx).map(Ok)
    }
}
