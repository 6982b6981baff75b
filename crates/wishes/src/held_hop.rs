//! Holds one connection to the rate of its circuit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_hop::{RateLimit, RateLimits, TcpConn};
use tokio::sync::watch;

use crate::planner::FlowSample;
use crate::terms::FlowDirection;

/// Bits per byte.
const BITS_PER_BYTE: u64 = 8;

/// Bytes that a connection has carried, counted by the task that moves them.
#[derive(Debug, Default)]
pub(crate) struct FlowCounters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl FlowCounters {
    /// Counts bytes to the far end, and from it.
    pub(crate) fn count(&self, sent: u64, received: u64) {
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
    }

    pub(crate) fn sample(&self) -> FlowSample {
        FlowSample {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }
}

/// Circuit in force around a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRate {
    /// Direction of its bytes.
    pub direction: FlowDirection,
    /// Payload rate, in bit/s.
    pub payload: u64,
}

/// A connection that may have a circuit, as seen by the task that moves its bytes.
#[derive(Debug)]
pub struct HeldHop {
    counters: Arc<FlowCounters>,
    rate: watch::Receiver<Option<HeldRate>>,
    /// Rate to which the socket is paced, in bytes per second.
    paced: Option<u64>,
}

impl HeldHop {
    pub(crate) fn new(
        counters: Arc<FlowCounters>,
        rate: watch::Receiver<Option<HeldRate>>,
    ) -> Self {
        Self {
            counters,
            rate,
            paced: None,
        }
    }

    /// Counts bytes to the far end, and from it.
    pub fn count(&self, sent: u64, received: u64) {
        self.counters.count(sent, received);
    }

    /// Paces the socket of the connection to its circuit, or no longer (`SO_MAX_PACING_RATE`).
    /// Returns true while a circuit is in force.
    pub fn pace(&mut self, socket: Option<&TcpConn>) -> bool {
        let held = *self.rate.borrow();
        let sends = held.filter(|held| held.direction == FlowDirection::Send);
        let wanted = sends.map(|held| (held.payload / BITS_PER_BYTE).max(1));
        if wanted != self.paced {
            self.paced = wanted;
            // The rate limit bounds the flow in any case, only less smoothly.
            let _ = socket.map(|socket| drs::set_max_pacing_rate(socket, wanted));
        }
        held.is_some()
    }
}

impl HeldRate {
    /// Returns the usual limits with that of the circuit in its direction. `forward` is the
    /// direction that counts as forward.
    #[must_use]
    pub fn limits(self, forward: FlowDirection, usual: RateLimits) -> RateLimits {
        let limit = Arc::new(RateLimit::new(Some(self.payload)));
        match self.direction == forward {
            true => RateLimits {
                forward: limit,
                ..usual
            },
            false => RateLimits {
                backward: limit,
                ..usual
            },
        }
    }
}
