//! Decides which observed changes of links count, and when. Pure: callers pass the time.
//!
//! A failure counts at once. A link that returns counts once it has been up for a while, which
//! grows with the number of its recent failures (as route flap damping does, RFC 2439). Changed
//! rates count at most every ten seconds. A router that may have restarted is believed only once
//! its database has settled; until then, and while no router answers, the last states stay.

use std::collections::BTreeMap;

use longhaul_map::ospf::{ObservedLink, ObservedLinks};
use longhaul_map::{LiveDirection, LiveLink, LiveNetwork};

/// Time for which a database must not change before a router that may have restarted is believed,
/// in milliseconds.
const SETTLE_MS: u64 = 3_000;
/// Time after which such a router is believed even if its database keeps changing.
const MAX_SETTLE_MS: u64 = 15_000;
/// Time for which routers may answer late before they count as restarted, in milliseconds.
const LATE_GRACE_MS: u64 = 10_000;
/// Time for which a link must be up before it is used again after its first failure, in
/// milliseconds.
pub const MIN_HOLD_MS: u64 = 2_000;
/// Maximum of that time, which doubles with each failure.
pub const MAX_HOLD_MS: u64 = 300_000;
/// Time without a failure after which a link is treated as one that never failed, in milliseconds.
pub const CALM_MS: u64 = 600_000;
/// Minimum time between two changes of a link's rates, in milliseconds.
pub const RATE_INTERVAL_MS: u64 = 10_000;

/// States of links, as they count.
#[derive(Debug, Clone, Default)]
pub struct TopologyTracker {
    phase: Phase,
    links: BTreeMap<String, TrackedLink>,
    /// Faults of the names, from the last observation.
    problems: Vec<String>,
    /// Reason why no router answers.
    fault: Option<String>,
    /// Time of the first of the current failures to read.
    failing_since: Option<u64>,
}

/// Trust in the router that is read.
#[derive(Debug, Clone, Default)]
enum Phase {
    /// No observation since the start, or since the router may have restarted.
    #[default]
    Unknown,
    /// The database may be incomplete.
    Settling {
        since: u64,
        unchanged_since: u64,
        last: ObservedLinks,
    },
    /// Each observation counts.
    Following,
}

#[derive(Debug, Clone, Copy)]
struct TrackedLink {
    /// State that counts.
    state: LiveLink,
    /// Time since which a link that counts as down is observed up.
    up_since: Option<u64>,
    /// Time of the last observed failure.
    failed: Option<u64>,
    /// Time for which it must be up before it counts as up again.
    hold: u64,
    /// Time of the last change of its rates.
    rates_changed: Option<u64>,
}

impl TopologyTracker {
    /// Processes an observation. Returns true if what counts has changed.
    pub fn observe(&mut self, now: u64, observed: &ObservedLinks) -> bool {
        self.failing_since = None;
        let was_failing = self.fault.take().is_some();
        let is_settled = match &mut self.phase {
            Phase::Following => true,
            Phase::Settling {
                since,
                unchanged_since,
                last,
            } => {
                if last != observed {
                    (*unchanged_since, *last) = (now, observed.clone());
                }
                now.saturating_sub(*unchanged_since) >= SETTLE_MS
                    || now.saturating_sub(*since) >= MAX_SETTLE_MS
            }
            Phase::Unknown => {
                self.phase = Phase::Settling {
                    since: now,
                    unchanged_since: now,
                    last: observed.clone(),
                };
                false
            }
        };
        if !is_settled {
            return was_failing;
        }
        self.phase = Phase::Following;
        let mut has_changed = was_failing || self.problems != observed.problems;
        self.problems.clone_from(&observed.problems);
        let before = self.links.len();
        self.links
            .retain(|name, _| observed.links.contains_key(name));
        has_changed |= self.links.len() != before;
        for (name, link) in &observed.links {
            match self.links.get_mut(name) {
                Some(tracked) => has_changed |= tracked.observe(now, link),
                None => {
                    self.links.insert(name.clone(), TrackedLink::new(now, link));
                    has_changed = true;
                }
            }
        }
        has_changed
    }

    /// Processes a failure to read. `is_restart` says that the router may have restarted. Returns
    /// true if what counts has changed: the problems, never the links.
    pub fn fail(&mut self, now: u64, why: &str, is_restart: bool) -> bool {
        let since = *self.failing_since.get_or_insert(now);
        if is_restart || now.saturating_sub(since) >= LATE_GRACE_MS {
            self.phase = Phase::Unknown;
        }
        let is_new = self.fault.is_none();
        self.fault = Some(why.to_owned());
        is_new
    }

    /// Returns true if an unchanged observation can change nothing later.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let is_pending =
            |link: &TrackedLink| link.up_since.is_some() || link.rates_changed.is_some();
        matches!(self.phase, Phase::Following)
            && self.fault.is_none()
            && !self.links.values().any(is_pending)
    }

    /// Returns true if the last attempt to read succeeded.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.fault.is_none() && matches!(self.phase, Phase::Following)
    }

    /// Returns the states that count.
    #[must_use]
    pub fn network(&self) -> LiveNetwork {
        let links = self.links.iter();
        let fault = self.fault.iter();
        let outdated = fault.map(|why| format!("ospf: links are as last known: {why}"));
        LiveNetwork {
            links: links
                .map(|(name, link)| (name.clone(), link.state))
                .collect(),
            problems: outdated.chain(self.problems.iter().cloned()).collect(),
        }
    }
}

impl TrackedLink {
    fn new(now: u64, observed: &ObservedLink) -> Self {
        Self {
            state: LiveLink {
                up: observed.up,
                since_ms: now,
                forward: observed.forward,
                backward: observed.backward,
            },
            up_since: None,
            failed: None,
            hold: MIN_HOLD_MS,
            rates_changed: None,
        }
    }

    /// Processes an observation. Returns true if what counts has changed.
    fn observe(&mut self, now: u64, observed: &ObservedLink) -> bool {
        if self
            .rates_changed
            .is_some_and(|at| now.saturating_sub(at) >= RATE_INTERVAL_MS)
        {
            self.rates_changed = None;
        }
        match (self.state.up, observed.up) {
            (true, true) => self.take_rates(now, observed),
            (true, false) => {
                self.count_failure(now);
                (self.state.up, self.state.since_ms) = (false, now);
                true
            }
            (false, false) => {
                if self.up_since.take().is_some() {
                    self.count_failure(now);
                }
                false
            }
            (false, true) => {
                let since = *self.up_since.get_or_insert(now);
                if now.saturating_sub(since) < self.hold {
                    return false;
                }
                self.up_since = None;
                (self.state.up, self.state.since_ms) = (true, now);
                self.take_rates(now, observed);
                true
            }
        }
    }

    fn take_rates(&mut self, now: u64, observed: &ObservedLink) -> bool {
        // A database may lack rates for a while, although the routers still announce them.
        let known = |observed: LiveDirection, known: LiveDirection| LiveDirection {
            capacity: observed.capacity.or(known.capacity),
            reservable: observed.reservable.or(known.reservable),
        };
        let rates = (
            known(observed.forward, self.state.forward),
            known(observed.backward, self.state.backward),
        );
        if rates == (self.state.forward, self.state.backward) || self.rates_changed.is_some() {
            return false;
        }
        (self.state.forward, self.state.backward) = rates;
        self.rates_changed = Some(now);
        true
    }

    fn count_failure(&mut self, now: u64) {
        self.hold = match self.failed {
            Some(last) if now.saturating_sub(last) < CALM_MS => {
                self.hold.saturating_mul(2).min(MAX_HOLD_MS)
            }
            _ => MIN_HOLD_MS,
        };
        self.failed = Some(now);
        self.up_since = None;
    }
}

#[cfg(test)]
mod tests;
