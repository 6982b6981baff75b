//! Memory and number of QUIC connections.
//!
//! A receiver promises memory in advance: a peer may fill its whole window before anything is read.
//! So each new connection gets a share of what is left of the memory for all, and a flood of
//! connections shrinks the windows instead of exhausting the memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use s2n_quic::provider::endpoint_limits::{self, ConnectionAttempt, Outcome};
use s2n_quic::provider::limits::{ConnectionInfo, Limiter, Limits};

/// Share of the remaining memory that one new connection may get: 1/4.
const MEMORY_SHARE: u64 = 4;
/// Bounds of a connection's window, in bytes. The largest fills 1 Gbit/s at 1 s, or 10 Gbit/s at
/// 100 ms, if the sender has it in flight once.
const MIN_WINDOW_BYTES: u64 = 256 * 1024;
const MAX_WINDOW_BYTES: u64 = 128 * 1024 * 1024;
/// Maximum number of unacknowledged bytes that a stream keeps for retransmission.
pub(crate) const SEND_BUFFER_BYTES: u32 = 32 * 1024 * 1024;
/// Interval between packets that keep a connection with sessions alive, and its time limit without
/// packets from the peer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent handshakes from which on clients must first prove their address (a Retry, RFC 9000,
/// section 8.1.2).
const RETRY_HANDSHAKES: usize = 32;

/// Limits of a QUIC endpoint. They hold whatever the peers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuicLimits {
    /// Maximum number of connections, including those in their handshake.
    pub connections: usize,
    /// Maximum number of concurrent streams that the peer may open on one connection.
    pub streams: u64,
    /// Memory for received bytes that nobody has read yet, over all connections, in bytes. Each
    /// connection still gets a small window once it is used up.
    pub memory: u64,
}

impl Default for QuicLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            streams: 4096,
            memory: 1 << 30,
        }
    }
}

/// Memory of an endpoint's connections.
#[derive(Debug)]
pub(crate) struct WindowBudget {
    total: u64,
    promised: Mutex<u64>,
}

/// Window of one connection, returned to the budget when dropped.
#[derive(Debug)]
pub(crate) struct PromisedWindow {
    budget: Arc<WindowBudget>,
    bytes: u64,
}

impl WindowBudget {
    pub(crate) fn new(total: u64) -> Arc<Self> {
        Arc::new(Self {
            total,
            promised: Mutex::new(0),
        })
    }

    /// Returns the window of one more connection.
    fn next_window(&self) -> u64 {
        let left = self.total.saturating_sub(*self.promised.lock());
        (left / MEMORY_SHARE).clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES)
    }

    /// Charges one more connection for its window.
    pub(crate) fn promise(self: &Arc<Self>) -> PromisedWindow {
        let bytes = self.next_window();
        let mut promised = self.promised.lock();
        *promised = promised.saturating_add(bytes);
        PromisedWindow {
            budget: Arc::clone(self),
            bytes,
        }
    }
}

impl Drop for PromisedWindow {
    fn drop(&mut self) {
        let mut promised = self.budget.promised.lock();
        *promised = promised.saturating_sub(self.bytes);
    }
}

/// Windows of connections whose handshake is not complete, the oldest first.
///
/// They are charged when they are promised, so that simultaneous handshakes share the memory.
#[derive(Debug)]
pub(crate) struct Handshakes {
    budget: Arc<WindowBudget>,
    windows: Mutex<VecDeque<(Instant, PromisedWindow)>>,
}

impl Handshakes {
    pub(crate) fn new(budget: Arc<WindowBudget>) -> Arc<Self> {
        Arc::new(Self {
            budget,
            windows: Mutex::default(),
        })
    }

    /// Returns the window of a connection that begins, in bytes, and forgets handshakes that must
    /// have failed.
    fn begin(&self) -> u64 {
        let now = Instant::now();
        let window = self.budget.promise();
        let bytes = window.bytes;
        let mut windows = self.windows.lock();
        windows.retain(|(begun, _)| now.duration_since(*begun) <= HANDSHAKE_TIMEOUT);
        windows.push_back((now, window));
        bytes
    }

    /// Returns the window of a connection whose handshake is complete. Which of them it is does not
    /// matter for their sum.
    pub(crate) fn complete(&self) -> PromisedWindow {
        let oldest = self.windows.lock().pop_front();
        oldest.map_or_else(|| self.budget.promise(), |(_, window)| window)
    }
}

/// Chooses the limits of each connection.
pub(crate) struct ConnectionLimiter {
    pub(crate) handshakes: Arc<Handshakes>,
    pub(crate) streams: u64,
}

impl Limiter for ConnectionLimiter {
    fn on_connection(&mut self, _: &ConnectionInfo<'_>) -> Limits {
        connection_limits(self.handshakes.begin(), self.streams).unwrap_or_default()
    }
}

/// Returns the limits of a connection; `None` if the library refuses a value.
fn connection_limits(window: u64, streams: u64) -> Option<Limits> {
    Limits::new()
        .with_data_window(window)
        .ok()?
        .with_bidirectional_local_data_window(window)
        .ok()?
        .with_bidirectional_remote_data_window(window)
        .ok()?
        .with_max_open_local_bidirectional_streams(streams)
        .ok()?
        .with_max_open_remote_bidirectional_streams(streams)
        .ok()?
        .with_max_open_local_unidirectional_streams(0)
        .ok()?
        .with_max_open_remote_unidirectional_streams(0)
        .ok()?
        .with_max_send_buffer_size(SEND_BUFFER_BYTES)
        .ok()?
        .with_max_handshake_duration(HANDSHAKE_TIMEOUT)
        .ok()?
        .with_max_keep_alive_period(KEEP_ALIVE)
        .ok()?
        .with_max_idle_timeout(IDLE_TIMEOUT)
        .ok()
}

/// Admits connection attempts: at most a number of connections, and only from proven addresses when
/// there are many handshakes.
pub(crate) struct AttemptLimiter {
    pub(crate) connections: usize,
}

impl endpoint_limits::Limiter for AttemptLimiter {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        if attempt.connection_count >= self.connections {
            Outcome::drop()
        } else if attempt.inflight_handshakes >= RETRY_HANDSHAKES {
            Outcome::retry()
        } else {
            Outcome::allow()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_valid_at_every_window() {
        for window in [MIN_WINDOW_BYTES, MAX_WINDOW_BYTES] {
            assert!(connection_limits(window, QuicLimits::default().streams).is_some());
        }
    }

    #[test]
    fn a_flood_shrinks_the_windows() {
        let budget = WindowBudget::new(1 << 30);
        let windows: Vec<_> = (0..1000).map(|_| budget.promise()).collect();
        let promised = *budget.promised.lock();
        assert!(promised < (1 << 30) + 1000 * MIN_WINDOW_BYTES, "{promised}");
        assert_eq!(budget.next_window(), MIN_WINDOW_BYTES);
        drop(windows);
        let handshakes = Handshakes::new(Arc::clone(&budget));
        let begun: u64 = (0..1000).map(|_| handshakes.begin()).sum();
        assert_eq!(*budget.promised.lock(), begun);
        assert!(begun < (1 << 30) + 1000 * MIN_WINDOW_BYTES, "{begun}");
        drop((0..1000).map(|_| handshakes.complete()).collect::<Vec<_>>());
        assert_eq!(*budget.promised.lock(), 0);
        assert_eq!(budget.next_window(), MAX_WINDOW_BYTES);
    }
}
