//! One direction of a [`Duplex`](super::Duplex). Bytes pass through a pipe between two sides that
//! lend their sockets, and otherwise through a buffer.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use longhaul_platform::net::splice;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::ReadBuf;
use tokio::time::Sleep;

use super::batch::ReadBatching;
use super::buffers::Buffer;
use super::pipe::{Pipe, PipePool};
use super::{DuplexOptions, DuplexSide, EndPolicy};
use crate::{DrawOutcome, RateLimit, TcpConn};

/// Maximum bytes that one direction moves before it yields to other tasks of the same thread.
const MAX_BYTES_PER_TURN: usize = 4 * 1024 * 1024;

/// One direction. It writes what it has read before it reads again, so it holds at most one pipe or
/// buffer.
pub(super) struct Direction {
    /// Bytes accepted by the receiving side.
    pub(super) moved: u64,
    held: HeldBytes,
    state: DirectionState,
    discards: bool,
    limit: Arc<RateLimit>,
    /// Timer until the next read, while the rate is used up.
    pause: Option<Pin<Box<Sleep>>>,
    lane: Lane,
    batch: ReadBatching,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectionState {
    Open,
    /// The end of stream has been read; held bytes must still be written.
    Ending,
    /// The end of stream has been relayed.
    Ended,
}

/// Method that moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// From socket to socket through a pipe, or through a small buffer if none is available.
    Spliced,
    /// From socket to socket through a small buffer, as splice(2) was refused on these sockets.
    Copied,
    /// From stream to stream through a buffer.
    Buffered,
}

/// Bytes read and not yet written.
enum HeldBytes {
    Nothing,
    Pipe(Pipe),
    Buffer {
        buffer: Buffer,
        start: usize,
        end: usize,
    },
}

/// Failure of one of the two sides.
pub(super) enum DirectionError {
    Read(io::Error),
    Write(io::Error),
}

impl Direction {
    pub(super) fn new(limit: Arc<RateLimit>, splices: bool) -> Self {
        Self {
            moved: 0,
            held: HeldBytes::Nothing,
            state: DirectionState::Open,
            discards: false,
            limit,
            pause: None,
            lane: match splices {
                true => Lane::Spliced,
                false => Lane::Buffered,
            },
            batch: ReadBatching::default(),
        }
    }

    /// Stops reading: the end of stream has been read elsewhere.
    pub(super) fn end(&mut self) {
        self.state = DirectionState::Ending;
    }

    /// Switches to another rate limit, also while waiting for the current one.
    pub(super) fn set_limit(&mut self, limit: Arc<RateLimit>) {
        self.limit = limit;
        self.pause = None;
    }

    /// Discards everything that is read from now on.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        self.held = HeldBytes::Nothing;
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

    /// Moves bytes until one of the sides, the rate limit or the turn limit stops it. Completes
    /// once the end of stream has been relayed.
    pub(super) fn advance(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl DuplexSide,
        to: &mut impl DuplexSide,
        options: &DuplexOptions,
    ) -> Poll<Result<(), DirectionError>> {
        let mut turn = MAX_BYTES_PER_TURN;
        if let Some(conn) = self.borrow_conn(from) {
            self.batch.check_deadline(cx, conn);
        }
        loop {
            let written = self.write(cx, to).map_err(DirectionError::Write)?;
            if written.is_pending() {
                // Nothing is read until this is written, so further arrivals need not wake the
                // task.
                if self.state == DirectionState::Open
                    && let Some(conn) = self.borrow_conn(from)
                {
                    conn.pause_reading(cx).map_err(DirectionError::Read)?;
                }
                return Poll::Pending;
            }
            match self.state {
                DirectionState::Ended => return Poll::Ready(Ok(())),
                DirectionState::Ending => {
                    let ended = self.relay_end(cx, to, options.ends);
                    return ended.map_err(DirectionError::Write);
                }
                DirectionState::Open => {}
            }
            if turn == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.read(cx, from, options).map_err(DirectionError::Read)? {
                Poll::Pending => {
                    self.await_bytes(cx, from).map_err(DirectionError::Read)?;
                    // Data that a session has sealed must not wait for more.
                    if !self.discards {
                        let flushed = Pin::new(to).poll_flush(cx);
                        let _ = flushed.map_err(DirectionError::Write)?;
                    }
                    return Poll::Pending;
                }
                Poll::Ready(0) => self.state = DirectionState::Ending,
                Poll::Ready(n) => {
                    self.batch.on_read();
                    turn = turn.saturating_sub(n);
                }
            }
        }
    }

    /// Returns the connection of a side whose socket this direction uses itself.
    fn borrow_conn<'a>(&self, side: &'a mut impl DuplexSide) -> Option<&'a mut TcpConn> {
        match self.lane {
            Lane::Spliced | Lane::Copied => side.splice_conn(),
            Lane::Buffered => None,
        }
    }

    /// Prepares for a wake-up when bytes arrive, or when the rate limit permits more.
    fn await_bytes(&mut self, cx: &mut Context<'_>, from: &mut impl DuplexSide) -> io::Result<()> {
        // Nothing is held, so another session may use the pipe or buffer.
        self.held = HeldBytes::Nothing;
        let Some(conn) = self.borrow_conn(from) else {
            return Ok(());
        };
        if self.pause.is_some() {
            return conn.pause_reading(cx);
        }
        self.batch.on_empty(cx, conn, self.moved);
        conn.resume_reading(cx)
    }

    fn relay_end(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut impl DuplexSide,
        policy: EndPolicy,
    ) -> Poll<io::Result<()>> {
        self.held = HeldBytes::Nothing;
        let ended = ready!(match policy {
            _ if self.discards => Poll::Ready(Ok(())),
            EndPolicy::Revocable => to.poll_end(cx),
            EndPolicy::Final => Pin::new(to).poll_shutdown(cx),
        });
        // A connection that is closed already shows in its other direction how it ended.
        match ended {
            Err(error)
                if error.kind() == io::ErrorKind::NotConnected && policy == EndPolicy::Final => {}
            ended => ended?,
        }
        self.state = DirectionState::Ended;
        Poll::Ready(Ok(()))
    }

    /// Writes all held bytes.
    fn write(&mut self, cx: &mut Context<'_>, to: &mut impl DuplexSide) -> Poll<io::Result<()>> {
        loop {
            let written = match &mut self.held {
                HeldBytes::Pipe(pipe) if pipe.held > 0 => {
                    let (Some((read_end, _)), Some(conn)) = (pipe.ends(), to.splice_conn()) else {
                        return Poll::Ready(Ok(()));
                    };
                    let held = pipe.held;
                    ready!(conn.poll_write_with(cx, |fd| { splice(read_end.as_fd(), fd, held) }))
                        .inspect(|n| pipe.held -= n)
                }
                HeldBytes::Buffer { buffer, start, end } if *start < *end && !self.discards => {
                    let bytes = buffer.bytes.get(*start..*end).unwrap_or_default();
                    ready!(Pin::new(&mut *to).poll_write(cx, bytes)).inspect(|n| *start += n)
                }
                _ => return Poll::Ready(Ok(())),
            };
            match written {
                // The kernel never returns 0 here for a socket. If it did, retrying would loop
                // forever.
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => self.moved += n as u64,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Reads once into an empty pipe or buffer. Returns 0 at the end of stream.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl DuplexSide,
        options: &DuplexOptions,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            // Checked before a pipe is taken, which might not be needed.
            if let Some(conn) = self.borrow_conn(from) {
                ready!(conn.poll_readable(cx))?;
            }
            let room = self.take_room(options);
            let granted = match self.limit.draw(room) {
                DrawOutcome::Bytes(n) => n,
                DrawOutcome::Wait(wait) => {
                    self.pause = Some(Box::pin(tokio::time::sleep(wait)));
                    continue;
                }
            };
            let read = self.read_granted(cx, from, granted);
            let used = if let Poll::Ready(Ok(n)) = &read {
                *n
            } else {
                0
            };
            self.limit.refund(granted.saturating_sub(used));
            match read {
                Poll::Ready(Err(error)) if self.lane == Lane::Spliced && is_unsupported(&error) => {
                    tracing::debug!(%error, "splice refused; copying instead");
                    self.lane = Lane::Copied;
                    self.held = HeldBytes::Nothing;
                }
                other => return other,
            }
        }
    }

    /// Takes a pipe or buffer, unless one is held. Returns its size in bytes.
    fn take_room(&mut self, options: &DuplexOptions) -> usize {
        let splices = self.lane == Lane::Spliced && !self.discards;
        // If no pipe is available, this read is copied and the next tries again.
        if splices
            && !matches!(self.held, HeldBytes::Pipe(_))
            && let Some(pipe) = options.pipes.as_ref().and_then(PipePool::take)
        {
            self.held = HeldBytes::Pipe(pipe);
        }
        if let HeldBytes::Nothing = self.held {
            let buffer = match self.lane {
                Lane::Buffered => options.buffers.take(),
                Lane::Spliced | Lane::Copied => options.buffers.take_small(),
            };
            self.held = HeldBytes::Buffer {
                buffer,
                start: 0,
                end: 0,
            };
        }
        match &self.held {
            HeldBytes::Pipe(pipe) => pipe.capacity(),
            HeldBytes::Buffer { buffer, .. } => buffer.bytes.len(),
            HeldBytes::Nothing => 0,
        }
    }

    /// Reads up to `granted` bytes into the pipe or buffer.
    fn read_granted(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl DuplexSide,
        granted: usize,
    ) -> Poll<io::Result<usize>> {
        let conn = self.borrow_conn(from);
        let (buffer, start, end) = match &mut self.held {
            HeldBytes::Pipe(pipe) => {
                let (Some((_, write_end)), Some(conn)) = (pipe.ends(), conn) else {
                    return Poll::Ready(Ok(0));
                };
                return conn
                    .poll_read_with(cx, |fd| splice(fd, write_end.as_fd(), granted))
                    .map(|read| read.inspect(|n| pipe.held += n));
            }
            HeldBytes::Buffer { buffer, start, end } => (buffer, start, end),
            HeldBytes::Nothing => return Poll::Ready(Ok(0)),
        };
        let room = buffer.bytes.get_mut(..granted).unwrap_or_default();
        let length = match conn {
            Some(conn) => ready!(conn.poll_read_with(cx, |fd| {
                rustix::net::recv(fd, &mut *room, RecvFlags::empty()).map(|(n, _)| n)
            }))?,
            None => {
                let mut into = ReadBuf::new(room);
                ready!(Pin::new(from).poll_read(cx, &mut into))?;
                into.filled().len()
            }
        };
        (*start, *end) = (0, length);
        Poll::Ready(Ok(length))
    }
}

/// Returns true if splice(2) does not work on these sockets or on this system (seccomp).
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
    )
}
