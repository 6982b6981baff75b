#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

fn flow(port: u16, acked: u64, is_backlogged: bool) -> FlowSample {
    FlowSample {
        port,
        acked,
        is_backlogged,
    }
}

/// Feeds a second of samples each: two flows that together carry `rates`, in bytes per second.
fn meter(rates: &[u64], is_backlogged: bool) -> (PathMeter, Duration) {
    let mut meter = PathMeter::default();
    let (mut acked, mut now) = (0, Duration::ZERO);
    for rate in rates {
        meter.observe(
            now,
            &[flow(1, acked / 2, is_backlogged), flow(2, acked / 2, true)],
        );
        acked += rate;
        now += Duration::from_secs(1);
    }
    (meter, now)
}

#[test]
fn saturated_path_has_the_sum_of_its_flows() {
    let (meter, now) = meter(&[1_000_000; 8], true);
    assert_eq!(meter.valid_rate(now), Some(8e6));
}

#[test]
fn path_that_programs_leave_idle_is_not_measured() {
    assert_eq!(
        meter(&[1_000_000; 8], false).0.valid_rate(Duration::ZERO),
        None
    );
    let mut meter = PathMeter::default();
    for second in 0..9 {
        meter.observe(Duration::from_secs(second), &[]);
    }
    assert_eq!(meter.valid_rate(Duration::from_secs(9)), None);
}

#[test]
fn slow_start_does_not_count() {
    assert_eq!(meter(&[1_000; 3], true).0.valid_rate(Duration::ZERO), None);
}

#[test]
fn measured_rate_expires() {
    let (meter, now) = meter(&[1_000_000; 8], true);
    assert!(meter.valid_rate(now + RATE_LIFETIME / 2).is_some());
    assert_eq!(meter.valid_rate(now + RATE_LIFETIME), None);
}

#[test]
fn samples_in_quick_succession_are_left_out() {
    let (mut meter, now) = meter(&[1_000_000; 8], true);
    let just_after = now - Duration::from_millis(900);
    meter.observe(just_after, &[flow(1, 0, true)]);
    assert_eq!(meter.valid_rate(now), Some(8e6));
}

proptest! {
    /// Whatever the kernel reports, the rate is finite and not negative.
    #[test]
    fn any_samples_give_a_sensible_rate(
        samples in prop::collection::vec(
            (0_u64..5_000, prop::collection::vec((0_u16..4, any::<u64>(), any::<bool>()), 0..5)),
            0..40,
        )
    ) {
        let (mut meter, mut now) = (PathMeter::default(), Duration::ZERO);
        for (after, flows) in samples {
            now += Duration::from_millis(after);
            let flows: Vec<_> = flows
                .into_iter()
                .map(|(port, acked, full)| flow(port, acked >> 8, full))
                .collect();
            meter.observe(now, &flows);
            let rate = meter.valid_rate(now);
            prop_assert!(rate.is_none_or(|rate| rate.is_finite() && rate >= 0.0));
        }
    }
}
