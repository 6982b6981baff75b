//! The state machine of one end of a stream.
//!
//! The owner moves bytes between it and a connection: it calls [`ResumableEnd::on_input`] with what
//! it reads, writes what [`ResumableEnd::output`] returns, and reports when the connection dies.
//! The initiator's owner also opens the connections that [`ResumableEnd::poll_attempt`] asks for.
//!
//! Positions count bytes from the beginning of a direction; its end counts as one more byte.

mod input;
mod link;
mod output;
mod path;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use crate::queue::ByteQueue;
use input::ConsumptionRound;
use link::Link;
pub use link::{AttachError, LinkLoss, ResumeAttempt};
pub use output::OUTPUT_PARTS;
use output::OutputFrames;
use path::PathClock;

/// Window of each direction at the beginning, in bytes (LH-RESUME-7). Both ends know it, so data
/// may be sent at once.
pub const INITIAL_WINDOW_BYTES: u64 = 128 * 1024;

/// Side of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Opened the stream, and opens its further connections.
    Initiator,
    /// Accepted the stream, and waits for further connections.
    Acceptor,
}

/// Limits of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum time without a connection.
    pub within: Duration,
    /// Maximum of the window of each direction, in bytes.
    pub max_window: u64,
}

/// Memory that a stream may take beyond its initial windows. What it took returns when the
/// allowance is dropped.
pub trait MemoryAllowance: Send {
    /// Takes this many bytes, if they are available.
    fn try_take(&mut self, bytes: u64) -> bool;

    /// Returns this many bytes.
    fn release(&mut self, bytes: u64);
}

/// Reason why a stream is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// Both directions ended, and everything was delivered.
    Finished,
    /// The peer gave the stream up.
    ResetByPeer,
    /// This end gave it up.
    ResetHere,
    /// There was no connection for longer than the limit.
    NotResumed {
        /// The limit.
        within: Duration,
        /// Reason why the connection was lost.
        loss: LinkLoss,
        /// Reason why the last attempt failed, at the initiator.
        last_failure: Option<String>,
    },
    /// The acceptor refused to continue the stream.
    Refused(String),
    /// The peer broke a rule of the frames.
    Violation(&'static str),
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This many bytes were read.
    Bytes(usize),
    /// The direction has ended, and all its bytes were read.
    End,
    /// Nothing has arrived.
    Pending,
    /// The stream is over: see [`ResumableEnd::close_reason`].
    Closed,
}

/// Counts of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamCounts {
    /// Number of times that the stream continued on a further connection.
    pub resumed: u32,
    /// Bytes that were sent again.
    pub retransmitted: u64,
    /// Bytes that the peer has not acknowledged.
    pub replay_bytes: u64,
}

/// One end of a stream.
pub struct ResumableEnd {
    role: Role,
    limits: StreamLimits,
    memory: Box<dyn MemoryAllowance>,
    link: Link,
    /// Number of the latest connection, and of the latest attempt.
    epoch: u32,
    counts: StreamCounts,

    /// Bytes that have been written and not acknowledged.
    replay: ByteQueue,
    /// Maximum length of `replay`.
    replay_room: u64,
    /// True if no more will be written.
    finished: bool,
    acked: u64,
    /// Position up to which this connection has carried, and the highest of all connections.
    sent: u64,
    highest_sent: u64,
    /// Position up to which the peer takes data.
    peer_limit: u64,

    /// Bytes that have arrived and not been read.
    queue: ByteQueue,
    received: u64,
    peer_fin: bool,
    window: u64,
    round: ConsumptionRound,
    /// Latest values that were sent to the peer.
    told_received: u64,
    told_limit: u64,
    ack_due: Option<Duration>,
    /// True if nothing will be read any more.
    discards: bool,
    reset: ResetState,

    output: OutputFrames,
    path: PathClock,
}

/// State of giving up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResetState {
    None,
    /// The peer has to be told.
    Due,
    /// It has been told over the current connection.
    Sent,
}

impl ResumableEnd {
    /// Creates an end whose first connection is established. The creator has taken
    /// [`INITIAL_WINDOW_BYTES`] for each direction from its memory.
    #[must_use]
    pub fn new(
        role: Role,
        limits: StreamLimits,
        memory: Box<dyn MemoryAllowance>,
        now: Duration,
    ) -> Self {
        Self {
            role,
            limits,
            memory,
            link: Link::attached(),
            epoch: 0,
            counts: StreamCounts::default(),
            replay: ByteQueue::default(),
            replay_room: INITIAL_WINDOW_BYTES,
            finished: false,
            acked: 0,
            sent: 0,
            highest_sent: 0,
            peer_limit: INITIAL_WINDOW_BYTES,
            queue: ByteQueue::default(),
            received: 0,
            peer_fin: false,
            window: INITIAL_WINDOW_BYTES,
            round: ConsumptionRound::default(),
            told_received: 0,
            told_limit: INITIAL_WINDOW_BYTES,
            ack_due: None,
            discards: false,
            reset: ResetState::None,
            output: OutputFrames::default(),
            path: PathClock::new(now),
        }
    }

    /// Writes data. Returns the number of bytes taken, 0 if there is no room, or `None` if the
    /// stream is over or this direction has ended.
    pub fn write(&mut self, now: Duration, data: &[u8]) -> Option<usize> {
        if self.finished || self.is_given_up() {
            return None;
        }
        if self.replay.len() as u64 >= self.replay_room {
            self.grow_replay();
        }
        let room = self.replay_room.saturating_sub(self.replay.len() as u64);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let taken = data.get(..data.len().min(room)).unwrap_or(data);
        if !taken.is_empty() {
            self.replay.push(taken);
            self.path.note_data(now);
        }
        Some(taken.len())
    }

    /// Doubles the replay buffer if acknowledgements are all that its bytes wait for.
    fn grow_replay(&mut self) {
        let waits_for_peer = self.is_attached() && self.sent >= self.replay.end();
        if waits_for_peer
            && self.replay_room < self.limits.max_window
            && self.memory.try_take(self.replay_room)
        {
            self.replay_room = self.replay_room.saturating_mul(2);
        }
    }

    /// Ends this direction behind what has been written.
    pub const fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns true once the peer has acknowledged the end of this direction.
    #[must_use]
    pub const fn is_delivered(&self) -> bool {
        self.finished && self.acked > self.replay.end()
    }

    /// Reads data that has arrived.
    pub fn read(&mut self, now: Duration, buffer: &mut [u8]) -> ReadOutcome {
        let read = self.queue.pop(buffer);
        if read > 0 {
            self.open_window(now);
            return ReadOutcome::Bytes(read);
        }
        match self.link {
            _ if !self.queue.is_empty() => ReadOutcome::Bytes(0),
            _ if self.peer_fin => ReadOutcome::End,
            Link::Closed(_) => ReadOutcome::Closed,
            _ if self.reset != ResetState::None => ReadOutcome::Closed,
            _ => ReadOutcome::Pending,
        }
    }

    /// Gives the stream up: the peer gets a reset.
    pub fn reset(&mut self) {
        if self.reset == ResetState::None {
            self.reset = ResetState::Due;
        }
    }

    /// Drops the application's interest. A direction that has ended is still delivered; otherwise
    /// the peer gets a reset, as it does if it sends more.
    pub fn abandon(&mut self) {
        self.discards = true;
        if !self.finished || !self.queue.is_empty() {
            self.reset();
        }
    }

    /// Returns true if both directions have ended and this end's was acknowledged.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.is_delivered() && self.peer_fin
    }

    /// Returns the reason why the stream is over, if it is.
    #[must_use]
    pub const fn close_reason(&self) -> Option<&CloseReason> {
        match &self.link {
            Link::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns the counts.
    #[must_use]
    pub const fn counts(&self) -> StreamCounts {
        StreamCounts {
            replay_bytes: self.replay.len() as u64,
            ..self.counts
        }
    }

    /// Returns the smoothed round trip between the two ends, once measured.
    #[must_use]
    pub const fn round_trip(&self) -> Option<Duration> {
        self.path.round_trip()
    }

    /// Returns the position up to which this end has received.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received.saturating_add(self.peer_fin as u64)
    }

    /// Returns the number of the latest connection.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    const fn is_given_up(&self) -> bool {
        matches!(self.link, Link::Closed(_)) || !matches!(self.reset, ResetState::None)
    }

    fn close(&mut self, reason: CloseReason) {
        if matches!(self.link, Link::Closed(_)) {
            return;
        }
        self.link = Link::Closed(reason);
        self.output.clear();
        self.replay.release(self.replay.end());
        self.replay.shrink();
        if self.discards {
            self.queue.release(self.queue.end());
        }
    }
}

impl fmt::Debug for ResumableEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumableEnd")
            .field("role", &self.role)
            .field("epoch", &self.epoch)
            .field("link", &self.link)
            .field("acked", &self.acked)
            .field("sent", &self.sent)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("everything was delivered"),
            Self::ResetByPeer => f.write_str("the peer reset the session"),
            Self::ResetHere => f.write_str("reset by this end"),
            Self::NotResumed {
                within,
                loss,
                last_failure,
            } => {
                write!(
                    f,
                    "the connection was lost ({loss}), and no route carried the session on within \
                     {} s",
                    within.as_secs_f64()
                )?;
                match last_failure {
                    Some(failure) => write!(f, "; the last attempt failed: {failure}"),
                    None => Ok(()),
                }
            }
            Self::Refused(why) => {
                write!(
                    f,
                    "the connection was lost, and the other end does not resume the session: {why}"
                )
            }
            Self::Violation(what) => write!(f, "the peer broke the session protocol: {what}"),
        }
    }
}
