//! Connections of a stream: established, lost, replaced, and attempts to open another.

use std::fmt;
use std::time::Duration;

use super::{CloseReason, ResetState, ResumableEnd, Role};
use crate::frame::FrameDecoder;

/// Connection of a stream, or its absence.
#[derive(Debug)]
pub(super) enum Link {
    Attached(Attachment),
    Detached(Detachment),
    Closed(CloseReason),
}

/// State of an established connection.
#[derive(Debug, Default)]
pub(super) struct Attachment {
    pub(super) decoder: FrameDecoder,
    /// Time of the last input, or of the first output after it that needs an answer, while one is
    /// outstanding.
    pub(super) awaiting_since: Option<Duration>,
    /// True once this end has ended its direction of the connection.
    pub(super) output_ended: bool,
}

/// State without a connection.
#[derive(Debug)]
pub(super) struct Detachment {
    since: Duration,
    loss: LinkLoss,
    last_failure: Option<String>,
    /// Time of the next attempt; `None` while one is under way, and always at the acceptor.
    attempt_at: Option<Duration>,
}

/// Reason why a connection was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkLoss {
    /// It ended although the stream had not.
    Ended,
    /// It failed.
    Failed(String),
    /// Nothing arrived for this long although an answer was outstanding.
    Silent(Duration),
    /// The initiator opened another one.
    Superseded,
}

/// Request to open another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeAttempt {
    /// Number of the connection.
    pub epoch: u32,
    /// Position up to which this end has received.
    pub received: u64,
}

/// Reason why a connection does not become that of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The stream is over.
    #[error("the session has ended")]
    Closed,
    /// A later connection exists.
    #[error("a later connection has taken the session over")]
    Stale,
    /// The peer's position is one that it cannot have.
    #[error("the peer's position in the session is impossible")]
    Contradiction,
}

impl Link {
    pub(super) fn attached() -> Self {
        Self::Attached(Attachment::default())
    }
}

impl ResumableEnd {
    /// Returns true while there is a connection.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        matches!(self.link, Link::Attached(_))
    }

    /// Returns the time since which there is no connection.
    #[must_use]
    pub const fn detached_since(&self) -> Option<Duration> {
        match &self.link {
            Link::Detached(detachment) => Some(detachment.since),
            _ => None,
        }
    }

    /// Continues the stream over a connection that has just been established. The peer has received
    /// everything before `peer_received`.
    ///
    /// # Errors
    /// [`AttachError`]; the connection is not used.
    pub fn attach(
        &mut self,
        now: Duration,
        epoch: u32,
        peer_received: u64,
    ) -> Result<(), AttachError> {
        if matches!(self.link, Link::Closed(_)) {
            return Err(AttachError::Closed);
        }
        let is_expected = match self.role {
            Role::Initiator => epoch == self.epoch && !self.is_attached(),
            Role::Acceptor => epoch > self.epoch,
        };
        if !is_expected {
            return Err(AttachError::Stale);
        }
        if peer_received < self.acked || peer_received > self.highest_sent {
            self.close(CloseReason::Violation("an impossible position"));
            return Err(AttachError::Contradiction);
        }
        if self.is_attached() {
            self.lose_link(now, LinkLoss::Superseded);
        }
        self.epoch = epoch;
        self.acknowledge(peer_received);
        self.counts.retransmitted = self
            .counts
            .retransmitted
            .saturating_add(self.highest_sent.saturating_sub(peer_received));
        self.counts.resumed = self.counts.resumed.saturating_add(1);
        self.sent = peer_received;
        self.output.clear();
        self.ack_due = Some(now);
        if self.reset == ResetState::Sent {
            self.reset = ResetState::Due;
        }
        self.path.restart(now);
        self.link = Link::attached();
        Ok(())
    }

    /// Records that the connection failed.
    pub fn on_link_failed(&mut self, now: Duration, why: String) {
        self.lose_link(now, LinkLoss::Failed(why));
    }

    /// Records that the connection ended cleanly. That is the end of a settled stream.
    pub fn on_link_ended(&mut self, now: Duration) {
        match (self.reset, self.is_settled()) {
            (ResetState::Sent, _) => self.close(CloseReason::ResetHere),
            (_, true) => self.close(CloseReason::Finished),
            _ => self.lose_link(now, LinkLoss::Ended),
        }
    }

    pub(super) fn lose_link(&mut self, now: Duration, loss: LinkLoss) {
        if !self.is_attached() {
            return;
        }
        if matches!(loss, LinkLoss::Silent(_)) {
            self.path.note_silence();
        }
        self.output.clear();
        self.ack_due = None;
        self.link = Link::Detached(Detachment {
            since: now,
            loss,
            last_failure: None,
            attempt_at: (self.role == Role::Initiator).then_some(now),
        });
    }

    /// Returns a request for another connection, if one is due. [`Self::attach`] or
    /// [`Self::on_attempt_failed`] answers it.
    pub fn poll_attempt(&mut self, now: Duration) -> Option<ResumeAttempt> {
        let received = self.received();
        let Link::Detached(detachment) = &mut self.link else {
            return None;
        };
        detachment.attempt_at.take_if(|at| *at <= now)?;
        self.epoch = self.epoch.saturating_add(1);
        Some(ResumeAttempt {
            epoch: self.epoch,
            received,
        })
    }

    /// Records that the attempt failed. The next one follows after `delay`.
    pub fn on_attempt_failed(&mut self, now: Duration, delay: Duration, why: String) {
        if let Link::Detached(detachment) = &mut self.link {
            detachment.last_failure = Some(why);
            detachment.attempt_at = Some(now.saturating_add(delay));
        }
    }

    /// Records that the acceptor refuses to continue the stream.
    pub fn on_refused(&mut self, why: String) {
        let reason = match (self.is_settled(), self.reset) {
            (true, _) => CloseReason::Finished,
            (_, ResetState::None) => CloseReason::Refused(why),
            _ => CloseReason::ResetHere,
        };
        self.close(reason);
    }

    /// Returns the time at which something will be due, if there is any. `flushed_at` is the time
    /// with which [`Self::output`] was called last: what was due then waits for the connection.
    #[must_use]
    pub fn next_timeout(&self, flushed_at: Duration) -> Option<Duration> {
        match &self.link {
            Link::Attached(attachment) => {
                let silent = attachment
                    .awaiting_since
                    .map(|since| since.saturating_add(self.path.silence_limit()));
                let ack = self.ack_due.filter(|due| *due > flushed_at);
                [silent, ack, Some(self.path.ping_at())]
                    .into_iter()
                    .flatten()
                    .min()
            }
            Link::Detached(detachment) => {
                let deadline = detachment.since.saturating_add(self.limits.within);
                Some(
                    detachment
                        .attempt_at
                        .map_or(deadline, |at| at.min(deadline)),
                )
            }
            Link::Closed(_) => None,
        }
    }

    /// Lets time pass. Input that has already arrived must have been given before.
    pub fn on_timeout(&mut self, now: Duration) {
        match &mut self.link {
            Link::Attached(attachment) => {
                let limit = self.path.silence_limit();
                if let Some(since) = attachment.awaiting_since
                    && now.saturating_sub(since) >= limit
                {
                    return self.lose_link(now, LinkLoss::Silent(limit));
                }
                let was_active = self.path.is_active();
                if self.path.take_due_ping(now) {
                    self.output.request_ping();
                    if !was_active {
                        self.shrink_replay();
                    }
                }
            }
            Link::Detached(detachment) => {
                if now.saturating_sub(detachment.since) < self.limits.within {
                    return;
                }
                let late = CloseReason::NotResumed {
                    within: self.limits.within,
                    loss: detachment.loss.clone(),
                    last_failure: detachment.last_failure.take(),
                };
                let reason = match (self.is_settled(), self.reset) {
                    (true, _) => CloseReason::Finished,
                    (_, ResetState::None) => late,
                    _ => CloseReason::ResetHere,
                };
                self.close(reason);
            }
            Link::Closed(_) => {}
        }
    }
}

impl fmt::Display for LinkLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("it ended early"),
            Self::Failed(why) => f.write_str(why),
            Self::Silent(time) => write!(f, "no answer for {:.1} s", time.as_secs_f64()),
            Self::Superseded => f.write_str("the other end opened another one"),
        }
    }
}
