mod noise;

use std::time::Duration;

use proptest::prelude::*;

use super::super::samples::{PLAIN, PacketSample};
use super::super::virtio::{FLAG_NEEDS_CHECKSUM, GSO_TCPV4};
use super::*;
use crate::spec::LossModel;

const MS: Nanos = 1_000_000;

fn link(spec: DirectionSpec) -> LinkSpec {
    LinkSpec {
        name: "ab".to_owned(),
        mtu: 1500,
        forward: spec.clone(),
        backward: spec,
        seed: 42,
    }
}

fn direction(rate: Option<u64>, delay: Nanos, queue: u64, loss: LossModel) -> Direction {
    let delay = Duration::from_nanos(delay);
    let link = link(DirectionSpec {
        delay,
        rate: rate.map(BitRate),
        queue,
        loss,
        ..DirectionSpec::default()
    });
    link.check().unwrap();
    Direction::new(&link, &link.forward, 0).unwrap()
}

impl Direction {
    fn put(&mut self, now: Nanos, virtio: &VirtioHeader, packet: &[u8]) {
        let room = self.room();
        let len = packet.len().min(room.len());
        room[..len].copy_from_slice(&packet[..len]);
        self.take(now, virtio, len);
    }

    /// Returns everything that is delivered until `now`: due times and bytes.
    fn get(&mut self, now: Nanos) -> Vec<(Nanos, Vec<u8>)> {
        let mut all = Vec::new();
        self.advance(now);
        while self.deliver(now, |delivery| {
            all.push((
                delivery.due,
                [delivery.piece.headers, delivery.piece.body].concat(),
            ));
            true
        }) {}
        all
    }

    fn settled(&self) -> u64 {
        let c = self.counters();
        c.packets
            + c.drops_loss
            + c.drops_queue
            + c.drops_aqm
            + c.drops_mtu
            + c.ring_overflow
            + c.write_errors
    }
}

#[test]
fn a_packet_comes_out_as_it_went_in_when_it_is_due() {
    let mut direction = direction(Some(12_000_000), 10 * MS, 10_000, LossModel::None);
    let (virtio, packet) = PLAIN.packet();
    direction.put(MS, &virtio, &packet);
    assert_eq!(
        direction.next_event(),
        Some(12 * MS),
        "still at the bottleneck"
    );
    assert!(direction.get(2 * MS).is_empty());
    assert_eq!(direction.next_event(), Some(12 * MS), "on the line");
    assert!(direction.get(12 * MS - 1).is_empty());
    assert_eq!(direction.get(12 * MS), [(12 * MS, packet)]);
    assert_eq!(direction.next_event(), None);
    let counters = direction.counters();
    assert_eq!(
        (counters.packets, counters.bytes, counters.super_packets),
        (1, 1500, 0)
    );
}

#[test]
fn dense_streams_are_batched_and_sparse_ones_are_not() {
    // A packet takes 0.08 ms at this rate, and a hundredth of the delay is 2 ms: more than the
    // maximum.
    let mut direction = direction(Some(150_000_000), 200 * MS, 1_000_000, LossModel::None);
    let (virtio, packet) = PLAIN.packet();
    for _ in 0..10 {
        direction.put(0, &virtio, &packet);
    }
    direction.put(10 * MS, &virtio, &packet);
    direction.advance(20 * MS);
    let wake = |direction: &Direction| {
        direction
            .last_due_by(direction.deadline().unwrap())
            .unwrap()
    };
    let first = 200 * MS + 80_000;
    assert_eq!(
        wake(&direction),
        first + 240_000,
        "the fourth, within 250 us of the first"
    );
    assert_eq!(direction.get(first + 240_000).len(), 4);
    assert_eq!(direction.get(202 * MS).len(), 6);
    assert_eq!(wake(&direction), 210 * MS + 80_000, "alone, and so on time");
    assert_eq!(direction.last_due_by(210 * MS), None);
}

#[test]
fn segments_are_counted_as_packets_of_the_wire() {
    let mut direction = direction(Some(1_000_000_000), 0, 1_000_000, LossModel::None);
    let (virtio, packet) = PacketSample::segments(40).packet();
    direction.put(0, &virtio, &packet);
    let each: Vec<_> = (0..11)
        .map(|step| direction.get(step * 50_000).len())
        .collect();
    assert_eq!(
        each,
        [0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
        "pieces of 96 us, the last after 480 us"
    );
    let counters = direction.counters();
    assert_eq!(
        (counters.packets, counters.bytes, counters.super_packets),
        (40, 60_000, 1)
    );
}

#[test]
fn pieces_of_one_packet_that_are_due_together_go_together() {
    let mut direction = direction(Some(1_000_000_000), 0, 1_000_000, LossModel::None);
    let (virtio, packet) = PacketSample::segments(40).packet();
    direction.put(0, &virtio, &packet);
    direction.put(0, &virtio, &packet);
    let lens: Vec<_> = direction
        .get(600_000)
        .iter()
        .map(|(_, bytes)| bytes.len())
        .collect();
    assert_eq!(
        lens,
        [packet.len(), 52 + 8 * 1448],
        "of the second packet, one piece"
    );
}

#[test]
fn packets_above_the_mtu_are_dropped_and_counted() {
    let mut direction = direction(None, 0, 0, LossModel::None);
    let (virtio, packet) = PacketSample {
        payload: 14_490,
        gso_size: 1449,
        ..PLAIN
    }
    .packet();
    direction.put(0, &virtio, &packet);
    assert!(direction.get(MS).is_empty());
    assert_eq!(direction.counters().drops_mtu, 10);
}

#[test]
fn same_seed_loses_same_segments_for_any_grouping() {
    let lost = |group: usize, gap: Nanos, seed: u64, stream: u32| {
        let loss = LossModel::Independent { probability: 0.05 };
        let rate = Some(BitRate(1_000_000_000));
        let spec = DirectionSpec {
            delay: Duration::ZERO,
            rate,
            queue: 10_000_000,
            loss,
            ..DirectionSpec::default()
        };
        let link = LinkSpec { seed, ..link(spec) };
        let mut direction = Direction::new(&link, &link.forward, stream).unwrap();
        let mut missing: Vec<u32> = (0..1200).collect();
        for round in 0..1200 / group {
            let sequence = (round * group * 1448) as u32;
            let (virtio, packet) = PacketSample {
                sequence,
                ..PacketSample::segments(group)
            }
            .packet();
            direction.put(round as Nanos * gap, &virtio, &packet);
            for (_, packet) in direction.get(round as Nanos * gap) {
                arrived(&packet, &mut missing);
            }
        }
        for (_, packet) in direction.get(100_000 * MS) {
            arrived(&packet, &mut missing);
        }
        assert_eq!(direction.counters().drops_loss, missing.len() as u64);
        missing
    };
    let expected = lost(1, 0, 42, 0);
    assert!((30..90).contains(&expected.len()), "{}", expected.len());
    assert_eq!(expected, lost(40, 0, 42, 0));
    assert_eq!(expected, lost(12, 3 * MS, 42, 0));
    assert_ne!(expected, lost(12, 0, 42, 1), "the other direction");
    assert_ne!(expected, lost(12, 0, 43, 0), "another seed");
}

/// Removes the segments of a piece from the list.
fn arrived(packet: &[u8], missing: &mut Vec<u32>) {
    let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
    let first = sequence / 1448;
    let count = ((packet.len() - 52) / 1448) as u32;
    missing.retain(|segment| !(first..first + count).contains(segment));
}

#[test]
fn a_full_memory_drops_and_counts_and_recovers() {
    // Unlimited rate and a delay of 2 ms: memory for 10 Gbit/s, 2.5 MB and slack, filled at once.
    let mut direction = direction(None, 2 * MS, 0, LossModel::None);
    let (virtio, packet) = PacketSample::segments(44).packet();
    for _ in 0..400 {
        direction.put(0, &virtio, &packet);
    }
    let overflow = direction.counters().ring_overflow;
    assert!(overflow > 0 && overflow.is_multiple_of(44), "{overflow}");
    let delivered = direction.get(2 * MS);
    assert!(delivered.len() > 150 && delivered.iter().all(|(_, bytes)| *bytes == packet));
    direction.put(3 * MS, &virtio, &packet);
    assert_eq!(direction.get(5 * MS).len(), 1);
    assert_eq!(direction.settled(), direction.counters().offered);
}

#[test]
fn refused_writes_are_counted_and_pass() {
    let mut direction = direction(None, 0, 0, LossModel::None);
    let (virtio, packet) = PacketSample::segments(3).packet();
    direction.put(0, &virtio, &packet);
    direction.advance(0);
    assert!(direction.deliver(0, |_| false));
    assert!(!direction.deliver(0, |_| false));
    let counters = direction.counters();
    assert_eq!(
        (counters.write_errors, counters.packets, counters.bytes),
        (3, 0, 0)
    );
}

#[test]
fn more_than_memory_allows_is_refused_by_name() {
    let spec = DirectionSpec {
        delay: Duration::from_secs(2),
        rate: Some(BitRate(10_000_000_000)),
        queue: 1_500,
        loss: LossModel::None,
        ..DirectionSpec::default()
    };
    let link = link(spec);
    let error = Direction::new(&link, &link.forward, 0).unwrap_err();
    assert!(matches!(error, LinkError::TooMuchUnderWay { .. }));
    assert!(error.to_string().starts_with("link ab: "), "{error}");
}

/// Returns valid samples with some changed bytes, and plain garbage.
fn hostile() -> impl Strategy<Value = (VirtioHeader, Vec<u8>)> {
    let virtio = (
        any::<u8>(),
        any::<u8>(),
        any::<u16>(),
        any::<u16>(),
        any::<u16>(),
        any::<u16>(),
    )
        .prop_map(
            |(flags, gso_type, header_len, gso_size, checksum_start, checksum_offset)| {
                VirtioHeader {
                    flags,
                    gso_type: if gso_type < 128 {
                        gso_type % 8
                    } else {
                        gso_type
                    },
                    header_len,
                    gso_size: if gso_size % 3 == 0 {
                        gso_size % 64
                    } else {
                        gso_size
                    },
                    checksum_start: if flags % 5 == 0 {
                        checksum_start
                    } else {
                        checksum_start % 64
                    },
                    checksum_offset: checksum_offset % 32,
                }
            },
        );
    let garbage = prop::collection::vec(any::<u8>(), 0..300);
    let changes = prop::collection::vec((0_usize..100, any::<u8>()), 0..4);
    let sample = (
        0_usize..4_000,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0_usize..4_100,
    );
    let mended = (sample, changes).prop_map(|((payload, v6, udp, cwr, cut), changes)| {
        let (virtio, mut packet) = PacketSample {
            payload,
            v6,
            udp,
            cwr,
            ..PLAIN
        }
        .packet();
        packet.truncate(cut);
        for (at, value) in changes {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        (virtio, packet)
    });
    prop_oneof![
        (virtio.clone(), garbage),
        mended.clone(),
        (virtio, mended).prop_map(|(virtio, (_, packet))| (virtio, packet)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_packets_are_harmless(
        packets in prop::collection::vec((hostile(), 0_u64..200_000), 1..60)
    ) {
        let mut direction = direction(Some(100_000_000), MS, 20_000,
            LossModel::Independent { probability: 0.1 });
        let mut now = 0;
        for ((virtio, packet), wait) in packets {
            now += wait;
            direction.put(now, &virtio, &packet);
            direction.advance(now);
            while direction.deliver(now, |delivery| {
                let piece = delivery.piece;
                let len = piece.headers.len() + piece.body.len();
                // Checks everything that would make the kernel refuse a packet, or a receiver see
                // one that the link cannot carry.
                assert!(usize::from(piece.virtio.header_len) <= len);
                if piece.virtio.flags & FLAG_NEEDS_CHECKSUM != 0 {
                    let end = piece.virtio.checksum_start + piece.virtio.checksum_offset + 2;
                    assert!(usize::from(end) <= len);
                }
                assert!(piece.virtio.gso_type != 0 || len <= 1500);
                assert!(piece.virtio.gso_type & 0x7f != GSO_TCPV4 || piece.headers[0] >> 4 == 4);
                assert!(delivery.due <= now);
                true
            }) {}
        }
        direction.get(u64::MAX / 4);
        prop_assert_eq!(direction.settled(), direction.counters().offered);
        prop_assert_eq!(direction.next_event(), None);
        prop_assert!(direction.transit.packets.is_empty());
    }
}
