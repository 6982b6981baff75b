//! The controller under any sequence of events.

use std::{collections::VecDeque, time::Duration};

use longhaul_congestion::{Controller, PacketStamp, RoundTrip};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Send {
        bytes: u32,
        app_limited: Option<bool>,
    },
    /// Acknowledges some of the oldest packets.
    Ack {
        packets: usize,
        round_trip: Duration,
        smoothed: Duration,
    },
    /// Acknowledges bytes that were never sent.
    ForeignAck {
        bytes: u64,
    },
    /// Loses the oldest packet.
    Lose {
        persistent: bool,
        new_burst: bool,
    },
    Mark,
    Mtu {
        bytes: u32,
    },
    Discard {
        bytes: u32,
    },
    Wait {
        time: Duration,
    },
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        8 => (0_u64..1_000_000).prop_map(Duration::from_micros),
        1 => Just(Duration::ZERO),
        1 => any::<u32>().prop_map(|seconds| Duration::from_secs(seconds.into())),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let bytes = prop_oneof![8 => 0_u32..2000, 1 => any::<u32>()];
    prop_oneof![
        8 => (bytes, any::<Option<bool>>())
            .prop_map(|(bytes, app_limited)| Event::Send { bytes, app_limited }),
        4 => (1_usize..20, duration(), duration()).prop_map(|(packets, round_trip, smoothed)| {
            Event::Ack { packets, round_trip, smoothed }
        }),
        1 => any::<u64>().prop_map(|bytes| Event::ForeignAck { bytes }),
        3 => (prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(persistent, new_burst)| Event::Lose { persistent, new_burst }),
        1 => Just(Event::Mark),
        1 => any::<u32>().prop_map(|bytes| Event::Mtu { bytes }),
        1 => any::<u32>().prop_map(|bytes| Event::Discard { bytes }),
        4 => duration().prop_map(|time| Event::Wait { time }),
    ]
}

/// A connection that feeds events to a controller, and keeps the stamps of packets.
struct Connection {
    controller: Controller,
    packets: VecDeque<(Duration, u32, PacketStamp)>,
    now: Duration,
    max_datagram_bytes: u32,
    /// Bytes in flight if every event was about packets that were sent.
    in_flight: u64,
}

impl Connection {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Send { bytes, app_limited } => {
                let stamp = self.controller.on_packet_sent(self.now, bytes, app_limited);
                self.packets.push_back((self.now, bytes, stamp));
                self.in_flight = (self.in_flight + u64::from(bytes)).min(u32::MAX.into());
            }
            Event::Ack {
                packets,
                round_trip,
                smoothed,
            } => {
                let count = packets.min(self.packets.len());
                let acked: Vec<_> = self.packets.drain(..count).collect();
                if let Some((sent_at, _, newest)) = acked.last() {
                    let bytes = acked.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum();
                    let round_trip = RoundTrip {
                        latest: round_trip,
                        smoothed,
                    };
                    self.controller
                        .on_ack(*sent_at, bytes, newest, round_trip, self.now);
                    self.in_flight = self.in_flight.saturating_sub(bytes);
                }
            }
            Event::ForeignAck { bytes } => {
                if let Some((sent_at, _, newest)) = self.packets.front() {
                    let latest = Duration::from_millis(1);
                    let round_trip = RoundTrip {
                        latest,
                        smoothed: latest,
                    };
                    self.controller
                        .on_ack(*sent_at, bytes, newest, round_trip, self.now);
                    self.in_flight = self.in_flight.saturating_sub(bytes);
                }
            }
            Event::Lose {
                persistent,
                new_burst,
            } => {
                if let Some((_, bytes, stamp)) = self.packets.pop_front() {
                    self.controller
                        .on_loss(bytes, &stamp, persistent, new_burst, self.now);
                    self.in_flight = self.in_flight.saturating_sub(bytes.into());
                }
            }
            Event::Mark => self.controller.on_congestion_mark(self.now),
            Event::Mtu { bytes } => {
                self.controller.on_mtu(bytes);
                self.max_datagram_bytes = bytes;
            }
            Event::Discard { bytes } => {
                self.controller.on_discarded(bytes);
                self.in_flight = self.in_flight.saturating_sub(bytes.into());
            }
            Event::Wait { time } => self.now = self.now.saturating_add(time),
        }
    }

    fn check(&self) {
        let controller = &self.controller;
        let packets = |count: u32| self.max_datagram_bytes.max(1).saturating_mul(count);
        assert!(controller.window_bytes() >= packets(4));
        assert_eq!(u64::from(controller.bytes_in_flight()), self.in_flight);
        assert!(controller.pacing_rate() > 0);
        assert!(controller.pacing_rate() <= 10_u64.pow(13));
        let quantum = controller.send_quantum_bytes();
        assert!(quantum >= packets(2) && quantum <= packets(2).max(64 * 1024));
    }
}

proptest! {
    #[test]
    fn no_sequence_of_events_breaks_a_bound(
        max_datagram_bytes in 0_u32..70_000,
        seed: u64,
        events in prop::collection::vec(event(), 0..300),
    ) {
        let mut connection = Connection {
            controller: Controller::new(max_datagram_bytes, seed),
            packets: VecDeque::new(),
            now: Duration::ZERO,
            max_datagram_bytes,
            in_flight: 0,
        };
        connection.check();
        for event in events {
            connection.apply(event);
            connection.check();
        }
    }
}

#[test]
fn a_controller_can_be_cloned_sent_and_shown() {
    fn assert_traits<T: Clone + std::fmt::Debug + Send + 'static>() {}
    assert_traits::<Controller>();
    assert_traits::<PacketStamp>();
}

/// The first samples are of a handshake: few packets, far apart. They must not slow down the data
/// that follows, which still leaves within a round trip.
#[test]
fn small_packets_at_the_start_do_not_lower_the_rate() {
    let round_trip = Duration::from_millis(60);
    let mut controller = Controller::new(1200, 1);
    let before = controller.window_bytes();
    let mut now = Duration::ZERO;
    for _ in 0..3 {
        let stamp = controller.on_packet_sent(now, 100, Some(true));
        let sent_at = now;
        now += round_trip;
        let sample = RoundTrip {
            latest: round_trip,
            smoothed: round_trip,
        };
        controller.on_ack(sent_at, 100, &stamp, sample, now);
    }
    let paced = controller.pacing_rate() as f64 * round_trip.as_secs_f64();
    assert!(
        paced >= f64::from(before),
        "{paced} of {before} bytes a round trip"
    );
}
