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
    Advice, Applied, CongestionName, Flow, FlowGuard, Host, Mode, RateFitter, SAMPLE_PERIOD,
    Sample, Side, Tally,
};
use parking_lot::Mutex;

/// Maximum number of actions kept for the report.
const MOST_ACTIONS: usize = 32;

/// Observations of one session's flow, readable from any thread during the session and after it.
#[derive(Debug)]
pub struct FlowWatch {
    begun: Instant,
    host: Host,
    /// Time of the next sample, in microseconds since `begun`; `u64::MAX` (never) once the socket
    /// cannot be sampled.
    due: AtomicU64,
    watched: Mutex<Watched>,
}

#[derive(Debug)]
struct Watched {
    flow: Flow,
    seen: Seen,
    fit: Fit,
}

/// State of fitting this end's sending rate to the path.
#[derive(Debug)]
enum Fit {
    /// TCP determines the rate.
    Not,
    /// Fitting begins with the next sample.
    Due,
    /// The rate is fitted until this value is dropped.
    Fitted { _guard: FlowGuard },
}

/// Observations of a watch so far.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Time spent under each limit, and the latest verdict.
    pub tally: Tally,
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
fn flow(mode: Mode, side: Side, host: Host) -> Flow {
    Flow::with_host(mode, side, host)
        .keeping_congestion_control()
        .limiting_unsent()
        .opening_window()
}

/// Returns the maximum number of bytes that this host allows in flight towards the receiver.
///
/// Without window scaling (RFC 7323) it is 65,535. Otherwise it is half the maximum buffer size, as
/// the kernel counts the other half as its own overhead.
fn largest_window(sample: &Sample, side: Side, host: &Host) -> u64 {
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

impl Seen {
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
        let host = Host::read();
        Self {
            begun: Instant::now(),
            host,
            due: AtomicU64::new(0),
            watched: Mutex::new(Watched {
                flow: flow(mode, side, host),
                seen: Seen::default(),
                fit: Fit::Not,
            }),
        }
    }

    /// Fits this end's sending rate to the path from the next sample on, as `longhaul perf` does:
    /// the flow then fills the path without overflowing a queue.
    ///
    /// Use it for a flow that has the path to itself. With parallel flows of the same transfer, TCP
    /// shares the path.
    pub fn fit_rate(&self) {
        self.lock().fit = Fit::Due;
    }

    /// Stops fitting the rate, and releases the socket that a fitted flow holds open.
    pub(crate) fn let_rate_go(&self) {
        self.lock().fit = Fit::Not;
    }

    /// Discards the observations and restarts, as the given side of the connection.
    pub fn begin_anew(&self, side: Side) {
        let mut watched = self.lock();
        let mode = watched.flow.mode();
        *watched = Watched {
            flow: flow(mode, side, self.host),
            seen: Seen::default(),
            fit: Fit::Not,
        };
    }

    /// Returns the observations so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.lock().seen.clone()
    }

    /// Takes a sample of the socket, if one is due.
    pub(crate) fn look(&self, socket: impl AsFd) {
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
        let Watched { flow, seen, fit } = &mut *watched;
        let side = flow.side();
        if matches!(fit, Fit::Due) && side == Side::Sending {
            *fit = match RateFitter::of_process().add(&socket, None) {
                Ok(guard) => Fit::Fitted { _guard: guard },
                Err(error) => {
                    tracing::debug!(%error, "the rate is left to TCP");
                    Fit::Not
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
                    if seen.actions.len() < MOST_ACTIONS {
                        seen.actions.push(*applied);
                    }
                }
            }
            // The socket cannot be measured. The session itself continues.
            Err(_) => self.due.store(u64::MAX, Ordering::Relaxed),
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Watched> {
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
            watch.look(&socket);
            matches!(watch.lock().fit, Fit::Fitted { .. })
        };
        assert!(!is_fitted(&FlowWatch::new(Mode::Observe, Side::Sending)));
        let watch = FlowWatch::new(Mode::Observe, Side::Receiving);
        watch.fit_rate();
        assert!(!is_fitted(&watch));
        let watch = FlowWatch::new(Mode::Observe, Side::Sending);
        watch.fit_rate();
        assert!(is_fitted(&watch));
        watch.let_rate_go();
        assert!(!is_fitted(&watch));
        watch.fit_rate();
        watch.begin_anew(Side::Sending);
        assert!(matches!(watch.lock().fit, Fit::Not));
    }
}
