//! One direction of a joined session.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use longhaul_hop::{Grant, RateLimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::buffers::{Buffer, Buffers};

/// Maximum bytes that one direction moves before it yields to other tasks.
const MAX_BYTES_PER_TURN: usize = 4 * 1024 * 1024;

/// One direction. It writes what it has read before it reads again.
pub(super) struct Way {
    /// Number of bytes written.
    pub(super) moved: u64,
    held: Option<Held>,
    state: State,
    discards: bool,
    limit: Arc<RateLimit>,
    /// Timer until the next read, while the rate is used up.
    pause: Option<Pin<Box<Sleep>>>,
}

/// Bytes read and not yet written.
struct Held {
    buffer: Buffer,
    start: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The end of stream has been read; buffered bytes must still be written.
    Ending,
    /// The end of stream has been relayed.
    Ended,
}

/// Result of an attempt to move bytes.
#[derive(Debug)]
pub(super) enum Step {
    /// Progress needs a wake-up.
    Waiting,
    /// The end of stream has been relayed.
    Ended,
    CannotRead(io::Error),
    CannotWrite(io::Error),
}

impl Way {
    pub(super) const fn new(limit: Arc<RateLimit>) -> Self {
        Self {
            moved: 0,
            held: None,
            state: State::Open,
            discards: false,
            limit,
            pause: None,
        }
    }

    /// Discards everything that is read from now on.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        self.held = None;
    }

    pub(super) const fn discards(&self) -> bool {
        self.discards
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Returns true if the receiving side expects more bytes.
    pub(super) fn is_owed(&self) -> bool {
        !self.has_ended() && !self.discards
    }

    /// Moves bytes until one side, the rate or the turn limit stops it.
    pub(super) fn advance(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        buffers: &Arc<Buffers>,
    ) -> Step {
        let mut turn = MAX_BYTES_PER_TURN;
        loop {
            match self.write(cx, to) {
                Poll::Pending => return Step::Waiting,
                Poll::Ready(Err(error)) => return Step::CannotWrite(error),
                Poll::Ready(Ok(())) => {}
            }
            match self.state {
                State::Ended => return Step::Ended,
                State::Ending => return self.pass_end(cx, to),
                State::Open => {}
            }
            if turn == 0 {
                cx.waker().wake_by_ref();
                return Step::Waiting;
            }
            match self.read(cx, from, buffers) {
                Poll::Pending => {
                    self.held = None;
                    // Data that the session has sealed must not wait for more.
                    if self.discards {
                        return Step::Waiting;
                    }
                    return match Pin::new(&mut *to).poll_flush(cx) {
                        Poll::Ready(Err(error)) => Step::CannotWrite(error),
                        _ => Step::Waiting,
                    };
                }
                Poll::Ready(Err(error)) => return Step::CannotRead(error),
                Poll::Ready(Ok(0)) => self.state = State::Ending,
                Poll::Ready(Ok(n)) => turn = turn.saturating_sub(n),
            }
        }
    }

    fn pass_end(&mut self, cx: &mut Context<'_>, to: &mut (impl AsyncWrite + Unpin)) -> Step {
        self.held = None;
        if !self.discards {
            match Pin::new(to).poll_shutdown(cx) {
                Poll::Pending => return Step::Waiting,
                // The connection is closed; its other direction shows how it ended.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::NotConnected => {}
                Poll::Ready(Err(error)) => return Step::CannotWrite(error),
                Poll::Ready(Ok(())) => {}
            }
        }
        self.state = State::Ended;
        Step::Ended
    }

    /// Writes all buffered bytes.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let Some(held) = &mut self.held else {
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
        buffers: &Arc<Buffers>,
    ) -> Poll<io::Result<usize>> {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        let held = self.held.get_or_insert_with(|| Held {
            buffer: buffers.take(),
            start: 0,
            end: 0,
        });
        let granted = match self.limit.draw(held.buffer.bytes.len()) {
            Grant::Bytes(granted) => granted,
            Grant::Wait(time) => {
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
