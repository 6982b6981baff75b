//! Input of an end from its connection.

use std::time::Duration;

use super::link::Link;
use super::{CloseReason, ResumableEnd};
use crate::frame::{Frame, Piece};

/// Maximum delay of an acknowledgement that no data takes along.
const ACK_DELAY: Duration = Duration::from_millis(20);
/// Unacknowledged input that is acknowledged at once, in bytes, and as a fraction of the window.
const ACK_BYTES: u64 = 256 * 1024;
const ACK_WINDOW_FRACTION: u64 = 4;
/// Minimum time over which consumption is measured.
const MIN_ROUND: Duration = Duration::from_millis(1);

/// Number of round trips after which a measurement is too old.
const RECENT_ROUNDS: u32 = 4;

/// Consumption within one round trip.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConsumptionRound {
    began: Duration,
    consumed: u64,
}

impl ResumableEnd {
    /// Takes bytes of the connection. Data goes directly into `reader` as far as it fits and
    /// nothing else waits. Returns the number of bytes placed there.
    pub fn on_input(&mut self, now: Duration, mut input: &[u8], reader: &mut [u8]) -> usize {
        let mut delivered = 0usize;
        while !input.is_empty() {
            let Link::Attached(attachment) = &mut self.link else {
                break;
            };
            let handled = match attachment.decoder.next(&mut input) {
                Ok(Some(Piece::Frame(frame))) => self.on_frame(now, frame),
                Ok(Some(Piece::Data(data))) => {
                    let room = reader.get_mut(delivered..).unwrap_or_default();
                    delivered = delivered.saturating_add(self.on_data(now, data, room));
                    Ok(())
                }
                Ok(None) => break,
                Err(_) => Err("an invalid frame"),
            };
            if let Err(what) = handled {
                self.close(CloseReason::Violation(what));
            }
        }
        if delivered > 0 {
            self.open_window(now);
        }
        let needs_answer = self.needs_answer();
        if let Link::Attached(attachment) = &mut self.link {
            attachment.awaiting_since = needs_answer.then_some(now);
        }
        delivered
    }

    fn on_frame(&mut self, now: Duration, frame: Frame) -> Result<(), &'static str> {
        match frame {
            Frame::Data { offset, len } => {
                let end = offset.saturating_add(len.into());
                if offset != self.received || self.peer_fin {
                    return Err("data out of order");
                }
                if end > self.told_limit {
                    return Err("more data than permitted");
                }
            }
            Frame::Ack { received, limit } => {
                if received > self.sent {
                    return Err("an acknowledgement of data that was not sent");
                }
                self.acknowledge(received);
                self.peer_limit = self.peer_limit.max(limit);
            }
            Frame::Fin { offset } => {
                if offset != self.received || self.peer_fin {
                    return Err("an end out of order");
                }
                self.peer_fin = true;
                self.ack_due = Some(now);
            }
            Frame::Reset => self.close(CloseReason::ResetByPeer),
            Frame::Ping { number } => self.output.request_pong(number),
            Frame::Pong { number } => self.path.note_pong(now, number),
        }
        Ok(())
    }

    fn on_data(&mut self, now: Duration, data: &[u8], reader: &mut [u8]) -> usize {
        self.received = self.received.saturating_add(data.len() as u64);
        self.path.note_data(now);
        if self.discards {
            // As TCP answers data for a closed socket.
            self.reset();
            return 0;
        }
        let direct = match self.queue.is_empty() {
            true => data.len().min(reader.len()),
            false => 0,
        };
        let (now_read, later) = data.split_at(direct);
        if let Some(room) = reader.get_mut(..direct) {
            room.copy_from_slice(now_read);
        }
        self.queue.skip(direct as u64);
        self.queue.push(later);
        let unacknowledged = self.received.saturating_sub(self.told_received);
        let due = match unacknowledged >= self.ack_threshold() {
            true => now,
            false => now.saturating_add(ACK_DELAY),
        };
        self.ack_due = Some(self.ack_due.map_or(due, |earlier| earlier.min(due)));
        direct
    }

    fn ack_threshold(&self) -> u64 {
        self.window
            .checked_div(ACK_WINDOW_FRACTION)
            .unwrap_or(ACK_BYTES)
            .min(ACK_BYTES)
    }

    /// Releases what the peer has received.
    pub(super) fn acknowledge(&mut self, received: u64) {
        if received > self.acked {
            self.acked = received;
            self.replay.release(received.min(self.replay.end()));
        }
    }

    /// Lets the peer send more after data was consumed, and widens the window if the peer needs
    /// more than half of it for each round trip.
    pub(super) fn open_window(&mut self, now: Duration) {
        let consumed = self.queue.start();
        if let Some(round_trip) = self.path.min_round_trip()
            && now.saturating_sub(self.round.began) >= round_trip.max(MIN_ROUND)
        {
            let rate = consumed.saturating_sub(self.round.consumed);
            // The first round after a pause began long ago and says nothing.
            let is_recent = now.saturating_sub(self.round.began)
                < round_trip.max(MIN_ROUND).saturating_mul(RECENT_ROUNDS);
            if is_recent
                && rate > self.window / 2
                && self.window < self.limits.max_window
                && self.memory.try_take(self.window)
            {
                self.window = self.window.saturating_mul(2);
            }
            self.round = ConsumptionRound {
                began: now,
                consumed,
            };
        }
        let limit = consumed.saturating_add(self.window);
        if limit.saturating_sub(self.told_limit) >= self.ack_threshold() && self.is_attached() {
            self.ack_due = Some(now);
        }
    }
}
