//! Output of an end to its connection.

use std::ops::Range;
use std::time::Duration;

use super::link::Link;
use super::{INITIAL_WINDOW_BYTES, ResetState, ResumableEnd, Role};
use crate::frame::{Frame, MAX_FRAME_DATA_BYTES};

/// Maximum number of parts of one output: headers, and the chunks of a frame's data.
pub const OUTPUT_PARTS: usize = 6;

/// Frames under way to the connection: encoded headers, then the data of the last one.
#[derive(Debug, Default)]
pub(super) struct OutputFrames {
    header: Vec<u8>,
    written: usize,
    /// Positions of the data that follows the headers.
    data: Range<u64>,
    /// Effects once the headers are written.
    has_fin: bool,
    has_reset: bool,
    /// Pings to send and to answer.
    ping: bool,
    pong: Option<u32>,
}

impl OutputFrames {
    /// Forgets everything: it belonged to a lost connection.
    pub(super) fn clear(&mut self) {
        let header = std::mem::take(&mut self.header);
        *self = Self {
            header,
            ..Self::default()
        };
        self.header.clear();
    }

    pub(super) const fn request_ping(&mut self) {
        self.ping = true;
    }

    /// Requests an answer to a ping; one to an earlier ping is superseded.
    pub(super) const fn request_pong(&mut self, number: u32) {
        self.pong = Some(number);
    }

    fn is_empty(&self) -> bool {
        self.written >= self.header.len() && self.data.is_empty()
    }
}

impl ResumableEnd {
    /// Returns bytes to write to the connection, in order; all parts are empty if there are none.
    pub fn output(&mut self, now: Duration) -> [&[u8]; OUTPUT_PARTS] {
        if self.is_attached() && self.output.is_empty() {
            self.encode_next(now);
        }
        let mut parts = [&[][..]; OUTPUT_PARTS];
        let (header, data) = parts.split_at_mut(1);
        if let Some(header) = header.first_mut() {
            *header = self
                .output
                .header
                .get(self.output.written..)
                .unwrap_or_default();
        }
        let Range { mut start, end } = self.output.data;
        for part in data {
            let bytes = self.replay.bytes_at(start);
            let left = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
            *part = bytes.get(..bytes.len().min(left)).unwrap_or_default();
            start = start.saturating_add(part.len() as u64);
        }
        parts
    }

    /// Records that this many bytes of [`Self::output`] were written.
    pub fn on_written(&mut self, now: Duration, count: usize) {
        let header_left = self.output.header.len().saturating_sub(self.output.written);
        let of_header = count.min(header_left);
        self.output.written = self.output.written.saturating_add(of_header);
        let of_data = count.saturating_sub(of_header) as u64;
        if of_data > 0 {
            self.sent = self.sent.saturating_add(of_data);
            self.output.data.start = self.output.data.start.saturating_add(of_data);
        }
        if self.output.written >= self.output.header.len() {
            if std::mem::take(&mut self.output.has_fin) {
                self.sent = self.sent.saturating_add(1);
            }
            if std::mem::take(&mut self.output.has_reset) {
                self.reset = ResetState::Sent;
            }
        }
        self.highest_sent = self.highest_sent.max(self.sent);
        let needs_answer = self.needs_answer();
        if let Link::Attached(attachment) = &mut self.link
            && needs_answer
            && attachment.awaiting_since.is_none()
        {
            attachment.awaiting_since = Some(now);
        }
    }

    /// Returns true if something was sent that the peer answers.
    pub(super) fn needs_answer(&self) -> bool {
        let ends = matches!(&self.link, Link::Attached(attachment) if attachment.output_ended);
        self.acked < self.sent
            || self.path.has_outstanding_ping()
            || self.reset == ResetState::Sent
            || ends
    }

    /// Returns true if this end must now end its direction of the connection: the stream is settled
    /// or reset, and the peer has been told. [`Self::on_output_ended`] follows.
    #[must_use]
    pub fn wants_output_end(&self) -> bool {
        let Link::Attached(attachment) = &self.link else {
            return false;
        };
        let told = self.told_received == self.received() && self.output.is_empty();
        let over = match self.reset {
            ResetState::None => self.role == Role::Initiator && self.is_settled() && told,
            ResetState::Due => false,
            ResetState::Sent => true,
        };
        over && !attachment.output_ended
    }

    /// Records that this end's direction of the connection was ended.
    pub fn on_output_ended(&mut self, now: Duration) {
        if let Link::Attached(attachment) = &mut self.link {
            attachment.output_ended = true;
            attachment.awaiting_since.get_or_insert(now);
        }
    }

    /// Returns true if this end waits only for the peer to end the connection.
    #[must_use]
    pub fn is_lingering(&self) -> bool {
        self.is_settled() || self.reset == ResetState::Sent
    }

    fn encode_next(&mut self, now: Duration) {
        self.output.header.clear();
        self.output.written = 0;
        match self.reset {
            ResetState::None => {}
            ResetState::Due => {
                Frame::Reset.encode(&mut self.output.header);
                self.output.has_reset = true;
                return;
            }
            ResetState::Sent => return,
        }
        if matches!(&self.link, Link::Attached(attachment) if attachment.output_ended) {
            return;
        }
        let end = self.replay.end();
        let sendable = end.min(self.peer_limit).saturating_sub(self.sent);
        let ack_due = self.ack_due.is_some_and(|due| due <= now);
        // Data takes a pending acknowledgement along.
        if ack_due || (sendable > 0 && self.ack_due.is_some()) {
            self.encode_ack();
        }
        if let Some(number) = self.output.pong.take() {
            Frame::Pong { number }.encode(&mut self.output.header);
        }
        if std::mem::take(&mut self.output.ping) {
            let number = self.path.start_ping(now);
            Frame::Ping { number }.encode(&mut self.output.header);
        }
        if sendable > 0 {
            let len = sendable.min(MAX_FRAME_DATA_BYTES as u64);
            let frame = Frame::Data {
                offset: self.sent,
                len: u32::try_from(len).unwrap_or_default(),
            };
            frame.encode(&mut self.output.header);
            self.output.data = self.sent..self.sent.saturating_add(len);
        } else if self.finished && self.sent == end {
            Frame::Fin { offset: end }.encode(&mut self.output.header);
            self.output.has_fin = true;
        }
    }

    fn encode_ack(&mut self) {
        self.ack_due = None;
        self.told_received = self.received();
        let limit = self.queue.start().saturating_add(self.window);
        self.told_limit = self.told_limit.max(limit);
        let frame = Frame::Ack {
            received: self.told_received,
            limit: self.told_limit,
        };
        frame.encode(&mut self.output.header);
    }

    /// Returns the memory of an idle replay buffer.
    pub(super) fn shrink_replay(&mut self) {
        if self.replay.is_empty() && self.replay_room > INITIAL_WINDOW_BYTES {
            let excess = self.replay_room.saturating_sub(INITIAL_WINDOW_BYTES);
            self.memory.release(excess);
            self.replay_room = INITIAL_WINDOW_BYTES;
        }
        self.replay.shrink();
        self.queue.shrink();
    }
}
