use proptest::prelude::*;

use super::*;

fn take(intake: &mut SampleFilter, at: MomentMicros) -> Result<f64, SampleRejection> {
    intake.take(ForecastQuantity::Rate, SeriesSample::exact(at, 1e6))
}

#[test]
fn invalid_samples_are_rejected_without_effect() {
    let mut intake = SampleFilter::new();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = intake.take(ForecastQuantity::Rate, SeriesSample::exact(0, value));
        assert_eq!(refused, Err(SampleRejection::NotFinite));
    }
    for (quantity, value) in [
        (ForecastQuantity::Rate, -1.0),
        (ForecastQuantity::Rate, 1e14),
        (ForecastQuantity::RoundTrip, 0.0),
        (ForecastQuantity::Loss, 1.1),
    ] {
        let refused = intake.take(quantity, SeriesSample::exact(0, value));
        assert!(
            matches!(refused, Err(SampleRejection::OutOfRange { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(intake.newest(), None);
}

#[test]
fn duplicate_and_late_samples_are_rejected() {
    let mut intake = SampleFilter::new();
    assert_eq!(take(&mut intake, 10), Ok(1.0));
    assert_eq!(take(&mut intake, 10), Err(SampleRejection::Duplicate));
    assert_eq!(
        take(&mut intake, 4),
        Err(SampleRejection::Late { by_us: 6 })
    );
    assert_eq!(take(&mut intake, 20), Ok(1.0));
    assert_eq!(intake.newest(), Some(20));
}

#[test]
fn a_gap_is_measured_in_typical_intervals() {
    let mut intake = SampleFilter::new();
    for second in 0..100 {
        take(&mut intake, second * 1_000_000).unwrap();
    }
    let steps = take(&mut intake, 199 * 1_000_000).unwrap();
    assert!((steps - 100.0).abs() < 1.0, "{steps}");
    let steps = intake.intervals_until(200 * 1_000_000);
    assert!((1.0..1.01).contains(&steps), "{steps}");
}

#[test]
fn a_clock_set_back_costs_only_a_few_samples() {
    let mut intake = SampleFilter::new();
    take(&mut intake, 1_000_000_000).unwrap();
    let refused = (0..20)
        .filter(|second| take(&mut intake, second * 1_000_000).is_err())
        .count();
    assert_eq!(refused, usize::from(CLOCK_STEP_SAMPLES) - 1);
    assert_eq!(intake.newest(), Some(19_000_000));
}

#[test]
fn late_samples_in_any_order_are_not_a_clock_step() {
    let mut intake = SampleFilter::new();
    take(&mut intake, 1_000).unwrap();
    for at in (0..100).rev() {
        assert!(take(&mut intake, at).is_err());
    }
    // Late samples that come between new ones are rejected as well.
    for at in 0..100 {
        assert!(take(&mut intake, at).is_err());
        take(&mut intake, 1_001 + at).unwrap();
    }
}

proptest! {
    #[test]
    fn any_sample_times_are_handled(times in prop::collection::vec(any::<i64>(), 1..200)) {
        let mut intake = SampleFilter::new();
        for at in times {
            if let Ok(steps) = take(&mut intake, at) {
                prop_assert_eq!(intake.newest(), Some(at));
                prop_assert!(steps >= 1.0 && steps.is_finite());
            }
            prop_assert!(intake.interval.is_finite() && intake.interval >= 0.0);
        }
    }

    #[test]
    fn a_sample_from_the_far_future_blocks_only_a_few_samples(
        ahead in 1_000_000_000..i64::MAX,
    ) {
        let mut intake = SampleFilter::new();
        take(&mut intake, 0).unwrap();
        take(&mut intake, ahead).unwrap();
        let accepted = (1..=10)
            .filter(|second| take(&mut intake, second * 1_000_000).is_ok())
            .count();
        prop_assert_eq!(accepted, 11 - usize::from(CLOCK_STEP_SAMPLES));
    }
}
