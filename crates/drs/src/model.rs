//! A small model of TCP in virtual time, for tests of the deciders: slow start, a bottleneck with a
//! queue, and a window that a buffer offers.

use std::time::Duration;

use crate::{Action, Buffers, Congestion, Queues, Sample, TcpInfo, orders::Orders};

pub(crate) const MSS: u64 = 1000;
const TICK: Duration = Duration::from_millis(1);

/// One flow over one path. Bytes move in ticks of a millisecond; an acknowledgement takes a round
/// trip.
pub(crate) struct Model {
    pub now: Duration,
    /// Round-trip time without queueing.
    pub rtt: Duration,
    /// Rate of the bottleneck, in bytes per second.
    pub rate: u64,
    /// Maximum queue at the bottleneck, in bytes.
    pub queue_limit: u64,
    /// `SO_RCVBUF` as requested, which limits the window.
    pub buffer: u64,
    pub clamp: u64,
    /// Right edge of the offered window; it never moves back.
    pub right_edge: u64,
    pub arrived: u64,
    pub dropped_at_receiver: u64,
    sent: u64,
    cwnd: u64,
    slow_start: bool,
    queue: u64,
    credit: f64,
    /// Data in flight: time of arrival and amount.
    wire: std::collections::VecDeque<(Duration, u64)>,
    /// Acknowledgements in flight: time of arrival, acknowledged bytes and right edge.
    acks: std::collections::VecDeque<(Duration, u64, u64)>,
    acked: u64,
    peer_edge: u64,
}

impl Model {
    pub(crate) fn new(rtt_ms: u64, rate: u64, buffer: u64) -> Self {
        Self {
            now: Duration::ZERO,
            rtt: Duration::from_millis(rtt_ms),
            rate,
            queue_limit: rate * rtt_ms / 1000,
            buffer,
            clamp: buffer,
            right_edge: buffer,
            arrived: 0,
            dropped_at_receiver: 0,
            sent: 0,
            cwnd: 10 * MSS,
            slow_start: true,
            queue: 0,
            credit: 0.0,
            wire: [].into(),
            acks: [].into(),
            acked: 0,
            peer_edge: buffer,
        }
    }

    pub(crate) fn offered(&self) -> u64 {
        self.right_edge - self.arrived
    }

    pub(crate) fn tick(&mut self) {
        self.now += TICK;
        while let Some(&(at, bytes)) = self.wire.front().filter(|front| front.0 <= self.now) {
            self.wire.pop_front();
            // The kernel accounts for payload and bookkeeping with twice the size. Nothing is
            // unread here, so only simultaneous arrivals count.
            if bytes > self.buffer * 2 {
                self.dropped_at_receiver += bytes;
            }
            self.arrived += bytes;
            self.right_edge = self
                .right_edge
                .max(self.arrived + self.buffer.min(self.clamp));
            self.acks
                .push_back((at + self.rtt / 2, self.arrived, self.right_edge));
        }
        while let Some(&(_, upto, edge)) = self.acks.front().filter(|front| front.0 <= self.now) {
            self.acks.pop_front();
            let newly = upto - self.acked;
            self.acked = upto;
            self.peer_edge = edge;
            let limited_by_window = self.sent + MSS > self.peer_edge;
            if self.slow_start && !limited_by_window {
                self.cwnd += newly;
            } else if !limited_by_window {
                self.cwnd += (MSS * newly / self.cwnd).max(1);
            }
        }
        while self.sent + MSS <= self.peer_edge && self.sent - self.acked + MSS <= self.cwnd {
            if self.queue + MSS > self.queue_limit {
                // A drop, repaired at once as with SACK: the window halves.
                self.slow_start = false;
                self.cwnd = (self.cwnd / 2).max(2 * MSS);
                break;
            }
            self.sent += MSS;
            self.queue += MSS;
        }
        self.credit = (self.credit + self.rate as f64 * TICK.as_secs_f64()).min(self.rate as f64);
        let out = self.queue.min(self.credit as u64);
        if out > 0 {
            self.queue -= out;
            self.credit -= out as f64;
            self.wire.push_back((self.now + self.rtt / 2, out));
        }
        if self.queue == 0 {
            self.credit = self.credit.min(MSS as f64);
        }
    }

    /// Returns a sample as the receiver would see it.
    pub(crate) fn look(&self) -> Sample {
        let queueing = Duration::from_secs_f64(self.queue as f64 / self.rate as f64);
        Sample {
            fitted_rate: None,
            at: self.now,
            info: TcpInfo {
                bytes_received: Some(self.arrived),
                receive_window: Some(self.offered() as u32),
                receive_rtt: if self.arrived > 0 {
                    self.rtt + queueing
                } else {
                    Duration::ZERO
                },
                ..TcpInfo::default()
            },
            queues: Queues::default(),
            buffers: Buffers {
                receive: (self.buffer * 2) as u32,
                ..Buffers::default()
            },
            congestion: Congestion::default(),
        }
    }

    pub(crate) fn obey(&mut self, orders: &Orders) {
        for (action, _) in orders.iter() {
            match action {
                Action::ReceiveBuffer(bytes) => {
                    self.buffer = bytes.into();
                    self.clamp = self.clamp.max(self.buffer);
                }
                Action::WindowClamp(bytes) => self.clamp = bytes.into(),
                other => panic!("not for a receiver: {other}"),
            }
        }
        self.right_edge = self
            .right_edge
            .max(self.arrived + self.buffer.min(self.clamp));
    }

    /// Runs for a time, and samples every 20 ms.
    pub(crate) fn run(
        &mut self,
        millis: u64,
        mut decide: impl FnMut(&Sample) -> Orders,
    ) -> Vec<Orders> {
        let mut given = vec![];
        for tick in 0..millis {
            self.tick();
            if tick % 20 == 19 {
                let edge = self.right_edge;
                let orders = decide(&self.look());
                self.obey(&orders);
                assert!(self.right_edge >= edge, "an offer was taken back");
                if orders != Orders::default() {
                    given.push(orders);
                }
            }
        }
        given
    }
}
