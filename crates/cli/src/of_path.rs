//! Measurements of a path in the controller's form, for every command that measures. Pure.

use drs::Limit as Drs;
use longhaul_control_api::measurements::{Conditions, Limit, Measurement, Quantity, Source};
#[cfg(target_os = "linux")]
use longhaul_depot::Train;

/// Minimum segments for a meaningful loss rate.
const MIN_LOSS_SEGMENTS: u64 = 100;

/// Properties shared by the measurements of a path that are reported together.
pub struct MeasuredPath {
    /// Start of the path.
    pub from: String,
    /// End of the path.
    pub to: String,
    /// Time of the measurement, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Source of the measurement.
    pub source: Source,
    /// Conditions of the measurement.
    pub conditions: Conditions,
}

impl MeasuredPath {
    /// Returns a measurement for each known and possible value, in its quantity's unit.
    pub fn measurements<const N: usize>(
        &self,
        values: [(Quantity, Option<f64>); N],
    ) -> impl Iterator<Item = Measurement> {
        values.into_iter().filter_map(|(quantity, value)| {
            let value = value.filter(|value| value.is_finite() && *value >= 0.0)?;
            Some(Measurement {
                from: self.from.clone(),
                to: self.to.clone(),
                quantity,
                at_ms: self.at_ms,
                value,
                source: self.source,
                conditions: self.conditions.clone(),
            })
        })
    }
}

/// Returns the measurements of a probe from `from` to `to`, whichever end reports it: the round
/// trip in seconds, and the rate and loss rate of its train as far as they are known.
#[cfg(target_os = "linux")]
pub fn probe_measurements(
    (from, to): (String, String),
    at_ms: u64,
    rtt: Option<f64>,
    train: Option<&Train>,
    loss: Option<f64>,
) -> Vec<Measurement> {
    let mut path = MeasuredPath {
        from,
        to,
        at_ms,
        source: Source::Probe,
        conditions: Conditions::default(),
    };
    let mut found: Vec<Measurement> = path.measurements([(Quantity::Rtt, rtt)]).collect();
    if let Some(train) = train {
        path.conditions = Conditions {
            bytes: Some(train.bytes),
            duration_s: Some(train.duration.as_secs_f64()),
            streams: Some(1),
            limit: train.still_growing.then_some(Limit::CongestionWindow),
            ..Conditions::default()
        };
        found.extend(
            path.measurements([(Quantity::Rate, Some(train.rate)), (Quantity::Loss, loss)]),
        );
    }
    found
}

/// Returns the share of lost segments, from 0 to 1, or `None` if there were too few segments.
pub fn loss_share(lost: u64, segments: u64) -> Option<f64> {
    (segments >= MIN_LOSS_SEGMENTS).then(|| (lost as f64 / segments as f64).min(1.0))
}

/// Converts the verdict to the controller's form. Returns `None` if it only names an end.
pub fn convert_limit(limit: Drs) -> Option<Limit> {
    Some(match limit {
        Drs::SendingApplication | Drs::ReceivingApplication => Limit::Application,
        Drs::SendBuffer => Limit::SendBuffer,
        Drs::ReceiveWindow => Limit::ReceiveWindow,
        Drs::Pacing => Limit::Pacing,
        Drs::Growing | Drs::Loss => Limit::CongestionWindow,
        Drs::Path => Limit::Path,
        Drs::Sender => return None,
    })
}
