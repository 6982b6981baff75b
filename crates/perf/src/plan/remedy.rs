//! Remedies if one stream is too slow: parallel streams, or depots on the path.

use quantities::{Probability, path::Bound};
use serde::Serialize;

use super::{KM_PER_MS, Target};

/// Maximum number of streams that is suggested.
pub const MOST_STREAMS: u64 = 65_536;
/// Maximum number of hops of a route, which lists at most 16 depots (LH-ROUTE-4).
pub const MOST_HOPS: u32 = 17;

/// Remedies that reach the target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Remedy {
    /// Number of streams that reach it together, if it is at most [`MOST_STREAMS`].
    pub streams: Option<u64>,
    /// Evenly spaced depots with which one stream reaches the target if the loss is spread along
    /// the path; `None` if it takes more than a route holds.
    pub depots: Option<Depots>,
    /// The same if all loss is on one hop, which then has the whole loss but only its share of the
    /// round trip.
    pub depots_if_loss_is_in_one_place: Option<Depots>,
}

/// Depots on the path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Depots {
    /// Number of depots.
    pub depots: u32,
    /// Round trip of each hop, in seconds.
    pub hop_rtt_s: f64,
    /// Approximate length of each hop in kilometres of fibre, at 200,000 km/s.
    pub hop_km: f64,
}

impl Remedy {
    /// Calculates the remedies for a target that one stream does not reach.
    pub(super) fn of(target: &Target) -> Self {
        let one = target
            .hop(target.rtt.0, target.loss)
            .steady()
            .rate
            .bits_per_second();
        // Losses of streams are independent, so each carries as much as it would alone.
        let streams = (target.rate.bits_per_second() / one * (1.0 - 1e-12)).ceil();
        Self {
            streams: (streams <= MOST_STREAMS as f64).then_some(streams as u64),
            depots: Depots::of(target, |loss, hops| {
                Probability::nearest(loss.value() / f64::from(hops))
            }),
            depots_if_loss_is_in_one_place: Depots::of(target, |loss, _| loss),
        }
    }
}

impl Depots {
    /// Finds the minimum number of hops of equal round trip that each carry the target.
    /// `loss_of_hop` returns the loss of one hop.
    fn of(target: &Target, loss_of_hop: impl Fn(Probability, u32) -> Probability) -> Option<Self> {
        let hops = (1..=MOST_HOPS).find(|&hops| {
            let loss = target.loss.map(|loss| loss_of_hop(loss, hops));
            target.hop(target.rtt.0 / hops, loss).steady().bound == Bound::Rate
        })?;
        let hop_rtt_s = target.rtt.seconds() / f64::from(hops);
        Some(Self {
            depots: hops - 1,
            hop_rtt_s,
            hop_km: hop_rtt_s * 1e3 * KM_PER_MS,
        })
    }
}
