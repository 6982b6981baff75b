use proptest::prelude::*;

use super::*;

const SECOND: MomentMicros = 1_000_000;

fn sample() -> impl Strategy<Value = SeriesSample> {
    let value = prop_oneof![
        any::<f64>(),
        0.0..=1.0_f64,
        0.0..1e10_f64,
        Just(0.0),
        Just(1e13)
    ];
    let at = prop_oneof![any::<MomentMicros>(), -100 * SECOND..100 * SECOND];
    (at, value, any::<bool>()).prop_map(|(at, value, exact)| match exact {
        true => SeriesSample::exact(at, value),
        false => SeriesSample::at_least(at, value),
    })
}

fn sound(quantity: ForecastQuantity, forecast: SeriesForecast) -> Result<(), TestCaseError> {
    let Quantiles { p10, p50, p90 } = forecast.quantiles;
    let (least, most) = quantity.range();
    prop_assert!(p10 <= p50 && p50 <= p90, "{forecast:?}");
    prop_assert!(p10 >= least && p90 <= most, "{forecast:?}");
    Ok(())
}

proptest! {
    #[test]
    fn forecasts_are_always_ordered_finite_and_in_range(
        samples in prop::collection::vec(sample(), 0..200),
    ) {
        for quantity in ForecastQuantity::ALL {
            for detail in [SeriesDetail::Full, SeriesDetail::Compact] {
                let mut series = Series::new(quantity, detail);
                for &sample in &samples {
                    let before = series.clone();
                    match series.observe(sample) {
                        Ok(()) => prop_assert_eq!(series.samples(), before.samples() + 1),
                        Err(_) => {
                            prop_assert_eq!(series.samples(), before.samples());
                            prop_assert_eq!(series.forecast(), before.forecast());
                        }
                    }
                    for moment in [MomentMicros::MIN, 0, 50 * SECOND, MomentMicros::MAX] {
                        if let Some(forecast) = series.forecast_at(moment) {
                            sound(quantity, forecast)?;
                        }
                    }
                    for (_, value) in series.predictions() {
                        prop_assert!(value.is_finite());
                    }
                }
                prop_assert_eq!(series.forecast().is_some(), series.samples() > 0);
            }
        }
    }

    /// The bound of `FixedShare` holds for the actual predictions of the series: its errors against
    /// those of the best predictors in hindsight.
    #[test]
    fn the_mixture_keeps_the_bound_over_any_values(
        values in prop::collection::vec((0.0..=1e9_f64, 1usize..20), 2..40),
    ) {
        let mut series = Series::new(ForecastQuantity::Rate, SeriesDetail::Full);
        let experts = series.family.predicted().len();
        let (mut suffered, mut losses, mut steps) = (0.0, vec![0.0; experts], 0);
        let values = values.into_iter().flat_map(|(value, times)| vec![value; times]);
        for (at, value) in values.enumerate() {
            if at > 0 {
                let NextPrediction { centre, counted, forecast } = series.next;
                let near = |place: f64| place.clamp(centre - counted, centre + counted);
                let came = near(ForecastQuantity::Rate.to_scale(value));
                let loss = |predicted: f64| (came - near(predicted)).abs() / (2.0 * counted);
                suffered += loss(forecast);
                for (sum, predicted) in losses.iter_mut().zip(series.family.predicted()) {
                    *sum += loss(f64::from(*predicted));
                }
                steps += 1;
            }
            series.observe(SeriesSample::exact(at as MomentMicros * SECOND, value)).unwrap();
        }
        let best = losses.into_iter().fold(f64::INFINITY, f64::min);
        let bound = series.mixture.regret_bound(steps, 0);
        prop_assert!(suffered <= best + bound + 1e-3 * steps as f64, "{suffered} {best} {bound}");
    }

    #[test]
    fn the_band_misses_no_more_than_its_bound(
        values in prop::collection::vec((0.0..=1e13_f64, 1usize..40), 1..60),
    ) {
        let mut series = Series::new(ForecastQuantity::Rate, SeriesDetail::Compact);
        let (mut below, mut above, mut count) = (0.0, 0.0, 0.0);
        let values = values.into_iter().flat_map(|(value, times)| vec![value; times]);
        for (at, value) in values.enumerate() {
            if let Some(issued) = series.horizons[0].due_forecast() {
                let value = ForecastQuantity::Rate.to_scale(value);
                below += f64::from(u8::from(value < issued.tails.lower));
                above += f64::from(u8::from(value > issued.tails.upper));
                count += 1.0;
            }
            series.observe(SeriesSample::exact(at as MomentMicros * SECOND, value)).unwrap();
        }
        let most = 0.1 * count + series.horizons[0].band.max_excess_misses(1);
        prop_assert!(below <= most && above <= most, "{below} {above} of {count}");
    }
}

fn fed(detail: SeriesDetail, values: impl Iterator<Item = f64>) -> Series {
    let mut series = Series::new(ForecastQuantity::Rate, detail);
    for (at, value) in values.enumerate() {
        series
            .observe(SeriesSample::exact(at as MomentMicros * SECOND, value))
            .unwrap();
    }
    series
}

#[test]
fn a_steady_rate_is_known_after_few_samples() {
    for detail in [SeriesDetail::Full, SeriesDetail::Compact] {
        let forecast = fed(detail, std::iter::repeat_n(1e8, 200))
            .forecast()
            .unwrap();
        let Quantiles { p10, p50, p90 } = forecast.quantiles;
        assert!((p50 / 1e8 - 1.0).abs() < 1e-3, "{forecast:?}");
        assert!(p10 > 0.98e8 && p90 < 1.02e8, "{forecast:?}");
        assert_eq!(forecast.coverage_100, Some(1.0));
        assert_eq!(forecast.coverage_1000, None);
    }
}

#[test]
fn a_step_is_followed_within_a_few_samples() {
    let values = std::iter::repeat_n(1e8, 300).chain(std::iter::repeat_n(1e7, 5));
    let p50 = fed(SeriesDetail::Full, values)
        .forecast()
        .unwrap()
        .quantiles
        .p50;
    assert!((0.8e7..1.5e7).contains(&p50), "{p50}");
}

#[test]
fn one_outlier_hardly_moves_the_forecast() {
    let noise = (0..300u32)
        .map(|step| 1e8 * (1.0 + 0.1 * f64::from(step.wrapping_mul(2_654_435_761) >> 24) / 256.0));
    let p50 = fed(SeriesDetail::Full, noise.chain([1e6]))
        .forecast()
        .unwrap()
        .quantiles
        .p50;
    // Predictors that follow at once count up to eight typical errors away.
    assert!(p50 > 0.8e8, "{p50}");
}

#[test]
fn a_lower_bound_lifts_a_forecast_and_never_lowers_it() {
    let mut series = fed(SeriesDetail::Full, std::iter::repeat_n(1e8, 100));
    for second in 100..120 {
        series
            .observe(SeriesSample::at_least(second * SECOND, 1e6))
            .unwrap();
    }
    let p50 = series.forecast().unwrap().quantiles.p50;
    assert!((p50 / 1e8 - 1.0).abs() < 1e-3, "{p50}");
    for second in 120..140 {
        series
            .observe(SeriesSample::at_least(second * SECOND, 5e8))
            .unwrap();
    }
    let p50 = series.forecast().unwrap().quantiles.p50;
    assert!(p50 > 4e8, "{p50}");
    assert_eq!(
        series.forecast().unwrap().coverage_100,
        None,
        "a bound is held against no band"
    );
}

#[test]
fn a_later_moment_gets_the_longer_horizon() {
    let series = fed(
        SeriesDetail::Full,
        (0..100).map(|step| 1e8 + f64::from(step)),
    );
    assert_eq!(series.newest(), Some(99 * SECOND));
    assert_eq!(series.forecast_at(100 * SECOND).unwrap().ahead, 1);
    assert_eq!(series.forecast_at(104 * SECOND).unwrap().ahead, 8);
    assert_eq!(series.forecast_at(10_000 * SECOND).unwrap().ahead, 8);
    // A random walk spreads with time, and so does its forecast.
    let mut place = 0.0;
    let walk = (0..2000u32).map(|step| {
        place += f64::from(step.wrapping_mul(2_654_435_761) >> 24) / 2560.0 - 0.05;
        1e8 * f64::exp(place)
    });
    let series = fed(SeriesDetail::Full, walk);
    let width = |at| {
        let issued = series.forecast_at(at).unwrap().quantiles;
        (issued.p90 / issued.p10).ln()
    };
    assert!(width(2007 * SECOND) > 1.5 * width(2000 * SECOND));
}

#[test]
fn memory_does_not_grow_and_is_small() {
    for (detail, most) in [
        (SeriesDetail::Full, 8 << 10),
        (SeriesDetail::Compact, 3 << 10),
    ] {
        let new = Series::new(ForecastQuantity::Rate, detail).state_bytes();
        assert!(new <= most, "{detail:?}: {new}");
        let long = fed(detail, (0..5000).map(|step| f64::from(step % 97) * 1e6));
        assert_eq!(long.state_bytes(), new);
    }
}

#[test]
fn weights_move_closer_after_a_gap() {
    let mut series = fed(
        SeriesDetail::Full,
        (0..500).map(|step| if step % 2 == 0 { 1e8 } else { 2e8 }),
    );
    let most = |series: &Series| series.mixture.weights().iter().copied().fold(0.0, f32::max);
    let before = most(&series);
    series
        .observe(SeriesSample::exact(10_000 * SECOND, 1.5e8))
        .unwrap();
    assert!(most(&series) < 0.8 * before, "{} {before}", most(&series));
}
