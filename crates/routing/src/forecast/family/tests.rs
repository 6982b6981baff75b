use proptest::prelude::*;

use super::*;

fn predicted(family: &PredictorFamily, name: &str) -> f32 {
    let index = family
        .names()
        .iter()
        .position(|other| *other == name)
        .unwrap();
    family.predicted()[index]
}

#[test]
fn each_predictor_has_a_name_of_its_own() {
    for family in [PredictorFamily::full(), PredictorFamily::small()] {
        assert_eq!(family.names().len(), family.predicted().len());
        let mut names = family.names().to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), family.predicted().len());
    }
}

#[test]
fn predictors_compute_what_they_are_named_for() {
    let mut family = PredictorFamily::full();
    for value in [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 7.0] {
        family.update(value);
    }
    assert_eq!(predicted(&family, "last value"), 7.0);
    assert!((predicted(&family, "running mean") - 13.0 / 7.0).abs() < 1e-6);
    assert!((predicted(&family, "mean of 5") - 11.0 / 5.0).abs() < 1e-6);
    assert_eq!(predicted(&family, "median of 5"), 1.0);
    assert_eq!(predicted(&family, "trimmed mean of 31"), 1.0);
    assert_eq!(predicted(&family, "smoothing 0.5"), 4.0);
}

#[test]
fn an_adaptive_window_shrinks_on_drift_and_grows_when_steady() {
    let mut family = PredictorFamily::full();
    let mut state = 1u64;
    for _ in 0..400 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        family.update((state >> 40) as f64 / f64::from(1 << 24));
    }
    let (large, small) = (
        predicted(&family, "mean of 51"),
        predicted(&family, "mean of 5"),
    );
    let adaptive = predicted(&family, "adaptive mean");
    assert!(
        (adaptive - large).abs() < (adaptive - small).abs(),
        "{adaptive} {large} {small}"
    );
    for step in 0..60 {
        family.update(10.0 + f64::from(step));
    }
    assert_eq!(
        predicted(&family, "adaptive mean"),
        predicted(&family, "mean of 5")
    );
}

proptest! {
    #[test]
    fn predictions_stay_near_past_values(
        values in prop::collection::vec(-20.0..30.0f64, 1..300),
    ) {
        for mut family in [PredictorFamily::full(), PredictorFamily::small()] {
            for &value in &values {
                family.update(value);
            }
            let least = values.iter().copied().fold(f64::INFINITY, f64::min) as f32;
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max) as f32;
            // Only the trend leaves the range, and its slope is less than the range per step.
            for (name, predicted) in family.names().iter().zip(family.predicted()) {
                let slack = if *name == "trend" { 2.0 * (most - least) } else { 0.0 } + 1e-4;
                prop_assert!(
                    *predicted >= least - slack && *predicted <= most + slack,
                    "{name}: {predicted}"
                );
            }
        }
    }

    #[test]
    fn all_predictors_predict_a_constant(value in -20.0..30.0f64, count in 1..120) {
        let mut family = PredictorFamily::full();
        (0..count).for_each(|_| family.update(value));
        prop_assert!(
            family.predicted().iter().all(|predicted| (f64::from(*predicted) - value).abs() < 1e-4)
        );
    }
}
