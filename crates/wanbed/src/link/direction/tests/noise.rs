use super::*;
use crate::spec::{CodelSpec, JitterSpec, ReorderSpec};

fn noisy(change: impl FnOnce(&mut DirectionSpec)) -> Direction {
    let mut spec = DirectionSpec {
        delay: Duration::from_millis(10),
        rate: Some(BitRate(120_000_000)),
        queue: 10_000_000,
        ..DirectionSpec::default()
    };
    change(&mut spec);
    let link = link(spec);
    link.check().unwrap();
    Direction::new(&link, &link.forward, 0).unwrap()
}

/// Returns the number of each segment of 1448 bytes, from the first sequence number of each piece.
fn segments(packets: &[(Nanos, Vec<u8>)]) -> Vec<u32> {
    packets
        .iter()
        .flat_map(|(_, packet)| {
            let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
            let count = ((packet.len() - 52) / 1448) as u32;
            (0..count).map(move |segment| sequence / 1448 + segment)
        })
        .collect()
}

#[test]
fn held_segments_arrive_late_whole_and_counted() {
    let mut direction = noisy(|spec| {
        spec.reorder = Some(ReorderSpec {
            probability: 0.01,
            by: Duration::from_millis(3),
        });
    });
    for number in 0..50 {
        let (virtio, packet) = Sample {
            sequence: number * 40 * 1448,
            ..Sample::segments(40)
        }
        .packet();
        direction.put(Nanos::from(number) * 4 * MS, &virtio, &packet);
    }
    let mut got = Vec::new();
    while let Some(next) = direction.next_event() {
        let all = direction.get(next);
        assert!(all.iter().all(|(due, _)| *due <= next));
        got.extend(all);
    }
    assert!(got.is_sorted_by_key(|(due, _)| *due));
    let order = segments(&got);
    let overtaken = order.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    let counters = direction.counters();
    assert!(
        (8..40).contains(&counters.reordered),
        "{}",
        counters.reordered
    );
    // Two consecutive held segments, or the very last one, make one inversion or none.
    assert!(overtaken <= counters.reordered && overtaken + 3 >= counters.reordered);
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..2_000).collect::<Vec<u32>>());
    assert!(direction.transit.packets.is_empty());
}

#[test]
fn jitter_keeps_the_order_unless_it_is_asked_not_to() {
    for reorder in [false, true] {
        let mut direction = noisy(|spec| {
            spec.jitter = Some(JitterSpec {
                deviation: Duration::from_millis(1),
                reorder,
            });
        });
        for number in 0..400 {
            let (virtio, packet) = Sample {
                sequence: number * 1448,
                ..PLAIN
            }
            .packet();
            direction.put(Nanos::from(number) * MS / 5, &virtio, &packet);
        }
        let mut got = Vec::new();
        while let Some(next) = direction.next_event() {
            got.extend(direction.get(next));
        }
        let order = segments(&got);
        assert_eq!(order.len(), 400);
        assert_eq!(order.is_sorted(), !reorder);
        assert!(got.is_sorted_by_key(|(due, _)| *due));
        let span = got.last().unwrap().0 - got[0].0;
        assert!((74 * MS..86 * MS).contains(&span), "{span}");
    }
}

#[test]
fn marked_segments_are_cut_out_and_the_others_arrive_unmarked() {
    let mut direction = noisy(|spec| {
        (spec.aqm, spec.ecn) = (Some(CodelSpec::RFC_8289), true);
    });
    let ce = |packet: &[u8]| packet[1] & 3 == 3;
    let (mut marked, mut got) = (0, 0);
    // A super-packet each 4 ms, which takes 4 ms: with 100 ms of them at the start, the queue
    // stands at 100 ms.
    for round in 0_u64..500 {
        for _ in 0..if round == 0 { 25 } else { 1 } {
            let (virtio, mut packet) = Sample::segments(40).packet();
            packet[1] |= 2;
            direction.put(round * 4 * MS, &virtio, &packet);
        }
        for (_, packet) in direction.get(round * 4 * MS) {
            let count = ((packet.len() - 52) / 1448) as u64;
            got += count;
            marked += if ce(&packet) { count } else { 0 };
            assert!(!ce(&packet) || count == 1);
        }
    }
    let counters = direction.counters();
    assert_eq!(
        (counters.marks_ecn, counters.packets, counters.drops_aqm),
        (marked, got, 0)
    );
    // 1.9 s above the target: the sum of 0.1 s / sqrt(k).
    assert!((95..112).contains(&marked), "{marked}");
    assert_eq!(counters.drops_queue, 0);
}

#[test]
fn batching_never_joins_full_packets_of_a_slow_bottleneck() {
    let at = |rate: u64, delay: u64| {
        let direction = noisy(|spec| {
            spec.rate = Some(BitRate(rate));
            spec.delay = Duration::from_millis(delay);
        });
        direction.counters().batching_us
    };
    assert_eq!(at(12_000_000, 1), 10, "a hundredth of the delay");
    assert_eq!(at(36_000_000, 100), 166, "half a packet");
    assert_eq!(at(119_000_000, 100), 50);
    assert_eq!(at(1_000_000_000, 100), 250, "the most");
}
