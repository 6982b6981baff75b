//! One direction of a joined session.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use longhaul_hop::{DrawOutcome, RateLimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::buffers::{Buffer, BufferPool};

/// Maximum bytes that one direction moves before it yields to other tasks.
const MAX_BYTES_PER_TURN: usize = 4 * 1024 * 1024;

/// One direction. It writes what it has read before it reads again.
pub(super) struct JoinDirection {
    /// Number of bytes written.
    pub(super) moved: u64,
    buffered: Option<BufferedBytes>,
    state: DirectionState,
    discards: bool,
    limit: Arc<RateLimit>,
    /// Timer until the next read, while the rate is used up.
    pause: Option<Pin<Box<Sleep>>>,
}

/// Bytes read and not yet written.
struct BufferedBytes {
    buffer: Buffer,
    start: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectionState {
    Open,
    /// The end of stream has been read; buffered bytes must still be written.
    Ending,
    /// The end of stream has been relayed.
    Ended,
}

/// Result of an attempt to move bytes.
#[derive(Debug)]
pub(super) enum DirectionProgress {
    /// Progress needs a wake-up.
    Waiting,
    /// The end of stream has been relayed.
    Ended,
    CannotRead(io::Error),
    CannotWrite(io::Error),
}

impl JoinDirection {
    pub(super) const fn new(limit: Arc<RateLimit>) -> Self {
        Self {
            moved: 0,
            buffered: None,
            state: DirectionState::Open,
            discards: false,
            limit,
            pause: None,
        }
    }

    /// Discards everything that is read from now on.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        self.buffered = None;
    }

    pub(super) const fn discards(&self) -> bool {
        self.discards
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state == DirectionState::Ended
    }

    /// Returns true if the receiving side expects more bytes.
    pub(super) fn expects_more(&self) -> bool {
        !self.has_ended() && !self.discards
    }

    /// Moves bytes until one side, the rate or the turn limit stops it.
    pub(super) fn advance(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        buffers: &Arc<BufferPool>,
    ) -> DirectionProgress {
        let mut turn = MAX_BYTES_PER_TURN;
        loop {
            match self.write(cx, to) {
                Poll::Pending => return DirectionProgress::Waiting,
                Poll::Ready(Err(error)) => return DirectionProgress::CannotWrite(error),
                Poll::Ready(Ok(())) => {}
            }
            match self.state {
                DirectionState::Ended => return DirectionProgress::Ended,
                DirectionState::Ending => return self.relay_end(cx, to),
                DirectionState::Open => {}
            }
            if turn == 0 {
                cx.waker().wake_by_ref();
                return DirectionProgress::Waiting;
            }
            match self.read(cx, from, buffers) {
                Poll::Pending => {
                    self.buffered = None;
                    // Data that the session has sealed must not wait for more.
                    if self.discards {
                        return DirectionProgress::Waiting;
                    }
                    return match Pin::new(&mut *to).poll_flush(cx) {
                        Poll::Ready(Err(error)) => DirectionProgress::CannotWrite(error),
                        _ => DirectionProgress::Waiting,
                    };
                }
                Poll::Ready(Err(error)) => return DirectionProgress::CannotRead(error),
                Poll::Ready(Ok(0)) => self.state = DirectionState::Ending,
                Poll::Ready(Ok(n)) => turn = turn.saturating_sub(n),
            }
        }
    }

    fn relay_end(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> DirectionProgress {
        self.buffered = None;
        if !self.discards {
            match Pin::new(to).poll_shutdown(cx) {
                Poll::Pending => return DirectionProgress::Waiting,
                // The connection is closed; its other direction shows how it ended.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::NotConnected => {}
                Poll::Ready(Err(error)) => return DirectionProgress::CannotWrite(error),
                Poll::Ready(Ok(())) => {}
            }
        }
        self.state = DirectionState::Ended;
        DirectionProgress::Ended
    }

    /// Writes all buffered bytes.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let Some(held) = &mut self.buffered else {
            return Poll::Ready(Ok(()));
        };
        while let Some(bytes) = held
            .buffer
            .bytes
            .get(held.start..held.end)
            .filter(|bytes| !bytes.is_empty())
        {
            if self.discards {
                break;
            }
            match Pin::new(&mut *to).poll_write(cx, bytes) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    held.start += n;
                    self.moved += n as u64;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once into an empty buffer. Returns 0 at the end of stream.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        buffers: &Arc<BufferPool>,
    ) -> Poll<io::Result<usize>> {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        let held = self.buffered.get_or_insert_with(|| BufferedBytes {
            buffer: buffers.take(),
            start: 0,
            end: 0,
        });
        let granted = match self.limit.draw(held.buffer.bytes.len()) {
            DrawOutcome::Bytes(granted) => granted,
            DrawOutcome::Wait(time) => {
                let mut pause = Box::pin(tokio::time::sleep(time));
                // The new timer is never ready yet; polling it registers the waker.
                if pause.as_mut().poll(cx).is_ready() {
                    cx.waker().wake_by_ref();
                }
                self.pause = Some(pause);
                return Poll::Pending;
            }
        };
        let room = held.buffer.bytes.get_mut(..granted).unwrap_or_default();
        let mut into = ReadBuf::new(room);
        let read = Pin::new(from).poll_read(cx, &mut into);
        let length = into.filled().len();
        self.limit.refund(granted.saturating_sub(length));
        match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                (held.start, held.end) = (0, length);
                Poll::Ready(Ok(length))
            }
        }
    }
}
