//! Measurements of a path as a controller takes them, whichever command made them. Pure.

use drs::Limit as Drs;
use longhaul_control_api::measurements::{Conditions, Limit, Measurement, Quantity, Source};
use longhaul_depot::Train;

/// A share of losses among fewer segments says nothing of a path.
const MIN_SEGMENTS_OF_A_LOSS: u64 = 100;

/// What the measurements of a path that are reported together have in common.
pub struct OfPath {
    /// Where the path begins.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// The moment, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What it was measured with.
    pub source: Source,
    /// Under which conditions.
    pub conditions: Conditions,
}

impl OfPath {
    /// A measurement for each value, in its quantity's unit, that is known and can be.
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

/// What a probe from `from` to `to` brought, whichever end reports it: the round trip, in seconds,
/// and of its train the rate and the share of losses, as far as they are known.
pub fn of_probe(
    (from, to): (String, String),
    at_ms: u64,
    rtt: Option<f64>,
    train: Option<&Train>,
    loss: Option<f64>,
) -> Vec<Measurement> {
    let mut path = OfPath {
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
            duration_s: Some(train.took.as_secs_f64()),
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

/// The share of segments that were lost, from 0 to 1; none where they were too few to tell.
pub fn loss_share(lost: u64, segments: u64) -> Option<f64> {
    (segments >= MIN_SEGMENTS_OF_A_LOSS).then(|| (lost as f64 / segments as f64).min(1.0))
}

/// The verdict as a controller takes it; none where it says only at which end.
pub fn limit_of(limit: Drs) -> Option<Limit> {
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
