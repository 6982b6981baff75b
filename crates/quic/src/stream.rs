//! One stream of a QUIC connection, as the transport of a session.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use longhaul_hop::{StreamMeasurement, TransportStream};
use parking_lot::Mutex;
use s2n_quic::stream::{BidirectionalStream, ReceiveStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::limits::SEND_BUFFER_BYTES;
use crate::measures::ConnectionMeasures;
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
    received_bytes: u64,
    connection: Arc<SharedConnection>,
}

#[derive(Debug)]
struct SendHalf {
    stream: SendStream,
    /// Timer of the next check that the peer still receives.
    next_check: Option<Pin<Box<Sleep>>>,
    /// Bytes written, and bytes acknowledged as of the last write.
    written: u64,
    acknowledged: u64,
    /// Timer of a writer that waits until less is buffered.
    pause: Option<Pin<Box<Sleep>>>,
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
                written: 0,
                acknowledged: 0,
                pause: None,
            }),
            clean: false,
            received_bytes: 0,
            connection,
        }
    }
}

impl SendHalf {
    /// Returns how many bytes may be written now, once that is at least one.
    fn poll_room(
        &mut self,
        measures: &ConnectionMeasures,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let available = ready!(self.stream.poll_send_ready(cx))? as u64;
            let buffered = u64::from(SEND_BUFFER_BYTES).saturating_sub(available);
            self.acknowledged = self.written.saturating_sub(buffered);
            let room = measures.max_buffered().saturating_sub(buffered);
            if room > 0 {
                self.pause = None;
                return Poll::Ready(Ok(usize::try_from(room).unwrap_or(usize::MAX)));
            }
            // The library wakes a writer only when its whole buffer was full.
            let pause = self
                .pause
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(measures.buffer_pause())));
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
    }

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

    fn measurement(&self) -> Option<StreamMeasurement> {
        self.connection
            .measures
            .of_stream(self.send.lock().acknowledged, self.received_bytes)
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
            this.received_bytes = this.received_bytes.saturating_add(part as u64);
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
        let this = self.get_mut();
        let send = this.send.get_mut();
        let room = ready!(send.poll_room(&this.connection.measures, cx))?;
        let data = data.get(..room).unwrap_or(data);
        let written = ready!(AsyncWrite::poll_write(Pin::new(&mut send.stream), cx, data))?;
        send.written = send.written.saturating_add(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let send = this.send.get_mut();
        // Slices are at most a few hundred kilobytes, so the last write may exceed the room.
        ready!(send.poll_room(&this.connection.measures, cx))?;
        let stream = Pin::new(&mut send.stream);
        let written = ready!(AsyncWrite::poll_write_vectored(stream, cx, data))?;
        send.written = send.written.saturating_add(written as u64);
        Poll::Ready(Ok(written))
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
