//! One direction of a relayed session: moves bytes from one socket into a pipe, and from the pipe
//! into the other socket.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use longhaul_hop::{Conn, Grant, RateLimit};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{SpliceFlags, splice};
use tokio::time::Sleep;

use super::batch::Batch;
use super::pipe::{Pipe, PipePool};

/// Maximum bytes that one direction moves before it yields to other sessions of the same thread.
const MAX_BYTES_PER_TURN: usize = 4 * 1024 * 1024;
/// Size of a read when bytes must be copied, in bytes.
const COPY_BUFFER: usize = 16 * 1024;
const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

/// One direction of a session. It writes what it has read before it reads again, so it holds at
/// most one pipe's worth.
pub(super) struct Direction {
    /// Bytes accepted by the kernel for the receiving side.
    pub(super) moved: u64,
    held: Held,
    state: State,
    limit: Arc<RateLimit>,
    /// Timer until the next read, while the rate is used up.
    pause: Option<Pin<Box<Sleep>>>,
    batch: Batch,
    /// True if bytes must be copied, because splice(2) is unavailable or was refused on these
    /// sockets.
    copies: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The end of stream has been read; buffered bytes must still be written.
    Ending,
    /// The FIN has been sent.
    Ended,
}

/// Bytes read and not yet written.
enum Held {
    Nothing,
    Pipe(Pipe),
    Copy {
        buffer: Box<[u8]>,
        start: usize,
        end: usize,
    },
}

/// Result of an attempt to move bytes.
pub(super) enum Advance {
    /// Progress needs a wake-up.
    Waiting,
    /// This direction has ended and its FIN is sent.
    Ended,
    Failed(Stop),
}

/// Failure of one of the two sockets.
pub(super) enum Stop {
    Reading(io::Error),
    Writing(io::Error),
}

impl Direction {
    pub(super) fn new(limit: Arc<RateLimit>, ended: bool, splices: bool) -> Self {
        let state = if ended { State::Ending } else { State::Open };
        Self {
            moved: 0,
            held: Held::Nothing,
            state,
            limit,
            pause: None,
            batch: Batch::default(),
            copies: !splices,
        }
    }

    /// Switches to another rate limit, also while waiting for the current one.
    pub(super) fn limit(&mut self, limit: Arc<RateLimit>) {
        self.limit = limit;
        self.pause = None;
    }

    /// Returns true if the FIN of this direction has been sent.
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Moves bytes until one of the sockets, the rate limit or the turn limit stops it.
    pub(super) fn advance(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &Conn,
        pipes: &Arc<PipePool>,
    ) -> Advance {
        let mut turn = MAX_BYTES_PER_TURN;
        self.batch.check(cx, from);
        loop {
            match self.drain(cx, to) {
                Poll::Pending => {
                    // Nothing is read until this is written, so further arrivals need not wake the
                    // task.
                    if self.state == State::Open
                        && let Err(error) = from.mute(cx)
                    {
                        return Advance::Failed(Stop::Reading(error));
                    }
                    return Advance::Waiting;
                }
                Poll::Ready(Err(error)) => return Advance::Failed(Stop::Writing(error)),
                Poll::Ready(Ok(())) => {}
            }
            match self.state {
                State::Ended => return Advance::Ended,
                State::Ending => {
                    self.held = Held::Nothing;
                    if let Err(error) = to.shutdown_write() {
                        return Advance::Failed(Stop::Writing(error));
                    }
                    self.state = State::Ended;
                    return Advance::Ended;
                }
                State::Open => {}
            }
            if turn == 0 {
                cx.waker().wake_by_ref();
                return Advance::Waiting;
            }
            match self.fill(cx, from, pipes) {
                Poll::Pending => {
                    // The pipe is empty and no bytes are available, so another session may use it.
                    self.held = Held::Nothing;
                    if self.pause.is_none() {
                        self.batch.nothing_to_read(cx, from, self.moved);
                    }
                    let attention = if self.pause.is_some() {
                        from.mute(cx)
                    } else {
                        from.listen(cx)
                    };
                    if let Err(error) = attention {
                        return Advance::Failed(Stop::Reading(error));
                    }
                    return Advance::Waiting;
                }
                Poll::Ready(Err(error)) => return Advance::Failed(Stop::Reading(error)),
                Poll::Ready(Ok(0)) => self.state = State::Ending,
                Poll::Ready(Ok(n)) => {
                    self.batch.read();
                    turn = turn.saturating_sub(n);
                }
            }
        }
    }

    /// Writes all buffered bytes.
    fn drain(&mut self, cx: &mut Context<'_>, to: &Conn) -> Poll<io::Result<()>> {
        loop {
            let written = match &mut self.held {
                Held::Nothing => return Poll::Ready(Ok(())),
                Held::Pipe(pipe) => {
                    let Some((read_end, _)) = pipe.ends().filter(|_| pipe.held > 0) else {
                        return Poll::Ready(Ok(()));
                    };
                    let held = pipe.held;
                    ready!(
                        to.poll_write_with(cx, |fd| splice(read_end, None, fd, None, held, FLAGS))
                    )
                    .inspect(|n| pipe.held -= n)
                }
                Held::Copy { start, end, .. } if start == end => return Poll::Ready(Ok(())),
                Held::Copy { buffer, start, end } => {
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
            if !self.copies && !matches!(self.held, Held::Pipe(_)) {
                // If no pipe is available, this read is copied and the next tries again.
                if let Some(pipe) = pipes.take() {
                    self.held = Held::Pipe(pipe);
                }
            }
            let room = match &self.held {
                Held::Pipe(pipe) => pipe.capacity(),
                _ => COPY_BUFFER,
            };
            let granted = match self.limit.draw(room) {
                Grant::Bytes(n) => n,
                Grant::Wait(wait) => {
                    self.pause = Some(Box::pin(tokio::time::sleep(wait)));
                    continue;
                }
            };
            let read = match &mut self.held {
                Held::Pipe(pipe) => {
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
                    self.held = Held::Nothing;
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
        let mut buffer = match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Copy { buffer, .. } => buffer,
            _ => vec![0; COPY_BUFFER].into_boxed_slice(),
        };
        let read = from.poll_read_with(cx, |fd| {
            let room = buffer.get_mut(..granted).unwrap_or_default();
            rustix::net::recv(fd, room, RecvFlags::empty()).map(|(n, _)| n)
        });
        if let Poll::Ready(Ok(end)) = read {
            self.held = Held::Copy {
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
