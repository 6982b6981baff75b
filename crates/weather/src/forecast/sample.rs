//! What was measured, and which of it counts.

use thiserror::Error;

use super::Quantity;

/// Microseconds since an epoch that all samples of a series share.
pub type Moment = i64;

/// So many samples in a row that are late, each later than the one before, are a clock that was set
/// back: the series goes on from them.
const CLOCK_STEP_SAMPLES: u8 = 8;

/// An interval counts towards the typical one with at most so many times that.
const MAX_INTERVAL_GROWTH: f64 = 4.0;

/// One measurement of one quantity of one path. Under which conditions it was made (size, streams,
/// congestion control) distinguishes series: what was measured under other conditions belongs to
/// another series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Moment,
    /// What, in the quantity's unit.
    pub value: f64,
    /// What it says of the quantity.
    pub bound: Bound,
}

impl Sample {
    /// A value that was measured.
    #[must_use]
    pub const fn exact(at: Moment, value: f64) -> Self {
        Self {
            at,
            value,
            bound: Bound::Exact,
        }
    }

    /// A lower bound.
    #[must_use]
    pub const fn at_least(at: Moment, value: f64) -> Self {
        Self {
            at,
            value,
            bound: Bound::AtLeast,
        }
    }
}

/// What a sample says of the quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The quantity had this value.
    Exact,
    /// It had this value or a greater one: the rate of a flow that its application or its window
    /// held back is no more than a lower bound of what the path had to offer.
    AtLeast,
}

/// Why a sample does not count.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum Rejected {
    /// It is not a number, or infinite.
    #[error("the value is not a finite number: leave such samples out")]
    NotFinite,
    /// No such quantity has this value.
    #[error("the value {value} is outside of {least} to {most}: check its unit")]
    OutOfRange {
        /// The value.
        value: f64,
        /// The least that there can be.
        least: f64,
        /// The greatest that there can be.
        most: f64,
    },
    /// There is a sample of that moment already, whatever its value.
    #[error("there is a sample of this moment already")]
    Duplicate,
    /// The series has gone on since.
    #[error("the sample is {by_us} us older than the newest one: series go forward only")]
    Late {
        /// By how much, in microseconds.
        by_us: i64,
    },
}

/// The time of a series: which samples are new, and how far apart they typically are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intake {
    newest: Option<Moment>,
    /// The typical time between samples, in microseconds; zero while it is not known.
    interval: f32,
    late: Moment,
    late_in_row: u8,
}

impl Intake {
    pub(super) const fn new() -> Self {
        Self {
            newest: None,
            interval: 0.0,
            late: 0,
            late_in_row: 0,
        }
    }

    /// Checks a sample. What is accepted is the newest from now on; gives how many typical
    /// intervals have passed since the one before, at least one.
    ///
    /// # Errors
    /// The sample does not count: see [`Rejected`].
    pub(super) fn take(&mut self, quantity: Quantity, sample: Sample) -> Result<f64, Rejected> {
        let Sample { at, value, .. } = sample;
        if !value.is_finite() {
            return Err(Rejected::NotFinite);
        }
        let (least, most) = quantity.range();
        if value < least || value > most {
            return Err(Rejected::OutOfRange { value, least, most });
        }
        let Some(newest) = self.newest else {
            self.newest = Some(at);
            return Ok(1.0);
        };
        if at == newest {
            return Err(Rejected::Duplicate);
        }
        if at < newest {
            let follows = self.late_in_row > 0 && at > self.late;
            self.late_in_row = if follows { self.late_in_row + 1 } else { 1 };
            self.late = at;
            if self.late_in_row < CLOCK_STEP_SAMPLES {
                return Err(Rejected::Late {
                    by_us: newest.saturating_sub(at),
                });
            }
            // The interval to a moment of another clock says nothing.
            self.accept(at);
            return Ok(1.0);
        }
        let steps = self.steps(at);
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

    fn accept(&mut self, at: Moment) {
        self.newest = Some(at);
        self.late_in_row = 0;
    }

    /// How many typical intervals lie between the newest sample and `at`: at least one.
    pub(super) fn steps(&self, at: Moment) -> f64 {
        match self.newest {
            Some(newest) if self.interval > 0.0 => {
                (at.saturating_sub(newest) as f64 / f64::from(self.interval)).max(1.0)
            }
            _ => 1.0,
        }
    }

    pub(super) const fn newest(&self) -> Option<Moment> {
        self.newest
    }
}

#[cfg(test)]
mod tests;
