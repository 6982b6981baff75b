//! Moves bytes between two sides, in both directions, until both have ended or one has died.
//!
//! One future drives both directions, so a wake-up on either side costs one task switch. Its
//! guarantees are the tables in `docs/close-states.md`. An end of stream on one side becomes an end
//! of stream on the other, after the last byte before it (LH-END-1). A death on one side becomes a
//! reset of the other (LH-END-3). Each direction writes what it has read before it reads again, so
//! a side that accepts no bytes holds back the other.
//!
//! Between two sides that lend a TCP socket, the kernel moves the bytes (splice(2)). Between any
//! others, and on systems without that call, they pass through a buffer.

mod batch;
mod buffers;
mod direction;
mod pipe;
mod side;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_platform::net::HAS_SPLICE;
use tokio::time::{Instant, Sleep};

use crate::RateLimits;
pub use buffers::BufferPool;
use direction::{Direction, DirectionError};
pub use pipe::{PipeBounds, PipePool};
pub use side::DuplexSide;

/// Time for which the first side may continue sending after the second has closed, counted from
/// when all of the second side's bytes are written.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum bytes moved before one direction counts as bulk and is watched. Smaller sessions cost no
/// memory for it.
const MIN_BULK_BYTES: u64 = 256 * 1024;

/// Options of a [`Duplex`]. Clones share their rates and pools.
#[derive(Debug, Clone)]
pub struct DuplexOptions {
    /// Maximum idle times.
    pub idle_limits: IdleLimits,
    /// Initial rate limits. The forward direction is that from the first side to the second.
    pub limits: RateLimits,
    /// Maximum number of bytes that each direction may carry (LH-WISH-2).
    pub max_bytes: u64,
    /// Meaning of an end that has been relayed.
    pub ends: EndPolicy,
    /// Pool of the pipes to splice through; without it, all bytes pass through buffers.
    pub pipes: Option<Arc<PipePool>>,
    /// Pool of the buffers for bytes that are not spliced.
    pub buffers: Arc<BufferPool>,
}

/// Maximum idle times. They are checked once per period, so the actual limit is one to two periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleLimits {
    /// Limit while both directions are open.
    pub open: Duration,
    /// Limit once one direction has ended.
    pub half_closed: Duration,
}

/// Meaning of an end of stream that has been relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndPolicy {
    /// A death of either side still resets the other: the relay cannot know what was complete.
    Revocable,
    /// Data before the end is delivered even if the other direction fails.
    ///
    /// A second side that has sent everything may also close while the first still sends. Its
    /// kernel then resets the connection, which does not discard what it sent: see
    /// [`DuplexEnding::Closed`].
    Final,
}

impl DuplexOptions {
    /// Returns options for streams whose ends may be revoked, with one limit of idle time.
    #[must_use]
    pub fn revocable(idle: Duration) -> Self {
        Self {
            idle_limits: IdleLimits {
                open: idle,
                half_closed: idle,
            },
            ends: EndPolicy::Revocable,
            ..Self::default()
        }
    }
}

impl Default for DuplexOptions {
    /// Returns options without rate or size limits, with an hour of idle time (ten minutes
    /// half-closed), final ends, and separate buffers.
    fn default() -> Self {
        Self {
            idle_limits: IdleLimits {
                open: Duration::from_secs(3600),
                half_closed: Duration::from_secs(600),
            },
            limits: RateLimits::new(None),
            max_bytes: u64::MAX,
            ends: EndPolicy::Final,
            pipes: None,
            buffers: BufferPool::new(BufferPool::DEFAULT_TOTAL_BYTES),
        }
    }
}

/// Observer of a [`Duplex`] between an `A` and a `B`.
pub trait DuplexObserver<A, B>: Unpin {
    /// Counts bytes that have just been moved: to the second side, and to the first.
    fn count(&mut self, _forward: u64, _backward: u64) {}

    /// Watches the sides. Called after each attempt to move bytes, once one direction has moved
    /// bulk data. The last argument is true if the second side has received most of the bytes.
    fn watch(&mut self, _first: &mut A, _second: &mut B, _forward: bool) {}
}

/// Observes nothing.
impl<A, B> DuplexObserver<A, B> for () {}

/// Ending of a [`Duplex`]. After [`DuplexEnding::Finished`] both sides are closed cleanly.
#[derive(Debug)]
pub enum DuplexEnding {
    /// Both directions ended, and everything was delivered.
    Finished,
    /// The second side had ended its own direction and then accepted no more data, which
    /// [`EndPolicy::Final`] permits. All its own data was delivered.
    Closed,
    /// The first side had ended its own direction, all of which was delivered, and then closed its
    /// connection. What it had not read is lost, and the second side was reset. Only
    /// [`EndPolicy::Revocable`] reports it.
    FirstClosed,
    /// The first side was reset, truncated, timed out or became unreachable; the second was reset.
    FirstDied(io::Error),
    /// The second side did so, and the first was reset.
    SecondDied(io::Error),
    /// The idle limit passed without a byte moving; both were reset.
    Idle,
    /// One direction had ended and no bytes moved in the other within the limit; both were reset.
    HalfClosed,
    /// One direction exceeded its maximum size ([`DuplexOptions::max_bytes`]); both were reset.
    BeyondSize,
    /// The caller aborted it; both were reset.
    Aborted,
}

/// Result of a [`Duplex`].
#[derive(Debug)]
pub struct DuplexOutcome {
    /// Its end.
    pub ending: DuplexEnding,
    /// Bytes that the second side accepted.
    pub forward: u64,
    /// Bytes that the first side accepted.
    pub backward: u64,
}

/// Future that moves the bytes. When it completes or is dropped, both sides are closed: cleanly
/// after [`DuplexEnding::Finished`], otherwise with resets.
pub struct Duplex<A, B, O> {
    /// `None` once closed.
    sides: Option<(A, B)>,
    forward: Direction,
    backward: Direction,
    options: DuplexOptions,
    observer: O,
    timer: Pin<Box<Sleep>>,
    /// Event whose time limit is running, and the bytes moved when the timer was set. The timer is
    /// not reset for every byte.
    waiting_for: WaitReason,
    moved_at_check: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitReason {
    Bytes,
    OtherHalf,
    /// The first side must notice that the second has closed.
    CloseNotice,
}

impl<A, B, O> Duplex<A, B, O>
where
    A: DuplexSide,
    B: DuplexSide,
    O: DuplexObserver<A, B>,
{
    /// Joins `first` with `second`.
    #[must_use]
    pub fn new(mut first: A, mut second: B, options: DuplexOptions, observer: O) -> Self {
        let splices = HAS_SPLICE
            && options.pipes.is_some()
            && first.splice_conn().is_some()
            && second.splice_conn().is_some();
        Self {
            sides: Some((first, second)),
            forward: Direction::new(options.limits.forward.clone(), splices),
            backward: Direction::new(options.limits.backward.clone(), splices),
            timer: Box::pin(tokio::time::sleep(options.idle_limits.open)),
            options,
            observer,
            waiting_for: WaitReason::Bytes,
            moved_at_check: 0,
        }
    }

    /// Records that the first side's end of stream has already been read.
    pub fn end_first(&mut self) {
        self.forward.end();
    }

    /// Replaces the rate limits. The future must be polled afterwards.
    pub fn set_limits(&mut self, limits: RateLimits) {
        self.forward.set_limit(limits.forward);
        self.backward.set_limit(limits.backward);
    }

    /// Returns the observer. This aborts a duplex that has not completed.
    #[must_use]
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// Aborts now, with resets.
    pub fn abort(&mut self) -> DuplexOutcome {
        self.finish(DuplexEnding::Aborted)
    }

    fn finish(&mut self, ending: DuplexEnding) -> DuplexOutcome {
        if let Some((first, second)) = self.sides.take()
            && matches!(ending, DuplexEnding::Finished)
        {
            first.close();
            second.close();
        }
        DuplexOutcome {
            ending,
            forward: self.forward.moved,
            backward: self.backward.moved,
        }
    }

    /// Moves as many bytes as possible. Returns `Some` at the end.
    fn advance(&mut self, cx: &mut Context<'_>) -> Option<DuplexEnding> {
        let Some((first, second)) = &mut self.sides else {
            return Some(DuplexEnding::Aborted);
        };
        let before = (self.forward.moved, self.backward.moved);
        let there = self.forward.advance(cx, first, second, &self.options);
        let back = self.backward.advance(cx, second, first, &self.options);
        let (forward, backward) = (self.forward.moved, self.backward.moved);
        if (forward, backward) != before {
            self.observer.count(forward - before.0, backward - before.1);
        }
        if forward.max(backward) > self.options.max_bytes {
            return Some(DuplexEnding::BeyondSize);
        }
        if forward.max(backward) >= MIN_BULK_BYTES {
            self.observer.watch(first, second, forward >= backward);
        }
        match (there, back) {
            (Poll::Ready(Err(DirectionError::Read(error))), _) => {
                return Some(DuplexEnding::FirstDied(error));
            }
            (_, Poll::Ready(Err(DirectionError::Write(error)))) => {
                return Some(self.handle_first_error(error));
            }
            (_, Poll::Ready(Err(DirectionError::Read(error)))) => {
                return Some(DuplexEnding::SecondDied(error));
            }
            (Poll::Ready(Err(DirectionError::Write(error))), _) => {
                if let Some(ending) = self.handle_second_error(cx, error) {
                    return Some(ending);
                }
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => {
                return Some(match self.forward.discards() {
                    true => DuplexEnding::Closed,
                    false => DuplexEnding::Finished,
                });
            }
            _ => {}
        }
        self.detect_death(cx).or_else(|| self.check_silence(cx))
    }

    /// Returns the ending for the error of a first side that accepts no more bytes.
    ///
    /// A program that is done may end its direction, and exit without reading what its peer still
    /// has to say. Its kernel then answers with a reset. One that dies sends no end before the
    /// reset (LH-END-3), and a host that dies sends neither.
    fn handle_first_error(&self, error: io::Error) -> DuplexEnding {
        // NotConnected: the reset came before the second side's end was relayed.
        let is_reset = matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotConnected
        );
        match is_reset && self.forward.has_ended() && self.options.ends == EndPolicy::Revocable {
            true => DuplexEnding::FirstClosed,
            false => DuplexEnding::FirstDied(error),
        }
    }

    /// Handles the error of a second side that accepts no more bytes. If it has closed after its
    /// own end, what the first still sends is discarded until that ends.
    ///
    /// Linux reports the reset of such a peer as EPIPE, and any other as ECONNRESET. The data of
    /// such a peer is complete, and may still have to be read.
    fn handle_second_error(&mut self, cx: &Context<'_>, error: io::Error) -> Option<DuplexEnding> {
        if self.options.ends != EndPolicy::Final || error.kind() != io::ErrorKind::BrokenPipe {
            return Some(DuplexEnding::SecondDied(error));
        }
        self.forward.discard();
        cx.waker().wake_by_ref();
        None
    }

    /// Detects that a side which is still owed bytes has died.
    ///
    /// Reads do not notice this if that side has ended its own direction, or if that direction is
    /// held up. The detection must not wait for the next byte.
    fn detect_death(&mut self, cx: &mut Context<'_>) -> Option<DuplexEnding> {
        let (first, second) = self.sides.as_ref()?;
        if self.forward.expects_more()
            && let Poll::Ready(error) = second.poll_broken(cx)
        {
            return self.handle_second_error(cx, error);
        }
        if self.backward.expects_more()
            && let Poll::Ready(error) = first.poll_broken(cx)
        {
            return Some(self.handle_first_error(error));
        }
        None
    }

    fn check_silence(&mut self, cx: &mut Context<'_>) -> Option<DuplexEnding> {
        let moved = self.forward.moved.wrapping_add(self.backward.moved);
        let waiting_for = match (self.forward.has_ended(), self.backward.has_ended()) {
            (_, true) if self.forward.discards() => WaitReason::CloseNotice,
            (false, false) => WaitReason::Bytes,
            _ => WaitReason::OtherHalf,
        };
        let allowed = match waiting_for {
            WaitReason::Bytes => self.options.idle_limits.open,
            WaitReason::OtherHalf => self.options.idle_limits.half_closed,
            WaitReason::CloseNotice => CLOSED_TIMEOUT,
        };
        if waiting_for != self.waiting_for {
            self.waiting_for = waiting_for;
            self.moved_at_check = moved;
            self.timer.as_mut().reset(Instant::now() + allowed);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            match waiting_for {
                // Regardless of how much the first side sends.
                WaitReason::CloseNotice => return Some(DuplexEnding::Closed),
                _ if moved != self.moved_at_check => {}
                WaitReason::Bytes => return Some(DuplexEnding::Idle),
                WaitReason::OtherHalf => return Some(DuplexEnding::HalfClosed),
            }
            self.moved_at_check = moved;
            self.timer.as_mut().reset(Instant::now() + allowed);
        }
        None
    }
}

impl<A, B, O> Future for Duplex<A, B, O>
where
    A: DuplexSide,
    B: DuplexSide,
    O: DuplexObserver<A, B>,
{
    type Output = DuplexOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.advance(cx) {
            None => Poll::Pending,
            Some(ending) => Poll::Ready(self.finish(ending)),
        }
    }
}

#[cfg(test)]
mod tests;
