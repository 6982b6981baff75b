//! The controller: events of one connection in, window and departure times out.

use std::time::Duration;

use crate::{
    aggregation::AckAggregation,
    base::{BaseRoundTrip, Flight},
    cycle::{GainCycle, PathState},
    delivery::{DeliveryTracker, PacketStamp, Pressure, RateSample, carried_bytes, rate},
    limit::{InFlightLimit, Level},
    loss::LossComparison,
    maximum::RoundsMaximum,
    mode::{Mode, StartUp},
    pacer::{Pacer, quantum_bytes},
};

/// Packets of the first window. RFC 9002 (section 7.2) recommends ten for senders that may send
/// them in one burst; these are spread over a round trip.
const INITIAL_WINDOW_PACKETS: u64 = 32;
/// Packets of the smallest window.
const MIN_WINDOW_PACKETS: u64 = 4;
/// Round trip that is assumed before the first sample.
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(100);
/// Lowest pacing rate, in packets per second.
const MIN_PACKET_RATE: u64 = 4;

/// Highest rate, in bytes per second. Samples beyond it are errors of clocks.
const MAX_RATE: u64 = 10_u64.pow(13);

/// Part by which congestion lowers the bandwidth, unless more is still delivered.
const BANDWIDTH_REDUCTION: f64 = 0.1;
/// Largest part by which it does.
const MAX_BANDWIDTH_REDUCTION: f64 = 0.9;

/// Round trips that the connection measured.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// Latest sample. The delay that the peer reports for its acknowledgement may be subtracted.
    pub latest: Duration,
    /// Smoothed round trip.
    pub smoothed: Duration,
}

/// Congestion controller of one path.
#[derive(Clone, Debug)]
pub struct Controller {
    max_datagram_bytes: u32,
    random: u64,
    mode: Mode,
    delivery: DeliveryTracker,
    bandwidth: RoundsMaximum,
    /// If true, the current round has a sample that the application did not limit.
    has_full_sample: bool,
    base: BaseRoundTrip,
    loss: LossComparison,
    aggregation: AckAggregation,
    pacer: Pacer,
    smoothed: Option<Duration>,
    /// If true, nothing was in flight when the last packet was sent.
    was_idle: bool,
    in_flight_bytes: u32,
    window_bytes: u64,
    /// Limit of the window after congestion.
    limit: Option<InFlightLimit>,
    /// Amount delivered when congestion was last responded to. Losses of packets sent before are
    /// part of it.
    responded_at_bytes: u64,
    /// If true, no packet that was sent after the response has been acknowledged.
    awaits_effect: bool,
    /// If true, the last round showed a queue from its beginning to its end.
    is_queued: bool,
}

impl Controller {
    /// Returns the controller of a new path. `seed` decides when it probes for bandwidth:
    /// connections need different ones.
    pub fn new(max_datagram_bytes: u32, seed: u64) -> Self {
        let max_datagram_bytes = max_datagram_bytes.max(1);
        Self {
            max_datagram_bytes,
            random: seed,
            mode: Mode::StartUp(StartUp::default()),
            delivery: DeliveryTracker::default(),
            bandwidth: RoundsMaximum::default(),
            has_full_sample: false,
            base: BaseRoundTrip::default(),
            loss: LossComparison::default(),
            aggregation: AckAggregation::default(),
            pacer: Pacer::default(),
            smoothed: None,
            was_idle: false,
            in_flight_bytes: 0,
            window_bytes: INITIAL_WINDOW_PACKETS * u64::from(max_datagram_bytes),
            limit: None,
            responded_at_bytes: 0,
            awaits_effect: false,
            is_queued: false,
        }
    }

    /// Returns the largest number of bytes that may be in flight.
    pub fn window_bytes(&self) -> u32 {
        let bound = if self.base.is_probing() {
            self.base_probe_bytes()
        } else {
            u64::MAX
        };
        let window = self.window_bytes.min(bound);
        u32::try_from(window.max(self.min_window_bytes())).unwrap_or(u32::MAX)
    }

    /// Returns the number of bytes that were sent, and neither acknowledged nor lost.
    pub fn bytes_in_flight(&self) -> u32 {
        self.in_flight_bytes
    }

    /// Returns the time before which no packet may leave. `None` if packets may leave at once.
    pub fn earliest_departure(&self) -> Option<Duration> {
        self.pacer.departure()
    }

    /// Returns the number of bytes to send at once.
    pub fn send_quantum_bytes(&self) -> u32 {
        self.quantum_bytes_at(self.pacing_rate())
    }

    /// Returns the estimated bandwidth of the path, in bytes per second. 0 before the first sample.
    pub fn bandwidth(&self) -> u64 {
        self.bandwidth.maximum()
    }

    /// Returns the rate at which packets leave, in bytes per second.
    pub fn pacing_rate(&self) -> u64 {
        let bandwidth = match self.mode.is_start_up() {
            // The first samples are of a few small packets, and say little about the path.
            true => self.bandwidth().max(rate(
                self.initial_window_bytes(),
                self.smoothed.unwrap_or(INITIAL_ROUND_TRIP),
            )),
            false => self.bandwidth(),
        };
        let delivered = 1.0 - self.loss.random_loss();
        let rate = bandwidth as f64 * self.gain() / delivered;
        (rate as u64)
            .min(MAX_RATE)
            .max(u64::from(self.max_datagram_bytes) * MIN_PACKET_RATE)
    }

    /// Notes a sent packet. Packets that are not congestion controlled have 0 bytes. `app_limited`
    /// is true if there is too little data to fill the window,
    /// and `None` for packets of the handshake. The stamp belongs to the packet.
    pub fn on_packet_sent(
        &mut self,
        now: Duration,
        bytes: u32,
        app_limited: Option<bool>,
    ) -> PacketStamp {
        self.was_idle |= bytes > 0 && self.in_flight_bytes == 0;
        let stamp = self.delivery.stamp(
            now,
            bytes,
            self.in_flight_bytes,
            bytes > 0 && app_limited.unwrap_or(true),
            self.pressure(),
        );
        if bytes > 0 {
            self.in_flight_bytes = stamp.in_flight_bytes;
            let rate = self.pacing_rate();
            self.pacer
                .on_sent(bytes, rate, self.quantum_bytes_at(rate), now);
        }
        stamp
    }

    /// Notes acknowledged bytes. `newest_sent_at` and `newest` belong to the newest packet of them.
    pub fn on_ack(
        &mut self,
        newest_sent_at: Duration,
        bytes: u64,
        newest: &PacketStamp,
        round_trip: RoundTrip,
        now: Duration,
    ) {
        self.remove_in_flight(bytes);
        self.smoothed = Some(round_trip.smoothed);
        self.update_base(round_trip.latest, now);
        let base = self.base_round_trip();
        let delivery = self
            .delivery
            .on_ack(newest_sent_at, bytes, newest, base, now);
        if delivery.round_ended {
            self.end_round(now);
        }
        self.aggregation.on_ack(bytes, self.bandwidth(), now);
        if newest.delivered_bytes() >= self.responded_at_bytes {
            self.loss
                .on_ack(self.packets(bytes), newest, round_trip.latest, base, now);
        }
        if let Some(sample) = delivery.sample {
            self.update_bandwidth(sample);
        }
        self.advance_mode(now);
        self.grow_window(bytes);
    }

    /// Notes a lost packet. `new_burst` is true unless the packet before it was lost as well.
    /// `persistent_congestion` is true if nothing was delivered for long (RFC 9002, section 7.6).
    pub fn on_loss(
        &mut self,
        bytes: u32,
        stamp: &PacketStamp,
        persistent_congestion: bool,
        new_burst: bool,
        now: Duration,
    ) {
        self.on_discarded(bytes);
        let is_new = stamp.delivered_bytes() >= self.responded_at_bytes;
        if persistent_congestion {
            self.start_over();
        } else if is_new
            && self
                .loss
                .on_loss(self.packets(bytes.into()), stamp, new_burst)
        {
            self.respond(stamp.in_flight_bytes, now);
        }
    }

    /// Notes that routers marked packets (ECN). It counts as congestion once a round.
    pub fn on_congestion_mark(&mut self, now: Duration) {
        if !self.awaits_effect {
            self.respond(self.in_flight_bytes, now);
        }
    }

    /// Notes the largest datagram that the path carries.
    pub fn on_mtu(&mut self, max_datagram_bytes: u32) {
        self.max_datagram_bytes = max_datagram_bytes.max(1);
        self.window_bytes = self.window_bytes.max(self.min_window_bytes());
    }

    /// Notes that bytes are neither acknowledged nor lost, but will not be waited for.
    pub fn on_discarded(&mut self, bytes: u32) {
        self.remove_in_flight(bytes.into());
        self.delivery.on_removed(bytes.into());
    }

    fn remove_in_flight(&mut self, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
    }

    fn end_round(&mut self, now: Duration) {
        self.is_queued = self.loss.end_round(self.base_round_trip());
        self.aggregation.begin_round();
        // The estimate outlives rounds that the application limits.
        if self.has_full_sample {
            self.end_full_round();
        }
        if let Some(limit) = &mut self.limit {
            // A measurement of the base drains the queue itself, so it says nothing about others.
            limit.end_round(self.is_queued || self.base.is_probing(), now);
        }
    }

    fn end_full_round(&mut self) {
        self.mode.end_round(self.bandwidth());
        self.bandwidth.begin_round();
        self.has_full_sample = false;
    }

    fn update_bandwidth(&mut self, sample: RateSample) {
        let rate = sample.rate.min(MAX_RATE);
        if !sample.app_limited || rate > self.bandwidth() {
            self.bandwidth.add(rate);
        }
        self.has_full_sample |= !sample.app_limited;
    }

    fn update_base(&mut self, sample: Duration, now: Duration) {
        let flight = Flight {
            was_idle: std::mem::take(&mut self.was_idle),
            bytes: self.in_flight_bytes.into(),
            probe_bytes: self.base_probe_bytes(),
            round_trip: self.smoothed.unwrap_or_default(),
        };
        self.base.add(sample, flight, now);
    }

    fn advance_mode(&mut self, now: Duration) {
        let path = PathState {
            bandwidth: self.bandwidth(),
            base: self.base_round_trip(),
            product_bytes: self.product_bytes(),
            in_flight_bytes: self.in_flight_bytes.into(),
            is_queued: self.is_queued,
        };
        match &mut self.mode {
            Mode::StartUp(_) => {}
            Mode::Drain => {
                if path.in_flight_bytes <= path.product_bytes.max(self.min_window_bytes()) {
                    let random = next_random(&mut self.random);
                    self.mode = Mode::Cycle(GainCycle::new(random, path.bandwidth, now));
                }
            }
            Mode::Cycle(cycle) => cycle.advance(&path, now),
        }
    }

    fn grow_window(&mut self, acked_bytes: u64) {
        let product = self.product_bytes() as f64;
        let quanta = 3 * u64::from(self.send_quantum_bytes());
        let extra = quanta.saturating_add(self.aggregation.excess_bytes());
        let mut target = ((product * self.mode.window_gain()) as u64).saturating_add(extra);
        if self.mode.is_start_up() {
            target = target.max(self.initial_window_bytes());
        }
        let limit = self.limit_bytes();
        if limit < target {
            target = limit;
        } else {
            self.limit = None;
        }
        let grown = self.window_bytes.saturating_add(acked_bytes);
        self.window_bytes = grown.min(target).max(self.min_window_bytes());
    }

    /// Responds to congestion of packets that were sent with `in_flight_bytes` in flight. What is
    /// lost does not fit, so more loss lowers the window and the bandwidth more.
    fn respond(&mut self, in_flight_bytes: u32, now: Duration) {
        // The start-up sends up to three times what fits. What it loses says little about the rate.
        let excess = if self.mode.is_start_up() {
            0.0
        } else {
            self.loss.excess_loss()
        };
        let level = Level {
            in_flight: self.packets(in_flight_bytes.into()),
            sufficient: self.packets(self.sufficient_bytes()),
        };
        self.limit = Some(InFlightLimit::new(level, excess, self.limit, now));
        let window = self.window_bytes.min(self.limit_bytes());
        self.window_bytes = window.max(self.min_window_bytes());

        let kept = 1.0 - excess.clamp(BANDWIDTH_REDUCTION, MAX_BANDWIDTH_REDUCTION);
        let reduced = (self.bandwidth() as f64 * kept) as u64;
        self.bandwidth.limit(reduced.max(self.bandwidth.latest()));

        self.loss.forget_loaded();
        self.responded_at_bytes = self.delivery.delivered_bytes();
        self.awaits_effect = true;
        let bandwidth = self.bandwidth();
        match &mut self.mode {
            Mode::StartUp(_) => self.mode = Mode::Drain,
            Mode::Drain => {}
            Mode::Cycle(cycle) => cycle.on_congestion(bandwidth, now),
        }
    }

    /// Forgets the bandwidth, because nothing was delivered for long. The path may have changed.
    fn start_over(&mut self) {
        self.mode = Mode::StartUp(StartUp::default());
        self.bandwidth.clear();
        self.has_full_sample = false;
        self.loss.forget_loaded();
        self.limit = None;
        self.window_bytes = self.min_window_bytes();
        self.responded_at_bytes = self.delivery.delivered_bytes();
    }

    fn quantum_bytes_at(&self, rate: u64) -> u32 {
        quantum_bytes(rate, self.base_round_trip(), self.max_datagram_bytes)
    }

    fn gain(&self) -> f64 {
        if self.base.is_probing() {
            1.0
        } else {
            self.mode.pacing_gain()
        }
    }

    fn pressure(&self) -> Pressure {
        match self.gain() {
            _ if self.mode.is_start_up() => Pressure::Steady,
            gain if gain > 1.0 => Pressure::Rising,
            gain if gain < 1.0 => Pressure::Falling,
            _ => Pressure::Steady,
        }
    }

    fn base_round_trip(&self) -> Duration {
        self.base.get().unwrap_or(INITIAL_ROUND_TRIP)
    }

    /// Returns the bandwidth-delay product.
    fn product_bytes(&self) -> u64 {
        carried_bytes(self.bandwidth(), self.base_round_trip())
    }

    /// Returns the window in which the base round trip is measured.
    fn base_probe_bytes(&self) -> u64 {
        (self.product_bytes() / 2).max(self.min_window_bytes())
    }

    /// Returns the bytes in flight that deliver what is delivered now, without a queue.
    fn sufficient_bytes(&self) -> u64 {
        let product = carried_bytes(self.bandwidth.latest(), self.base_round_trip());
        (product as f64 / (1.0 - self.loss.random_loss())) as u64
    }

    /// Returns the limit after congestion.
    fn limit_bytes(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| {
            (limit.packets() * f64::from(self.max_datagram_bytes)) as u64
        })
    }

    fn initial_window_bytes(&self) -> u64 {
        INITIAL_WINDOW_PACKETS * u64::from(self.max_datagram_bytes)
    }

    fn min_window_bytes(&self) -> u64 {
        MIN_WINDOW_PACKETS * u64::from(self.max_datagram_bytes)
    }

    /// Returns the packets that an amount fills.
    fn packets(&self, bytes: u64) -> f64 {
        bytes as f64 / f64::from(self.max_datagram_bytes)
    }
}

/// Advances a SplitMix64 generator.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
