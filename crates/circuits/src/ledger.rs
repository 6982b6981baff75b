//! What is taken of each link, when, and by whom.

mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::network::{LinkId, Network, Share};
use crate::request::Plan;
use crate::steps::{Peak, Steps};
use crate::time::{Moment, Rate, Volume, Window};

pub(crate) use snapshot::Seen;
pub use snapshot::Snapshot;

/// A reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReservationId(pub u64);

/// A claim on a link: its end first, so that those that are over come first.
type Claim = (Moment, Moment, ReservationId, Rate);

#[derive(Debug, Clone, Default)]
struct OfLink {
    /// Each with how often it is there.
    claims: BTreeMap<Claim, u32>,
    /// How long the longest claim is, or was that was given back, in milliseconds: whatever holds
    /// at a moment ends within this behind it.
    longest: u64,
}

impl PartialEq for OfLink {
    fn eq(&self, other: &Self) -> bool {
        // The longest there was depends on what was given back, and says nothing.
        self.claims == other.claims
    }
}

impl Eq for OfLink {}

/// How much is taken of each link, and when: shared between a copy and what it was made of, link by
/// link, until one of the two changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Taken(Vec<Arc<Steps>>);

impl Taken {
    fn steps(&self, link: LinkId) -> Option<&Steps> {
        self.0.get(link.index()).map(AsRef::as_ref)
    }

    fn steps_mut(&mut self, link: LinkId) -> Option<&mut Steps> {
        self.0.get_mut(link.index()).map(Arc::make_mut)
    }

    /// The moment from which nothing is taken any more; none where nothing is.
    fn end(&self) -> Option<Moment> {
        self.0.iter().filter_map(|steps| steps.end()).max()
    }
}

/// What is taken of each link, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    taken: Taken,
    /// By whom, of each link.
    links: Vec<OfLink>,
}

impl Ledger {
    /// Of a network of which nothing is taken.
    #[must_use]
    pub fn new(network: &Network) -> Self {
        let links = network.links().len();
        Self {
            taken: Taken(vec![Arc::default(); links]),
            links: vec![OfLink::default(); links],
        }
    }

    /// Has room for the links of a network that has more of them.
    pub(crate) fn grow(&mut self, network: &Network) {
        let links = network.links().len().max(self.links.len());
        self.links.resize_with(links, OfLink::default);
        self.taken.0.resize_with(links, Arc::default);
    }

    /// Takes what a plan claims.
    pub fn take(&mut self, id: ReservationId, plan: &Plan) {
        for (link, claims) in plan.claims() {
            for (window, rate) in claims {
                self.claim(id, link, window, rate);
            }
        }
    }

    /// Gives back what a plan claimed.
    pub fn free(&mut self, id: ReservationId, plan: &Plan) {
        for (link, claims) in plan.claims() {
            for (window, rate) in claims {
                self.unclaim(id, link, window, rate);
            }
        }
    }

    pub(crate) fn claim(&mut self, id: ReservationId, link: LinkId, window: Window, rate: Rate) {
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

    pub(crate) fn unclaim(&mut self, id: ReservationId, link: LinkId, window: Window, rate: Rate) {
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

    /// What is taken of a link, as steps.
    #[must_use]
    pub fn steps(&self, link: LinkId) -> Option<&Steps> {
        self.taken.steps(link)
    }

    /// Who has how much of a link at a moment, by number.
    #[must_use]
    pub fn holders(&self, link: LinkId, at: Moment) -> BTreeMap<ReservationId, Rate> {
        let mut holders = BTreeMap::new();
        let Some(of_link) = self.links.get(link.index()) else {
            return holders;
        };
        let first: Claim = (at.saturating_add(1), Moment::MIN, ReservationId(0), 0);
        let last = at.saturating_add_unsigned(of_link.longest);
        let near = of_link.claims.range(first..);
        for ((_, start, id, rate), count) in near.take_while(|((end, ..), _)| *end <= last) {
            if *start <= at {
                *holders.entry(*id).or_default() += rate * Rate::from(*count);
            }
        }
        holders
    }

    /// The moment from which nothing is taken any more; none where nothing is.
    #[must_use]
    pub fn end(&self) -> Option<Moment> {
        self.taken.end()
    }

    /// How much is taken, as it is now.
    fn taken(&self) -> Taken {
        self.taken.clone()
    }
}

/// What is left of a network, to somebody.
#[derive(Debug, Clone)]
pub struct View<'a> {
    network: &'a Network,
    taken: &'a Taken,
    share: Share,
    besides: Besides,
}

/// What is there besides what is booked, or is not: in bit/s, of each link in any order.
type Besides = BTreeMap<LinkId, Vec<(Window, i64)>>;

impl<'a> View<'a> {
    /// To somebody for whom all that may be reserved of a link is there.
    #[must_use]
    pub const fn new(network: &'a Network, ledger: &'a Ledger) -> Self {
        Self {
            network,
            taken: &ledger.taken,
            share: Share::WHOLE,
            besides: BTreeMap::new(),
        }
    }

    /// To somebody who gets nothing of a link any more of which this much is reserved, by all.
    #[must_use]
    pub fn with_share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// With a plan that is not booked yet.
    #[must_use]
    pub fn with(mut self, plan: &Plan) -> Self {
        self.besides(plan, 1);
        self
    }

    /// Without a plan that is booked.
    #[must_use]
    pub fn without(mut self, plan: &Plan) -> Self {
        self.besides(plan, -1);
        self
    }

    fn besides(&mut self, plan: &Plan, sign: i64) {
        for (link, claims) in plan.claims() {
            let there = claims
                .iter()
                .map(|(window, rate)| (*window, sign * i64::try_from(*rate).unwrap_or(i64::MAX)));
            self.besides.entry(link).or_default().extend(there);
        }
    }

    /// The network.
    #[must_use]
    pub const fn network(&self) -> &'a Network {
        self.network
    }

    /// What is taken of a link, as steps, but for what is there besides.
    #[must_use]
    pub fn steps(&self, link: LinkId) -> Option<&'a Steps> {
        self.taken.steps(link)
    }

    /// What may be reserved of a link, in bit/s.
    #[must_use]
    pub fn ceiling(&self, link: LinkId) -> Rate {
        let link = self.network.link(link);
        link.map_or(0, |link| {
            link.reservable().min(self.share.of(link.capacity))
        })
    }

    /// The most that is taken of a link within a window, with the last of the steps that has it; or
    /// a part of that step.
    #[must_use]
    pub fn peak(&self, link: LinkId, window: Window) -> Peak {
        let none = Peak {
            rate: 0,
            at: window.start,
            until: Moment::MAX,
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
        let mut ends: Vec<Moment> = ends.filter(|end| *end > window.start).collect();
        ends.sort_unstable();
        ends.dedup();
        let inner = ends.partition_point(|end| *end < window.end);
        let behind = ends.get(inner).copied().unwrap_or(Moment::MAX);
        ends.truncate(inner);
        let starts = std::iter::once(window.start).chain(ends.iter().copied());
        let ends = ends.iter().copied().chain(std::iter::once(window.end));
        let mut highest = Peak { rate: 0, ..none };
        for (start, end) in starts.zip(ends) {
            let more: i64 = besides
                .iter()
                .filter(|(window, _)| window.holds(start))
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

    /// What is left of a link throughout a window, in bit/s.
    #[must_use]
    pub fn left(&self, link: LinkId, window: Window) -> Rate {
        let taken = match (self.besides.contains_key(&link), self.steps(link)) {
            (false, Some(steps)) => steps.most(window),
            _ => self.peak(link, window).rate,
        };
        self.ceiling(link).saturating_sub(taken)
    }

    /// What is left of a link within a window, at most.
    #[must_use]
    pub fn left_to_carry(&self, link: LinkId, window: Window) -> Volume {
        let all = |rate: Rate| Volume::carried(rate, window.length());
        let reservable = self
            .network
            .link(link)
            .map_or(0, crate::network::Link::reservable);
        let mut taken = self
            .steps(link)
            .map(|steps| steps.carried(window))
            .unwrap_or_default();
        for (there, rate) in self.besides.get(&link).into_iter().flatten() {
            let part = Volume::carried(rate.unsigned_abs(), there.and(window).length());
            taken = if *rate < 0 {
                taken.less(part)
            } else {
                taken.plus(part)
            };
        }
        all(reservable).less(taken).min(all(self.ceiling(link)))
    }

    /// The moments within a window at which what is taken of a link changes, or may, each with what
    /// is left from then on.
    #[must_use]
    pub fn changes(&self, link: LinkId, window: Window) -> Vec<(Moment, Rate)> {
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

    /// The moment from which nothing is taken any more; none where nothing is.
    #[must_use]
    pub fn end(&self) -> Option<Moment> {
        let besides = self
            .besides
            .values()
            .flatten()
            .map(|(window, _)| window.end)
            .max();
        self.taken.end().max(besides)
    }
}
