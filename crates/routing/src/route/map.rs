//! Nodes and directed hops in memory, updated one hop at a time.
//!
//! Hops are stored in one array, sorted by the node they leave. A second array lists them by the
//! node they enter. The ranking data of candidates is computed when a hop's forecast arrives, for
//! that hop alone. No answers are cached here, so nothing else needs to be invalidated.

use quantities::path::ETHERNET_MSS;
use serde::{Deserialize, Serialize};

use super::NodeId;
use super::model::{CongestionModel, HopConnection, MEDIAN_FIRST_LOSS};
use crate::Quantiles;

/// Time before a dead hop may be explored, in seconds. It doubles with each repeated death.
pub const FIRST_DEAD_SECONDS: f64 = 10.0;
/// Maximum time before a dead hop may be explored, in seconds.
pub const MAX_DEAD_SECONDS: f64 = 600.0;

/// A directed hop, valid for its map only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HopId(u32);

/// Limits of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Maximum window of one of its connections, in bytes. `None` means unlimited.
    pub window: Option<u64>,
    /// Congestion control of its sender.
    pub control: CongestionModel,
    /// Total rate of its disk and processors as an end, in bit/s. `None` means unlimited.
    pub host_rate: Option<f64>,
    /// Relay limits, if it is a depot.
    pub relay: Option<RelayLimits>,
}

/// Relay limits of a depot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RelayLimits {
    /// Total rate in bit/s, shared equally by its sessions; infinite if unlimited.
    pub rate: f64,
    /// Rate of each stream in bit/s; infinite if unlimited.
    pub rate_per_stream: f64,
    /// Number of streams that it relays at present.
    pub streams: u32,
}

/// Forecast of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HopForecast {
    /// Round trip, in seconds.
    pub rtt: Quantiles,
    /// Probability that a segment is lost.
    pub loss: Quantiles,
    /// Rate available to all streams of a new transfer together, in bit/s of payload.
    pub rate: Quantiles,
    /// Time of the newest sample.
    pub at: f64,
    /// Number of samples it rests on; 0 means that nothing is known.
    pub samples: u32,
}

impl Node {
    /// An end without limits, sending with CUBIC.
    pub const END: Self = Self {
        window: None,
        control: CongestionModel::Cubic,
        host_rate: None,
        relay: None,
    };
    /// A depot without limits, sending with CUBIC.
    pub const DEPOT: Self = Self {
        relay: Some(RelayLimits::UNLIMITED),
        ..Self::END
    };

    fn window_bytes(&self) -> f64 {
        self.window.map_or(f64::INFINITY, |bytes| bytes as f64)
    }
}

impl RelayLimits {
    /// Without limits.
    pub const UNLIMITED: Self = Self {
        rate: f64::INFINITY,
        rate_per_stream: f64::INFINITY,
        streams: 0,
    };

    /// Returns the rate that `streams` further streams get together, in bit/s.
    #[must_use]
    pub fn share(&self, streams: f64) -> f64 {
        let shared = self.rate * streams / (streams + f64::from(self.streams));
        // Infinity times a share is infinity, as intended.
        shared.min(self.rate_per_stream * streams)
    }
}

impl HopForecast {
    /// Returns true if the forecast is valid: quantiles ordered, finite and not negative, losses at
    /// most 1, and a rate and a round trip above zero.
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

/// State of a dead hop or depot, and its next exploration.
#[derive(Debug, Clone, Copy, Default)]
struct DeadState {
    /// Time from which on it may be explored.
    until: f64,
    /// Number of times in a row that it was found dead; 0 while it is alive.
    times: u8,
}

impl DeadState {
    fn record_death(&mut self, now: f64) {
        // Repeated reports of one failure do not extend it.
        if self.times > 0 && now < self.until {
            return;
        }
        self.until =
            now + (FIRST_DEAD_SECONDS * 2f64.powi(i32::from(self.times))).min(MAX_DEAD_SECONDS);
        self.times = self.times.saturating_add(1);
    }

    fn may_be_explored(&self, now: f64) -> bool {
        self.times == 0 || now >= self.until
    }
}

#[derive(Debug, Clone, Copy)]
struct StoredForecast {
    rtt: [f32; 3],
    loss: [f32; 3],
    rate: [f32; 3],
    samples: u32,
    at: f64,
    death: DeadState,
}

/// Ranking data of candidates, at the medians.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoughEstimate {
    pub rtt: f32,
    /// Rate available to all streams together.
    pub rate: f32,
    /// Rate of one stream, limited by its window.
    by_window: f32,
    /// Long-run rate of one stream under its losses.
    under_loss: f32,
    /// Bytes of one stream until its first loss.
    first_loss: f32,
}

impl RoughEstimate {
    /// Returns a lower bound and a rough estimate of the seconds for `bytes` over `streams`, with
    /// the rate limited to `cap`.
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
pub struct RouteMap {
    nodes: Vec<Node>,
    /// State of each node as a depot.
    deaths: Vec<DeadState>,
    /// Start of each node's leaving hops; one element more than nodes.
    leaves: Vec<u32>,
    from: Vec<u32>,
    to: Vec<u32>,
    stored: Vec<StoredForecast>,
    rough: Vec<RoughEstimate>,
    /// Start of each node's entering hops in `entering`.
    enters: Vec<u32>,
    entering: Vec<u32>,
}

impl RouteMap {
    /// Creates a map of these nodes and hops without forecasts. Hops that repeat, lead back to
    /// their start, or name a missing node are left out.
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
        let unknown = StoredForecast {
            rtt: [0.0; 3],
            loss: [0.0; 3],
            rate: [0.0; 3],
            samples: 0,
            at: 0.0,
            death: DeadState::default(),
        };
        Self {
            leaves,
            from: pairs.iter().map(|pair| pair.0).collect(),
            to: pairs.iter().map(|pair| pair.1).collect(),
            stored: vec![unknown; pairs.len()],
            rough: vec![RoughEstimate::default(); pairs.len()],
            enters,
            entering,
            deaths: vec![DeadState::default(); nodes.len()],
            nodes,
        }
    }

    /// Returns the number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of hops.
    #[must_use]
    pub const fn hops(&self) -> usize {
        self.to.len()
    }

    /// Returns the memory of the map, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.nodes.as_slice())
            + size_of_val(self.deaths.as_slice())
            + size_of_val(self.leaves.as_slice())
            + size_of_val(self.enters.as_slice())
            + self.hops() * Self::BYTES_PER_HOP
    }

    /// Bytes per directed hop: its forecast, its ranking data, both ends, and its entry among those
    /// that enter.
    pub const BYTES_PER_HOP: usize =
        size_of::<StoredForecast>() + size_of::<RoughEstimate>() + 3 * size_of::<u32>();

    /// Returns a node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// Returns the hop between two nodes.
    #[must_use]
    pub fn hop(&self, from: NodeId, to: NodeId) -> Option<HopId> {
        let range = self.leaving_range(from)?;
        let place = self.to.get(range.clone())?.binary_search(&to.0).ok()?;
        Some(HopId((range.start + place) as u32))
    }

    /// Returns the two nodes of a hop.
    #[must_use]
    pub fn ends(&self, hop: HopId) -> (NodeId, NodeId) {
        let at = hop.0 as usize;
        (NodeId(self.from[at]), NodeId(self.to[at]))
    }

    /// Returns the hops that leave a node, with their destinations.
    pub fn hops_leaving(&self, node: NodeId) -> impl Iterator<Item = (HopId, NodeId)> + '_ {
        let range = self.leaving_range(node).unwrap_or(0..0);
        range.map(|hop| (HopId(hop as u32), NodeId(self.to[hop])))
    }

    /// Returns the hops that enter a node, with their origins.
    pub fn hops_entering(&self, node: NodeId) -> impl Iterator<Item = (HopId, NodeId)> + '_ {
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

    /// Takes a forecast. A dead hop stays dead until [`Self::mark_alive`]. Returns false, and
    /// ignores the forecast, if it is invalid.
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
        self.update_ranking(hop.0 as usize);
        true
    }

    /// Changes the limits of a node, and ranks its hops again.
    pub fn set_node(&mut self, id: NodeId, node: Node) {
        let Some(place) = self.nodes.get_mut(id.index()) else {
            return;
        };
        let same = (place.window, place.control) == (node.window, node.control);
        *place = node;
        if same {
            return;
        }
        let hops: Vec<usize> = (self.hops_leaving(id).map(|(hop, _)| hop.0 as usize))
            .chain(self.hops_entering(id).map(|(hop, _)| hop.0 as usize))
            .collect();
        for hop in hops {
            self.update_ranking(hop);
        }
    }

    /// Recomputes the ranking data of every hop.
    pub fn update_all_rankings(&mut self) {
        for hop in 0..self.hops() {
            self.update_ranking(hop);
        }
    }

    fn update_ranking(&mut self, hop: usize) {
        let stored = &self.stored[hop];
        let one = self.connection(
            HopId(hop as u32),
            f64::from(stored.rtt[1]),
            f64::from(stored.loss[1]),
            f64::from(stored.rate[1]),
        );
        let window = HopConnection {
            rate: f64::INFINITY,
            ..one
        };
        self.rough[hop] = RoughEstimate {
            rtt: stored.rtt[1],
            rate: stored.rate[1],
            by_window: window.without_loss() as f32,
            under_loss: one.under_loss() as f32,
            first_loss: (MEDIAN_FIRST_LOSS * f64::from(ETHERNET_MSS) / one.loss) as f32,
        };
    }

    /// Returns a connection over a hop, with the limits of both nodes.
    pub(super) fn connection(&self, hop: HopId, rtt: f64, loss: f64, rate: f64) -> HopConnection {
        let (from, to) = self.ends(hop);
        let (sender, receiver) = (&self.nodes[from.index()], &self.nodes[to.index()]);
        HopConnection {
            rtt,
            rate,
            loss,
            window: sender.window_bytes().min(receiver.window_bytes()),
            control: sender.control,
        }
    }

    pub(super) fn rough(&self, hop: HopId) -> &RoughEstimate {
        &self.rough[hop.0 as usize]
    }

    /// Returns the forecast of a hop, or `None` if it is unknown.
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

    /// Returns true if a hop is known and not dead.
    #[must_use]
    pub fn is_usable(&self, hop: HopId) -> bool {
        let stored = &self.stored[hop.0 as usize];
        stored.samples > 0 && stored.death.times == 0
    }

    /// Marks a hop as dead: no route passes it from now on.
    pub fn mark_dead(&mut self, hop: HopId, now: f64) {
        self.stored[hop.0 as usize].death.record_death(now);
    }

    /// Marks a hop as alive, because it carried something.
    pub fn mark_alive(&mut self, hop: HopId) {
        self.stored[hop.0 as usize].death.times = 0;
    }

    /// Returns true if a hop is dead.
    #[must_use]
    pub fn is_dead(&self, hop: HopId) -> bool {
        self.stored[hop.0 as usize].death.times > 0
    }

    /// Returns true if a hop is alive, or its wait for exploration is over.
    #[must_use]
    pub fn may_be_explored(&self, hop: HopId, now: f64) -> bool {
        self.stored[hop.0 as usize].death.may_be_explored(now)
    }

    /// Marks a depot as dead: no route passes it from now on. Hops to and from its host as an end
    /// are not affected.
    pub fn mark_depot_dead(&mut self, depot: NodeId, now: f64) {
        if let Some(death) = self.deaths.get_mut(depot.index()) {
            death.record_death(now);
        }
    }

    /// Marks a depot as alive, because it relayed something.
    pub fn mark_depot_alive(&mut self, depot: NodeId) {
        if let Some(death) = self.deaths.get_mut(depot.index()) {
            death.times = 0;
        }
    }

    /// Returns true if a depot is dead.
    #[must_use]
    pub fn depot_is_dead(&self, depot: NodeId) -> bool {
        self.deaths
            .get(depot.index())
            .is_some_and(|death| death.times > 0)
    }

    /// Returns true if a depot is alive, or its wait for exploration is over.
    #[must_use]
    pub fn depot_may_be_explored(&self, depot: NodeId, now: f64) -> bool {
        self.deaths
            .get(depot.index())
            .is_some_and(|death| death.may_be_explored(now))
    }

    /// Returns the relay rate of a depot for `streams` further streams, in bit/s. Returns `None` if
    /// the node is not a depot, or a dead one.
    #[must_use]
    pub fn relay_rate(&self, depot: NodeId, streams: f64) -> Option<f64> {
        let relay = self.node(depot)?.relay?;
        (!self.depot_is_dead(depot)).then(|| relay.share(streams))
    }

    /// Returns true if two hops have different bottlenecks as far as is known: they share no node.
    #[must_use]
    pub fn bottlenecks_differ(&self, one: HopId, other: HopId) -> bool {
        let (from, to) = self.ends(one);
        let (other_from, other_to) = self.ends(other);
        from != other_from && to != other_to
    }
}

#[cfg(test)]
mod tests;
