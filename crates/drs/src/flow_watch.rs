//! Watches one flow from any thread: takes samples when they are due, and keeps what they show.
//!
//! The data itself drives a watch: each read and write may take a sample, at most once a period. An
//! idle flow is not sampled. The kernel's counters show how long it was idle once it resumes.

use std::{
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    Advice, Applied, CongestionName, FitState, Flow, FlowGuard, FlowStep, HostLimits, LimitTally,
    Mode, RateFitError, RateFitter, SAMPLE_PERIOD, Sample, Side, Verdict,
};

/// Maximum number of actions kept for the report.
const MAX_REPORTED_ACTIONS: usize = 32;

/// Settings of a [`FlowWatch`].
#[derive(Debug, Clone, Copy)]
pub struct WatchSettings {
    /// Right-sizing mode: limits the changes to the socket.
    pub mode: Mode,
    /// Limits of this host.
    pub host: HostLimits,
    /// Minimum time between two samples.
    pub period: Duration,
    /// Function that restricts or extends the right-sizing of a new flow.
    pub adjust: fn(Flow) -> Flow,
}

impl WatchSettings {
    /// Returns settings that only observe, every [`SAMPLE_PERIOD`]. Host limits are those of an
    /// untuned Linux, so [`FlowObservations::largest_window`] is an estimate.
    #[must_use]
    pub fn observe_only() -> Self {
        Self {
            mode: Mode::Observe,
            host: HostLimits::default(),
            period: SAMPLE_PERIOD,
            adjust: std::convert::identity,
        }
    }

    fn new_flow(&self, side: Side) -> Flow {
        (self.adjust)(Flow::with_host(self.mode, side, self.host))
    }
}

/// Observations of one flow, readable from any thread during the flow and after it.
#[derive(Debug)]
pub struct FlowWatch {
    settings: WatchSettings,
    begun: Instant,
    /// Time of the next sample, in microseconds since `begun`; `u64::MAX` (never) once the socket
    /// cannot be sampled.
    due: AtomicU64,
    state: Mutex<WatchState>,
}

#[derive(Debug)]
struct WatchState {
    flow: Flow,
    seen: FlowObservations,
    fit: RateFitting,
    /// Number of the connection whose samples these are.
    connection: u32,
    /// Time of the first sample, and the bytes moved until then.
    first: Option<(Duration, u64)>,
    /// Packets at the first sample of a flow without a socket.
    first_packets: Option<PacketCounts>,
}

/// State of fitting this end's sending rate to the path.
#[derive(Debug)]
enum RateFitting {
    /// TCP determines the rate.
    Unfitted,
    /// Fitting begins with the next sample.
    Due,
    /// The rate is fitted until the guard is dropped.
    Fitted(FlowGuard, FitState),
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
    /// Smoothed round-trip time at the latest sample. If this end only receives and knows none, the
    /// receiver's estimate.
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
    /// Time between the first and the latest sample.
    pub span: Duration,
    /// Bytes moved in this time.
    pub span_moved: u64,
    /// Packets of the connection since the first sample, if it is not TCP. Other flows may use the
    /// connection, too.
    pub packets: Option<PacketCounts>,
}

/// Packets of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCounts {
    /// Packets that this end sent.
    pub sent: u64,
    /// Number of these that were lost.
    pub lost: u64,
}

/// News of a sample.
#[derive(Debug, Default)]
pub struct WatchNews {
    /// Verdict, if an interval closed with the sample.
    pub verdict: Option<Verdict>,
    /// Settings applied to the socket.
    pub actions: Vec<Applied>,
    /// New state of fitting the sending rate, or the error that left it to TCP.
    pub fitting: Option<Result<FitState, Arc<RateFitError>>>,
}

/// Sample of a flow that has no TCP socket. Its transport judges its limits and sizes its buffers.
#[derive(Debug, Clone, Copy)]
pub struct TransportSample {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Minimum round-trip time.
    pub min_rtt: Duration,
    /// Bytes moved in this end's direction.
    pub moved: u64,
    /// Packets of the connection so far.
    pub packets: PacketCounts,
}

impl FlowWatch {
    /// Creates a watch of the flow on one `side` of a connection.
    #[must_use]
    pub fn new(settings: WatchSettings, side: Side) -> Self {
        Self {
            settings,
            begun: Instant::now(),
            due: AtomicU64::new(0),
            state: Mutex::new(WatchState::new(settings.new_flow(side), 0)),
        }
    }

    /// Fits this end's sending rate to the path from the next sample on: the flow then fills the
    /// path without overflowing a queue. Has no effect on a receiver.
    ///
    /// Use it for a flow that has the path to itself. With parallel flows of the same transfer, TCP
    /// shares the path.
    pub fn fit_rate(&self) {
        self.state.lock().fit = RateFitting::Due;
    }

    /// Stops fitting the rate, and releases the socket that a fitted flow holds open.
    pub fn stop_fitting(&self) {
        self.state.lock().fit = RateFitting::Unfitted;
    }

    /// Discards the observations and restarts, as the given side of the connection.
    pub fn restart(&self, side: Side) {
        let mut state = self.state.lock();
        *state = WatchState::new(self.settings.new_flow(side), state.connection);
    }

    /// Returns the observations so far.
    #[must_use]
    pub fn observations(&self) -> FlowObservations {
        self.state.lock().seen.clone()
    }

    /// Takes a sample of the socket, if one is due. The counters of a `connection` with another
    /// number start at zero.
    pub fn sample(&self, socket: impl AsFd, connection: u32) -> Option<WatchNews> {
        let now = self.take_turn()?;
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.connection != connection {
            state.flow = self.settings.new_flow(state.flow.side());
            state.connection = connection;
        }
        let fitting = state.update_fit(&socket);
        let side = state.flow.side();
        // A socket that cannot be sampled is about to fail, which is reported elsewhere.
        let Ok(step) = state.flow.step(socket, now) else {
            self.due.store(u64::MAX, Ordering::Relaxed);
            return None;
        };
        let news = WatchNews {
            verdict: step.verdict,
            actions: step.actions.to_vec(),
            fitting,
        };
        state.seen.record(&step, side, &self.settings.host);
        if let Some(moved) = moved(&step.sample, side) {
            state.record_span(now, moved);
        }
        Some(news)
    }

    /// Records a sample of a flow without a socket, if one is due. `measure` returns it for this
    /// end's side.
    pub fn record(&self, measure: impl FnOnce(Side) -> Option<TransportSample>) {
        let Some(now) = self.take_turn() else {
            return;
        };
        let state = &mut *self.state.lock();
        if let Some(sample) = measure(state.flow.side()) {
            state.seen.rtt = sample.rtt;
            state.seen.min_rtt = sample.min_rtt;
            state.seen.moved = sample.moved;
            let first = *state.first_packets.get_or_insert(sample.packets);
            state.seen.packets = Some(PacketCounts {
                sent: sample.packets.sent.saturating_sub(first.sent),
                lost: sample.packets.lost.saturating_sub(first.lost),
            });
            state.record_span(now, sample.moved);
        }
    }

    /// Returns the time, if a sample is due and this caller is to take it.
    fn take_turn(&self) -> Option<Duration> {
        let now = self.begun.elapsed();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let due = self.due.load(Ordering::Relaxed);
        let next = micros(now).saturating_add(micros(self.settings.period));
        // Both directions of a connection may arrive here at once; the one that advances the time
        // takes the sample.
        let advanced = || {
            self.due
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
        };
        (micros(now) >= due && advanced().is_ok()).then_some(now)
    }
}

impl WatchState {
    fn new(flow: Flow, connection: u32) -> Self {
        Self {
            flow,
            seen: FlowObservations::default(),
            fit: RateFitting::Unfitted,
            connection,
            first: None,
            first_packets: None,
        }
    }

    fn record_span(&mut self, now: Duration, moved: u64) {
        let (begun, before) = *self.first.get_or_insert((now, moved));
        self.seen.span = now.saturating_sub(begun);
        self.seen.span_moved = moved.saturating_sub(before);
    }

    /// Begins to fit the rate if that is due, and tells the flow the fitted rate. Returns a change.
    fn update_fit(&mut self, socket: &impl AsFd) -> Option<Result<FitState, Arc<RateFitError>>> {
        let changed = match &mut self.fit {
            RateFitting::Due if self.flow.side() == Side::Sending => {
                match RateFitter::global().add(socket, None) {
                    Ok(guard) => {
                        self.fit = RateFitting::Fitted(guard, FitState::Searching);
                        None
                    }
                    Err(error) => Some(Err(Arc::new(error))),
                }
            }
            RateFitting::Fitted(guard, known) => match guard.state() {
                Ok(state) => (std::mem::replace(known, state) != state).then_some(Ok(state)),
                Err(error) => Some(Err(error)),
            },
            RateFitting::Due | RateFitting::Unfitted => None,
        };
        if let Some(Err(_)) = changed {
            self.fit = RateFitting::Unfitted;
        }
        self.flow.set_fitted_rate(match self.fit {
            RateFitting::Fitted(_, FitState::Fitted(rate)) => Some(rate),
            _ => None,
        });
        changed
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

    fn record(&mut self, step: &FlowStep<'_>, side: Side, host: &HostLimits) {
        let info = &step.sample.info;
        self.rtt = match side {
            Side::Receiving if info.rtt.is_zero() => info.receive_rtt,
            Side::Sending | Side::Receiving => info.rtt,
        };
        self.min_rtt = info.min_rtt.unwrap_or(self.min_rtt);
        self.mss = info.send_mss;
        self.largest_window = Some(largest_window(&step.sample, side, host));
        self.congestion = step.sample.congestion.name;
        self.retransmits = info.retransmits;
        self.out_of_order = info.out_of_order.unwrap_or(self.out_of_order);
        self.sent = info.bytes_sent.unwrap_or(self.sent);
        self.moved = moved(&step.sample, side).unwrap_or(self.moved);
        if let Some(verdict) = &step.verdict {
            self.tally.add(verdict);
        }
        self.advice = step.advice.or(self.advice);
        let room = MAX_REPORTED_ACTIONS.saturating_sub(self.actions.len());
        self.actions.extend(step.actions.iter().take(room));
    }
}

/// Returns the bytes moved in this end's direction, if the kernel counts them.
fn moved(sample: &Sample, side: Side) -> Option<u64> {
    match side {
        Side::Sending => sample.info.bytes_acked,
        Side::Receiving => sample.info.bytes_received,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_without_a_socket_has_a_round_trip_and_losses() {
        let settings = WatchSettings {
            period: Duration::ZERO,
            ..WatchSettings::observe_only()
        };
        let watch = FlowWatch::new(settings, Side::Sending);
        // Other flows have used the connection before.
        for (moved, sent, lost) in [(500, 1000, 10), (2_000_500, 3000, 14)] {
            watch.record(|_| {
                Some(TransportSample {
                    rtt: Duration::from_millis(20),
                    min_rtt: Duration::from_millis(19),
                    moved,
                    packets: PacketCounts { sent, lost },
                })
            });
        }
        let seen = watch.observations();
        assert_eq!(
            seen.packets,
            Some(PacketCounts {
                sent: 2000,
                lost: 4
            })
        );
        assert_eq!(seen.span_moved, 2_000_000);
        assert_eq!(seen.rtt, Duration::from_millis(20));
    }

    #[test]
    fn the_rate_is_fitted_on_request_and_only_when_sending() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let new = |side| FlowWatch::new(WatchSettings::observe_only(), side);
        let is_fitted = |watch: &FlowWatch| {
            watch.sample(&socket, 0);
            matches!(watch.state.lock().fit, RateFitting::Fitted { .. })
        };
        assert!(!is_fitted(&new(Side::Sending)));
        let watch = new(Side::Receiving);
        watch.fit_rate();
        assert!(!is_fitted(&watch));
        let watch = new(Side::Sending);
        watch.fit_rate();
        assert!(is_fitted(&watch));
        watch.stop_fitting();
        assert!(!is_fitted(&watch));
        watch.fit_rate();
        watch.restart(Side::Sending);
        assert!(matches!(watch.state.lock().fit, RateFitting::Unfitted));
    }
}
