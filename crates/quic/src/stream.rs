//! One stream of a QUIC connection, as the transport of a session.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use longhaul_hop::TransportStream;
use parking_lot::Mutex;
use s2n_quic::stream::{BidirectionalStream, ReceiveStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::shared::SharedConnection;

/// Application error code of a stream that ends without having been ended cleanly.
const RESET_CODE: u32 = 1;
/// Interval at which a stream that has nothing to send checks that its peer still receives.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

/// A bidirectional stream. Dropping it resets both directions, unless it was ended cleanly.
#[derive(Debug)]
pub(crate) struct QuicStream {
    receive: ReceiveStream,
    /// Received and not yet read.
    unread: Bytes,
    send: Mutex<SendHalf>,
    clean: bool,
    connection: Arc<SharedConnection>,
}

#[derive(Debug)]
struct SendHalf {
    stream: SendStream,
    /// Timer of the next check that the peer still receives.
    next_check: Option<Pin<Box<Sleep>>>,
}

impl QuicStream {
    /// Wraps a stream of `connection`, which stays open with it.
    pub(crate) fn new(stream: BidirectionalStream, connection: Arc<SharedConnection>) -> Self {
        connection.retain();
        let (receive, send) = stream.split();
        Self {
            receive,
            unread: Bytes::new(),
            send: Mutex::new(SendHalf {
                stream: send,
                next_check: None,
            }),
            clean: false,
            connection,
        }
    }
}

impl SendHalf {
    fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            match self.stream.poll_send_ready(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
                // Its waker is called for an error too.
                Poll::Pending => return Poll::Pending,
                // With room to send, no waker is registered, so the check is repeated.
                Poll::Ready(Ok(_)) => {}
            }
            let timer = self
                .next_check
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(LIVENESS_INTERVAL)));
            ready!(timer.as_mut().poll(cx));
            timer.as_mut().reset(Instant::now() + LIVENESS_INTERVAL);
        }
    }
}

impl TransportStream for QuicStream {
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.send.lock().poll_broken(cx)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        Ok(self.send.get_mut().stream.finish()?)
    }

    fn end_cleanly(&mut self) {
        self.clean = true;
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.connection.peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.connection.local)
    }

    fn round_trip(&self) -> Option<Duration> {
        None
    }

    fn mark_verified(&self) {
        self.connection.mark_verified();
    }
}

impl AsyncRead for QuicStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        // Fills the buffer, as one read of a socket would.
        loop {
            let part = this.unread.len().min(buffer.remaining());
            buffer.put_slice(this.unread.get(..part).unwrap_or_default());
            this.unread.advance(part);
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            match this.receive.poll_receive(cx) {
                Poll::Ready(Ok(Some(received))) => this.unread = received,
                // An error or the end is reported by the next read if this one has bytes.
                _ if buffer.filled().len() > before => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl AsyncWrite for QuicStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let send = &mut self.get_mut().send.get_mut().stream;
        AsyncWrite::poll_write(Pin::new(send), cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let send = &mut self.get_mut().send.get_mut().stream;
        AsyncWrite::poll_write_vectored(Pin::new(send), cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Returns at once: written bytes are sent without being flushed.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the sending direction, and makes the later drop a clean one.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.shutdown_write()?;
        this.end_cleanly();
        Poll::Ready(Ok(()))
    }
}

impl Drop for QuicStream {
    fn drop(&mut self) {
        if !self.clean {
            // Both fail only if the direction has ended already.
            let _ = self.send.get_mut().stream.reset(RESET_CODE.into());
            let _ = self.receive.stop_sending(RESET_CODE.into());
        }
        self.connection.release();
    }
}
