//! Scope of each party's reports.
//!
//! A depot that lies must not affect routes that do not pass it:
//!
//! - Only the two ends of a hop may report on it, each for itself. Their reports are combined so
//!   that neither can make the hop look better than the other one says ([`HopReports`]).
//! - The outcome of a transfer counts only for transfers between the same two ends, and only its
//!   ends may report it ([`TransferOutcomes`]).
//!
//! So a report of X affects hops of which X is an end, and transfers of which X is an end, and
//! nothing else. A depot may measure well and carry badly. Each pair of ends leaves it after
//! [`MAX_SLOWER_TRANSFERS`] transfers that were slower over it than direct was expected to be, for
//! a time that doubles.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::map::HopForecast;
use super::{NodeId, RouteDepots};
use crate::Quantiles;

/// Maximum number of samples that count for a hop if only one end reports on it.
pub const MAX_LONE_SAMPLES: u32 = 4;
/// Number of consecutive transfers that were slower over a route than direct was expected to be,
/// after which the route is held back.
pub const MAX_SLOWER_TRANSFERS: u8 = 2;
/// Time for which a route is held back at first, in seconds. It doubles each time.
pub const FIRST_HOLD_SECONDS: f64 = 600.0;
/// Maximum time for which a route is held back, in seconds.
pub const MAX_HOLD_SECONDS: f64 = 7.0 * 86_400.0;
/// Maximum factor of outcomes on an expected time.
pub const MAX_OUTCOME_FACTOR: f64 = 4.0;
/// Weight of a new outcome in the factor.
const OUTCOME_WEIGHT: f64 = 0.25;

/// Reason why a report is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReportRejection {
    /// The reporter is not an end of the hop.
    #[error("only the two ends of a hop may report it")]
    NotAnEnd,
    /// The figures are invalid.
    #[error(
        "the figures of the report are invalid: quantiles must ascend, losses be at most 1, and \
         the rate be above 0"
    )]
    Unsound,
    /// The report is older than the previous one of the same end.
    #[error("the report is older than the previous one")]
    Older,
}

/// Latest reports of both ends of each hop.
#[derive(Debug, Clone, Default)]
pub struct HopReports {
    hops: HashMap<(NodeId, NodeId), [Option<HopForecast>; 2]>,
}

impl HopReports {
    /// Takes a node's report on a hop, and returns the combined forecast of the hop. The caller
    /// must have authenticated the reporter.
    ///
    /// # Errors
    /// [`ReportRejection`].
    pub fn take(
        &mut self,
        reporter: NodeId,
        from: NodeId,
        to: NodeId,
        said: HopForecast,
    ) -> Result<HopForecast, ReportRejection> {
        let side = match reporter {
            _ if from == to => return Err(ReportRejection::NotAnEnd),
            _ if reporter == from => 0,
            _ if reporter == to => 1,
            _ => return Err(ReportRejection::NotAnEnd),
        };
        if !said.is_sound() {
            return Err(ReportRejection::Unsound);
        }
        let sides = self.hops.entry((from, to)).or_default();
        if let Some(before) = &sides[side]
            && before.at > said.at
        {
            return Err(ReportRejection::Older);
        }
        sides[side] = Some(said);
        Ok(match sides {
            [Some(one), Some(other)] => worse_of(one, other),
            _ => HopForecast {
                samples: said.samples.min(MAX_LONE_SAMPLES),
                ..said
            },
        })
    }

    /// Removes an end's report on a hop, because its author now speaks for the other end.
    pub fn forget_report(&mut self, reporter: NodeId, from: NodeId, to: NodeId) {
        if let Some(sides) = self.hops.get_mut(&(from, to)) {
            for (end, side) in [from, to].into_iter().zip(sides) {
                if end == reporter {
                    *side = None;
                }
            }
        }
    }

    /// Returns the latest reports of both ends of a hop, that of its start first. Returns `None` if
    /// one of them has not reported.
    #[must_use]
    pub fn both_reports(&self, from: NodeId, to: NodeId) -> Option<(&HopForecast, &HopForecast)> {
        let [one, other] = self.hops.get(&(from, to))?;
        Some((one.as_ref()?, other.as_ref()?))
    }

    /// Returns true if a node may report that a hop is dead, or alive again.
    #[must_use]
    pub fn may_report(reporter: NodeId, from: NodeId, to: NodeId) -> bool {
        from != to && (reporter == from || reporter == to)
    }
}

/// Combines two forecasts into the pessimistic one: longer, lossier, slower, older, fewer samples.
#[must_use]
pub fn worse_of(one: &HopForecast, other: &HopForecast) -> HopForecast {
    combine(one, other, f64::max, f64::min)
}

/// Combines two forecasts into the optimistic one: shorter, less lossy, faster; but still older,
/// and with fewer samples.
#[must_use]
pub fn better_of(one: &HopForecast, other: &HopForecast) -> HopForecast {
    combine(one, other, f64::min, f64::max)
}

/// Combines two forecasts. `cost` selects among round trips and losses, `gain` among rates.
fn combine(
    one: &HopForecast,
    other: &HopForecast,
    cost: fn(f64, f64) -> f64,
    gain: fn(f64, f64) -> f64,
) -> HopForecast {
    let by = |one: &Quantiles, other: &Quantiles, of: fn(f64, f64) -> f64| Quantiles {
        p10: of(one.p10, other.p10),
        p50: of(one.p50, other.p50),
        p90: of(one.p90, other.p90),
    };
    HopForecast {
        rtt: by(&one.rtt, &other.rtt, cost),
        loss: by(&one.loss, &other.loss, cost),
        rate: by(&one.rate, &other.rate, gain),
        at: one.at.min(other.at),
        samples: one.samples.min(other.samples),
    }
}

/// Number of nodes that must have failed to dial a depot before it is dead to all.
pub const DEPOT_DEATH_REPORTERS: usize = 2;
/// Time within which reports count as one failure, in seconds.
const FAILURE_WINDOW_SECONDS: f64 = 120.0;

/// Consequence of a report of a failed dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeathScope {
    /// The hop is dead.
    Hop,
    /// The depot and the hop are dead.
    Depot,
}

/// Nodes that failed to dial each depot.
#[derive(Debug, Clone, Default)]
pub struct DepotFailures {
    depots: HashMap<NodeId, Vec<(NodeId, f64)>>,
}

impl DepotFailures {
    /// Takes a report that a node failed to dial the next one. The hop is dead; the depot is dead
    /// as well once [`DEPOT_DEATH_REPORTERS`] different nodes have reported so within two minutes.
    /// So no single node can take a depot from the others.
    ///
    /// # Errors
    /// [`ReportRejection::NotAnEnd`] if the reporter does not dial over the hop.
    pub fn take(
        &mut self,
        reporter: NodeId,
        from: NodeId,
        to: NodeId,
        now: f64,
    ) -> Result<DeathScope, ReportRejection> {
        if reporter != from || from == to {
            return Err(ReportRejection::NotAnEnd);
        }
        let said = self.depots.entry(to).or_default();
        said.retain(|(by, at)| *by != reporter && now - at <= FAILURE_WINDOW_SECONDS);
        said.push((reporter, now));
        Ok(if said.len() >= DEPOT_DEATH_REPORTERS {
            DeathScope::Depot
        } else {
            DeathScope::Hop
        })
    }
}

/// Outcome of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TransferOutcome {
    /// Expected time by the model alone, at the median, in seconds.
    pub expected: f64,
    /// Expected time of the direct route, in seconds.
    pub direct: f64,
    /// Actual time in seconds; infinite if the transfer failed or was abandoned.
    pub took: f64,
}

/// History of a route between two ends.
#[derive(Debug, Clone, Copy, Default)]
struct RouteHistory {
    /// Mean logarithm of actual times relative to expected ones.
    log_factor: f64,
    strikes: u8,
    holds: u8,
    held_until: f64,
}

/// Outcomes of transfers, by their ends and route.
#[derive(Debug, Clone, Default)]
pub struct TransferOutcomes {
    routes: HashMap<(NodeId, NodeId, RouteDepots), RouteHistory>,
}

impl TransferOutcomes {
    /// Takes the outcome of a transfer between two ends, reported by one of them.
    ///
    /// # Errors
    /// [`ReportRejection::NotAnEnd`], and [`ReportRejection::Unsound`] if a time is not above zero.
    pub fn take(
        &mut self,
        reporter: NodeId,
        from: NodeId,
        to: NodeId,
        via: &RouteDepots,
        outcome: &TransferOutcome,
        now: f64,
    ) -> Result<(), ReportRejection> {
        if !HopReports::may_report(reporter, from, to) {
            return Err(ReportRejection::NotAnEnd);
        }
        let TransferOutcome {
            expected,
            direct,
            took,
        } = *outcome;
        if !(expected > 0.0 && expected.is_finite() && direct > 0.0 && took > 0.0) {
            return Err(ReportRejection::Unsound);
        }
        let memory = self.routes.entry((from, to, *via)).or_default();
        let log = (took / expected)
            .ln()
            .clamp(-MAX_OUTCOME_FACTOR.ln(), MAX_OUTCOME_FACTOR.ln());
        memory.log_factor += OUTCOME_WEIGHT * (log - memory.log_factor);
        if via.is_direct() {
            // Direct is its own baseline; failures are reported through `failed`.
            return Ok(());
        }
        if took <= direct {
            (memory.strikes, memory.holds) = (0, memory.holds.saturating_sub(1));
            memory.held_until = now.min(memory.held_until);
            return Ok(());
        }
        memory.strikes = memory.strikes.saturating_add(1);
        if memory.strikes >= MAX_SLOWER_TRANSFERS {
            memory.hold(now);
        }
        Ok(())
    }

    /// Records that a route between two ends failed. It is held back at once, for these ends only.
    ///
    /// # Errors
    /// [`ReportRejection::NotAnEnd`].
    pub fn record_failure(
        &mut self,
        reporter: NodeId,
        from: NodeId,
        to: NodeId,
        via: &RouteDepots,
        now: f64,
    ) -> Result<(), ReportRejection> {
        if !HopReports::may_report(reporter, from, to) {
            return Err(ReportRejection::NotAnEnd);
        }
        self.routes.entry((from, to, *via)).or_default().hold(now);
        Ok(())
    }

    /// Returns the factor on the expected time of a route, or `None` while it is held back. It is
    /// never below 1: no report makes a route look better than its hops do.
    #[must_use]
    pub fn factor(&self, from: NodeId, to: NodeId, via: &RouteDepots, now: f64) -> Option<f64> {
        let Some(memory) = self.history(from, to, via) else {
            return Some(1.0);
        };
        (memory.held_until <= now).then(|| memory.log_factor.exp().max(1.0))
    }

    /// Returns true if a route is held back.
    #[must_use]
    pub fn is_held(&self, from: NodeId, to: NodeId, via: &RouteDepots, now: f64) -> bool {
        self.history(from, to, via)
            .is_some_and(|memory| memory.held_until > now)
    }

    /// Returns true if a route was held back, and its time is over.
    #[must_use]
    pub fn may_be_tried_again(
        &self,
        from: NodeId,
        to: NodeId,
        via: &RouteDepots,
        now: f64,
    ) -> bool {
        self.history(from, to, via)
            .is_some_and(|memory| memory.holds > 0 && memory.held_until <= now)
    }

    fn history(&self, from: NodeId, to: NodeId, via: &RouteDepots) -> Option<&RouteHistory> {
        // Shortcut for an empty table: a request looks here once for each route.
        if self.routes.is_empty() {
            return None;
        }
        self.routes.get(&(from, to, *via))
    }
}

impl RouteHistory {
    fn hold(&mut self, now: f64) {
        self.held_until =
            now + (FIRST_HOLD_SECONDS * 2f64.powi(i32::from(self.holds))).min(MAX_HOLD_SECONDS);
        self.holds = self.holds.saturating_add(1);
        // The next slow transfer holds it back again at once.
        self.strikes = MAX_SLOWER_TRANSFERS - 1;
    }
}

#[cfg(test)]
mod tests;
