//! Joins a session, or a second connection, with an ordinary TCP connection: moves bytes in both
//! directions until both have ended or one side has died.
//!
//! Ends have the same meaning on both sides (`docs/close-states.md`). An end of stream on one
//! becomes an end of stream on the other, after the last byte before it (LH-END-1). A reset or a
//! truncated session becomes a reset (LH-END-3). One future drives both directions. Each direction
//! writes what it has read before it reads again, so a side that accepts no bytes holds back the
//! other.
//!
//! A program that has sent everything may close its connection while the other side still sends.
//! Its kernel then resets the connection, which must not discard what the program sent: see
//! [`Ending::Closed`].

mod buffers;
mod way;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use drs::{Mode, Side};
use longhaul_hop::{Conn, RateLimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

use crate::{FlowWatch, Session};
pub use buffers::Buffers;
use way::{Step, Way};

/// Time for which a session may continue sending after its TCP side has closed, counted from when
/// all of that side's bytes are written.
const CLOSED_TIME: Duration = Duration::from_secs(5);
/// Minimum bytes moved before a session counts as bulk and is watched.
const BULK: u64 = 256 * 1024;

/// Callback for byte counts as they move: bytes written to the TCP connection, and to the session.
pub type OnMoved = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Options for joining a session and a connection. Clones share their rates and buffers.
#[derive(Clone)]
pub struct JoinOptions {
    /// Maximum idle times.
    pub silence: Silence,
    /// Shared pool of buffers.
    pub buffers: Arc<Buffers>,
    /// Rate limit towards the TCP connection.
    pub to_tcp: Arc<RateLimit>,
    /// Rate limit towards the session.
    pub to_session: Arc<RateLimit>,
    /// Right-sizing mode for the session's own hop, once it moves bulk data.
    pub sizing: Mode,
    /// Callback that counts moved bytes.
    pub on_moved: Option<OnMoved>,
    /// Maximum number of bytes that each direction may carry.
    pub most_bytes: u64,
}

/// Maximum idle times of a joined session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// Limit while both directions are open. It is checked once per period, so the actual limit is
    /// one to two periods.
    pub open: Duration,
    /// Limit once one direction has ended, checked in the same way.
    pub half_closed: Duration,
}

impl Default for JoinOptions {
    /// Returns options without rate or size limits, with an hour of idle time (ten minutes
    /// half-closed), separate buffers, and automatic right-sizing.
    fn default() -> Self {
        Self {
            silence: Silence {
                open: Duration::from_secs(3600),
                half_closed: Duration::from_secs(600),
            },
            buffers: Buffers::new(Buffers::DEFAULT_TOTAL),
            to_tcp: Arc::new(RateLimit::new(None)),
            to_session: Arc::new(RateLimit::new(None)),
            sizing: Mode::Auto,
            on_moved: None,
            most_bytes: u64::MAX,
        }
    }
}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The session.
    Session,
    /// The TCP connection.
    Tcp,
}

/// Outcome of a joined session. Only [`Ending::Finished`] is clean.
#[derive(Debug)]
pub enum Ending {
    /// Both directions ended, and everything was delivered.
    Finished,
    /// The TCP side had ended its own direction and then accepted no more data from the session.
    /// All its own data was delivered.
    Closed,
    /// A side was reset, truncated, timed out or became unreachable; the other was reset.
    Died(End, io::Error),
    /// The idle limit passed without a byte moving; both were reset.
    Idle,
    /// One direction had ended and no bytes moved in the other within the limit; both were reset.
    HalfClosed,
    /// One direction exceeded its maximum size ([`JoinOptions::most_bytes`]); both were reset.
    BeyondSize,
    /// The caller aborted it; both were reset.
    Aborted,
}

/// Result of a joined session.
#[derive(Debug)]
pub struct Joined {
    /// Outcome.
    pub ending: Ending,
    /// Bytes that the kernel accepted for the TCP side.
    pub to_tcp: u64,
    /// Bytes written to the session.
    pub to_session: u64,
    /// Observations of the session's own hop, if it moved bulk data.
    pub flow: Option<Arc<FlowWatch>>,
}

/// A stream that can be joined with an ordinary TCP connection: a session, or another TCP
/// connection.
pub trait Far: AsyncRead + AsyncWrite + Unpin {
    /// Completes once the stream is broken, even without a read or write. Polled only while its
    /// writing half is open.
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error>;

    /// Starts to watch the flow, if the stream is a session.
    fn watch(&mut self, mode: Mode, side: Side) -> Option<Arc<FlowWatch>>;

    /// Closes a stream that has ended in both directions.
    fn close(self);
}

impl Far for Session {
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Self::poll_broken(self, cx)
    }

    fn watch(&mut self, mode: Mode, side: Side) -> Option<Arc<FlowWatch>> {
        Some(Self::watch(self, mode, side))
    }

    /// The session has already sent its end, so dropping it is a clean close.
    fn close(self) {}
}

impl Far for Conn {
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Self::poll_broken(self, cx)
    }

    /// The kernel sizes a plain connection, as it would a program's own.
    fn watch(&mut self, _: Mode, _: Side) -> Option<Arc<FlowWatch>> {
        None
    }

    fn close(self) {
        Self::close(self);
    }
}

/// Future that moves the bytes. When it completes or is dropped, both sides are closed: cleanly
/// after [`Ending::Finished`], otherwise with resets.
pub struct Join<F = Session> {
    /// `None` once closed.
    ends: Option<(F, Conn)>,
    to_tcp: Way,
    to_session: Way,
    options: JoinOptions,
    timer: Pin<Box<Sleep>>,
    /// Event whose time limit is running, and the bytes moved when the timer was set. The timer is
    /// not reset for every byte.
    waiting_for: Wait,
    moved_at_check: u64,
    bulk: bool,
    flow: Option<Arc<FlowWatch>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Bytes,
    OtherHalf,
    /// The session must notice that the TCP side has closed.
    Notice,
}

impl<F: Far> Join<F> {
    /// Joins `session`, or another connection instead, with `conn`.
    #[must_use]
    pub fn new(session: F, conn: Conn, options: JoinOptions) -> Self {
        Self {
            ends: Some((session, conn)),
            to_tcp: Way::new(options.to_tcp.clone()),
            to_session: Way::new(options.to_session.clone()),
            timer: Box::pin(tokio::time::sleep(options.silence.open)),
            options,
            waiting_for: Wait::Bytes,
            moved_at_check: 0,
            bulk: false,
            flow: None,
        }
    }

    /// Aborts now, with resets.
    pub fn abort(&mut self) -> Joined {
        self.end(Ending::Aborted)
    }

    /// Returns the bytes moved so far: to the TCP connection, and to the session.
    #[must_use]
    pub const fn moved(&self) -> (u64, u64) {
        (self.to_tcp.moved, self.to_session.moved)
    }

    fn end(&mut self, ending: Ending) -> Joined {
        if let Some((session, conn)) = self.ends.take()
            && matches!(ending, Ending::Finished)
        {
            session.close();
            conn.close();
        }
        Joined {
            ending,
            to_tcp: self.to_tcp.moved,
            to_session: self.to_session.moved,
            flow: self.flow.take(),
        }
    }

    /// Moves as many bytes as possible. Returns `Some` when the join has ended.
    fn advance(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
        let Some((session, conn)) = &mut self.ends else {
            return Some(Ending::Aborted);
        };
        let before = (self.to_tcp.moved, self.to_session.moved);
        let buffers = &self.options.buffers;
        let there = self.to_tcp.advance(cx, session, conn, buffers);
        let back = self.to_session.advance(cx, conn, session, buffers);
        let moved = (
            self.to_tcp.moved - before.0,
            self.to_session.moved - before.1,
        );
        if let Some(on_moved) = self.options.on_moved.as_ref().filter(|_| moved != (0, 0)) {
            on_moved(moved.0, moved.1);
        }
        if self.to_tcp.moved.max(self.to_session.moved) > self.options.most_bytes {
            return Some(Ending::BeyondSize);
        }
        if !self.bulk && self.to_tcp.moved.max(self.to_session.moved) >= BULK {
            let side = match self.to_session.moved > self.to_tcp.moved {
                true => Side::Sending,
                false => Side::Receiving,
            };
            self.bulk = true;
            self.flow = session.watch(self.options.sizing, side);
        }
        match (there, back) {
            (Step::CannotRead(error), _) | (_, Step::CannotWrite(error)) => {
                return Some(Ending::Died(End::Session, error));
            }
            (_, Step::CannotRead(error)) => return Some(Ending::Died(End::Tcp, error)),
            (Step::CannotWrite(error), _) if !is_closed(&error) => {
                return Some(Ending::Died(End::Tcp, error));
            }
            (Step::CannotWrite(_), _) => self.discard(cx),
            (Step::Ended, Step::Ended) => {
                return Some(match self.to_tcp.discards() {
                    true => Ending::Closed,
                    false => Ending::Finished,
                });
            }
            _ => {}
        }
        self.look_for_death(cx).or_else(|| self.check_silence(cx))
    }

    /// Discards what the session still sends, until it ends, as the TCP side accepts no more.
    fn discard(&mut self, cx: &Context<'_>) {
        self.to_tcp.discard();
        cx.waker().wake_by_ref();
    }

    /// Detects that a side which is still owed bytes has died.
    ///
    /// Reads do not notice this if that side has ended its own direction, or if that direction is
    /// held up. The detection must not wait for the next byte.
    fn look_for_death(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
        let (session, conn) = self.ends.as_ref()?;
        if self.to_tcp.is_owed()
            && let Poll::Ready(error) = conn.poll_broken(cx)
        {
            if !is_closed(&error) {
                return Some(Ending::Died(End::Tcp, error));
            }
            self.discard(cx);
        } else if self.to_session.is_owed()
            && let Poll::Ready(error) = session.poll_broken(cx)
        {
            return Some(Ending::Died(End::Session, error));
        }
        None
    }

    fn check_silence(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
        let moved = self.to_tcp.moved.wrapping_add(self.to_session.moved);
        let waiting_for = match (self.to_tcp.has_ended(), self.to_session.has_ended()) {
            (_, true) if self.to_tcp.discards() => Wait::Notice,
            (false, false) => Wait::Bytes,
            _ => Wait::OtherHalf,
        };
        let allowed = match waiting_for {
            Wait::Bytes => self.options.silence.open,
            Wait::OtherHalf => self.options.silence.half_closed,
            Wait::Notice => CLOSED_TIME,
        };
        if waiting_for != self.waiting_for {
            self.waiting_for = waiting_for;
            self.moved_at_check = moved;
            self.timer.as_mut().reset(Instant::now() + allowed);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            match waiting_for {
                // Regardless of how much the session sends.
                Wait::Notice => return Some(Ending::Closed),
                _ if moved != self.moved_at_check => {}
                Wait::Bytes => return Some(Ending::Idle),
                Wait::OtherHalf => return Some(Ending::HalfClosed),
            }
            self.moved_at_check = moved;
            self.timer.as_mut().reset(Instant::now() + allowed);
        }
        None
    }
}

/// Returns true if a write failed because the peer, after ending its own direction, reset the
/// connection.
///
/// Linux reports that reset as EPIPE, and any other as ECONNRESET. The data of such a peer is
/// complete, and may still have to be read.
fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

impl<F: Far> Future for Join<F> {
    type Output = Joined;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Joined> {
        match self.advance(cx) {
            None => Poll::Pending,
            Some(ending) => Poll::Ready(self.end(ending)),
        }
    }
}

#[cfg(test)]
mod tests;
