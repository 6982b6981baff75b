mod noise;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::spec::{BitRate, DirectionSpec, LossModel, Trace, TraceStep};

const MS: Nanos = 1_000_000;

fn bottleneck(
    rate: Option<u64>,
    delay: Nanos,
    queue: u64,
    loss: LossModel,
    steps: Vec<TraceStep>,
) -> Bottleneck {
    let changes = (!steps.is_empty()).then_some(Trace {
        steps,
        repeat_after: None,
    });
    let rate = rate.map(BitRate);
    let spec = DirectionSpec {
        delay: Duration::from_nanos(delay),
        rate,
        queue,
        loss,
        changes,
        ..DirectionSpec::default()
    };
    Bottleneck::new(&spec, 1500, 1, 0)
}

fn step(at: Nanos, rate: Option<u64>, delay: Option<Nanos>) -> TraceStep {
    let (at, delay) = (Duration::from_nanos(at), delay.map(Duration::from_nanos));
    TraceStep {
        at,
        rate: rate.map(BitRate),
        delay,
        loss: None,
    }
}

fn one(bytes: u32) -> SegmentSizes {
    SegmentSizes {
        segments: 1,
        full: bytes,
        last: bytes,
    }
}

fn many(segments: u32) -> SegmentSizes {
    SegmentSizes {
        segments,
        full: 1500,
        last: 1500,
    }
}

impl Bottleneck {
    fn until(&mut self, now: Nanos) -> Vec<PassedSegments> {
        let mut all = Vec::new();
        self.advance(now, &mut |passed| all.push(passed));
        all
    }
}

#[test]
fn a_packet_takes_its_length_over_the_rate_and_the_delay() {
    // 1500 bytes at 1 Mbit/s: 12 ms.
    let mut neck = bottleneck(Some(1_000_000), 20 * MS, 1_000_000, LossModel::None, vec![]);
    neck.until(5 * MS);
    assert_eq!(
        (
            neck.offer(0, one(1500), false),
            neck.offer(1, one(500), false)
        ),
        (1, 1)
    );
    assert_eq!(neck.next_event(), Some(37 * MS));
    assert_eq!(neck.until(17 * MS - 1), []);
    let due: Vec<_> = neck
        .until(100 * MS)
        .iter()
        .map(|passed| passed.due)
        .collect();
    assert_eq!(due, [37 * MS, 41 * MS]);
    assert_eq!(neck.next_event(), None);
}

#[test]
fn timed_drop_loses_one_segment_and_moves_no_other_loss() {
    let fates = |drop_at: Vec<Duration>| {
        let spec = DirectionSpec {
            rate: Some(BitRate(12_000_000)),
            queue: 1_000_000,
            loss: LossModel::Independent { probability: 0.05 },
            drop_at,
            ..DirectionSpec::default()
        };
        let mut neck = Bottleneck::new(&spec, 1500, 1, 0);
        neck.offer(0, many(500), false);
        let lost = |passed: &PassedSegments| {
            std::iter::repeat_n(passed.fate == SegmentFate::Lost, passed.count as usize)
        };
        neck.until(1_000 * MS)
            .iter()
            .flat_map(lost)
            .collect::<Vec<bool>>()
    };
    // A segment takes 1 ms: the one that begins at 100 ms is the 101st.
    let (plain, dropped) = (fates(vec![]), fates(vec![Duration::from_millis(100)]));
    let differing: Vec<usize> = (0..500).filter(|&at| plain[at] != dropped[at]).collect();
    assert_eq!(differing, [100]);
    assert!(dropped[100]);
}

#[test]
fn rounding_never_adds_up() {
    // 40 bytes at 9.6 Gbit/s take 33.33 ns; 30,000 times that is exactly 1 ms.
    let mut neck = bottleneck(Some(9_600_000_000), 0, 10_000_000, LossModel::None, vec![]);
    for packet in 0..30_000 {
        assert_eq!(neck.offer(packet, one(40), false), 1);
    }
    assert_eq!(neck.until(10 * MS).last().unwrap().due, MS);
}

#[test]
fn an_unlimited_link_only_delays() {
    let mut neck = bottleneck(None, 7 * MS, 0, LossModel::None, vec![]);
    neck.until(MS);
    assert_eq!(
        (
            neck.offer(0, many(40), false),
            neck.offer(1, many(40), false)
        ),
        (40, 40)
    );
    let passed = neck.until(MS);
    assert_eq!(
        passed.iter().map(|p| (p.count, p.due)).collect::<Vec<_>>(),
        [(40, 8 * MS), (40, 8 * MS)]
    );
    assert_eq!(neck.queue_bytes(), 0);
}

#[test]
fn super_packets_leave_in_pieces_of_a_quantum() {
    // 1500 bytes take 12 us at 1 Gbit/s: eight fit 100 us.
    let mut neck = bottleneck(Some(1_000_000_000), 0, 1_000_000, LossModel::None, vec![]);
    neck.offer(
        0,
        SegmentSizes {
            segments: 20,
            full: 1500,
            last: 750,
        },
        false,
    );
    let pieces: Vec<_> = neck
        .until(MS)
        .iter()
        .map(|p| (p.first, p.count, p.due))
        .collect();
    assert_eq!(pieces, [(0, 8, 96_000), (8, 8, 192_000), (16, 4, 234_000)]);
    // Below the rate at which one segment takes a quantum, they leave one by one.
    let mut slow = bottleneck(Some(10_000_000), 0, 1_000_000, LossModel::None, vec![]);
    slow.offer(0, many(20), false);
    assert!(slow.until(100 * MS).iter().all(|piece| piece.count == 1));
}

#[test]
fn the_queue_drops_the_tail_by_segments() {
    let mut neck = bottleneck(Some(1_000_000), 0, 4_000, LossModel::None, vec![]);
    // One on the wire, two in the queue of 4,000 bytes, 1,000 free.
    assert_eq!(neck.offer(0, many(10), false), 3);
    assert_eq!((neck.queue_bytes(), neck.queue_peak()), (3_000, 3_000));
    assert_eq!(neck.offer(1, one(1_001), false), 0);
    assert_eq!(neck.offer(2, one(600), false), 1);
    assert_eq!(neck.offer(3, one(600), false), 0);
    // Of these, the short last one fits.
    assert_eq!(
        neck.offer(
            4,
            SegmentSizes {
                segments: 3,
                full: 1500,
                last: 400
            },
            false,
        ),
        1
    );
    assert_eq!(neck.queue_bytes(), 4_000);
    let passed = neck.until(1_000 * MS);
    let left: Vec<_> = passed
        .iter()
        .map(|p| (p.packet, p.first, p.count))
        .collect();
    assert_eq!(
        left,
        [(0, 0, 1), (0, 1, 1), (0, 2, 1), (2, 0, 1), (4, 2, 1)]
    );
    assert_eq!((neck.queue_bytes(), neck.queue_peak()), (0, 4_000));
}

#[test]
fn a_piece_under_way_frees_the_queue_segment_by_segment() {
    // 12 us per segment; eight in a piece.
    let mut neck = bottleneck(Some(1_000_000_000), 0, 1_000_000, LossModel::None, vec![]);
    neck.offer(0, many(16), false);
    let waiting: Vec<_> = [0, 11_999, 12_000, 24_000, 100_000, 179_999, 180_000]
        .map(|now| {
            neck.until(now);
            neck.queue_bytes() / 1500
        })
        .to_vec();
    assert_eq!(waiting, [15, 15, 14, 13, 7, 1, 0]);
}

#[test]
fn an_idle_link_takes_a_packet_whatever_its_queue() {
    let mut neck = bottleneck(Some(1_000_000), 0, 1_500, LossModel::None, vec![]);
    assert_eq!(neck.offer(0, many(5), false), 2);
    neck.until(24 * MS - 1);
    assert_eq!(neck.offer(1, many(5), false), 1);
    neck.until(100 * MS);
    assert_eq!(neck.offer(2, one(1500), false), 1);
}

#[test]
fn overload_passes_exactly_the_rate() {
    // 13 Mbit/s offered to 10 Mbit/s for 10 s of virtual time.
    let mut neck = bottleneck(Some(10_000_000), 0, 150_000, LossModel::None, vec![]);
    let (mut bytes, mut taken, mut now) = (0, 0, 0);
    for packet in 0.. {
        now = packet * 923_077;
        if now > 10_000 * MS {
            break;
        }
        bytes += neck.until(now).len() as u64 * 1500;
        taken += u64::from(neck.offer(packet, one(1500), false));
    }
    assert_eq!(bytes, now * 10_000_000 / 8 / 1_000_000_000 / 1500 * 1500);
    assert_eq!(taken * 1500, bytes + 1500 + neck.queue_bytes());
    assert_eq!(neck.queue_peak(), 150_000);
}

#[test]
fn lost_segments_use_the_wire() {
    let all = LossModel::Independent { probability: 0.3 };
    let mut neck = bottleneck(Some(12_000_000), 0, 10_000_000, all, vec![]);
    neck.offer(0, many(3_000), false);
    let passed = neck.until(10_000 * MS);
    let lost: u32 = passed
        .iter()
        .filter(|p| p.fate == SegmentFate::Lost)
        .map(|p| p.count)
        .sum();
    let kept: u32 = passed
        .iter()
        .filter(|p| p.fate != SegmentFate::Lost)
        .map(|p| p.count)
        .sum();
    assert_eq!(lost + kept, 3_000);
    assert!((800..1_000).contains(&lost), "{lost}");
    assert_eq!(passed.last().unwrap().due, 3_000 * MS);
}

#[test]
fn a_change_of_rate_counts_from_its_moment() {
    // Half of 12,000 bits at 1 Mbit/s by 6 ms, the other half at 2 Mbit/s.
    let steps = vec![step(6 * MS, Some(2_000_000), None)];
    let mut neck = bottleneck(Some(1_000_000), 0, 10_000, LossModel::None, steps);
    neck.offer(0, one(1500), false);
    neck.offer(1, one(1500), false);
    let due: Vec<_> = neck.until(100 * MS).iter().map(|p| p.due).collect();
    assert_eq!(due, [9 * MS, 15 * MS]);
}

#[test]
fn an_outage_holds_everything_up() {
    let steps = vec![
        step(4 * MS, Some(0), None),
        step(50 * MS, Some(1_000_000), None),
    ];
    let mut neck = bottleneck(Some(1_000_000), 0, 3_000, LossModel::None, steps);
    neck.offer(0, one(1500), false);
    assert_eq!(neck.next_event(), Some(4 * MS));
    assert_eq!(neck.until(49 * MS), []);
    assert_eq!(
        (
            neck.offer(1, many(2), false),
            neck.offer(2, one(1500), false)
        ),
        (2, 0)
    );
    assert_eq!(neck.next_event(), Some(50 * MS));
    let due: Vec<_> = neck.until(500 * MS).iter().map(|p| p.due).collect();
    assert_eq!(due, [58 * MS, 70 * MS, 82 * MS]);
}

#[test]
fn outage_has_no_next_event() {
    let mut neck = bottleneck(Some(0), 0, 3_000, LossModel::None, vec![]);
    neck.offer(0, one(1500), false);
    assert_eq!(neck.next_event(), None);
    assert_eq!(neck.until(Nanos::MAX / 2), []);
}

#[test]
fn packets_never_overtake_when_the_delay_shrinks() {
    let steps = vec![
        step(10 * MS, None, Some(MS)),
        step(200 * MS, None, Some(30 * MS)),
    ];
    let mut neck = bottleneck(None, 100 * MS, 0, LossModel::None, steps);
    let mut due = Vec::new();
    for (packet, now) in [0, 5, 20, 120, 300].into_iter().enumerate() {
        neck.until(now * MS);
        neck.offer(packet as u64, one(100), false);
        due.extend(neck.until(now * MS).iter().map(|p| p.due / MS));
    }
    assert_eq!(due, [100, 105, 105, 121, 330]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Results depend on when packets arrive, never on when the bottleneck is called.
    #[test]
    fn looking_changes_nothing(
        arrivals in prop::collection::vec((0_u64..2_000_000, 1_u32..60, 1_u32..1_500), 1..40),
        looks in prop::collection::vec(0_u64..60_000_000, 0..60),
        rate in prop::option::of(0_u64..2_000_000_000),
        later in 0_u64..2_000_000_000,
    ) {
        let loss = LossModel::Independent { probability: 0.05 };
        let make = || {
            let steps = vec![step(3 * MS, Some(later), Some(MS)),
                step(40 * MS, Some(50_000_000), None)];
            bottleneck(rate, 2 * MS, 200_000, loss, steps)
        };
        let (mut plain, mut watched) = (make(), make());
        let (mut left, mut seen) = (Vec::new(), Vec::new());
        let mut looks = looks.clone();
        looks.sort_unstable();
        let mut looks = looks.into_iter().peekable();
        let mut now = 0;
        for (packet, (wait, segments, last)) in arrivals.into_iter().enumerate() {
            now += wait;
            while let Some(look) = looks.next_if(|look| *look < now) {
                seen.extend(watched.until(look));
                let _ = (watched.queue_bytes(), watched.next_event());
            }
            left.extend(plain.until(now));
            seen.extend(watched.until(now));
            let sizes = SegmentSizes { segments, full: 1_500, last };
            prop_assert_eq!(plain.offer(packet as u64, sizes, false),
                watched.offer(packet as u64, sizes, false));
        }
        left.extend(plain.until(100_000 * MS));
        for look in (0..100_000).step_by(501) {
            seen.extend(watched.until((now + look * MS).min(100_000 * MS)));
        }
        seen.extend(watched.until(100_000 * MS));
        prop_assert_eq!(left, seen);
    }
}
