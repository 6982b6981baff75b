//! How many streams a copy has, when the user doesn't say: one a route to begin with, and more where what limits them is something
//! that another stream does not share.
//!
//! A verdict alone does not decide: each step is a trial, and the next one is made only if the last one paid. No clock and no
//! socket in here; the supervisor feeds it and opens what it asks for.

use std::time::Duration;

use drs::{Limit, Tally};

/// How long the rate is measured before and after a step; slow start must be over within it on any terrestrial path.
const WINDOW: Duration = Duration::from_secs(1);
/// The same in round trips, where those are long.
const WINDOW_RTTS: u32 = 8;
/// A step has paid when the rate grew by this factor.
const PAID: f64 = 1.1;
/// Windows in which it may show: the rate of a flow that loses goes up and down by half.
const CHANCES: u32 = 2;
/// A copy that is over sooner than this is left alone.
const WORTH: Duration = Duration::from_secs(2);
/// A trial that did not pay is made again after so long: paths change.
const AGAIN: Duration = Duration::from_secs(30);

/// What the supervisor knows at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct View {
    /// Since the copy began.
    pub now: Duration,
    /// Bytes that the streams' connections have moved so far. Not bytes in place: a block may take seconds to be complete.
    pub moved: u64,
    /// Bytes of files found and not in place; grows while the walk goes on.
    pub left: u64,
    /// What limited the sending ends of all streams since the copy began.
    pub tally: Tally,
    /// The longest round trip among them.
    pub rtt: Duration,
    /// How many streams right-sizing advises, where it does.
    pub advised: Option<u32>,
}

/// Decides. See the module's documentation.
#[derive(Debug)]
pub(super) struct StreamCount {
    wanted: usize,
    most: usize,
    fixed: bool,
    /// Where the present window began.
    begun: Option<(Duration, u64, Tally)>,
    /// The rate before the step under trial, in bytes a second, and how many windows are left for the step to show.
    before: Option<(f64, u32)>,
    /// No step before this.
    rest_until: Duration,
}

impl StreamCount {
    /// A number that the user gave, or `routes` streams to begin with and `most` at most.
    pub(super) fn new(fixed: Option<u32>, most: usize) -> Self {
        Self {
            wanted: fixed.map_or(1, |fixed| fixed as usize).clamp(1, most.max(1)),
            most: most.max(1),
            fixed: fixed.is_some(),
            begun: None,
            before: None,
            rest_until: Duration::ZERO,
        }
    }

    /// At least so many from now on, unless the user gave a number.
    pub(super) fn at_least(&mut self, floor: usize) {
        if !self.fixed {
            self.wanted = self.wanted.max(floor.min(self.most));
        }
    }

    /// How many streams there should be.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Looks, and takes a step where one is due.
    pub(super) fn look(&mut self, view: &View) {
        if self.fixed {
            return;
        }
        let Some((since, moved, tally)) = self.begun else {
            // Before the first byte there is nothing to measure.
            if view.moved > 0 {
                self.begun = Some((view.now, view.moved, view.tally));
            }
            return;
        };
        let elapsed = view.now.saturating_sub(since);
        if elapsed < WINDOW.max(view.rtt.saturating_mul(WINDOW_RTTS)) {
            return;
        }
        self.begun = Some((view.now, view.moved, view.tally));
        let limit = view.tally.since(&tally).chief().map(|(limit, _)| limit);
        let rate = view.moved.saturating_sub(moved) as f64 / elapsed.as_secs_f64();
        if let Some((before, left)) = self.before.take()
            && rate < PAID * before
        {
            if left > 1 {
                self.before = Some((before, left - 1));
                return;
            }
            self.rest_until = view.now.saturating_add(AGAIN);
        }
        let soon_over = view.left as f64 <= rate * WORTH.as_secs_f64();
        if view.now < self.rest_until || soon_over || !limit.is_some_and(another_stream_helps) {
            return;
        }
        let advised = view.advised.map_or(0, |advised| advised as usize);
        let next = (2 * self.wanted).max(advised).min(self.most);
        if next > self.wanted {
            self.wanted = next;
            self.before = Some((rate, CHANCES));
        }
    }
}

/// Whether the limit is one that each stream meets by itself.
fn another_stream_helps(limit: Limit) -> bool {
    match limit {
        // Each has its own windows and buffers, and answers its own losses only.
        Limit::SendBuffer | Limit::ReceiveWindow | Limit::Loss => true,
        // One stream is read, hashed and encrypted in turn; another one may have a processor of its own. The trial tells.
        Limit::SendingApplication | Limit::ReceivingApplication => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// Runs a copy of `total` bytes for `seconds` in which `rate` says what so many streams carry, in bytes a second.
    fn copy(
        count: &mut StreamCount,
        total: u64,
        seconds: u64,
        limit: Limit,
        rate: impl Fn(usize) -> u64,
    ) -> Vec<usize> {
        let (mut done, mut seen, mut tally) = (0, vec![], Tally::default());
        for tick in 0..seconds * 20 {
            done = total.min(done + rate(count.wanted()) / 20);
            tally.hold(limit, Duration::from_millis(50));
            count.look(&View {
                now: Duration::from_millis(50 * tick),
                moved: done,
                left: total - done,
                tally,
                rtt: Duration::from_millis(100),
                advised: None,
            });
            if seen.last() != Some(&count.wanted()) {
                seen.push(count.wanted());
            }
        }
        seen
    }

    #[test]
    fn losses_are_met_with_streams_until_they_pay_no_more() {
        let mut count = StreamCount::new(None, 64);
        // Four streams fill the path.
        let seen = copy(&mut count, 100_000 * MB, 20, Limit::Loss, |n| {
            n.min(4) as u64 * 10 * MB
        });
        assert_eq!(seen, [1, 2, 4, 8]);
    }

    #[test]
    fn a_full_path_gets_no_more_streams() {
        let mut count = StreamCount::new(None, 64);
        assert_eq!(copy(&mut count, 100_000 * MB, 20, Limit::Path, |_| 50 * MB), [1]);
        let mut count = StreamCount::new(None, 64);
        assert_eq!(
            copy(&mut count, 100_000 * MB, 20, Limit::Growing, |_| 50 * MB),
            [1]
        );
    }

    #[test]
    fn a_trial_that_did_not_pay_is_made_again_later() {
        let mut count = StreamCount::new(None, 64);
        let seen = copy(&mut count, 1_000_000 * MB, 40, Limit::Loss, |_| 50 * MB);
        assert_eq!(seen, [1, 2, 4], "one at the start, one after the rest");
    }

    #[test]
    fn a_step_has_two_windows_to_show() {
        let mut count = StreamCount::new(None, 4);
        let ticks = std::cell::Cell::new(0);
        let seen = copy(&mut count, 1_000_000 * MB, 6, Limit::Loss, |streams| {
            ticks.set(ticks.get() + u64::from(streams > 1));
            if ticks.get() > 21 { 20 * MB } else { 10 * MB }
        });
        assert_eq!(seen, [1, 2, 4]);
    }

    #[test]
    fn what_is_soon_over_is_left_alone() {
        let mut count = StreamCount::new(None, 64);
        assert_eq!(
            copy(&mut count, 40 * MB, 10, Limit::Loss, |n| n as u64 * 20 * MB),
            [1]
        );
    }

    #[test]
    fn the_users_number_stands() {
        let mut count = StreamCount::new(Some(3), 64);
        count.at_least(7);
        assert_eq!(
            copy(&mut count, 100_000 * MB, 10, Limit::Loss, |n| n as u64 * MB),
            [3]
        );
    }

    #[test]
    fn advice_shortens_the_climb_and_the_bound_ends_it() {
        let mut count = StreamCount::new(None, 16);
        let (mut done, mut now, mut tally) = (1, Duration::ZERO, Tally::default());
        for _ in 0..60 {
            now += Duration::from_millis(50);
            done += count.wanted() as u64 * MB;
            tally.hold(Limit::ReceiveWindow, Duration::from_millis(50));
            count.look(&View {
                now,
                moved: done,
                left: 1_000_000 * MB,
                tally,
                rtt: Duration::from_millis(10),
                advised: Some(12),
            });
        }
        assert_eq!(count.wanted(), 16);
    }
}
