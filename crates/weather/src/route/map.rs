//! Nodes and directed hops in memory, updated one hop at a time.
//!
//! Hops lie in one array, by the node they leave; a second array lists them by the node they enter.
//! What candidates are ranked by is computed when a hop's forecast comes, for that hop alone: no
//! answer is kept here, so nothing else has to be thrown away.

use quantities::path::ETHERNET_MSS;
use serde::{Deserialize, Serialize};

use super::NodeId;
use super::model::{Control, Hop, MEDIAN_FIRST_LOSS};
use crate::Quantiles;

/// How long a hop that was reported dead is left alone before it may be explored, in seconds, the
/// first time; it doubles each time.
pub const FIRST_DEAD_TIME: f64 = 10.0;
/// At most, in seconds.
pub const LONGEST_DEAD_TIME: f64 = 600.0;

/// A directed hop of a map; valid for that map only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HopId(u32);

/// What a node allows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The largest window of one of its connections, in bytes; none that binds if `None`.
    pub window: Option<u64>,
    /// What it sends with.
    pub control: Control,
    /// What its disk and processors move in all, in bit/s, where it is an end; none that binds if
    /// `None`.
    pub host_rate: Option<f64>,
    /// What it relays, if it is a depot.
    pub relay: Option<Relay>,
}

/// What a depot relays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Relay {
    /// In all, in bit/s, shared by its sessions alike; infinite if nothing binds.
    pub rate: f64,
    /// For each stream, in bit/s; infinite if nothing binds.
    pub rate_per_stream: f64,
    /// Streams that it relays at present.
    pub streams: u32,
}

/// What a hop will be like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HopForecast {
    /// Round trip, in seconds.
    pub rtt: Quantiles,
    /// The chance that a segment is lost.
    pub loss: Quantiles,
    /// What a newcomer finds available, all its streams together, in bit/s of payload.
    pub rate: Quantiles,
    /// When its newest sample was taken.
    pub at: f64,
    /// How many samples it rests on; none means that nothing is known.
    pub samples: u32,
}

impl Node {
    /// An end without limits, sending with CUBIC.
    pub const END: Self = Self {
        window: None,
        control: Control::Cubic,
        host_rate: None,
        relay: None,
    };
    /// A depot without limits, sending with CUBIC.
    pub const DEPOT: Self = Self {
        relay: Some(Relay::UNLIMITED),
        ..Self::END
    };

    fn window_bytes(&self) -> f64 {
        self.window.map_or(f64::INFINITY, |bytes| bytes as f64)
    }
}

impl Relay {
    /// Nothing binds.
    pub const UNLIMITED: Self = Self {
        rate: f64::INFINITY,
        rate_per_stream: f64::INFINITY,
        streams: 0,
    };

    /// What so many further streams get together, in bit/s.
    #[must_use]
    pub fn share(&self, streams: f64) -> f64 {
        let shared = self.rate * streams / (streams + f64::from(self.streams));
        // Infinite times a share is infinite, as it should be.
        shared.min(self.rate_per_stream * streams)
    }
}

impl HopForecast {
    /// Whether it makes sense: quantiles in order, finite, none negative, losses no more than
    /// certain, and a rate and a round trip above zero.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let ordered =
            |q: &Quantiles| q.p10 >= 0.0 && q.p10 <= q.p50 && q.p50 <= q.p90 && q.p90.is_finite();
        ordered(&self.rtt)
            && ordered(&self.loss)
            && ordered(&self.rate)
            && self.rtt.p50 > 0.0
            && self.rate.p50 > 0.0
            && self.loss.p90 <= 1.0
            && self.at.is_finite()
    }
}

/// What was found dead, and when it may be tried again.
#[derive(Debug, Clone, Copy, Default)]
struct Death {
    /// From then on it may be explored.
    until: f64,
    /// How often in a row it was found dead; 0 while it lives.
    times: u8,
}

impl Death {
    fn found(&mut self, now: f64) {
        // Reports of one failure do not lengthen it.
        if self.times > 0 && now < self.until {
            return;
        }
        self.until =
            now + (FIRST_DEAD_TIME * 2f64.powi(i32::from(self.times))).min(LONGEST_DEAD_TIME);
        self.times = self.times.saturating_add(1);
    }

    fn may_be_explored(&self, now: f64) -> bool {
        self.times == 0 || now >= self.until
    }
}

#[derive(Debug, Clone, Copy)]
struct Stored {
    rtt: [f32; 3],
    loss: [f32; 3],
    rate: [f32; 3],
    samples: u32,
    at: f64,
    death: Death,
}

/// What candidates are ranked by, at the medians.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rough {
    pub rtt: f32,
    /// Available to all streams together.
    pub rate: f32,
    /// Of one stream, by its window.
    by_window: f32,
    /// Of one stream, by its losses, in the long run.
    under_loss: f32,
    /// Bytes of one stream until its first loss.
    first_loss: f32,
}

impl Rough {
    /// Seconds for so many bytes by `streams`, with the rate held below `cap`: no more than it can
    /// be, and about what it is.
    pub(super) fn seconds(&self, bytes: f64, streams: f64, cap: f64) -> (f64, f64) {
        let without_loss = f64::from(self.rate)
            .min(cap)
            .min(f64::from(self.by_window) * streams);
        let least = bytes * 8.0 / without_loss;
        let first = (f64::from(self.first_loss) * streams).min(bytes);
        let lossy = without_loss.min(f64::from(self.under_loss) * streams);
        (
            least,
            first * 8.0 / without_loss + (bytes - first) * 8.0 / lossy,
        )
    }
}

/// A map. Its nodes are numbered from 0.
#[derive(Debug, Clone)]
pub struct Map {
    nodes: Vec<Node>,
    /// Of each node as a depot.
    deaths: Vec<Death>,
    /// Where each node's leaving hops begin; one more than nodes.
    leaves: Vec<u32>,
    from: Vec<u32>,
    to: Vec<u32>,
    stored: Vec<Stored>,
    rough: Vec<Rough>,
    /// Where each node's entering hops begin in `entering`.
    enters: Vec<u32>,
    entering: Vec<u32>,
}

impl Map {
    /// A map of these nodes and hops, of which nothing is known yet. Hops that repeat, lead back to
    /// where they start, or name a node that is not there are left out.
    #[must_use]
    pub fn new(nodes: Vec<Node>, hops: &[(NodeId, NodeId)]) -> Self {
        let known = |id: &NodeId| id.index() < nodes.len();
        let mut pairs: Vec<(u32, u32)> = hops
            .iter()
            .filter(|(from, to)| from != to && known(from) && known(to))
            .map(|(from, to)| (from.0, to.0))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        let starts = |of: &dyn Fn(&(u32, u32)) -> u32| {
            let mut starts = vec![0u32; nodes.len() + 1];
            for pair in &pairs {
                starts[of(pair) as usize + 1] += 1;
            }
            for node in 1..starts.len() {
                starts[node] += starts[node - 1];
            }
            starts
        };
        let leaves = starts(&|pair| pair.0);
        let enters = starts(&|pair| pair.1);
        let mut next = enters.clone();
        let mut entering = vec![0; pairs.len()];
        for (hop, (_, to)) in pairs.iter().enumerate() {
            let slot = &mut next[*to as usize];
            entering[*slot as usize] = hop as u32;
            *slot += 1;
        }
        let unknown = Stored {
            rtt: [0.0; 3],
            loss: [0.0; 3],
            rate: [0.0; 3],
            samples: 0,
            at: 0.0,
            death: Death::default(),
        };
        Self {
            leaves,
            from: pairs.iter().map(|pair| pair.0).collect(),
            to: pairs.iter().map(|pair| pair.1).collect(),
            stored: vec![unknown; pairs.len()],
            rough: vec![Rough::default(); pairs.len()],
            enters,
            entering,
            deaths: vec![Death::default(); nodes.len()],
            nodes,
        }
    }

    /// How many nodes.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many hops.
    #[must_use]
    pub const fn hops(&self) -> usize {
        self.to.len()
    }

    /// The bytes that it holds.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of_val(self.nodes.as_slice())
            + size_of_val(self.deaths.as_slice())
            + size_of_val(self.leaves.as_slice())
            + size_of_val(self.enters.as_slice())
            + self.hops() * Self::BYTES_PER_HOP
    }

    /// Bytes for each directed hop: what is known of it, what candidates are ranked by, both ends,
    /// and its place among those that enter.
    pub const BYTES_PER_HOP: usize =
        size_of::<Stored>() + size_of::<Rough>() + 3 * size_of::<u32>();

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// A hop between two nodes.
    #[must_use]
    pub fn hop(&self, from: NodeId, to: NodeId) -> Option<HopId> {
        let range = self.leaving_range(from)?;
        let place = self.to.get(range.clone())?.binary_search(&to.0).ok()?;
        Some(HopId((range.start + place) as u32))
    }

    /// The two nodes of a hop.
    #[must_use]
    pub fn ends(&self, hop: HopId) -> (NodeId, NodeId) {
        let at = hop.0 as usize;
        (NodeId(self.from[at]), NodeId(self.to[at]))
    }

    /// The hops that leave a node, and where each leads.
    pub fn leaving(&self, node: NodeId) -> impl Iterator<Item = (HopId, NodeId)> + '_ {
        let range = self.leaving_range(node).unwrap_or(0..0);
        range.map(|hop| (HopId(hop as u32), NodeId(self.to[hop])))
    }

    /// The hops that enter a node, and where each comes from.
    pub fn entering(&self, node: NodeId) -> impl Iterator<Item = (HopId, NodeId)> + '_ {
        let at = |index: usize| self.enters.get(index).map_or(0, |start| *start as usize);
        let range = at(node.index())..at(node.index() + 1).max(at(node.index()));
        self.entering[range]
            .iter()
            .map(|hop| (HopId(*hop), NodeId(self.from[*hop as usize])))
    }

    fn leaving_range(&self, node: NodeId) -> Option<std::ops::Range<usize>> {
        let start = *self.leaves.get(node.index())? as usize;
        Some(start..*self.leaves.get(node.index() + 1)? as usize)
    }

    /// Takes a forecast. A hop that was dead stays so until [`Self::found_alive`]. Says whether it
    /// made sense; what does not is left out.
    pub fn update(&mut self, hop: HopId, forecast: &HopForecast) -> bool {
        if !forecast.is_sound() {
            return false;
        }
        let three = |q: &Quantiles| [q.p10 as f32, q.p50 as f32, q.p90 as f32];
        let stored = &mut self.stored[hop.0 as usize];
        stored.rtt = three(&forecast.rtt);
        stored.loss = three(&forecast.loss);
        stored.rate = three(&forecast.rate);
        stored.samples = forecast.samples;
        stored.at = forecast.at;
        self.rank(hop.0 as usize);
        true
    }

    /// Changes what a node allows, and ranks its hops anew.
    pub fn set_node(&mut self, id: NodeId, node: Node) {
        let Some(place) = self.nodes.get_mut(id.index()) else {
            return;
        };
        let same = (place.window, place.control) == (node.window, node.control);
        *place = node;
        if same {
            return;
        }
        let hops: Vec<usize> = (self.leaving(id).map(|(hop, _)| hop.0 as usize))
            .chain(self.entering(id).map(|(hop, _)| hop.0 as usize))
            .collect();
        for hop in hops {
            self.rank(hop);
        }
    }

    /// Computes anew what candidates are ranked by, for every hop.
    pub fn rank_all(&mut self) {
        for hop in 0..self.hops() {
            self.rank(hop);
        }
    }

    fn rank(&mut self, hop: usize) {
        let stored = &self.stored[hop];
        let one = self.connection(
            HopId(hop as u32),
            f64::from(stored.rtt[1]),
            f64::from(stored.loss[1]),
            f64::from(stored.rate[1]),
        );
        let window = Hop {
            rate: f64::INFINITY,
            ..one
        };
        self.rough[hop] = Rough {
            rtt: stored.rtt[1],
            rate: stored.rate[1],
            by_window: window.without_loss() as f32,
            under_loss: one.under_loss() as f32,
            first_loss: (MEDIAN_FIRST_LOSS * f64::from(ETHERNET_MSS) / one.loss) as f32,
        };
    }

    /// One connection over a hop, by what both of its nodes allow.
    pub(super) fn connection(&self, hop: HopId, rtt: f64, loss: f64, rate: f64) -> Hop {
        let (from, to) = self.ends(hop);
        let (sender, receiver) = (&self.nodes[from.index()], &self.nodes[to.index()]);
        Hop {
            rtt,
            rate,
            loss,
            window: sender.window_bytes().min(receiver.window_bytes()),
            control: sender.control,
        }
    }

    pub(super) fn rough(&self, hop: HopId) -> &Rough {
        &self.rough[hop.0 as usize]
    }

    /// What is known of a hop; `None` while nothing is.
    #[must_use]
    pub fn forecast(&self, hop: HopId) -> Option<HopForecast> {
        let stored = &self.stored[hop.0 as usize];
        let quantiles = |three: &[f32; 3]| Quantiles {
            p10: f64::from(three[0]),
            p50: f64::from(three[1]),
            p90: f64::from(three[2]),
        };
        (stored.samples > 0).then(|| HopForecast {
            rtt: quantiles(&stored.rtt),
            loss: quantiles(&stored.loss),
            rate: quantiles(&stored.rate),
            at: stored.at,
            samples: stored.samples,
        })
    }

    /// Whether something is known of a hop and it is not dead.
    #[must_use]
    pub fn is_usable(&self, hop: HopId) -> bool {
        let stored = &self.stored[hop.0 as usize];
        stored.samples > 0 && stored.death.times == 0
    }

    /// A hop carries nothing: no route passes it from now on.
    pub fn found_dead(&mut self, hop: HopId, now: f64) {
        self.stored[hop.0 as usize].death.found(now);
    }

    /// Something was carried by a hop.
    pub fn found_alive(&mut self, hop: HopId) {
        self.stored[hop.0 as usize].death.times = 0;
    }

    /// Whether a hop is dead.
    #[must_use]
    pub fn is_dead(&self, hop: HopId) -> bool {
        self.stored[hop.0 as usize].death.times > 0
    }

    /// Whether a hop lives, or has been left alone long enough to be explored.
    #[must_use]
    pub fn may_be_explored(&self, hop: HopId, now: f64) -> bool {
        self.stored[hop.0 as usize].death.may_be_explored(now)
    }

    /// A depot relays nothing: no route passes it from now on. Hops to and from its host as an end
    /// are not touched.
    pub fn depot_found_dead(&mut self, depot: NodeId, now: f64) {
        if let Some(death) = self.deaths.get_mut(depot.index()) {
            death.found(now);
        }
    }

    /// A depot relayed something.
    pub fn depot_found_alive(&mut self, depot: NodeId) {
        if let Some(death) = self.deaths.get_mut(depot.index()) {
            death.times = 0;
        }
    }

    /// Whether a depot is dead.
    #[must_use]
    pub fn depot_is_dead(&self, depot: NodeId) -> bool {
        self.deaths
            .get(depot.index())
            .is_some_and(|death| death.times > 0)
    }

    /// Whether a depot lives, or has been left alone long enough to be explored.
    #[must_use]
    pub fn depot_may_be_explored(&self, depot: NodeId, now: f64) -> bool {
        self.deaths
            .get(depot.index())
            .is_some_and(|death| death.may_be_explored(now))
    }

    /// What a depot relays for so many further streams, in bit/s; `None` where a node is no depot,
    /// or a dead one.
    #[must_use]
    pub fn relayed(&self, depot: NodeId, streams: f64) -> Option<f64> {
        let relay = self.node(depot)?.relay?;
        (!self.depot_is_dead(depot)).then(|| relay.share(streams))
    }

    /// Whether the bottlenecks of two hops differ as far as is known: they have no node in common.
    #[must_use]
    pub fn differ(&self, one: HopId, other: HopId) -> bool {
        let (from, to) = self.ends(one);
        let (other_from, other_to) = self.ends(other);
        from != other_from && to != other_to
    }
}

#[cfg(test)]
mod tests;
