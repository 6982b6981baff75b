use super::*;
use crate::spec::{CodelSpec, CrossSpec, JitterSpec, ReorderSpec};

const SEGMENT: u64 = 1500;

/// 12 Mbit/s (a full segment each millisecond) over 20 ms.
fn spec(queue: u64) -> DirectionSpec {
    DirectionSpec {
        delay: Duration::from_millis(20),
        rate: Some(BitRate(12_000_000)),
        queue,
        ..DirectionSpec::default()
    }
}

fn new_bottleneck(spec: &DirectionSpec) -> Bottleneck {
    Bottleneck::new(spec, 1500, 1, 0)
}

fn all_noise(spec: &mut DirectionSpec, jitter_reorders: bool) {
    spec.jitter = Some(JitterSpec {
        deviation: Duration::from_micros(700),
        reorder: jitter_reorders,
    });
    spec.reorder = Some(ReorderSpec {
        probability: 0.02,
        by: Duration::from_millis(3),
    });
    spec.aqm = Some(CodelSpec {
        target: Duration::from_millis(1),
        interval: Duration::from_millis(4),
    });
    spec.ecn = true;
    spec.cross = Some(CrossSpec {
        rate: BitRate(9_000_000),
        on: Duration::from_millis(20),
        off: Duration::from_millis(10),
    });
}

/// Offers a segment each `spacing` until `until`. Returns what passed until a second later.
fn offer_evenly(
    neck: &mut Bottleneck,
    spacing: Nanos,
    until: Nanos,
    markable: bool,
) -> Vec<PassedSegments> {
    let mut all = Vec::new();
    for (packet, now) in (0..until).step_by(spacing as usize).enumerate() {
        all.extend(neck.until(now));
        neck.offer(packet as u64, one(1500), markable);
    }
    all.extend(neck.until(until + 1_000 * MS));
    all
}

#[test]
fn falling_delay_keeps_arrivals_at_the_bottleneck_rate() {
    let mut spec = spec(1_000_000);
    spec.delay = Duration::from_millis(143);
    spec.changes = Some(Trace {
        steps: vec![step(500 * MS, None, Some(20 * MS))],
        repeat_after: None,
    });
    // Three quarters of the rate: a quarter of the time is left to recover from the fall.
    let passed = offer_evenly(&mut new_bottleneck(&spec), 4 * MS / 3, 2_000 * MS, false);
    let sent = |passed: &PassedSegments| passed.packet * (4 * MS / 3);
    assert_eq!(passed.len(), 1_501);
    assert!(
        passed
            .windows(2)
            .all(|pair| pair[1].due >= pair[0].due + MS),
        "spaced by a segment's line time"
    );
    let delay = |passed: &PassedSegments| passed.due - sent(passed) - MS;
    assert!(passed.iter().all(|p| delay(p) >= 20 * MS));
    assert!(
        passed
            .iter()
            .filter(|p| sent(p) < 499 * MS)
            .all(|p| delay(p) == 143 * MS)
    );
    // With a quarter of the time, recovering 123 ms takes 492 ms.
    let caught_up = passed.iter().find(|p| delay(p) == 20 * MS).unwrap();
    assert!(
        (980 * MS..1_010 * MS).contains(&sent(caught_up)),
        "{}",
        sent(caught_up)
    );
    assert!(
        passed
            .iter()
            .filter(|p| sent(p) > 1_010 * MS)
            .all(|p| delay(p) == 20 * MS)
    );
}

#[test]
fn noise_on_the_line_loses_the_same_segments() {
    let lost = |change: fn(&mut DirectionSpec)| -> Vec<(u64, u32)> {
        let mut spec = spec(100_000_000);
        spec.loss = LossModel::Independent { probability: 0.03 };
        change(&mut spec);
        let mut neck = new_bottleneck(&spec);
        (0..50).for_each(|packet| {
            neck.offer(packet, many(40), false);
        });
        let passed = neck.until(10_000 * MS);
        let lost = passed.iter().filter(|p| p.fate == SegmentFate::Lost);
        lost.flat_map(|p| (0..p.count).map(|segment| (p.packet, p.first + segment)))
            .collect()
    };
    let plain = lost(|_| {});
    assert!((30..90).contains(&plain.len()), "{}", plain.len());
    for reorders in [false, true] {
        let noisy = if reorders {
            lost(|spec| {
                all_noise(spec, true);
                (spec.aqm, spec.ecn) = (None, false);
            })
        } else {
            lost(|spec| {
                all_noise(spec, false);
                (spec.aqm, spec.ecn) = (None, false);
            })
        };
        assert_eq!(plain, noisy);
    }
}

#[test]
fn one_held_segment_is_cut_out_of_its_super_packet() {
    let mut spec = spec(100_000_000);
    spec.rate = None;
    spec.reorder = Some(ReorderSpec {
        probability: 0.02,
        by: Duration::from_millis(3),
    });
    let mut neck = new_bottleneck(&spec);
    assert!(neck.overtakes());
    let mut segments = 0;
    let mut held = 0;
    for packet in 0..500 {
        neck.offer(packet, many(40), false);
        let passed = neck.until(0);
        for piece in &passed {
            let late = piece.fate
                == SegmentFate::Arrives {
                    marked: false,
                    held: true,
                };
            assert_eq!(piece.due, if late { 23 * MS } else { 20 * MS });
            assert!(!late || piece.count == 1);
            held += u64::from(late);
            segments += piece.count;
        }
        let order: Vec<u32> = passed.iter().map(|p| p.first).collect();
        assert!(order.is_sorted() && order[0] == 0);
    }
    assert_eq!(segments, 500 * 40);
    assert!((330..480).contains(&held), "{held} of 20,000 at 2 %");
}

#[test]
fn cross_traffic_takes_the_time_it_takes_from_the_others() {
    let mut spec = spec(30_000);
    spec.cross = Some(CrossSpec {
        rate: BitRate(6_000_000),
        on: Duration::from_millis(50),
        off: Duration::from_millis(50),
    });
    let mut neck = new_bottleneck(&spec);
    let passed = offer_evenly(&mut neck, 513_737, 20_000 * MS, false);
    let before = passed.iter().filter(|p| p.due <= 20_021 * MS).count() as u64 * SEGMENT;
    let crossed = neck.crossed();
    let rate = 12_000_000 / 8 * 20;
    // The link is always full, so both together get its rate. One offers twice the rate, the other
    // half.
    let both = before + crossed.bytes;
    assert!(both.abs_diff(rate) < rate / 30, "{both} of {rate}");
    assert!(
        (6_000_000..9_000_000).contains(&(crossed.bytes + crossed.drops * SEGMENT)),
        "{crossed:?}"
    );
    assert!(
        crossed.drops > 0 && crossed.bytes > 1_000_000,
        "{crossed:?}"
    );
    assert_eq!(neck.queue_peak(), 30_000);
}

#[test]
fn link_with_only_cross_traffic_delivers_nothing() {
    let mut spec = spec(30_000);
    spec.cross = Some(CrossSpec {
        rate: BitRate(6_000_000),
        on: Duration::from_millis(50),
        off: Duration::ZERO,
    });
    let mut neck = new_bottleneck(&spec);
    let mut looks = 0;
    while let Some(next) = neck.next_event().filter(|next| *next < 10_000 * MS) {
        assert!(neck.until(next).is_empty());
        looks += 1;
    }
    assert_eq!(looks, 199, "each 50 ms");
    let expected = 6_000_000 / 8 * 10;
    assert!(neck.crossed().bytes.abs_diff(expected) < expected / 50);
}

#[test]
fn codel_keeps_the_standing_queue_short_by_drops_or_marks() {
    for markable in [false, true] {
        let mut spec = spec(1_000_000);
        (spec.aqm, spec.ecn) = (Some(CodelSpec::RFC_8289), true);
        let mut neck = new_bottleneck(&spec);
        let (mut passed, mut seen, mut sent, mut window) = (Vec::new(), 0, 0, 30.0_f64);
        // A flow that halves its window on a drop or a mark, and learns of it at once.
        for now in (0..30_000 * MS).step_by(MS as usize / 4) {
            passed.extend(neck.until(now));
            let (mut arrived, mut answered) = (0, false);
            for piece in &passed[seen..] {
                let congested = piece.fate
                    != SegmentFate::Arrives {
                        marked: false,
                        held: false,
                    };
                if congested && !answered {
                    (window, answered) = ((window / 2.0).max(2.0), true);
                }
                arrived += u64::from(!congested);
            }
            seen = passed.len();
            window += arrived as f64 / window;
            while sent - (passed.len() as u64) < window as u64 {
                neck.offer(sent, one(1500), markable);
                sent += 1;
            }
        }
        let dropped = passed
            .iter()
            .filter(|p| p.fate == SegmentFate::Dropped)
            .count();
        let marked = passed
            .iter()
            .filter(|p| {
                p.fate
                    == SegmentFate::Arrives {
                        marked: true,
                        held: false,
                    }
            })
            .count();
        assert_eq!(dropped == 0, markable, "{dropped}");
        assert_eq!(marked == 0, !markable, "{marked}");
        assert!(passed.len() > 25_000, "nearly the rate: {}", passed.len());
        // Without that, the window would grow to the 30,000 segments of the 30 s, or to the queue's
        // limit.
        assert!(neck.queue_peak() < 60 * SEGMENT, "{}", neck.queue_peak());
    }
}

#[test]
fn full_managed_queue_still_drops_at_its_tail() {
    let mut spec = spec(4_000);
    spec.aqm = Some(CodelSpec::RFC_8289);
    let mut neck = new_bottleneck(&spec);
    assert_eq!(neck.offer(0, many(10), false), 3);
    assert_eq!(neck.queue_peak(), 3_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Results depend on when packets arrive, never on when the bottleneck is called. Every segment
    /// is accounted for.
    #[test]
    fn looking_changes_nothing_with_noise_either(
        arrivals in prop::collection::vec(
            (0_u64..2_000_000, 1_u32..60, 1_u32..1_500, any::<bool>()), 1..40),
        looks in prop::collection::vec(0_u64..60_000_000, 0..60),
        rate in 1_000_000_u64..200_000_000, reorders in any::<bool>(),
    ) {
        let make = || {
            let mut spec = DirectionSpec { rate: Some(BitRate(rate)), ..spec(200_000) };
            spec.loss = LossModel::Independent { probability: 0.05 };
            all_noise(&mut spec, reorders);
            spec.changes = Some(Trace {
                steps: vec![step(3 * MS, Some(50_000_000), Some(MS)),
                    step(40 * MS, Some(5_000_000), None)],
                repeat_after: None,
            });
            new_bottleneck(&spec)
        };
        let (mut plain, mut watched) = (make(), make());
        let (mut left, mut seen) = (Vec::new(), Vec::new());
        let mut looks = looks.clone();
        looks.sort_unstable();
        let mut looks = looks.into_iter().peekable();
        let (mut now, mut taken) = (0, 0);
        for (packet, (wait, segments, last, markable)) in arrivals.into_iter().enumerate() {
            now += wait;
            while let Some(look) = looks.next_if(|look| *look < now) {
                let promised = watched.next_event();
                let passed = watched.until(look);
                let arrived = passed
                    .iter()
                    .filter(|p| matches!(p.fate, SegmentFate::Arrives { .. }));
                // A change, or catching up, may come first; nothing arrives before the promised
                // time.
                for piece in arrived {
                    prop_assert!(promised.is_some_and(|promised| promised <= piece.due));
                }
                seen.extend(passed);
            }
            left.extend(plain.until(now));
            seen.extend(watched.until(now));
            let sizes = SegmentSizes { segments, full: 1_500, last };
            let got = plain.offer(packet as u64, sizes, markable);
            prop_assert_eq!(got, watched.offer(packet as u64, sizes, markable));
            taken += u64::from(got);
        }
        left.extend(plain.until(10_000 * MS));
        for look in (0..10_000).step_by(51) {
            seen.extend(watched.until((now + look * MS).min(10_000 * MS)));
        }
        seen.extend(watched.until(10_000 * MS));
        prop_assert_eq!(taken, left.iter().map(|p| u64::from(p.count)).sum::<u64>());
        prop_assert_eq!(plain.crossed(), watched.crossed());
        prop_assert_eq!(left, seen);
    }
}
