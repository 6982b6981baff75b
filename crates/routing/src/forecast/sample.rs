//! Samples, and the filter that decides which of them count.

use thiserror::Error;

use super::ForecastQuantity;

/// Microseconds since an epoch that all samples of a series share.
pub type MomentMicros = i64;

/// Number of consecutive late samples, each newer than the one before, that are taken as a clock
/// that was set back. The series resumes from them.
const CLOCK_STEP_SAMPLES: u8 = 8;

/// Maximum interval that enters the typical one, in typical intervals.
const MAX_INTERVAL_GROWTH: f64 = 4.0;

/// One measurement of one quantity of one path. Each combination of conditions (size, streams,
/// congestion control) has its own series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesSample {
    /// Time of the measurement.
    pub at: MomentMicros,
    /// Value in the quantity's unit.
    pub value: f64,
    /// Relation of the value to the quantity.
    pub bound: SampleBound,
}

impl SeriesSample {
    /// Creates a sample of an exact value.
    #[must_use]
    pub const fn exact(at: MomentMicros, value: f64) -> Self {
        Self {
            at,
            value,
            bound: SampleBound::Exact,
        }
    }

    /// Creates a sample of a lower bound.
    #[must_use]
    pub const fn at_least(at: MomentMicros, value: f64) -> Self {
        Self {
            at,
            value,
            bound: SampleBound::AtLeast,
        }
    }
}

/// Relation of a sample to the quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleBound {
    /// The quantity had this value.
    Exact,
    /// The quantity had this value or a greater one. For example, the rate of a flow that its
    /// application or window limited is a lower bound of what the path offered.
    AtLeast,
}

/// Reason why a sample does not count.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum SampleRejection {
    /// The value is not a number, or infinite: leave out such samples. The measurement is kept,
    /// without a forecast.
    #[error("the value is not a finite number: leave such samples out")]
    NotFinite,
    /// The value is outside the quantity's range. Rates are in bits per second, times in seconds,
    /// losses from 0 to 1.
    #[error("the value {value} is outside of {least} to {most}: check its unit")]
    OutOfRange {
        /// The value.
        value: f64,
        /// Minimum of the range.
        least: f64,
        /// Maximum of the range.
        most: f64,
    },
    /// There is already a sample of that moment, whatever its value.
    #[error("there is a sample for this time already")]
    Duplicate,
    /// The sample is older than the newest one.
    #[error(
        "the sample is {by_us} us older than the newest one: samples must arrive in order of \
             time"
    )]
    Late {
        /// Age relative to the newest sample, in microseconds.
        by_us: i64,
    },
}

/// Timeline of a series: accepts new samples, and tracks their typical interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleFilter {
    newest: Option<MomentMicros>,
    /// Typical time between samples, in microseconds; zero while it is unknown.
    interval: f32,
    late: MomentMicros,
    late_in_row: u8,
}

impl SampleFilter {
    pub(super) const fn new() -> Self {
        Self {
            newest: None,
            interval: 0.0,
            late: 0,
            late_in_row: 0,
        }
    }

    /// Checks a sample and makes it the newest. Returns the time since the previous one, in typical
    /// intervals, at least one.
    ///
    /// # Errors
    /// [`SampleRejection`] if the sample does not count.
    pub(super) fn take(
        &mut self,
        quantity: ForecastQuantity,
        sample: SeriesSample,
    ) -> Result<f64, SampleRejection> {
        let SeriesSample { at, value, .. } = sample;
        if !value.is_finite() {
            return Err(SampleRejection::NotFinite);
        }
        let (least, most) = quantity.range();
        if value < least || value > most {
            return Err(SampleRejection::OutOfRange { value, least, most });
        }
        let Some(newest) = self.newest else {
            self.newest = Some(at);
            return Ok(1.0);
        };
        if at == newest {
            return Err(SampleRejection::Duplicate);
        }
        if at < newest {
            let follows = self.late_in_row > 0 && at > self.late;
            self.late_in_row = if follows { self.late_in_row + 1 } else { 1 };
            self.late = at;
            if self.late_in_row < CLOCK_STEP_SAMPLES {
                return Err(SampleRejection::Late {
                    by_us: newest.saturating_sub(at),
                });
            }
            // The interval to a moment of another clock is meaningless.
            self.accept(at);
            return Ok(1.0);
        }
        let steps = self.intervals_until(at);
        let interval = at.saturating_sub(newest) as f64;
        let typical = f64::from(self.interval);
        self.interval = if typical > 0.0 {
            (typical + 0.1 * (interval.min(MAX_INTERVAL_GROWTH * typical) - typical)) as f32
        } else {
            interval as f32
        };
        self.accept(at);
        Ok(steps)
    }

    fn accept(&mut self, at: MomentMicros) {
        self.newest = Some(at);
        self.late_in_row = 0;
    }

    /// Returns the time from the newest sample to `at`, in typical intervals, at least one.
    pub(super) fn intervals_until(&self, at: MomentMicros) -> f64 {
        match self.newest {
            Some(newest) if self.interval > 0.0 => {
                (at.saturating_sub(newest) as f64 / f64::from(self.interval)).max(1.0)
            }
            _ => 1.0,
        }
    }

    pub(super) const fn newest(&self) -> Option<MomentMicros> {
        self.newest
    }
}

#[cfg(test)]
mod tests;
