//! Streams beside each other, or depots on the way, where one stream does not do.

use quantities::{Probability, path::Bound};
use serde::Serialize;

use super::{KM_PER_MS, Target};

/// More streams than this are no plan.
pub const MOST_STREAMS: u64 = 65_536;
/// A route lists at most 16 depots (LH-ROUTE-4), so it has at most 17 hops.
pub const MOST_HOPS: u32 = 17;

/// Ways to the target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Remedy {
    /// Streams that reach it together, if [`MOST_STREAMS`] do.
    pub streams: Option<u64>,
    /// Evenly spaced depots that let one stream reach it when loss is spread along the way, if a
    /// route holds as many.
    pub depots: Option<Depots>,
    /// The same when all loss is on one hop, which then carries less than its share of the round
    /// trip.
    pub depots_if_loss_is_in_one_place: Option<Depots>,
}

/// Depots on the way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Depots {
    /// How many.
    pub depots: u32,
    /// Round trip of each hop, in seconds.
    pub hop_rtt_s: f64,
    /// About as much fibre, in kilometres, at 200,000 km/s.
    pub hop_km: f64,
}

impl Remedy {
    /// For a target that one stream does not reach.
    pub(super) fn of(target: &Target) -> Self {
        let one = target
            .hop(target.rtt.0, target.loss)
            .steady()
            .rate
            .bits_per_second();
        // Streams lose independently; each carries what one alone would.
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
    /// The fewest hops of equal round trip that each carry the target. `loss_of_hop` says what loss
    /// a hop then has.
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
