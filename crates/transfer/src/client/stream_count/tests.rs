use proptest::prelude::*;

use super::*;
use drs::Tally;
use quantities::path::CongestionControl;

const MB: u64 = 1_000_000;
const TICK: Duration = Duration::from_millis(25);

/// A copy over a path, as the policy sees it.
struct Copy {
    view: View,
    total: u64,
    done: u64,
    /// Rate of a number of streams, in bytes per second.
    rate: fn(usize) -> u64,
    /// Limit of a number of streams.
    limit: fn(usize) -> Limit,
    /// Segments lost per million.
    loss: u64,
    /// Lost segments so far, in millionths.
    lost: u64,
    /// True if this end sees losses before they are reported to it.
    sees_losses: bool,
    /// Ratio of the smallest stream's rate to the total rate.
    least_share: Option<f64>,
    /// Round-trip time with the queue of a number of streams, in percent of the path's own.
    rtt_percent: fn(usize) -> u32,
    min_rtt: Duration,
}

impl Copy {
    fn new(total: u64, rtt_ms: u64, limit: fn(usize) -> Limit, rate: fn(usize) -> u64) -> Self {
        Self {
            view: View {
                open: 1,
                mss: 1448,
                ..View::default()
            },
            total,
            done: 0,
            rate,
            limit,
            loss: 0,
            lost: 0,
            sees_losses: false,
            least_share: None,
            rtt_percent: |_| 100,
            min_rtt: Duration::from_millis(rtt_ms),
        }
    }

    /// Continues until `seconds` have passed since the start. Returns the numbers wanted, in order.
    fn run(&mut self, count: &mut StreamCount, seconds: u64) -> Vec<usize> {
        let mut seen = vec![count.wanted()];
        while self.view.now < Duration::from_secs(seconds) {
            self.tick(count);
            if seen.last() != Some(&count.wanted()) {
                seen.push(count.wanted());
            }
        }
        seen
    }

    fn tick(&mut self, count: &mut StreamCount) {
        let moved = self.total.min(self.done + (self.rate)(self.view.open) / 40) - self.done;
        self.done += moved;
        self.view.moved += moved;
        let limit = (self.limit)(self.view.open);
        self.view
            .sending
            .hold(limit, TICK * u32::try_from(self.view.open).unwrap());
        self.lost += moved * self.loss / 1448;
        self.view.lost = self.lost / 1_000_000;
        self.view.loss_signs = if self.sees_losses { self.view.lost } else { 0 };
        self.view.now += TICK;
        self.view.left = self.total - self.done;
        self.view.least_share = self.least_share;
        self.view.min_rtt = self.min_rtt;
        self.view.rtt = self.min_rtt * (self.rtt_percent)(self.view.open) / 100;
        let queue = self.view.rtt - self.min_rtt;
        self.view.queue = Queue {
            at_least: queue,
            at_most: queue,
        };
        count.observe(&self.view);
        self.view.open = count.wanted();
    }
}

fn auto() -> StreamCount {
    StreamCount::new(None, None, 64)
}

/// Returns a count that begins with `streams` streams.
fn begun_with(streams: usize) -> StreamCount {
    StreamCount::new(None, None, streams)
}

fn needed(count: &StreamCount) -> Option<u32> {
    count.needed().map(|learned| learned.streams)
}

const LARGE: u64 = 1_000_000 * MB;

#[test]
fn large_copy_begins_with_several_streams() {
    let growing = |_| Limit::Path;
    let carried = |_| 50 * MB;
    let small = Copy::new(16 * MB, 100, growing, carried).run(&mut auto(), 1);
    assert_eq!(small, [1, 8]);
    let large = Copy::new(LARGE, 100, growing, carried).run(&mut auto(), 1);
    assert_eq!(large, [1, 16]);
    assert_eq!(
        Copy::new(2 * MB, 100, growing, carried).run(&mut auto(), 1),
        [1]
    );
    // Within a site, slow start costs nothing, but processors may be the limit.
    assert_eq!(
        Copy::new(LARGE, 1, growing, carried).run(&mut auto(), 1),
        [1, 4]
    );
    assert_eq!(
        Copy::new(60 * MB, 1, growing, carried).run(&mut auto(), 1),
        [1]
    );
}

/// Returns the view `ms` milliseconds after the start, before the first stream is open.
fn unopened(ms: u64) -> View {
    View {
        now: Duration::from_millis(ms),
        is_unopened: true,
        ..View::default()
    }
}

#[test]
fn streams_open_alongside_the_first_on_a_long_path() {
    let looks = |views: &[View]| {
        let mut count = auto();
        views.iter().for_each(|view| count.observe(view));
        count.wanted()
    };
    let pull = |ms| View {
        is_size_unknown: true,
        ..unopened(ms)
    };
    assert_eq!(looks(&[pull(5)]), 1);
    assert_eq!(looks(&[pull(5), pull(25)]), STREAMS_AT_START);
    assert_eq!(looks(&[pull(25), pull(49)]), STREAMS_AT_START);
    assert_eq!(looks(&[pull(25), pull(50)]), STREAMS_AT_START_LARGE);
    // The size of a push is known.
    let push = |left| View {
        left,
        ..unopened(25)
    };
    assert_eq!(looks(&[push(MB)]), 1);
    assert_eq!(looks(&[push(5 * MB)]), STREAMS_AT_START);
    assert_eq!(looks(&[push(LARGE)]), STREAMS_AT_START_LARGE);
    // Small windows count as soon as the round-trip time is known.
    let mut open = push(LARGE);
    (open.open, open.is_unopened) = (1, false);
    (open.rtt, open.largest_window) = (Duration::from_millis(150), Some(65_535));
    assert_eq!(looks(&[push(LARGE), open]), 32);
}

#[test]
fn steady_windows_without_a_queue_double_the_streams() {
    let mut copy = Copy::new(
        LARGE,
        100,
        |_| Limit::Growing,
        |n| n.min(16) as u64 * 5 * MB,
    );
    assert_eq!(copy.run(&mut auto(), 8), [1, 16, 32, 16]);
    // They do not count while they grow, or at a queue.
    let mut copy = Copy::new(LARGE, 100, |_| Limit::Growing, |_| 50 * MB);
    copy.rtt_percent = |_| 108;
    assert_eq!(copy.run(&mut auto(), 8), [1, 16]);
}

#[test]
fn small_windows_increase_the_number_at_the_start() {
    // 64 KiB over 150 ms are 3.5 Mbit/s.
    let mut copy = Copy::new(
        LARGE,
        150,
        |_| Limit::ReceiveWindow,
        |n| n.min(32) as u64 * 436_000,
    );
    copy.view.largest_window = Some(65_535);
    let mut count = auto();
    // The number increases further while they limit the rate.
    assert_eq!(copy.run(&mut count, 20), [1, 32, 64]);
    // There are no more streams than have something to carry.
    let mut copy = Copy::new(
        6 << 20,
        150,
        |_| Limit::ReceiveWindow,
        |n| n as u64 * 436_000,
    );
    copy.view.largest_window = Some(65_535);
    let seen = copy.run(&mut auto(), 1);
    assert!(matches!(seen[..], [1, 11 | 12]), "{seen:?}");
}

#[test]
fn random_losses_add_streams_while_that_pays() {
    let mut copy = Copy::new(LARGE, 60, |_| Limit::Loss, |n| n.min(16) as u64 * 10 * MB);
    copy.loss = 100;
    let mut count = auto();
    let seen = copy.run(&mut count, 30);
    assert_eq!(
        seen,
        [1, 16, 64],
        "the step that did not pay is the last one"
    );
    assert_eq!(needed(&count), Some(64));
}

#[test]
fn losses_are_answered_within_a_second() {
    let mut copy = Copy::new(LARGE, 60, |_| Limit::Loss, |n| n as u64 * 10 * MB);
    assert_eq!(copy.run(&mut auto(), 1), [1, 16, 64]);
}

#[test]
fn early_losses_without_a_queue_are_answered_at_once() {
    let mut copy = Copy::new(16 * MB, 60, |_| Limit::Growing, |n| n as u64 * MB / 8);
    copy.loss = 1_000;
    copy.sees_losses = true;
    let mut count = auto();
    assert_eq!(copy.run(&mut count, 1)[..3], [1, 8, 14]);
    // Behind a queue, losses end any slow start.
    copy = Copy::new(16 * MB, 60, |_| Limit::Growing, |n| n as u64 * MB / 8);
    (copy.loss, copy.sees_losses, copy.rtt_percent) = (1_000, true, |_| 150);
    assert_eq!(copy.run(&mut auto(), 1), [1, 8]);
}

#[test]
fn growing_window_is_not_a_limit() {
    let mut copy = Copy::new(LARGE, 100, |_| Limit::ReceiveWindow, |_| MB);
    let mut count = auto();
    // The rate doubles in every window of four round trips.
    for (second, rate) in [|_| 5 * MB, |_| 10 * MB, |_| 20 * MB, |_| 40 * MB]
        .into_iter()
        .enumerate()
    {
        copy.rate = rate;
        copy.view.now = Duration::from_millis(400 * second as u64);
        for _ in 0..16 {
            copy.tick(&mut count);
        }
    }
    assert_eq!(count.wanted(), STREAMS_AT_START_LARGE);
    assert_eq!(
        copy.run(&mut count, 8).last(),
        Some(&64),
        "once it is steady, it is"
    );
}

#[test]
fn losses_while_the_round_trip_moves_add_no_streams() {
    // A queue that stood when the copy began looks like a part of the path.
    let mut copy = Copy::new(LARGE, 60, |_| Limit::Loss, |n| n as u64 * MB);
    copy.rtt_percent = |_| 108;
    assert_eq!(copy.run(&mut auto(), 30), [1, 16]);
    copy = Copy::new(LARGE, 60, |_| Limit::Loss, |n| n as u64 * MB);
    copy.rtt_percent = |_| 130;
    assert_eq!(copy.run(&mut auto(), 40).last(), Some(&2));
}

#[test]
fn path_capacity_and_loss_rate_give_the_number() {
    // The streams fill the path at first, and a queue stands. Then losses limit each to a twelfth
    // of it: CUBIC carries 122 segments a round trip at 1e-4, 122 * 1448 bytes / 60 ms = 2.95 MB/s.
    let full = |_| Limit::Path;
    let mut copy = Copy::new(LARGE, 60, full, |_| 36 * MB);
    copy.loss = 100;
    let mut count = begun_with(4);
    copy.run(&mut count, 1);
    count.most = 64;
    copy.limit = |_| Limit::Loss;
    copy.rate = |n| (n as u64 * 3 * MB).min(36 * MB);
    copy.view.congestion = Some(CongestionControl::Cubic);
    let seen = copy.run(&mut count, 10);
    assert_eq!(seen.first(), Some(&4));
    assert!(
        seen.last().is_some_and(|n| (10..=16).contains(n)),
        "enough to fill it, and no more: {seen:?}"
    );
}

#[test]
fn late_acknowledgements_are_no_queue_on_an_unfilled_path() {
    let mut copy = Copy::new(LARGE, 60, |_| Limit::Path, |_| 100 * MB);
    let mut count = auto();
    copy.run(&mut count, 1);
    // Each single flow still blames the path.
    copy.rate = |n| n as u64 * MB;
    (copy.loss, copy.sees_losses) = (1_000, true);
    copy.rtt_percent = |_| 112;
    assert_eq!(copy.run(&mut count, 3).last(), Some(&64));
    // Without losses, the queue may be due to other flows.
    let mut copy = Copy::new(LARGE, 60, |_| Limit::Path, |_| 100 * MB);
    let mut count = auto();
    copy.run(&mut count, 1);
    copy.rate = |n| n as u64 * MB;
    assert!(copy.run(&mut count, 10).iter().all(|n| *n <= 16));
}

#[test]
fn peak_rate_before_a_queue_counts_as_path_capacity() {
    let mut count = auto();
    // Slow start fills the path, and its queue shows after losses have slowed the streams down.
    let mut copy = Copy::new(LARGE, 60, |_| Limit::Sender, |_| 120 * MB);
    copy.run(&mut count, 1);
    (copy.limit, copy.rate, copy.rtt_percent) = (|_| Limit::Path, |_| 60 * MB, |_| 130);
    copy.run(&mut count, 2);
    assert_eq!(count.wanted(), 16);
    // From then on losses limit each stream.
    (copy.limit, copy.rtt_percent, copy.loss) = (|_| Limit::Loss, |_| 100, 100);
    copy.rate = |streams| (streams as u64 * 7 / 2 * MB).min(120 * MB);
    copy.run(&mut count, 8);
    assert!(count.wanted() >= 32, "{}", count.wanted());
}

#[test]
fn queue_that_others_sometimes_empty_is_standing() {
    let mut copy = Copy::new(LARGE, 40, |_| Limit::Path, |_| 50 * MB);
    let mut count = auto();
    for third in 0..60 {
        let empties = third % 3 == 2;
        copy.limit = if empties {
            |_| Limit::Growing
        } else {
            |_| Limit::Path
        };
        copy.rtt_percent = if empties { |_| 110 } else { |_| 150 };
        (0..40).for_each(|_| copy.tick(&mut count));
    }
    assert!(count.wanted() <= 4, "{}", count.wanted());
}

#[test]
fn standing_queue_retires_streams_down_to_two() {
    // The queue is as long as the path's round trip, so half as many streams still fill the path.
    let mut copy = Copy::new(LARGE, 40, |_| Limit::Path, |_| 50 * MB);
    copy.rtt_percent = |_| 200;
    let mut count = auto();
    assert_eq!(copy.run(&mut count, 8), [1, 16, 8, 4, 2]);
    assert_eq!(needed(&count), Some(2));
    // With a short queue, streams are retired one by one, and later.
    let mut copy = Copy::new(LARGE, 40, |_| Limit::Path, |_| 50 * MB);
    copy.rtt_percent = |_| 117;
    let mut count = auto();
    assert!(copy.run(&mut count, 4).last() > Some(&8));
    assert_eq!(copy.run(&mut count, 60).last(), Some(&2));
}

#[test]
fn stream_smaller_than_the_queue_is_retired_sooner() {
    // Returns when one of four streams is retired, over 200 ms with a queue of 34 ms.
    let retired_after = |least_share| {
        let mut copy = Copy::new(LARGE, 200, |_| Limit::Path, |_| 50 * MB);
        copy.rtt_percent = |_| 117;
        copy.least_share = least_share;
        let mut count = begun_with(4);
        while count.wanted() != 4 {
            copy.tick(&mut count);
        }
        while count.wanted() == 4 {
            copy.tick(&mut count);
        }
        copy.view.now.as_secs()
    };
    let seconds = retired_after(Some(0.14));
    assert!((1..4).contains(&seconds), "{seconds}");
    for least_share in [Some(0.15), None] {
        let seconds = retired_after(least_share);
        assert!((13..17).contains(&seconds), "{seconds}");
    }
}

#[test]
fn overflowing_queue_retires_streams_not_limited_by_losses() {
    // BBR's streams carry as much, whatever the loss and their number.
    let mut copy = Copy::new(LARGE, 80, |_| Limit::Loss, |_| 50 * MB);
    (copy.loss, copy.sees_losses) = (110_000, true);
    let mut count = auto();
    assert_eq!(copy.run(&mut count, 8), [1, 16, 8, 4, 2]);
    assert_eq!(needed(&count), Some(2));
    // The remaining drops are fewer. They are not answered with more streams, although other flows
    // take their share.
    (copy.loss, copy.rate) = (10_000, |_| 20 * MB);
    assert_eq!(copy.run(&mut count, 90), [2]);
}

#[test]
fn drops_of_a_visible_queue_retire_no_stream_sooner() {
    let wanted = |loss| {
        let mut copy = Copy::new(LARGE, 40, |_| Limit::Path, |_| 50 * MB);
        (copy.loss, copy.sees_losses) = (loss, true);
        copy.rtt_percent = |_| 117;
        copy.run(&mut auto(), 60)
    };
    assert_eq!(wanted(110_000), wanted(0));
}

#[test]
fn streams_limited_by_losses_are_not_retired_for_them() {
    // At 5 %, a CUBIC stream has about five segments in flight.
    let mut copy = Copy::new(
        LARGE,
        80,
        |_| Limit::Loss,
        |streams| streams as u64 * 90_000,
    );
    (copy.loss, copy.sees_losses) = (50_000, true);
    assert_eq!(copy.run(&mut auto(), 8).last(), Some(&64));
}

#[test]
fn losses_after_a_queue_is_gone_restore_the_streams() {
    let limit = |streams| {
        if streams < 16 {
            Limit::Loss
        } else {
            Limit::Path
        }
    };
    let mut copy = Copy::new(LARGE, 60, limit, |streams| streams.min(17) as u64 * 7 * MB);
    copy.rtt_percent = |streams| if streams < 16 { 100 } else { 170 };
    (copy.loss, copy.sees_losses) = (100, true);
    let seen = copy.run(&mut auto(), 60);
    // The number that carried the rate before returns, until there are enough losses to compute the
    // number that they need. That one is kept at the queue.
    assert_eq!(seen, [1, 16, 10, 16, 10, 40]);
}

#[test]
fn losses_add_streams_below_an_unpaid_step() {
    let mut copy = Copy::new(LARGE, 30, |_| Limit::Path, |_| 130 * MB);
    (copy.loss, copy.sees_losses) = (100, true);
    copy.rtt_percent = |_| 120;
    let mut count = auto();
    copy.run(&mut count, 1);
    // The path seems to have random losses, and is full.
    (copy.rate, copy.rtt_percent) = (|_| 105 * MB, |_| 112);
    let grows = (0..400).any(|_| {
        copy.tick(&mut count);
        count.wanted() > 16
    });
    assert!(grows, "within ten seconds");
    let seconds = copy.view.now.as_secs() + 8;
    copy.rtt_percent = |streams| if streams > 11 { 150 } else { 100 };
    copy.limit = |streams| {
        if streams > 11 {
            Limit::Path
        } else {
            Limit::Loss
        }
    };
    copy.rate = |streams| (streams as u64 * 6).min(105) * MB;
    let seen = copy.run(&mut count, seconds);
    let fewest = seen.iter().position(|streams| *streams <= 11);
    assert!(
        fewest.is_some_and(|at| seen[at..].iter().any(|streams| *streams > 16)),
        "{seen:?}"
    );
}

/// Returns a number learned on a path with this round-trip time and window.
fn learned(streams: u32, rtt_ms: u64, window: u64, loss_ppm: u64) -> Option<LearnedStreams> {
    Some(LearnedStreams {
        streams,
        conditions: PathConditions {
            rtt: Duration::from_millis(rtt_ms),
            window,
            loss_ppm,
            addresses: 0,
        },
    })
}

#[test]
fn remembered_number_is_used_and_dropped_if_it_does_not_pay() {
    let mut count = StreamCount::new(None, learned(40, 100, 0, 0), 64);
    let mut copy = Copy::new(LARGE, 100, |_| Limit::Path, |_| 50 * MB);
    copy.rtt_percent = |_| 200;
    assert_eq!(copy.run(&mut count, 1), [1, 40]);
    assert_eq!(copy.run(&mut count, 30), [40, 20, 10, 5, 3, 2]);
    assert_eq!(needed(&count), Some(2));
}

#[test]
fn memory_of_a_better_path_does_not_slow_a_copy() {
    for remembered in [learned(2, 20, 8 << 20, 0), learned(2, 100, 65_536, 0), None] {
        let mut count = StreamCount::new(None, remembered, 64);
        // 16 MiB between hosts with windows of 64 KiB.
        let mut copy = Copy::new(
            16 << 20,
            100,
            |_| Limit::ReceiveWindow,
            |n| n as u64 * 655_360,
        );
        copy.view.largest_window = Some(65_536);
        let seen = copy.run(&mut count, 1);
        assert!(matches!(seen[..], [1, 31]), "{remembered:?}: {seen:?}");
        // The losses are new.
        let grows = |remembered| {
            let mut count = StreamCount::new(None, remembered, 64);
            let mut copy = Copy::new(LARGE, 60, |_| Limit::Loss, |n| n as u64 * 4 * MB);
            copy.loss = 1000;
            copy.sees_losses = true;
            copy.run(&mut count, 10)
        };
        assert_eq!(grows(learned(2, 60, 0, 0)), grows(None));
    }
}

#[test]
fn memory_of_another_path_is_not_used() {
    for remembered in [
        learned(64, 20, 0, 0),
        learned(64, 300, 0, 0),
        learned(64, 100, 65_536, 0),
    ] {
        let mut count = StreamCount::new(None, remembered, 64);
        let mut copy = Copy::new(LARGE, 100, |_| Limit::Path, |_| 50 * MB);
        copy.view.largest_window = Some(8 << 20);
        assert_eq!(copy.run(&mut count, 1), [1, 16], "{remembered:?}");
    }
}

#[test]
fn memory_from_a_lossy_path_is_dropped_without_losses() {
    let mut count = StreamCount::new(None, learned(64, 100, 0, 1000), 64);
    let mut copy = Copy::new(LARGE, 100, |_| Limit::Growing, |n| n as u64 * MB);
    let seen = copy.run(&mut count, 1);
    assert!(seen.starts_with(&[1, 64, 16]), "{seen:?}");
    let mut count = StreamCount::new(None, learned(64, 100, 0, 1000), 64);
    let mut copy = Copy::new(LARGE, 100, |_| Limit::Loss, |n| n as u64 * MB);
    copy.loss = 1000;
    copy.sees_losses = true;
    assert_eq!(copy.run(&mut count, 10), [1, 64]);
}

#[test]
fn nothing_is_remembered_without_evidence() {
    let mut count = auto();
    Copy::new(LARGE, 100, |_| Limit::Sender, |_| 50 * MB).run(&mut count, 3);
    assert_eq!(count.needed(), None);
}

#[test]
fn processor_limit_tries_twice_the_streams_and_reverts() {
    let mut copy = Copy::new(
        LARGE,
        1,
        |_| Limit::SendingApplication,
        |n| n.min(4) as u64 * 10 * MB,
    );
    assert_eq!(copy.run(&mut auto(), 20), [1, 4, 8, 4]);
}

#[test]
fn copy_that_is_nearly_over_is_left_alone() {
    let mut copy = Copy::new(15 * MB, 60, |_| Limit::Loss, |_| 24 * MB);
    assert_eq!(copy.run(&mut auto(), 10), [1, 8]);
}

#[test]
fn number_of_the_user_is_never_changed() {
    let mut count = StreamCount::new(Some(3), learned(9, 60, 0, 0), 64);
    count.at_least(7);
    let seen = Copy::new(LARGE, 60, |_| Limit::Loss, |n| n as u64 * MB).run(&mut count, 10);
    assert_eq!(seen, [3]);
    assert_eq!(count.needed(), None);
}

#[test]
fn each_route_keeps_two_streams() {
    let mut count = auto();
    count.at_least(3);
    let mut copy = Copy::new(LARGE, 40, |_| Limit::Path, |_| 50 * MB);
    copy.view.open = 3;
    copy.rtt_percent = |_| 300;
    assert_eq!(copy.run(&mut count, 30), [3, 16, 8, 6]);
}

proptest! {
    /// Whatever the supervisor observes, the number stays between one per route and the maximum,
    /// and no input panics.
    #[test]
    fn number_of_streams_stays_within_its_bounds(
        most in 1usize..=64,
        routes in 1usize..=8,
        remembered in prop::option::of(0u32..200),
        steps in prop::collection::vec(
            (
                0u64..3_000,
                any::<u32>(),
                any::<u64>(),
                0usize..80,
                0usize..9,
                (0u64..2_000, 0u64..2_000),
                any::<u64>(),
            ),
            1..200,
        ),
    ) {
        let remembered = remembered.and_then(|n| learned(n, 100, 1 << 20, 1000));
        let mut count = StreamCount::new(None, remembered, most);
        count.at_least(routes);
        let mut view = View::default();
        for (ms, moved, left, open, limit, (rtt, min_rtt), lost) in steps {
            view.now += Duration::from_millis(ms);
            view.moved = view.moved.saturating_add(moved.into());
            view.left = left;
            view.open = open;
            view.sending.hold(Limit::ALL[limit], Duration::from_millis(ms));
            (view.rtt, view.min_rtt) = (Duration::from_millis(rtt), Duration::from_millis(min_rtt));
            view.queue.at_least = view.rtt.saturating_sub(view.min_rtt);
            view.queue.at_most = view.rtt;
            view.lost = lost;
            view.mss = 1448;
            view.largest_window = Some(lost);
            count.observe(&view);
            prop_assert!((routes.min(most)..=most).contains(&count.wanted()));
        }
    }

    /// A queue that always stands never adds streams after the start, and ends at two.
    #[test]
    fn standing_queue_never_adds_streams(
        remembered in prop::option::of(1u32..64),
        rtt_ms in 5u64..300,
    ) {
        let noted = remembered.and_then(|n| learned(n, rtt_ms, 0, 0));
        let mut count = StreamCount::new(None, noted, 64);
        let mut copy = Copy::new(LARGE, rtt_ms, |_| Limit::Path, |_| 50 * MB);
        copy.rtt_percent = |_| 200;
        let seen = copy.run(&mut count, 300);
        let start = remembered.map_or(0, |n| n as usize).max(STREAMS_AT_START_LARGE);
        prop_assert!(seen.iter().skip(1).all(|n| *n <= start), "{seen:?}");
        prop_assert!(count.wanted() <= STREAMS_AT_A_QUEUE, "{seen:?}");
    }
}

#[test]
fn receiving_ends_count_without_reports_of_sending_ends() {
    let mut view = View {
        open: 1,
        rtt: Duration::from_millis(100),
        mss: 1448,
        ..View::default()
    };
    let window = Window::open(&view);
    view.now = Duration::from_secs(1);
    let mut tally = Tally::default();
    tally.hold(Limit::ReceiveWindow, Duration::from_millis(500));
    view.receiving = tally;
    let seen = window.close(&view, false, Some(0.1)).unwrap();
    assert_eq!(seen.limit, Some(Limit::ReceiveWindow));
    // The sending end's view counts more.
    view.sending.hold(Limit::Loss, Duration::from_millis(400));
    assert_eq!(
        window.close(&view, false, Some(0.1)).unwrap().limit,
        Some(Limit::Loss)
    );
    // A receiving end that only knows that the sender is the cause knows nothing.
    let mut view = View {
        open: 1,
        now: Duration::from_secs(1),
        ..View::default()
    };
    view.receiving
        .hold(Limit::Sender, Duration::from_millis(500));
    let nothing = Window::open(&View::default())
        .close(&view, false, None)
        .unwrap();
    assert_eq!(nothing.limit, None);
}
