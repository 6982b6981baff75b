use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;
const MTU: u64 = 1500;

/// Segments of 1500 bytes, by their arrival time.
#[derive(Default)]
struct Plain {
    waiting: VecDeque<Nanos>,
    markable: bool,
    dropped: Vec<Nanos>,
    marked: u32,
}

impl Queue for Plain {
    type Segment = Nanos;
    fn take(&mut self) -> Option<Nanos> {
        self.waiting.pop_front()
    }
    fn bytes(&self) -> u64 {
        self.waiting.len() as u64 * MTU
    }
    fn since(segment: &Nanos) -> Nanos {
        *segment
    }
    fn mark(&mut self, _: &mut Nanos) -> bool {
        self.marked += u32::from(self.markable);
        self.markable
    }
    fn drop(&mut self, segment: Nanos) {
        self.dropped.push(segment);
    }
}

fn codel() -> Codel {
    Codel::new(&CodelSpec::RFC_8289, 1500)
}

/// Takes a segment each `spacing` from a queue in which each has waited `delay`. Returns the times
/// of drops or marks.
fn run(
    codel: &mut Codel,
    markable: bool,
    delay: Nanos,
    times: std::ops::Range<Nanos>,
    spacing: Nanos,
) -> Vec<Nanos> {
    let mut queue = Plain {
        markable,
        ..Plain::default()
    };
    let mut acted = Vec::new();
    for now in times.step_by(spacing as usize) {
        // There are always some behind it, so that more than a packet is left.
        while queue.waiting.len() < 10 {
            queue.waiting.push_back(now - delay);
        }
        let before = queue.dropped.len() + queue.marked as usize;
        assert!(codel.dequeue(now, &mut queue).is_some());
        acted.extend(std::iter::repeat_n(
            now,
            queue.dropped.len() + queue.marked as usize - before,
        ));
        queue.waiting.clear();
    }
    acted
}

/// Returns the drop times of section 5.4 of the RFC: the first one after an interval above the
/// target, each next one interval / sqrt(count) after the one before.
fn law(first: Nanos, mut count: f64, until: Nanos) -> Vec<f64> {
    let mut at = first as f64;
    let mut all = Vec::new();
    while at < until as f64 {
        all.push(at);
        at += 100.0 * MS as f64 / count.sqrt();
        count += 1.0;
    }
    all
}

#[test]
fn drops_and_marks_follow_the_control_law() {
    for markable in [false, true] {
        let got = run(
            &mut codel(),
            markable,
            20 * MS,
            1_000 * MS..6_000 * MS,
            MS / 10,
        );
        let wanted = law(1_100 * MS, 1.0, 6_000 * MS);
        assert!(
            got.len() > 500 && got.len().abs_diff(wanted.len()) <= 1,
            "{} {}",
            got.len(),
            wanted.len()
        );
        for (got, wanted) in got.iter().zip(&wanted) {
            // A segment is taken only each 0.1 ms; the law continues from the scheduled time.
            assert!(
                (-0.001..=0.11).contains(&((*got as f64 - wanted) / MS as f64)),
                "{got} {wanted}"
            );
        }
    }
}

#[test]
fn a_standing_queue_under_the_target_is_left_alone() {
    assert!(run(&mut codel(), false, 5 * MS - 1, MS * 100..5_000 * MS, MS).is_empty());
}

#[test]
fn a_queue_of_one_packet_is_left_alone_whatever_its_delay() {
    let mut codel = codel();
    let mut queue = Plain::default();
    for now in (1_000 * MS..5_000 * MS).step_by(MS as usize) {
        queue.waiting.push_back(now - 500 * MS);
        queue.waiting.push_back(now - 500 * MS);
        assert!(codel.dequeue(now, &mut queue).is_some());
        queue.waiting.clear();
    }
    assert!(queue.dropped.is_empty());
}

#[test]
fn one_segment_below_the_target_begins_a_new_interval() {
    let mut codel = codel();
    assert!(run(&mut codel, false, 20 * MS, 1_000 * MS..1_099 * MS, MS).is_empty());
    run(&mut codel, false, 0, 1_099 * MS..1_100 * MS, MS);
    let again = run(&mut codel, false, 20 * MS, 1_100 * MS..1_300 * MS, MS);
    assert_eq!(again.first(), Some(&(1_200 * MS)));
}

#[test]
fn returning_congestion_resumes_the_previous_drop_rate() {
    let entered_again = |pause: Nanos| {
        let mut codel = codel();
        let first = run(&mut codel, false, 20 * MS, 1_000 * MS..3_000 * MS, MS / 10);
        let done = codel.count;
        assert_eq!(done as usize, first.len(), "counted from one");
        run(&mut codel, false, 0, 3_000 * MS..3_000 * MS + pause, MS);
        assert!(!codel.dropping);
        let from = 3_000 * MS + pause;
        let second = run(&mut codel, false, 20 * MS, from..from + 101 * MS, MS);
        assert_eq!(second.first(), Some(&(from + 100 * MS)));
        (done, codel.last_count)
    };
    // The count continues from the difference to the beginning of the last state, here 1.
    let (done, soon) = entered_again(100 * MS);
    assert_eq!(soon, done - 1);
    assert_eq!(
        entered_again(1_700 * MS).1,
        1,
        "more than 16 intervals later"
    );
}

#[test]
fn a_queue_that_runs_empty_ends_the_dropping() {
    let mut codel = codel();
    run(&mut codel, false, 20 * MS, 1_000 * MS..1_500 * MS, MS);
    assert!(codel.dropping);
    assert_eq!(codel.dequeue(1_501 * MS, &mut Plain::default()), None);
    assert!(!codel.dropping && codel.first_above_time.is_none());
}

proptest! {
    /// In any case every segment is accounted for, the order is kept, and a dropped segment had
    /// waited for at least the target.
    #[test]
    fn every_segment_is_sent_or_dropped_in_order(
        steps in prop::collection::vec((0_u64..30 * MS, 0_usize..6, 0_usize..6), 1..300),
        markable in any::<bool>(), target in 1_u64..20, interval in 20_u64..200,
    ) {
        let spec = CodelSpec {
            target: Duration::from_millis(target),
            interval: Duration::from_millis(interval),
        };
        let mut codel = Codel::new(&spec, 1500);
        let mut queue = Plain { markable, ..Plain::default() };
        let (mut now, mut came, mut sent) = (0, 0, Vec::new());
        for (gap, arrivals, departures) in steps {
            now += gap;
            for _ in 0..arrivals {
                queue.waiting.push_back(now);
                came += 1;
            }
            for _ in 0..departures {
                let dropped = queue.dropped.len();
                let had = !queue.waiting.is_empty();
                let segment = codel.dequeue(now, &mut queue);
                for since in &queue.dropped[dropped..] {
                    prop_assert!(now - since >= target * MS);
                }
                // Never the last one: a queue of at most one packet is short enough.
                prop_assert_eq!(had, segment.is_some());
                sent.extend(segment);
            }
        }
        prop_assert!(sent.is_sorted());
        prop_assert!(!markable || queue.dropped.is_empty());
        prop_assert_eq!(came, sent.len() + queue.dropped.len() + queue.waiting.len());
    }
}
