//! One direction of a relayed session: moves bytes from one socket into a pipe, and from the pipe
//! into the other socket.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use longhaul_hop::{Conn, DrawOutcome, RateLimit};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{SpliceFlags, splice};
use tokio::time::Sleep;

use super::batch::ReadBatching;
use super::pipe::{Pipe, PipePool};

/// Maximum bytes that one direction moves before it yields to other sessions of the same thread.
const MAX_BYTES_PER_TURN: usize = 4 * 1024 * 1024;
/// Size of a read when bytes must be copied, in bytes.
const COPY_BUFFER_BYTES: usize = 16 * 1024;
const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

/// One direction of a session. It writes what it has read before it reads again, so it holds at
/// most one pipe's worth.
pub(super) struct RelayDirection {
    /// Bytes accepted by the kernel for the receiving side.
    pub(super) moved: u64,
    held: RelayBuffer,
    state: DirectionState,
    limit: Arc<RateLimit>,
    /// Timer until the next read, while the rate is used up.
    pause: Option<Pin<Box<Sleep>>>,
    batch: ReadBatching,
    /// True if bytes must be copied, because splice(2) is unavailable or was refused on these
    /// sockets.
    copies: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectionState {
    Open,
    /// The end of stream has been read; buffered bytes must still be written.
    Ending,
    /// The FIN has been sent.
    Ended,
}

/// Bytes read and not yet written.
enum RelayBuffer {
    Nothing,
    Pipe(Pipe),
    Copy {
        buffer: Box<[u8]>,
        start: usize,
        end: usize,
    },
}

/// Result of an attempt to move bytes.
pub(super) enum RelayProgress {
    /// Progress needs a wake-up.
    Waiting,
    /// This direction has ended and its FIN is sent.
    Ended,
    Failed(SocketFailure),
}

/// Failure of one of the two sockets.
pub(super) enum SocketFailure {
    Reading(io::Error),
    Writing(io::Error),
}

impl RelayDirection {
    pub(super) fn new(limit: Arc<RateLimit>, ended: bool, splices: bool) -> Self {
        let state = if ended {
            DirectionState::Ending
        } else {
            DirectionState::Open
        };
        Self {
            moved: 0,
            held: RelayBuffer::Nothing,
            state,
            limit,
            pause: None,
            batch: ReadBatching::default(),
            copies: !splices,
        }
    }

    /// Switches to another rate limit, also while waiting for the current one.
    pub(super) fn set_limit(&mut self, limit: Arc<RateLimit>) {
        self.limit = limit;
        self.pause = None;
    }

    /// Returns true if the FIN of this direction has been sent.
    pub(super) fn has_ended(&self) -> bool {
        self.state == DirectionState::Ended
    }

    /// Moves bytes until one of the sockets, the rate limit or the turn limit stops it.
    pub(super) fn advance(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &Conn,
        pipes: &Arc<PipePool>,
    ) -> RelayProgress {
        let mut turn = MAX_BYTES_PER_TURN;
        self.batch.check_deadline(cx, from);
        loop {
            match self.drain(cx, to) {
                Poll::Pending => {
                    // Nothing is read until this is written, so further arrivals need not wake the
                    // task.
                    if self.state == DirectionState::Open
                        && let Err(error) = from.pause_reading(cx)
                    {
                        return RelayProgress::Failed(SocketFailure::Reading(error));
                    }
                    return RelayProgress::Waiting;
                }
                Poll::Ready(Err(error)) => {
                    return RelayProgress::Failed(SocketFailure::Writing(error));
                }
                Poll::Ready(Ok(())) => {}
            }
            match self.state {
                DirectionState::Ended => return RelayProgress::Ended,
                DirectionState::Ending => {
                    self.held = RelayBuffer::Nothing;
                    if let Err(error) = to.shutdown_write() {
                        return RelayProgress::Failed(SocketFailure::Writing(error));
                    }
                    self.state = DirectionState::Ended;
                    return RelayProgress::Ended;
                }
                DirectionState::Open => {}
            }
            if turn == 0 {
                cx.waker().wake_by_ref();
                return RelayProgress::Waiting;
            }
            match self.fill(cx, from, pipes) {
                Poll::Pending => {
                    // The pipe is empty and no bytes are available, so another session may use it.
                    self.held = RelayBuffer::Nothing;
                    if self.pause.is_none() {
                        self.batch.on_empty(cx, from, self.moved);
                    }
                    let attention = if self.pause.is_some() {
                        from.pause_reading(cx)
                    } else {
                        from.resume_reading(cx)
                    };
                    if let Err(error) = attention {
                        return RelayProgress::Failed(SocketFailure::Reading(error));
                    }
                    return RelayProgress::Waiting;
                }
                Poll::Ready(Err(error)) => {
                    return RelayProgress::Failed(SocketFailure::Reading(error));
                }
                Poll::Ready(Ok(0)) => self.state = DirectionState::Ending,
                Poll::Ready(Ok(n)) => {
                    self.batch.on_read();
                    turn = turn.saturating_sub(n);
                }
            }
        }
    }

    /// Writes all buffered bytes.
    fn drain(&mut self, cx: &mut Context<'_>, to: &Conn) -> Poll<io::Result<()>> {
        loop {
            let written = match &mut self.held {
                RelayBuffer::Nothing => return Poll::Ready(Ok(())),
                RelayBuffer::Pipe(pipe) => {
                    let Some((read_end, _)) = pipe.ends().filter(|_| pipe.held > 0) else {
                        return Poll::Ready(Ok(()));
                    };
                    let held = pipe.held;
                    ready!(
                        to.poll_write_with(cx, |fd| splice(read_end, None, fd, None, held, FLAGS))
                    )
                    .inspect(|n| pipe.held -= n)
                }
                RelayBuffer::Copy { start, end, .. } if start == end => return Poll::Ready(Ok(())),
                RelayBuffer::Copy { buffer, start, end } => {
                    let bytes = buffer.get(*start..*end).unwrap_or_default();
                    ready!(to.poll_write_with(cx, |fd| {
                        rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)
                    }))
                    .inspect(|n| *start += n)
                }
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
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        pipes: &Arc<PipePool>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            // Checked before a pipe is taken, which might not be needed.
            ready!(from.poll_readable(cx))?;
            if !self.copies && !matches!(self.held, RelayBuffer::Pipe(_)) {
                // If no pipe is available, this read is copied and the next tries again.
                if let Some(pipe) = pipes.take() {
                    self.held = RelayBuffer::Pipe(pipe);
                }
            }
            let room = match &self.held {
                RelayBuffer::Pipe(pipe) => pipe.capacity(),
                _ => COPY_BUFFER_BYTES,
            };
            let granted = match self.limit.draw(room) {
                DrawOutcome::Bytes(n) => n,
                DrawOutcome::Wait(wait) => {
                    self.pause = Some(Box::pin(tokio::time::sleep(wait)));
                    continue;
                }
            };
            let read = match &mut self.held {
                RelayBuffer::Pipe(pipe) => {
                    let Some((_, write_end)) = pipe.ends() else {
                        return Poll::Ready(Ok(0));
                    };
                    from.poll_read_with(cx, |fd| splice(fd, None, write_end, None, granted, FLAGS))
                        .map(|read| read.inspect(|n| pipe.held += n))
                }
                _ => self.fill_copy(cx, from, granted),
            };
            let used = if let Poll::Ready(Ok(n)) = &read {
                *n
            } else {
                0
            };
            self.limit.refund(granted.saturating_sub(used));
            match read {
                Poll::Ready(Err(error)) if !self.copies && is_unsupported(&error) => {
                    tracing::debug!(%error, "splice refused; copying instead");
                    self.copies = true;
                    self.held = RelayBuffer::Nothing;
                }
                other => return other,
            }
        }
    }

    fn fill_copy(
        &mut self,
        cx: &mut Context<'_>,
        from: &Conn,
        granted: usize,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = match std::mem::replace(&mut self.held, RelayBuffer::Nothing) {
            RelayBuffer::Copy { buffer, .. } => buffer,
            _ => vec![0; COPY_BUFFER_BYTES].into_boxed_slice(),
        };
        let read = from.poll_read_with(cx, |fd| {
            let room = buffer.get_mut(..granted).unwrap_or_default();
            rustix::net::recv(fd, room, RecvFlags::empty()).map(|(n, _)| n)
        });
        if let Poll::Ready(Ok(end)) = read {
            self.held = RelayBuffer::Copy {
                buffer,
                start: 0,
                end,
            };
        }
        read
    }
}

/// Returns true if splice(2) does not work on these sockets or on this system (seccomp).
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
    )
}
