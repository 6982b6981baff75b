//! Estimate of the best-effort rate: a forecast, which the copy's own measurements gradually
//! replace.

use std::time::Duration;

/// Length of measurement from which the forecast no longer counts.
const MEASURED_WHOLLY: Duration = Duration::from_secs(60);
/// Length of measurement that is always sufficient without a forecast: slow start is over on any
/// path.
const MEASURED_AT_LEAST: Duration = Duration::from_secs(5);
/// Divisor of the time to the deadline: near the deadline, a measurement of that length is
/// sufficient.
const TIME_OVER_MEASURED: u32 = 4;
/// Minimum length of a sufficient measurement: on most paths, slow start is over by then.
const MEASURED_AT_VERY_LEAST: Duration = Duration::from_secs(2);
/// Factors from a measured rate to the p10 and p90 of the rate in the next hours.
const P10_FACTOR: f64 = 0.75;
const P90_FACTOR: f64 = 1.25;
/// Minimum rate, in bit/s, so that its logarithm exists.
const LEAST_BPS: f64 = 1.0;

/// Quantiles of a rate, in bit/s. In nine of ten cases it is `p10` or more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Rate that is exceeded in nine of ten cases.
    pub p10: f64,
    /// Median rate.
    pub p50: f64,
    /// Rate that is exceeded in one of ten cases.
    pub p90: f64,
}

/// Measurement of a copy's own rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Best-effort rate, in bit/s.
    pub bps: f64,
    /// Length of the measurement.
    pub over: Duration,
}

impl Rates {
    /// Returns true if the values are valid quantiles of a rate.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.p10 > 0.0 && self.p10 <= self.p50 && self.p50 <= self.p90 && self.p90.is_finite()
    }
}

/// Returns the length of measurement that is sufficient without a forecast, for a copy with this
/// much time to its deadline.
#[must_use]
pub fn long_enough(to_deadline: Duration) -> Duration {
    (to_deadline / TIME_OVER_MEASURED).clamp(MEASURED_AT_VERY_LEAST, MEASURED_AT_LEAST)
}

/// Returns the expected best-effort rate. It begins as the forecast, ends as the measurement, and
/// is the weighted mean of their logarithms in between. `None` without a forecast and without a
/// measurement that is [`long_enough`].
#[must_use]
pub fn blend(
    forecast: Option<Rates>,
    measured: Option<Measured>,
    long_enough: Duration,
) -> Option<Rates> {
    let forecast = forecast.filter(Rates::is_sound);
    let measured = measured.filter(|measured| measured.bps.is_finite() && measured.bps >= 0.0);
    let Some(measured) = measured else {
        return forecast;
    };
    let Some(forecast) = forecast else {
        return (measured.over >= long_enough).then(|| spread(measured.bps));
    };
    let weight = (measured.over.as_secs_f64() / MEASURED_WHOLLY.as_secs_f64()).min(1.0);
    let seen = spread(measured.bps);
    let between = |reported: f64, seen: f64| {
        let (reported, seen) = (reported.max(LEAST_BPS).ln(), seen.max(LEAST_BPS).ln());
        (reported * (1.0 - weight) + seen * weight).exp()
    };
    Some(Rates {
        p10: between(forecast.p10, seen.p10),
        p50: between(forecast.p50, seen.p50),
        p90: between(forecast.p90, seen.p90),
    })
}

fn spread(bps: f64) -> Rates {
    Rates {
        p10: bps * P10_FACTOR,
        p50: bps,
        p90: bps * P90_FACTOR,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn estimate_is_between_forecast_and_measurement(
            reported in 1e3..1e11_f64,
            seen in 0.0..1e11_f64,
            secs in 0..200_u64,
        ) {
            let forecast = Rates { p10: reported / 2.0, p50: reported, p90: reported * 2.0 };
            let measured = Measured { bps: seen, over: Duration::from_secs(secs) };
            let found = blend(Some(forecast), Some(measured), MEASURED_AT_LEAST).unwrap();
            let (least, most) = (reported.min(seen.max(1.0)), reported.max(seen.max(1.0)));
            prop_assert!(found.p50 >= least * 0.999 && found.p50 <= most * 1.001);
            prop_assert!(found.p10 <= found.p50 * 1.001 && found.p50 <= found.p90 * 1.001);
            if secs >= 60 {
                prop_assert!((found.p50 - seen.max(1.0)).abs() <= seen.max(1.0) * 1e-6);
            }
        }
    }

    #[test]
    fn no_estimate_without_data() {
        let short = Measured {
            bps: 1e9,
            over: Duration::from_secs(1),
        };
        let broken = Measured {
            bps: f64::NAN,
            over: MEASURED_WHOLLY,
        };
        let senseless = Rates {
            p10: 2.0,
            p50: 1.0,
            p90: f64::INFINITY,
        };
        assert_eq!(blend(None, None, MEASURED_AT_LEAST), None);
        assert_eq!(blend(None, Some(short), MEASURED_AT_LEAST), None);
        assert_eq!(
            blend(Some(senseless), Some(broken), MEASURED_AT_LEAST),
            None
        );
    }
}
