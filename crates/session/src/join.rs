//! Joins a session, or a second connection, and an ordinary TCP connection: moves bytes both ways
//! until both directions have ended or one side has died.
//!
//! The ends mean the same on both sides (`docs/close-states.md`): an end of stream on one becomes
//! one on the other, behind the last byte before it (LH-END-1); a reset, or a session that was cut
//! short, becomes a reset (LH-END-3). One future drives both directions; what a direction has read
//! it writes before it reads again, so a side that takes no bytes holds the other back.
//!
//! A program that has said all it has to say may close its connection altogether while the other
//! side still sends. Its system then resets the connection, which must not take back what it said:
//! see [`Ending::Closed`].

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

/// How long a session whose TCP side has closed may go on sending, once all that this side had said
/// is on its way.
const CLOSED_TIME: Duration = Duration::from_secs(5);
/// A session that has moved less has no bulk direction, and is not watched.
const BULK: u64 = 256 * 1024;

/// Receives counts of bytes as they move: how many went to the TCP connection, and to the session.
pub type OnMoved = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// How a session and a connection are joined. Clones share their rates and buffers.
#[derive(Clone)]
pub struct JoinOptions {
    /// How long nothing may move.
    pub silence: Silence,
    /// Where buffers come from.
    pub buffers: Arc<Buffers>,
    /// The rate towards the TCP connection.
    pub to_tcp: Arc<RateLimit>,
    /// The rate towards the session.
    pub to_session: Arc<RateLimit>,
    /// What right-sizing may do to the session's own hop, once it moves bulk data.
    pub sizing: Mode,
    /// Who counts.
    pub on_moved: Option<OnMoved>,
    /// Bytes that each direction may carry.
    pub most_bytes: u64,
}

/// How long a joined session may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// While both directions are open. It is looked at once in this time, so silence lasts for one
    /// to two of it.
    pub open: Duration,
    /// Once one direction has ended, likewise.
    pub half_closed: Duration,
}

impl Default for JoinOptions {
    /// Without rates or bounds; an hour of silence, ten minutes half-closed; buffers of its own;
    /// right-sizing as it sees fit.
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

/// How it ended. Only [`Ending::Finished`] is clean.
#[derive(Debug)]
pub enum Ending {
    /// Both directions ended, and everything was delivered.
    Finished,
    /// The TCP side had ended its own direction and then took no more of what the session sent;
    /// what it had said was delivered.
    Closed,
    /// A side was reset, cut short, timed out or became unreachable; the other was reset.
    Died(End, io::Error),
    /// Nothing moved for too long; both were reset.
    Idle,
    /// One direction had ended and nothing moved in the other for too long; both were reset.
    HalfClosed,
    /// One direction carried more than it may ([`JoinOptions::most_bytes`]); both were reset.
    BeyondSize,
    /// The caller gave it up; both were reset.
    Aborted,
}

/// What a joined session did.
#[derive(Debug)]
pub struct Joined {
    /// How it ended.
    pub ending: Ending,
    /// Bytes that the kernel took for the TCP side.
    pub to_tcp: u64,
    /// Bytes that went into the session.
    pub to_session: u64,
    /// What was seen of the session's own hop, if it moved bulk data.
    pub flow: Option<Arc<FlowWatch>>,
}

/// What an ordinary TCP connection can be joined with: a session, or another TCP connection.
pub trait Far: AsyncRead + AsyncWrite + Unpin {
    /// Ready once it is broken, though nobody reads or writes. Asked only while its writing half is
    /// open.
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error>;

    /// Watches its flow from now on, if it is a session's.
    fn watch(&mut self, mode: Mode, side: Side) -> Option<Arc<FlowWatch>>;

    /// Closes what has ended both ways.
    fn close(self);
}

impl Far for Session {
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Self::poll_broken(self, cx)
    }

    fn watch(&mut self, mode: Mode, side: Side) -> Option<Arc<FlowWatch>> {
        Some(Self::watch(self, mode, side))
    }

    /// The session has said its end, which makes its close a clean one.
    fn close(self) {}
}

impl Far for Conn {
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Self::poll_broken(self, cx)
    }

    /// A connection that is as a program's own would be is sized by the kernel.
    fn watch(&mut self, _: Mode, _: Side) -> Option<Arc<FlowWatch>> {
        None
    }

    fn close(self) {
        Self::close(self);
    }
}

/// The future that moves the bytes. When it has ended, or is dropped, both sides are closed:
/// cleanly after [`Ending::Finished`], else with resets.
pub struct Join<F = Session> {
    /// `None` once closed.
    ends: Option<(F, Conn)>,
    to_tcp: Way,
    to_session: Way,
    options: JoinOptions,
    timer: Pin<Box<Sleep>>,
    /// What is waited for in silence, and how much had moved when the timer was set: the timer is
    /// not touched for each byte.
    waiting_for: Wait,
    moved_at_check: u64,
    bulk: bool,
    flow: Option<Arc<FlowWatch>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Bytes,
    OtherHalf,
    /// For the session to notice that the TCP side has closed.
    Notice,
}

impl<F: Far> Join<F> {
    /// Joins `session`, or what takes its place, and `conn`.
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

    /// Ends it now, with resets.
    pub fn abort(&mut self) -> Joined {
        self.end(Ending::Aborted)
    }

    /// Bytes moved so far: to the TCP connection, and to the session.
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

    /// Moves what can be moved. `Some` is the ending.
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

    /// The TCP side takes no more: what the session still sends is read and thrown away, until it
    /// ends as well.
    fn discard(&mut self, cx: &Context<'_>) {
        self.to_tcp.discard();
        cx.waker().wake_by_ref();
    }

    /// A side that we still owe bytes to may die while nothing is read from it: because it has
    /// ended its own direction, or because that direction is held up. Its death must not wait for
    /// the next byte to be noticed.
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
                // However much it sends.
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

/// Whether a write failed with the reset of a peer that had ended its own direction before: Linux
/// reports that reset as EPIPE, and any other as ECONNRESET. What such a peer has said is complete,
/// and may still wait to be read.
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
