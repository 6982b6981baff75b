//! Watches the flow of a session's own hop: its limits, and the actions of right-sizing.
//!
//! The data itself drives a watch: each read and write may take a sample, at most once every
//! [`SAMPLE_PERIOD`]. An idle flow is not sampled. The kernel's counters show how long it was idle
//! once it resumes.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use drs::{
    Advice, Applied, CongestionName, Flow, FlowGuard, HostLimits, LimitTally, Mode, RateFitter,
    SAMPLE_PERIOD, Sample, Side,
};
use parking_lot::Mutex;

/// Maximum number of actions kept for the report.
const MAX_REPORTED_ACTIONS: usize = 32;

/// Observations of one session's flow, readable from any thread during the session and after it.
#[derive(Debug)]
pub struct FlowWatch {
    begun: Instant,
    host: HostLimits,
    /// Time of the next sample, in microseconds since `begun`; `u64::MAX` (never) once the socket
    /// cannot be sampled.
    due: AtomicU64,
    watched: Mutex<WatchState>,
}

#[derive(Debug)]
struct WatchState {
    flow: Flow,
    seen: FlowObservations,
    fit: RateFitting,
}

/// State of fitting this end's sending rate to the path.
#[derive(Debug)]
enum RateFitting {
    /// TCP determines the rate.
    Unfitted,
    /// Fitting begins with the next sample.
    Due,
    /// The rate is fitted until this value is dropped.
    Fitted { _guard: FlowGuard },
}

/// Observations of a watch so far.
#[derive(Debug, Clone, Default)]
pub struct FlowObservations {
    /// Time spent under each limit, and the latest verdict.
    pub tally: LimitTally,
    /// Latest advice.
    pub advice: Option<Advice>,
    /// Settings applied to the socket and their reasons, oldest first; limited to the first few
    /// dozen.
    pub actions: Vec<Applied>,
    /// Smoothed round-trip time at the latest sample.
    pub rtt: Duration,
    /// Minimum round-trip time known at the latest sample; zero if unknown.
    pub min_rtt: Duration,
    /// Maximum segment payload that this end sends, in bytes.
    pub mss: u32,
    /// Maximum window of this connection on this host, in bytes; `None` before the first sample.
    pub largest_window: Option<u64>,
    /// This end's congestion control; empty if unknown.
    pub congestion: CongestionName,
    /// Segments that this end retransmitted, up to the latest sample.
    pub retransmits: u32,
    /// Segments that arrived out of order, up to the latest sample. Growth indicates loss.
    pub out_of_order: u32,
    /// Bytes that this end sent, including retransmissions, up to the latest sample.
    pub sent: u64,
    /// Bytes moved in this end's direction, up to the latest sample: received, or sent and
    /// acknowledged.
    pub moved: u64,
}

/// Creates the flow control of one side.
///
/// The congestion control stays the host's choice, or that of `--congestion`: a session does not
/// decide how to share a path with others. Little unsent data is queued, since data in one stream's
/// socket cannot move to another stream. Slow start does not wait for a window.
fn new_flow(mode: Mode, side: Side, host: HostLimits) -> Flow {
    Flow::with_host(mode, side, host)
        .keeping_congestion_control()
        .limiting_unsent()
        .opening_window()
}

/// Returns the maximum number of bytes that this host allows in flight towards the receiver.
///
/// Without window scaling (RFC 7323) it is 65,535. Otherwise it is half the maximum buffer size, as
/// the kernel counts the other half as its own overhead.
fn largest_window(sample: &Sample, side: Side, host: &HostLimits) -> u64 {
    let buffer = match side {
        Side::Sending => host.send_autotune.max(host.send_explicit),
        Side::Receiving => host.receive_autotune.max(host.receive_explicit),
    };
    let window = u64::from(buffer / 2);
    if sample.info.window_scaling {
        window
    } else {
        window.min(u64::from(u16::MAX))
    }
}

impl FlowObservations {
    /// Returns the recommended number of streams, if more streams are the advice.
    #[must_use]
    pub fn advised_streams(&self) -> Option<u32> {
        match self.advice {
            Some(Advice::Streams { streams, .. }) => Some(streams),
            _ => None,
        }
    }
}

impl FlowWatch {
    pub(crate) fn new(mode: Mode, side: Side) -> Self {
        let host = HostLimits::read();
        Self {
            begun: Instant::now(),
            host,
            due: AtomicU64::new(0),
            watched: Mutex::new(WatchState {
                flow: new_flow(mode, side, host),
                seen: FlowObservations::default(),
                fit: RateFitting::Unfitted,
            }),
        }
    }

    /// Fits this end's sending rate to the path from the next sample on, as `longhaul perf` does:
    /// the flow then fills the path without overflowing a queue.
    ///
    /// Use it for a flow that has the path to itself. With parallel flows of the same transfer, TCP
    /// shares the path.
    pub fn fit_rate(&self) {
        self.lock().fit = RateFitting::Due;
    }

    /// Stops fitting the rate, and releases the socket that a fitted flow holds open.
    pub(crate) fn stop_fitting(&self) {
        self.lock().fit = RateFitting::Unfitted;
    }

    /// Discards the observations and restarts, as the given side of the connection.
    pub fn restart(&self, side: Side) {
        let mut watched = self.lock();
        let mode = watched.flow.mode();
        *watched = WatchState {
            flow: new_flow(mode, side, self.host),
            seen: FlowObservations::default(),
            fit: RateFitting::Unfitted,
        };
    }

    /// Returns the observations so far.
    #[must_use]
    pub fn observations(&self) -> FlowObservations {
        self.lock().seen.clone()
    }

    /// Takes a sample of the socket, if one is due.
    pub(crate) fn sample(&self, socket: impl AsFd) {
        let now = self.begun.elapsed();
        let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let due = self.due.load(Ordering::Relaxed);
        let next =
            micros.saturating_add(u64::try_from(SAMPLE_PERIOD.as_micros()).unwrap_or(u64::MAX));
        // The two halves of a session may arrive here at once; the one that advances the time takes
        // the sample.
        if micros < due
            || self
                .due
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let mut watched = self.lock();
        let WatchState { flow, seen, fit } = &mut *watched;
        let side = flow.side();
        if matches!(fit, RateFitting::Due) && side == Side::Sending {
            *fit = match RateFitter::global().add(&socket, None) {
                Ok(guard) => RateFitting::Fitted { _guard: guard },
                Err(error) => {
                    tracing::debug!(%error, "cannot fit the sending rate; leaving it to TCP");
                    RateFitting::Unfitted
                }
            };
        }
        match flow.step(socket, now) {
            Ok(step) => {
                seen.rtt = step.sample.info.rtt;
                seen.min_rtt = step.sample.info.min_rtt.unwrap_or(seen.min_rtt);
                seen.mss = step.sample.info.send_mss;
                seen.largest_window = Some(largest_window(&step.sample, side, &self.host));
                seen.congestion = step.sample.congestion.name;
                seen.retransmits = step.sample.info.retransmits;
                seen.out_of_order = step.sample.info.out_of_order.unwrap_or(seen.out_of_order);
                seen.sent = step.sample.info.bytes_sent.unwrap_or(seen.sent);
                seen.moved = match side {
                    Side::Sending => step.sample.info.bytes_acked,
                    Side::Receiving => step.sample.info.bytes_received,
                }
                .unwrap_or(seen.moved);
                if let Some(verdict) = &step.verdict {
                    seen.tally.add(verdict);
                }
                seen.advice = step.advice.or(seen.advice);
                for applied in step.actions {
                    tracing::debug!(%applied, "right-sizing");
                    if seen.actions.len() < MAX_REPORTED_ACTIONS {
                        seen.actions.push(*applied);
                    }
                }
            }
            // The socket cannot be measured. The session itself continues.
            Err(_) => self.due.store(u64::MAX, Ordering::Relaxed),
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, WatchState> {
        self.watched.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_fitted_on_request_and_only_when_sending() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let is_fitted = |watch: &FlowWatch| {
            watch.sample(&socket);
            matches!(watch.lock().fit, RateFitting::Fitted { .. })
        };
        assert!(!is_fitted(&FlowWatch::new(Mode::Observe, Side::Sending)));
        let watch = FlowWatch::new(Mode::Observe, Side::Receiving);
        watch.fit_rate();
        assert!(!is_fitted(&watch));
        let watch = FlowWatch::new(Mode::Observe, Side::Sending);
        watch.fit_rate();
        assert!(is_fitted(&watch));
        watch.stop_fitting();
        assert!(!is_fitted(&watch));
        watch.fit_rate();
        watch.restart(Side::Sending);
        assert!(matches!(watch.lock().fit, RateFitting::Unfitted));
    }
}
