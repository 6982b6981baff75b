//! Watches the flow of a session's own hop: what limits it, and what right-sizing did about it.
//!
//! A watch is driven by the data itself: each read and write looks, at most once every
//! [`SAMPLE_PERIOD`]. A flow that stands still is not looked at, and the kernel's counters show how
//! long it stood once it goes on.

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

/// Most actions that are kept for the report.
const MOST_ACTIONS: usize = 32;

/// One session's flow, to be looked at from anywhere while the session runs and after.
#[derive(Debug)]
pub struct FlowWatch {
    begun: Instant,
    host: Host,
    /// When the next look is due, in microseconds since `begun`; never, once the socket gave
    /// nothing.
    due: AtomicU64,
    watched: Mutex<Watched>,
}

#[derive(Debug)]
struct Watched {
    flow: Flow,
    seen: Seen,
    fit: Fit,
}

/// Whether the rate at which this end sends is fitted to the path.
#[derive(Debug)]
enum Fit {
    /// It is left to TCP.
    Not,
    /// From the next look on.
    Due,
    /// It is, for as long as this lives.
    Fitted { _guard: FlowGuard },
}

/// What a watch has seen so far.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// For how long each limit held, and the latest verdict.
    pub tally: Tally,
    /// The latest advice.
    pub advice: Option<Advice>,
    /// What was set on the socket and why, oldest first, the first few dozen.
    pub actions: Vec<Applied>,
    /// Smoothed round-trip time at the latest look.
    pub rtt: Duration,
    /// The least round-trip time known at the latest look; zero before there is one.
    pub min_rtt: Duration,
    /// Payload of the largest segment that this end sends, in bytes.
    pub mss: u32,
    /// The most that a window of this connection can grow to on this host, in bytes; none before
    /// the first look.
    pub largest_window: Option<u64>,
    /// This end's congestion control; empty where unknown.
    pub congestion: CongestionName,
    /// Segments that this end sent again, up to the latest look.
    pub retransmits: u32,
    /// Segments that arrived out of order, up to the latest look: some are lost where it grows.
    pub out_of_order: u32,
    /// Bytes that this end sent, retransmissions included, up to the latest look.
    pub sent: u64,
    /// Bytes of the connection that this end's part in it moved, up to the latest look: received,
    /// or sent and acknowledged.
    pub moved: u64,
}

/// The congestion control is the host's choice, or `--congestion`: how to share a path with others
/// is not a session's to decide. Little waits to be sent, since what waits in the socket of one
/// stream can go by no other one; and a slow start waits for no window.
fn flow(mode: Mode, side: Side, host: Host) -> Flow {
    Flow::with_host(mode, side, host)
        .keeping_congestion_control()
        .limiting_unsent()
        .opening_window()
}

/// The most bytes that this host lets a connection have in flight towards its receiver: without
/// window scaling (RFC 7323) 65,535, and otherwise what its buffers can grow to, of which the
/// kernel counts half as its own bookkeeping.
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
    /// How many streams are advised, where that is the advice.
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

    /// Fits the rate at which this end sends to its path from the next look on, as `longhaul perf`
    /// does: what one flow fills is filled without a queue that overflows. For a flow that has its
    /// path to itself; beside siblings of its own, TCP shares the path.
    pub fn fit_rate(&self) {
        self.lock().fit = Fit::Due;
    }

    /// Lets the rate go, and the socket that a fitted flow holds open.
    pub(crate) fn let_rate_go(&self) {
        self.lock().fit = Fit::Not;
    }

    /// Forgets what was seen and goes on as the other side, or the same, of the connection.
    pub fn begin_anew(&self, side: Side) {
        let mut watched = self.lock();
        let mode = watched.flow.mode();
        *watched = Watched {
            flow: flow(mode, side, self.host),
            seen: Seen::default(),
            fit: Fit::Not,
        };
    }

    /// What was seen so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.lock().seen.clone()
    }

    /// Looks at the socket, when that is due.
    pub(crate) fn look(&self, socket: impl AsFd) {
        let now = self.begun.elapsed();
        let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let due = self.due.load(Ordering::Relaxed);
        let next =
            micros.saturating_add(u64::try_from(SAMPLE_PERIOD.as_micros()).unwrap_or(u64::MAX));
        // Whoever moves the time on looks: the two halves of a session may come here at once.
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
            // Not a socket that can be measured: the session itself goes on.
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
    fn the_rate_is_fitted_where_that_is_asked_for_and_only_of_an_end_that_sends() {
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
