//! Measurements of a connection, from the events of the QUIC library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_hop::StreamMeasurement;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};

/// Unacknowledged bytes that a stream may hold however small the window is.
const MIN_BUFFERED_BYTES: u64 = 512 * 1024;
/// Bounds of the pause of a stream that holds enough, and their number in a round trip.
const PAUSES_PER_ROUND_TRIP: u32 = 8;
const MIN_BUFFER_PAUSE: Duration = Duration::from_millis(1);
const MAX_BUFFER_PAUSE: Duration = Duration::from_millis(20);

/// Counters of one connection, which its streams share.
#[derive(Debug, Default)]
pub(crate) struct ConnectionMeasures {
    round_trip_micros: AtomicU64,
    min_round_trip_micros: AtomicU64,
    /// Congestion window in bytes. It holds two bandwidth-delay products.
    window: AtomicU64,
    sent_packets: AtomicU64,
    lost_packets: AtomicU64,
}

impl ConnectionMeasures {
    /// Returns how many unacknowledged bytes one stream should hold at most.
    ///
    /// More would only wait here, where no other stream can take them over. Half the window is in
    /// flight; the rest allows for the pauses between two writes.
    pub(crate) fn max_buffered(&self) -> u64 {
        let window = self.window.load(Ordering::Relaxed);
        (window - window / 4).max(MIN_BUFFERED_BYTES)
    }

    /// Returns the pause after which a stream that holds that many checks again.
    pub(crate) fn buffer_pause(&self) -> Duration {
        let round_trip = Duration::from_micros(self.round_trip_micros.load(Ordering::Relaxed));
        (round_trip / PAUSES_PER_ROUND_TRIP).clamp(MIN_BUFFER_PAUSE, MAX_BUFFER_PAUSE)
    }

    /// Returns the measurement of a stream of the connection, once there is a round trip.
    pub(crate) fn of_stream(
        &self,
        acknowledged_bytes: u64,
        received_bytes: u64,
    ) -> Option<StreamMeasurement> {
        let micros = |of: &AtomicU64| Duration::from_micros(of.load(Ordering::Relaxed));
        let round_trip = micros(&self.round_trip_micros);
        (!round_trip.is_zero()).then(|| StreamMeasurement {
            round_trip,
            min_round_trip: micros(&self.min_round_trip_micros),
            sent_packets: self.sent_packets.load(Ordering::Relaxed),
            lost_packets: self.lost_packets.load(Ordering::Relaxed),
            acknowledged_bytes,
            received_bytes,
        })
    }
}

/// Subscriber that updates the measures of each connection.
#[derive(Debug)]
pub(crate) struct MeasuringSubscriber;

impl Subscriber for MeasuringSubscriber {
    type ConnectionContext = Arc<ConnectionMeasures>;

    fn create_connection_context(
        &mut self,
        _: &ConnectionMeta,
        _: &ConnectionInfo,
    ) -> Arc<ConnectionMeasures> {
        Arc::default()
    }

    fn on_recovery_metrics(
        &mut self,
        measures: &mut Arc<ConnectionMeasures>,
        _: &ConnectionMeta,
        event: &events::RecoveryMetrics<'_>,
    ) {
        let store = |to: &AtomicU64, time: Duration| {
            let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            to.store(micros.max(1), Ordering::Relaxed);
        };
        store(&measures.round_trip_micros, event.smoothed_rtt);
        store(&measures.min_round_trip_micros, event.min_rtt);
        let window = event.congestion_window.into();
        measures.window.store(window, Ordering::Relaxed);
    }

    fn on_packet_sent(
        &mut self,
        measures: &mut Arc<ConnectionMeasures>,
        _: &ConnectionMeta,
        _: &events::PacketSent,
    ) {
        measures.sent_packets.fetch_add(1, Ordering::Relaxed);
    }

    fn on_packet_lost(
        &mut self,
        measures: &mut Arc<ConnectionMeasures>,
        _: &ConnectionMeta,
        event: &events::PacketLost<'_>,
    ) {
        // A lost probe of the path's MTU says nothing about losses.
        if !event.is_mtu_probe {
            measures.lost_packets.fetch_add(1, Ordering::Relaxed);
        }
    }
}
