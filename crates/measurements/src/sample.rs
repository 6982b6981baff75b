//! Records as single values.

use drs::Limit;

use crate::EpochMs;
use crate::record::{MeasurementKind, MeasurementRecord};

/// Measured quantity of a path. The controller's API has its own type, for the quantities that a
/// controller accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MeasuredQuantity {
    /// Rate of the path, in bit/s.
    Rate,
    /// Round-trip time, in seconds.
    Rtt,
    /// One-way delay, in seconds.
    Delay,
    /// Share of segments or packets that are lost, 0 to 1.
    Loss,
    /// Mean difference between consecutive delays, in seconds.
    Jitter,
}

/// Relation of a value to its quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueBound {
    /// The quantity had this value.
    Exact,
    /// The quantity had this value or a greater one: something other than the path limited the
    /// measurement.
    AtLeast,
}

/// One value of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasurementSample {
    /// The quantity.
    pub quantity: MeasuredQuantity,
    /// Middle of the measurement, in milliseconds since the Unix epoch.
    pub at_ms: EpochMs,
    /// Value in the quantity's unit.
    pub value: f64,
    /// Relation of the value to the quantity.
    pub bound: ValueBound,
}

impl MeasurementRecord {
    /// Returns the middle of the measurement, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn at_ms(&self) -> EpochMs {
        let half = (self.duration_s * 500.0).clamp(0.0, 1e15);
        self.start_ms.saturating_add(half as EpochMs)
    }

    /// Returns `Exact` if the rate is what the path had to offer, and `AtLeast` if it is only a
    /// lower bound.
    ///
    /// Limits of the path are its capacity and its losses. All other limits of a flow are not:
    /// programs, buffers, windows, pacing, and a congestion window that still grows. If the limit
    /// is unknown, active measurements are assumed to fill the path, unlike copies and relayed
    /// sessions.
    #[must_use]
    pub const fn rate_bound(&self) -> ValueBound {
        match self.conditions.limit {
            Some(Limit::Path | Limit::Loss) => ValueBound::Exact,
            Some(_) => ValueBound::AtLeast,
            None if self.method.is_active() => ValueBound::Exact,
            None => ValueBound::AtLeast,
        }
    }

    /// Returns the values as single samples.
    ///
    /// For round trips of a path, it is the median, or the mean if that is unknown. For those of a
    /// transfer, it is the minimum, because the transfer's own queue adds to the others.
    pub fn samples(&self) -> impl Iterator<Item = MeasurementSample> {
        let at_ms = self.at_ms();
        let values = &self.values;
        let own_queue = self.kind == MeasurementKind::Throughput;
        let middle = move |times: crate::Distribution| match own_queue {
            true => times.min_s,
            false => times.p50_s.unwrap_or(times.mean_s),
        };
        [
            (MeasuredQuantity::Rate, values.rate_bps, self.rate_bound()),
            (
                MeasuredQuantity::Rtt,
                values.rtt.map(middle),
                ValueBound::Exact,
            ),
            (
                MeasuredQuantity::Delay,
                values.delay.map(middle),
                ValueBound::Exact,
            ),
            (MeasuredQuantity::Loss, values.loss, ValueBound::Exact),
            (MeasuredQuantity::Jitter, values.jitter_s, ValueBound::Exact),
        ]
        .into_iter()
        .filter_map(move |(quantity, value, bound)| {
            Some(MeasurementSample {
                quantity,
                at_ms,
                value: value?,
                bound,
            })
        })
    }
}
