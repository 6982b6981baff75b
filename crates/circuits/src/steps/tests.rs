//! Comparison of steps with sums over all bookings, at every moment.

use proptest::prelude::*;

use super::{MAX_BLOCK_CHANGES, RateSteps};
use crate::time::{BitsPerSecond, MomentMs, Volume, Window};

fn brute(bookings: &[(Window, BitsPerSecond)], at: MomentMs) -> BitsPerSecond {
    let there = bookings.iter().filter(|(window, _)| window.contains(at));
    there.map(|(_, rate)| rate).sum()
}

fn steps(bookings: &[(Window, BitsPerSecond)]) -> RateSteps {
    let mut steps = RateSteps::default();
    for (window, rate) in bookings {
        steps.add(*window, *rate);
    }
    steps
}

#[test]
fn bookings_that_only_touch_do_not_add() {
    let steps = steps(&[(Window::new(0, 10), 7), (Window::new(10, 20), 7)]);
    assert_eq!(steps.max_rate(Window::new(0, 20)), 7);
    assert_eq!(
        (
            steps.rate_at(9),
            steps.rate_at(10),
            steps.rate_at(19),
            steps.rate_at(20)
        ),
        (7, 7, 7, 0)
    );
    let peak = steps.peak(Window::new(0, 20));
    assert_eq!(
        (peak.rate, peak.until),
        (7, 20),
        "no change of rate where one takes over from the other"
    );
    assert_eq!(steps.changes_within(Window::new(0, 20)).count(), 0);
}

#[test]
fn equal_changes_at_one_moment_all_count() {
    let mut steps = steps(&[
        (Window::new(5, 10), 3),
        (Window::new(5, 10), 3),
        (Window::new(0, 5), 3),
    ]);
    assert_eq!(steps.rate_at(5), 6);
    steps.remove(Window::new(5, 10), 3);
    assert_eq!((steps.rate_at(4), steps.rate_at(5)), (3, 3));
    steps.remove(Window::new(0, 5), 3);
    assert_eq!(
        (steps.rate_at(4), steps.rate_at(5), steps.rate_at(10)),
        (0, 3, 0)
    );
    steps.remove(Window::new(5, 10), 3);
    assert!(steps.is_empty());
}

#[test]
fn the_peak_names_its_last_step_and_its_end() {
    let steps = steps(&[
        (Window::new(0, 10), 9),
        (Window::new(20, 30), 9),
        (Window::new(0, 40), 1),
    ]);
    let peak = steps.peak(Window::new(5, 25));
    assert_eq!((peak.rate, peak.until), (10, 30));
    assert!((20..25).contains(&peak.at));
    assert_eq!(steps.peak(Window::new(32, 35)).until, 40);
    assert_eq!(steps.peak(Window::new(50, 60)).until, MomentMs::MAX);
}

fn bookings(most: usize) -> impl Strategy<Value = Vec<(Window, BitsPerSecond)>> {
    let booking = (0..400_i64, 1..60_i64, 1..1000_u64)
        .prop_map(|(start, length, rate)| (Window::new(start, start + length), rate));
    prop::collection::vec(booking, 0..most)
}

proptest! {
    #[test]
    fn steps_equal_the_sums_of_the_bookings(
        all in bookings(4 * MAX_BLOCK_CHANGES),
        removed in any::<prop::sample::Index>(),
        (start, length) in (-10..450_i64, 0..200_i64),
    ) {
        let mut steps = steps(&all);
        let cut = if all.is_empty() { 0 } else { removed.index(all.len()) };
        for (window, rate) in &all[..cut] {
            steps.remove(*window, *rate);
        }
        let left = &all[cut..];
        let window = Window::new(start, start + length);
        let levels: Vec<BitsPerSecond> =
            (start..start + length).map(|at| brute(left, at)).collect();
        let most = levels.iter().copied().max().unwrap_or(0);
        prop_assert_eq!(steps.max_rate(window), most);
        prop_assert_eq!(
            steps.carried(window),
            Volume(levels.iter().map(|rate| u128::from(*rate)).sum())
        );
        for (at, level) in (start..).zip(&levels) {
            prop_assert_eq!(steps.rate_at(at), *level);
        }
        let changes = (start + 1..start + length)
            .filter(|at| brute(left, *at) != brute(left, at - 1));
        let changes: Vec<(MomentMs, BitsPerSecond)> =
            changes.map(|at| (at, brute(left, at))).collect();
        prop_assert_eq!(steps.changes_within(window).collect::<Vec<_>>(), changes);
        if length > 0 {
            let peak = steps.peak(window);
            prop_assert_eq!(peak.rate, most);
            prop_assert_eq!(brute(left, peak.at), most);
            prop_assert!(window.contains(peak.at));
            prop_assert!((peak.at..peak.until.min(600)).all(|at| brute(left, at) == most));
            prop_assert!(peak.until == MomentMs::MAX || brute(left, peak.until) != most);
            prop_assert!((peak.until..window.end).all(|at| brute(left, at) < most));
        }
        let mut reversed = left.to_vec();
        reversed.reverse();
        prop_assert_eq!(&steps, &self::steps(&reversed));
    }
}
