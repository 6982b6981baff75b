//! The congestion controller, in the form that the QUIC library asks for.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use longhaul_congestion::{Controller, PacketStamp, RoundTrip};
use s2n_quic::provider::congestion_controller::{
    CongestionController, Endpoint, PathInfo, Publisher, RandomGenerator, RttEstimator, Timestamp,
};

/// Creates the controller of each path.
#[derive(Debug, Default)]
pub(crate) struct Controllers(RandomState);

impl Endpoint for Controllers {
    type CongestionController = PathController;

    fn new_congestion_controller(&mut self, path: PathInfo<'_>) -> PathController {
        let datagram = path.max_datagram_size.into();
        // A fresh hasher differs from any before it.
        let seed = RandomState::new().build_hasher().finish() ^ self.0.build_hasher().finish();
        PathController {
            controller: Controller::new(datagram, seed),
            datagram,
            origin: None,
        }
    }
}

/// Controller of one path. It translates the library's timestamps to times since the first one.
#[derive(Debug, Clone)]
pub(crate) struct PathController {
    controller: Controller,
    /// Largest datagram of the path, in bytes.
    datagram: u32,
    origin: Option<Timestamp>,
}

impl PathController {
    fn since_origin(&mut self, time: Timestamp) -> Duration {
        time.saturating_duration_since(*self.origin.get_or_insert(time))
    }
}

fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl CongestionController for PathController {
    type PacketInfo = PacketStamp;

    fn congestion_window(&self) -> u32 {
        self.controller.window_bytes()
    }

    fn bytes_in_flight(&self) -> u32 {
        self.controller.bytes_in_flight()
    }

    fn is_congestion_limited(&self) -> bool {
        let in_flight = self.controller.bytes_in_flight();
        self.controller.window_bytes().saturating_sub(in_flight) < self.datagram
    }

    fn requires_fast_retransmission(&self) -> bool {
        false
    }

    fn on_packet_sent<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        sent_bytes: usize,
        app_limited: Option<bool>,
        _: &RttEstimator,
        _: &mut Pub,
    ) -> PacketStamp {
        let now = self.since_origin(time_sent);
        self.controller
            .on_packet_sent(now, saturated(sent_bytes), app_limited)
    }

    fn on_rtt_update<Pub: Publisher>(
        &mut self,
        _: Timestamp,
        _: Timestamp,
        _: &RttEstimator,
        _: &mut Pub,
    ) {
    }

    fn on_ack<Pub: Publisher>(
        &mut self,
        newest_acked_time_sent: Timestamp,
        bytes_acknowledged: usize,
        newest_acked_packet_info: PacketStamp,
        rtt_estimator: &RttEstimator,
        _: &mut dyn RandomGenerator,
        ack_receive_time: Timestamp,
        _: &mut Pub,
    ) {
        let round_trip = RoundTrip {
            latest: rtt_estimator.latest_rtt(),
            smoothed: rtt_estimator.smoothed_rtt(),
        };
        let sent = self.since_origin(newest_acked_time_sent);
        let now = self.since_origin(ack_receive_time);
        self.controller.on_ack(
            sent,
            bytes_acknowledged as u64,
            &newest_acked_packet_info,
            round_trip,
            now,
        );
    }

    fn on_packet_lost<Pub: Publisher>(
        &mut self,
        lost_bytes: u32,
        packet_info: PacketStamp,
        persistent_congestion: bool,
        new_loss_burst: bool,
        _: &mut dyn RandomGenerator,
        timestamp: Timestamp,
        _: &mut Pub,
    ) {
        let now = self.since_origin(timestamp);
        self.controller.on_loss(
            lost_bytes,
            &packet_info,
            persistent_congestion,
            new_loss_burst,
            now,
        );
    }

    fn on_explicit_congestion<Pub: Publisher>(
        &mut self,
        ce_count: u64,
        event_time: Timestamp,
        _: &mut Pub,
    ) {
        if ce_count > 0 {
            let now = self.since_origin(event_time);
            self.controller.on_congestion_mark(now);
        }
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, max_data_size: u16, _: &mut Pub) {
        self.datagram = max_data_size.into();
        self.controller.on_mtu(self.datagram);
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes_sent: usize, _: &mut Pub) {
        self.controller.on_discarded(saturated(bytes_sent));
    }

    fn earliest_departure_time(&self) -> Option<Timestamp> {
        self.origin?
            .checked_add(self.controller.earliest_departure()?)
    }

    fn send_quantum(&self) -> Option<usize> {
        usize::try_from(self.controller.send_quantum_bytes()).ok()
    }
}
