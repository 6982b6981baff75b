//! Reserved bandwidth of each link over time, and the reservations that hold it.

mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::network::{CircuitNetwork, LinkId, LinkShare};
use crate::request::ReservationPlan;
use crate::steps::{Peak, RateSteps};
use crate::time::{BitsPerSecond, MomentMs, Volume, Window};

pub use snapshot::LedgerSnapshot;
pub(crate) use snapshot::ViewAdjustments;

/// Number of a reservation, from 1. Journals count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "JournalNumber", into = "JournalNumber")]
pub struct ReservationId(pub u64);

/// Number of a reservation in a journal, from 0.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct JournalNumber(u64);

impl From<JournalNumber> for ReservationId {
    fn from(number: JournalNumber) -> Self {
        Self(number.0.saturating_add(1))
    }
}

impl From<ReservationId> for JournalNumber {
    fn from(id: ReservationId) -> Self {
        Self(id.0.saturating_sub(1))
    }
}

/// Claim on a link. The end comes first, so that claims are sorted by it.
type LinkClaim = (MomentMs, MomentMs, ReservationId, BitsPerSecond);

#[derive(Debug, Clone, Default)]
struct LinkClaims {
    /// Claims, each with the number of times it was made.
    claims: BTreeMap<LinkClaim, u32>,
    /// Length of the longest claim so far, in milliseconds, even if it has been returned. Claims
    /// that are active at a moment end within this time after it.
    longest: u64,
}

impl PartialEq for LinkClaims {
    fn eq(&self, other: &Self) -> bool {
        // `longest` depends on returned claims, so it is not compared.
        self.claims == other.claims
    }
}

impl Eq for LinkClaims {}

/// Reserved rate of each link over time. Copies share each link's steps until one of them changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReservedRates(Vec<Arc<RateSteps>>);

impl ReservedRates {
    fn steps(&self, link: LinkId) -> Option<&RateSteps> {
        self.0.get(link.index()).map(AsRef::as_ref)
    }

    fn steps_mut(&mut self, link: LinkId) -> Option<&mut RateSteps> {
        self.0.get_mut(link.index()).map(Arc::make_mut)
    }

    /// Returns the moment from which nothing is reserved, or `None` if nothing ever is.
    fn end(&self) -> Option<MomentMs> {
        self.0.iter().filter_map(|steps| steps.end()).max()
    }
}

/// Reserved bandwidth of each link, with its holders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandwidthLedger {
    taken: ReservedRates,
    /// Claims on each link.
    links: Vec<LinkClaims>,
}

impl BandwidthLedger {
    /// Creates an empty ledger for a network.
    #[must_use]
    pub fn new(network: &CircuitNetwork) -> Self {
        let links = network.links().len();
        Self {
            taken: ReservedRates(vec![Arc::default(); links]),
            links: vec![LinkClaims::default(); links],
        }
    }

    /// Extends the ledger to the links of a larger network.
    pub(crate) fn grow(&mut self, network: &CircuitNetwork) {
        let links = network.links().len().max(self.links.len());
        self.links.resize_with(links, LinkClaims::default);
        self.taken.0.resize_with(links, Arc::default);
    }

    /// Reserves what a plan claims.
    pub fn take(&mut self, id: ReservationId, plan: &ReservationPlan) {
        for (link, claims) in plan.claims() {
            for (window, rate) in claims {
                self.claim(id, link, window, rate);
            }
        }
    }

    /// Returns what a plan claimed.
    pub fn free(&mut self, id: ReservationId, plan: &ReservationPlan) {
        for (link, claims) in plan.claims() {
            for (window, rate) in claims {
                self.unclaim(id, link, window, rate);
            }
        }
    }

    pub(crate) fn claim(
        &mut self,
        id: ReservationId,
        link: LinkId,
        window: Window,
        rate: BitsPerSecond,
    ) {
        if let (Some(of_link), Some(steps)) =
            (self.links.get_mut(link.index()), self.taken.steps_mut(link))
        {
            steps.add(window, rate);
            of_link.longest = of_link.longest.max(window.length());
            *of_link
                .claims
                .entry((window.end, window.start, id, rate))
                .or_default() += 1;
        }
    }

    pub(crate) fn unclaim(
        &mut self,
        id: ReservationId,
        link: LinkId,
        window: Window,
        rate: BitsPerSecond,
    ) {
        let claim = (window.end, window.start, id, rate);
        if let Some(of_link) = self.links.get_mut(link.index())
            && let Some(count) = of_link.claims.get_mut(&claim)
        {
            *count -= 1;
            if *count == 0 {
                of_link.claims.remove(&claim);
            }
            if let Some(steps) = self.taken.steps_mut(link) {
                steps.remove(window, rate);
            }
        }
    }

    /// Returns the reserved rate of a link as steps.
    #[must_use]
    pub fn steps(&self, link: LinkId) -> Option<&RateSteps> {
        self.taken.steps(link)
    }

    /// Returns the rate that each reservation holds of a link at a moment, in order of their
    /// numbers.
    #[must_use]
    pub fn holders(&self, link: LinkId, at: MomentMs) -> BTreeMap<ReservationId, BitsPerSecond> {
        let mut holders = BTreeMap::new();
        let Some(of_link) = self.links.get(link.index()) else {
            return holders;
        };
        let first: LinkClaim = (at.saturating_add(1), MomentMs::MIN, ReservationId(0), 0);
        let last = at.saturating_add_unsigned(of_link.longest);
        let near = of_link.claims.range(first..);
        for ((_, start, id, rate), count) in near.take_while(|((end, ..), _)| *end <= last) {
            if *start <= at {
                *holders.entry(*id).or_default() += rate * BitsPerSecond::from(*count);
            }
        }
        holders
    }

    /// Returns the reservations that hold anything of a link after a moment.
    #[must_use]
    pub fn holders_after(&self, link: LinkId, at: MomentMs) -> BTreeSet<ReservationId> {
        let Some(of_link) = self.links.get(link.index()) else {
            return BTreeSet::new();
        };
        let first: LinkClaim = (at.saturating_add(1), MomentMs::MIN, ReservationId(0), 0);
        let claims = of_link.claims.range(first..);
        claims.map(|((_, _, id, _), _)| *id).collect()
    }

    /// Returns the moment from which nothing is reserved, or `None` if nothing ever is.
    #[must_use]
    pub fn end(&self) -> Option<MomentMs> {
        self.taken.end()
    }

    /// Returns a copy of the reserved rates.
    fn taken(&self) -> ReservedRates {
        self.taken.clone()
    }
}

/// Available bandwidth of a network, as seen by one user.
#[derive(Debug, Clone)]
pub struct View<'a> {
    network: &'a CircuitNetwork,
    taken: &'a ReservedRates,
    share: LinkShare,
    besides: Adjustments,
}

/// Additions to and deductions from the reserved rates of each link, in bit/s, in any order.
type Adjustments = BTreeMap<LinkId, Vec<(Window, i64)>>;

impl<'a> View<'a> {
    /// Creates a view for a user to whom all that is reservable is open.
    #[must_use]
    pub const fn new(network: &'a CircuitNetwork, ledger: &'a BandwidthLedger) -> Self {
        Self {
            network,
            taken: &ledger.taken,
            share: LinkShare::WHOLE,
            besides: BTreeMap::new(),
        }
    }

    /// Limits the view to `share` of each link: beyond that total, nothing is left for this user.
    #[must_use]
    pub fn with_share(mut self, share: LinkShare) -> Self {
        self.share = share;
        self
    }

    /// Adds a plan that is not booked yet.
    #[must_use]
    pub fn with(mut self, plan: &ReservationPlan) -> Self {
        self.adjust(plan, 1);
        self
    }

    /// Leaves out a plan that is booked.
    #[must_use]
    pub fn without(mut self, plan: &ReservationPlan) -> Self {
        self.adjust(plan, -1);
        self
    }

    fn adjust(&mut self, plan: &ReservationPlan, sign: i64) {
        for (link, claims) in plan.claims() {
            let there = claims
                .iter()
                .map(|(window, rate)| (*window, sign * i64::try_from(*rate).unwrap_or(i64::MAX)));
            self.besides.entry(link).or_default().extend(there);
        }
    }

    /// Returns the network.
    #[must_use]
    pub const fn network(&self) -> &'a CircuitNetwork {
        self.network
    }

    /// Returns the booked rate of a link as steps, without the view's own additions.
    #[must_use]
    pub fn steps(&self, link: LinkId) -> Option<&'a RateSteps> {
        self.taken.steps(link)
    }

    /// Returns the rate that may be reserved on a link, in bit/s.
    #[must_use]
    pub fn ceiling(&self, link: LinkId) -> BitsPerSecond {
        let link = self.network.link(link);
        link.map_or(0, |link| {
            link.reservable().min(self.share.apply_to(link.capacity))
        })
    }

    /// Returns the highest reserved rate of a link within a window, with the last step that reaches
    /// it, or a part of that step.
    #[must_use]
    pub fn peak(&self, link: LinkId, window: Window) -> Peak {
        let none = Peak {
            rate: 0,
            at: window.start,
            until: MomentMs::MAX,
        };
        let Some(steps) = self.steps(link) else {
            return none;
        };
        let Some(besides) = self.besides.get(&link) else {
            return steps.peak(window);
        };
        let ends = besides
            .iter()
            .flat_map(|(window, _)| [window.start, window.end]);
        let mut ends: Vec<MomentMs> = ends.filter(|end| *end > window.start).collect();
        ends.sort_unstable();
        ends.dedup();
        let inner = ends.partition_point(|end| *end < window.end);
        let behind = ends.get(inner).copied().unwrap_or(MomentMs::MAX);
        ends.truncate(inner);
        let starts = std::iter::once(window.start).chain(ends.iter().copied());
        let ends = ends.iter().copied().chain(std::iter::once(window.end));
        let mut highest = Peak { rate: 0, ..none };
        for (start, end) in starts.zip(ends) {
            let more: i64 = besides
                .iter()
                .filter(|(window, _)| window.contains(start))
                .map(|(_, rate)| rate)
                .sum();
            let peak = steps.peak(Window::new(start, end));
            let rate = peak.rate.saturating_add_signed(more);
            if rate >= highest.rate {
                let last = if end == window.end { behind } else { end };
                highest = Peak {
                    rate,
                    at: peak.at,
                    until: peak.until.min(last),
                };
            }
        }
        highest
    }

    /// Returns the rate left on a link throughout a window, in bit/s.
    #[must_use]
    pub fn left(&self, link: LinkId, window: Window) -> BitsPerSecond {
        let taken = match (self.besides.contains_key(&link), self.steps(link)) {
            (false, Some(steps)) => steps.max_rate(window),
            _ => self.peak(link, window).rate,
        };
        self.ceiling(link).saturating_sub(taken)
    }

    /// Returns an upper bound of the volume that a link can still carry within a window.
    #[must_use]
    pub fn left_to_carry(&self, link: LinkId, window: Window) -> Volume {
        let all = |rate: BitsPerSecond| Volume::carried(rate, window.length());
        let reservable = self
            .network
            .link(link)
            .map_or(0, crate::network::CircuitLink::reservable);
        let mut taken = self
            .steps(link)
            .map(|steps| steps.carried(window))
            .unwrap_or_default();
        for (there, rate) in self.besides.get(&link).into_iter().flatten() {
            let part = Volume::carried(rate.unsigned_abs(), there.intersection(window).length());
            taken = if *rate < 0 {
                taken.minus(part)
            } else {
                taken.plus(part)
            };
        }
        all(reservable).minus(taken).min(all(self.ceiling(link)))
    }

    /// Returns the moments within a window at which the rate of a link may change, each with the
    /// rate left from then on.
    #[must_use]
    pub fn changes(&self, link: LinkId, window: Window) -> Vec<(MomentMs, BitsPerSecond)> {
        let ceiling = self.ceiling(link);
        let booked = self.steps(link).into_iter();
        let booked = booked.flat_map(|steps| steps.changes_within(window));
        let Some(besides) = self.besides.get(&link) else {
            return booked
                .map(|(at, taken)| (at, ceiling.saturating_sub(taken)))
                .collect();
        };
        let besides = besides
            .iter()
            .flat_map(|(window, _)| [window.start, window.end]);
        let besides = besides.filter(|at| window.start < *at && *at < window.end);
        booked
            .map(|(at, _)| at)
            .chain(besides)
            .map(|at| (at, self.left(link, Window::new(at, at.saturating_add(1)))))
            .collect()
    }

    /// Returns the moment from which nothing is reserved, or `None` if nothing ever is.
    #[must_use]
    pub fn end(&self) -> Option<MomentMs> {
        let besides = self
            .besides
            .values()
            .flatten()
            .map(|(window, _)| window.end)
            .max();
        self.taken.end().max(besides)
    }
}
