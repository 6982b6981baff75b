//! Whose reports count for what.
//!
//! A depot that lies must not steer what does not pass it:
//!
//! - Of a hop only its two ends may report, each for itself; what both say is combined so that
//!   neither can make the hop look better than the other one says ([`Reports`]).
//! - What a transfer took counts for transfers between the same two ends only, and only its ends
//!   may say it ([`Outcomes`]).
//!
//! So a report of X touches hops of which X is an end, and transfers of which X is an end, and
//! nothing else. A depot that measures well and carries badly is left by each pair of ends after
//! [`MAX_SLOWER_TRANSFERS`] transfers that were slower over it than direct was expected to be, for
//! a time that doubles.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::map::HopForecast;
use super::{NodeId, Via};
use crate::Quantiles;

/// A hop of which one end alone reports counts as known by no more samples than these, however many
/// it claims.
pub const LONE_SAMPLES: u32 = 4;
/// Transfers in a row that were slower over a route than direct was expected to be, after which it
/// is held back.
pub const MAX_SLOWER_TRANSFERS: u8 = 2;
/// How long a route is held back the first time, in seconds; it doubles each time.
pub const FIRST_HOLD: f64 = 600.0;
/// At most, in seconds.
pub const LONGEST_HOLD: f64 = 7.0 * 86_400.0;
/// The most that outcomes make of an expected time.
pub const GREATEST_FACTOR: f64 = 4.0;
/// How much of a new outcome enters the factor.
const GAIN: f64 = 0.25;

/// A report that is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Of a hop only its two ends may report.
    #[error("only the two ends of a hop may report of it")]
    NotAnEnd,
    /// Its figures make no sense.
    #[error(
        "the figures of the report make no sense: quantiles in order, losses up to 1, and a rate above 0 are expected"
    )]
    Unsound,
    /// It is older than what the same end said before.
    #[error("the report is older than the one before it")]
    Older,
}

/// What both ends of each hop last said of it.
#[derive(Debug, Clone, Default)]
pub struct Reports {
    hops: HashMap<(NodeId, NodeId), [Option<HopForecast>; 2]>,
}

impl Reports {
    /// Takes what a node says of a hop, and says what the hop is now taken for. Who reports must
    /// have been authenticated.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn take(
        &mut self,
        reporter: NodeId,
        from: NodeId,
        to: NodeId,
        said: HopForecast,
    ) -> Result<HopForecast, Refused> {
        let side = match reporter {
            _ if from == to => return Err(Refused::NotAnEnd),
            _ if reporter == from => 0,
            _ if reporter == to => 1,
            _ => return Err(Refused::NotAnEnd),
        };
        if !said.is_sound() {
            return Err(Refused::Unsound);
        }
        let sides = self.hops.entry((from, to)).or_default();
        if let Some(before) = &sides[side]
            && before.at > said.at
        {
            return Err(Refused::Older);
        }
        sides[side] = Some(said);
        Ok(match sides {
            [Some(one), Some(other)] => worse_of(one, other),
            _ => HopForecast {
                samples: said.samples.min(LONE_SAMPLES),
                ..said
            },
        })
    }

    /// Forgets what an end said of a hop: it was said by somebody who now speaks for the other end.
    pub fn forget(&mut self, reporter: NodeId, from: NodeId, to: NodeId) {
        if let Some(sides) = self.hops.get_mut(&(from, to)) {
            for (end, side) in [from, to].into_iter().zip(sides) {
                if end == reporter {
                    *side = None;
                }
            }
        }
    }

    /// What both ends of a hop last said of it, its beginning first; none where one of them has
    /// said nothing.
    #[must_use]
    pub fn both(&self, from: NodeId, to: NodeId) -> Option<(&HopForecast, &HopForecast)> {
        let [one, other] = self.hops.get(&(from, to))?;
        Some((one.as_ref()?, other.as_ref()?))
    }

    /// Whether a node may say of a hop that it is dead, or alive again.
    #[must_use]
    pub fn may_report(reporter: NodeId, from: NodeId, to: NodeId) -> bool {
        from != to && (reporter == from || reporter == to)
    }
}

/// Of each quantity what the gloomier end says: longer, lossier, slower, older, fewer samples.
#[must_use]
pub fn worse_of(one: &HopForecast, other: &HopForecast) -> HopForecast {
    of_both(one, other, f64::max, f64::min)
}

/// Of each quantity what the kinder end says: shorter, less lossy, faster; and still older, fewer
/// samples.
#[must_use]
pub fn better_of(one: &HopForecast, other: &HopForecast) -> HopForecast {
    of_both(one, other, f64::min, f64::max)
}

/// `cost` picks among round trips and losses, `gain` among rates.
fn of_both(
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

/// Who must find a depot dead, besides its own silence, before it is dead to all: so many places
/// that dialled it in vain.
pub const DEPOT_DEATH_REPORTERS: usize = 2;
/// Within this many seconds.
const ONE_FAILURE: f64 = 120.0;

/// What a report of a failed dial makes dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dead {
    /// The hop that was dialled over.
    Hop,
    /// The depot that was dialled, and that hop.
    Depot,
}

/// Who dialled which depot in vain.
#[derive(Debug, Clone, Default)]
pub struct Deaths {
    depots: HashMap<NodeId, Vec<(NodeId, f64)>>,
}

impl Deaths {
    /// Takes a report that a place dialled the next one in vain: that hop is dead, and the depot
    /// too once so many different places have said so of it within two minutes. So no single one
    /// can take a depot from the others.
    ///
    /// # Errors
    /// [`Refused::NotAnEnd`]: it says so of a hop that it does not dial over.
    pub fn take(
        &mut self,
        reporter: NodeId,
        from: NodeId,
        to: NodeId,
        now: f64,
    ) -> Result<Dead, Refused> {
        if reporter != from || from == to {
            return Err(Refused::NotAnEnd);
        }
        let said = self.depots.entry(to).or_default();
        said.retain(|(by, at)| *by != reporter && now - at <= ONE_FAILURE);
        said.push((reporter, now));
        Ok(if said.len() >= DEPOT_DEATH_REPORTERS {
            Dead::Depot
        } else {
            Dead::Hop
        })
    }
}

/// What became of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What it was expected to take by the model alone, at the median, in seconds.
    pub expected: f64,
    /// What the direct route was expected to take, in seconds.
    pub direct: f64,
    /// What it took, in seconds; infinite if it failed or was given up.
    pub took: f64,
}

/// What is remembered of a route between two ends.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    /// The mean of the logarithms of times taken by times expected.
    log_factor: f64,
    strikes: u8,
    holds: u8,
    held_until: f64,
}

/// What transfers took, by their ends and route.
#[derive(Debug, Clone, Default)]
pub struct Outcomes {
    routes: HashMap<(NodeId, NodeId, Via), Memory>,
}

impl Outcomes {
    /// Takes what became of a transfer between two ends, from one of these.
    ///
    /// # Errors
    /// [`Refused::NotAnEnd`], and [`Refused::Unsound`] where a time is not above zero.
    pub fn take(
        &mut self,
        reporter: NodeId,
        from: NodeId,
        to: NodeId,
        via: &Via,
        outcome: &Outcome,
        now: f64,
    ) -> Result<(), Refused> {
        if !Reports::may_report(reporter, from, to) {
            return Err(Refused::NotAnEnd);
        }
        let Outcome {
            expected,
            direct,
            took,
        } = *outcome;
        if !(expected > 0.0 && expected.is_finite() && direct > 0.0 && took > 0.0) {
            return Err(Refused::Unsound);
        }
        let memory = self.routes.entry((from, to, *via)).or_default();
        let log = (took / expected)
            .ln()
            .clamp(-GREATEST_FACTOR.ln(), GREATEST_FACTOR.ln());
        memory.log_factor += GAIN * (log - memory.log_factor);
        if via.is_direct() {
            // There is nothing to be slower than; a failure is reported by `failed`.
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

    /// A route between two ends failed: it is held back at once, for these two.
    ///
    /// # Errors
    /// [`Refused::NotAnEnd`].
    pub fn failed(
        &mut self,
        reporter: NodeId,
        from: NodeId,
        to: NodeId,
        via: &Via,
        now: f64,
    ) -> Result<(), Refused> {
        if !Reports::may_report(reporter, from, to) {
            return Err(Refused::NotAnEnd);
        }
        self.routes.entry((from, to, *via)).or_default().hold(now);
        Ok(())
    }

    /// What the expected time of a route is multiplied by; `None` while it is held back. Never
    /// below 1: nobody makes a route look better than its hops do.
    #[must_use]
    pub fn factor(&self, from: NodeId, to: NodeId, via: &Via, now: f64) -> Option<f64> {
        let Some(memory) = self.remembered(from, to, via) else {
            return Some(1.0);
        };
        (memory.held_until <= now).then(|| memory.log_factor.exp().max(1.0))
    }

    /// Whether a route is held back.
    #[must_use]
    pub fn is_held(&self, from: NodeId, to: NodeId, via: &Via, now: f64) -> bool {
        self.remembered(from, to, via)
            .is_some_and(|memory| memory.held_until > now)
    }

    /// Whether a route was held back, and its time is over.
    #[must_use]
    pub fn may_be_tried_again(&self, from: NodeId, to: NodeId, via: &Via, now: f64) -> bool {
        self.remembered(from, to, via)
            .is_some_and(|memory| memory.holds > 0 && memory.held_until <= now)
    }

    fn remembered(&self, from: NodeId, to: NodeId, via: &Via) -> Option<&Memory> {
        // Nothing is asked of an empty table: a request looks here once for each route.
        if self.routes.is_empty() {
            return None;
        }
        self.routes.get(&(from, to, *via))
    }
}

impl Memory {
    fn hold(&mut self, now: f64) {
        self.held_until = now + (FIRST_HOLD * 2f64.powi(i32::from(self.holds))).min(LONGEST_HOLD);
        self.holds = self.holds.saturating_add(1);
        // The next bad one holds it back again at once.
        self.strikes = MAX_SLOWER_TRANSFERS - 1;
    }
}

#[cfg(test)]
mod tests;
