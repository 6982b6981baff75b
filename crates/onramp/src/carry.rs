//! Moves the bytes of one connection both ways, until both ends have ended it or one has died.
//!
//! An end of stream on one side becomes one on the other, once everything before it is delivered; a death on one side becomes a reset
//! on the other. What a side does not take is not read from the other, so that nothing piles up here.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use longhaul_hop::Conn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::exit::Exit;

/// What is read at once: at first, and at most. A connection of few bytes at a time costs the least; one in bulk fills its buffer, and
/// is given a larger one, with which a system call costs little beside the bytes it moves.
const FIRST_BUFFER: usize = 16 * 1024;
const LARGEST_BUFFER: usize = 256 * 1024;
const GROWTH: usize = 4;
/// Memory for buffers beyond the first size, over all connections, in bytes: 512 directions in bulk. Others make do with the first size.
const LARGE_BUFFERS: usize = 128 * 1024 * 1024;
/// Bytes that one direction moves before other connections of the same thread have their turn.
const TURN: usize = 4 * 1024 * 1024;
/// Bytes after which it is plain which way a connection sends in bulk.
const BULK: u64 = 256 * 1024;

/// Memory for large buffers that is left, in KiB.
#[derive(Debug, Clone)]
pub(crate) struct BufferRoom(Arc<Semaphore>);

impl BufferRoom {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_BUFFERS / 1024)))
    }
}

/// Bytes that a connection has moved, to be read while it goes on.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// From the program.
    pub(crate) sent: AtomicU64,
    /// To the program.
    pub(crate) received: AtomicU64,
}

impl Moved {
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (
            self.sent.load(Ordering::Relaxed),
            self.received.load(Ordering::Relaxed),
        )
    }
}

/// How a connection ended. Only [`Ending::Finished`] is clean; all others have reset what was left.
#[derive(Debug)]
pub(crate) enum Ending {
    /// Both directions ended, and everything was delivered.
    Finished,
    /// The program's side was reset or broken.
    ProgramGone(io::Error),
    /// The destination's side was.
    FarGone(io::Error),
    /// The on-ramp was told to stop, and the time for that was over.
    Stopped,
}

/// The future that carries.
pub(crate) struct Carry {
    /// `None` once closed.
    sides: Option<(Conn, Exit)>,
    sending: Direction,
    receiving: Direction,
    moved: Arc<Moved>,
    right_sized: bool,
}

impl Carry {
    /// `early` is what was read from the program already.
    pub(crate) fn new(
        program: Conn,
        exit: Exit,
        early: Vec<u8>,
        moved: Arc<Moved>,
        room: &BufferRoom,
    ) -> Self {
        let mut sending = Direction::new(room);
        (sending.end, sending.buffer) = (early.len(), early);
        Self {
            sides: Some((program, exit)),
            sending,
            receiving: Direction::new(room),
            moved,
            right_sized: false,
        }
    }

    /// The round-trip time of a direct connection, while it is there.
    pub(crate) fn round_trip(&self) -> Option<std::time::Duration> {
        self.sides.as_ref().and_then(|(_, exit)| exit.round_trip())
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        let Some((program, exit)) = &mut self.sides else {
            return Poll::Ready(Ending::Finished);
        };
        let there = self.sending.advance(cx, program, exit, &self.moved.sent);
        let back = self.receiving.advance(cx, exit, program, &self.moved.received);
        if !self.right_sized {
            let (sent, received) = self.moved.bytes();
            if sent.max(received) >= BULK {
                self.right_sized = true;
                exit.right_size(sent >= received);
            }
        }
        match (there, back) {
            (Step::NotRead(error), _) | (_, Step::NotWritten(error)) => {
                return Poll::Ready(Ending::ProgramGone(error));
            }
            (Step::NotWritten(error), _) | (_, Step::NotRead(error)) => {
                return Poll::Ready(Ending::FarGone(error));
            }
            (Step::Ended, Step::Ended) => return Poll::Ready(Ending::Finished),
            _ => {}
        }
        // A side may die while nothing is read from it: because it has ended its own direction, or because the other does not take
        // what it sends.
        if !self.receiving.ended()
            && let Poll::Ready(error) = program.poll_broken(cx)
        {
            return Poll::Ready(Ending::ProgramGone(error));
        }
        if !self.sending.ended()
            && let Poll::Ready(error) = exit.poll_broken(cx)
        {
            return Poll::Ready(Ending::FarGone(error));
        }
        Poll::Pending
    }
}

impl Future for Carry {
    type Output = Ending;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ending> {
        let ending = ready!(self.advance(cx));
        if let Some((program, exit)) = self.sides.take()
            && matches!(ending, Ending::Finished)
        {
            program.close();
            exit.close();
        }
        Poll::Ready(ending)
    }
}

/// One of the two ends, as a direction sees it.
trait End {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>>;
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl End for Conn {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(self), cx, buffer)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(self), cx, data)
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Unlike the stream's own shutdown: the close stays a reset until the other direction has ended, too.
    fn poll_end(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_write())
    }
}

impl End for Exit {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Self::poll_read(self, cx, buffer)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self, cx, data)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self, cx)
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_end(self, cx)
    }
}

/// One way of a connection. It reads only when what it read before is written.
struct Direction {
    buffer: Vec<u8>,
    /// The part of it that is read and not written.
    start: usize,
    end: usize,
    /// What it should be at the next read.
    wanted: usize,
    permit: Option<OwnedSemaphorePermit>,
    room: BufferRoom,
    state: State,
    unflushed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The end has been read; what is held must still be written.
    Ending,
    Ended,
}

/// What came of an attempt to move bytes.
enum Step {
    Waiting,
    Ended,
    NotRead(io::Error),
    NotWritten(io::Error),
}

impl Direction {
    fn new(room: &BufferRoom) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            wanted: FIRST_BUFFER,
            permit: None,
            room: room.clone(),
            state: State::Open,
            unflushed: false,
        }
    }

    fn ended(&self) -> bool {
        self.state == State::Ended
    }

    fn advance(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl End,
        to: &mut impl End,
        moved: &AtomicU64,
    ) -> Step {
        let mut turn = 0;
        loop {
            while let Some(data) = self
                .buffer
                .get(self.start..self.end)
                .filter(|data| !data.is_empty())
            {
                match to.poll_write(cx, data) {
                    Poll::Pending => return Step::Waiting,
                    Poll::Ready(Ok(0)) => return Step::NotWritten(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(Ok(written)) => {
                        self.start += written;
                        turn += written;
                        self.unflushed = true;
                        moved.fetch_add(written as u64, Ordering::Relaxed);
                    }
                    Poll::Ready(Err(error)) => return Step::NotWritten(error),
                }
            }
            match self.state {
                State::Ended => return Step::Ended,
                State::Ending => {
                    return match to.poll_end(cx) {
                        Poll::Pending => Step::Waiting,
                        Poll::Ready(Err(error)) => Step::NotWritten(error),
                        Poll::Ready(Ok(())) => {
                            self.state = State::Ended;
                            self.let_go();
                            Step::Ended
                        }
                    };
                }
                State::Open if turn >= TURN => {
                    cx.waker().wake_by_ref();
                    return Step::Waiting;
                }
                State::Open => {}
            }
            match self.fill(cx, from) {
                Poll::Ready(Ok(0)) => self.state = State::Ending,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Step::NotRead(error),
                Poll::Pending => {
                    // Nothing more for now: what was written must not wait for more.
                    if self.unflushed {
                        match to.poll_flush(cx) {
                            Poll::Ready(Ok(())) => self.unflushed = false,
                            Poll::Ready(Err(error)) => return Step::NotWritten(error),
                            Poll::Pending => {}
                        }
                    }
                    return Step::Waiting;
                }
            }
        }
    }

    /// Reads once into the empty buffer; 0 is the end.
    fn fill(&mut self, cx: &mut Context<'_>, from: &mut impl End) -> Poll<io::Result<usize>> {
        self.resize();
        let mut read = ReadBuf::new(&mut self.buffer);
        ready!(from.poll_read(cx, &mut read))?;
        let length = read.filled().len();
        (self.start, self.end) = (0, length);
        if length == self.buffer.len() {
            self.wanted = (self.wanted * GROWTH).min(LARGEST_BUFFER);
        } else if length < FIRST_BUFFER {
            self.wanted = FIRST_BUFFER;
        }
        Poll::Ready(Ok(length))
    }

    fn resize(&mut self) {
        if self.wanted > FIRST_BUFFER && self.wanted != self.buffer.len() {
            self.permit = None;
            let kib = u32::try_from(self.wanted / 1024).unwrap_or(u32::MAX);
            match self.room.0.clone().try_acquire_many_owned(kib) {
                Ok(permit) => self.permit = Some(permit),
                Err(_) => self.wanted = FIRST_BUFFER,
            }
        }
        if self.buffer.len() != self.wanted {
            self.buffer = vec![0; self.wanted];
        }
        if self.wanted == FIRST_BUFFER {
            self.permit = None;
        }
    }

    fn let_go(&mut self) {
        self.buffer = Vec::new();
        self.permit = None;
    }
}
