//! Random requests, the same for the same seed.

use std::collections::BTreeSet;

use longhaul_circuits::network::{CircuitLink, CircuitNetwork, LinkId, NodeId};
use longhaul_circuits::path::{Disjoint, PathBounds, PathEnds, Preference};
use longhaul_circuits::request::{CircuitRequest, Demand, Pace, PathElements};
use longhaul_circuits::time::{BitsPerSecond, MomentMs, Volume, Window};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{HOUR, MINUTE};

/// Random requests with the time of each.
pub struct RandomRequests {
    random: Xoshiro256PlusPlus,
    nodes: u32,
    links: u32,
    /// Unit of requested rates: a fiftieth of the median reservable rate of the links.
    unit: BitsPerSecond,
    /// Mean time between two requests, in milliseconds.
    every: MomentMs,
    now: MomentMs,
}

impl RandomRequests {
    /// Creates requests between ends in `network`, at rates that its links could carry.
    #[must_use]
    pub fn new(network: &CircuitNetwork, seed: u64) -> Self {
        // Larger networks get more requests.
        let links = u32::try_from(network.links().len())
            .unwrap_or(u32::MAX)
            .max(1);
        let every = 20 * MINUTE * 28 / MomentMs::from(links);
        let mut rooms: Vec<BitsPerSecond> = network
            .links()
            .iter()
            .map(CircuitLink::reservable)
            .collect();
        rooms.sort_unstable();
        let unit = rooms.get(rooms.len() / 2).copied().unwrap_or_default() / 50;
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            nodes: network.nodes(),
            links,
            unit,
            every,
            now: 0,
        }
    }

    fn chance(&mut self, of: f64) -> bool {
        self.random.random_bool(of)
    }

    fn pair(&mut self) -> PathEnds {
        let from = self.random.random_range(0..self.nodes);
        let to = (from + self.random.random_range(1..self.nodes)) % self.nodes;
        PathEnds {
            from: NodeId(from),
            to: NodeId(to),
        }
    }

    /// Returns the next request, over `paths` paths, with its time.
    pub fn next(&mut self, paths: usize) -> (MomentMs, CircuitRequest) {
        self.now += self.random.random_range(0..=2 * self.every);
        // Many windows begin and end on the hour, as people choose them.
        let round = if self.chance(0.7) { HOUR } else { MINUTE };
        let ahead = self.random.random_range(0..36 * HOUR);
        let start = (self.now + ahead).div_euclid(round) * round + round;
        let length = (1 + self.random.random_range(0..8))
            * if self.chance(0.6) { HOUR } else { 10 * MINUTE };
        // Few rates are large; some exceed what any single link can carry.
        let rate =
            10_f64.powf(self.random.random_range(0.3..1.9)).round() as BitsPerSecond * self.unit;
        let wish = if self.chance(0.35) {
            // Volume that the rate carries in part of the window.
            let part = self.random.random_range(0.2..0.95) * length as f64;
            let bytes = Volume::carried(rate, part as u64).bytes();
            let most = self.chance(0.5).then_some(rate.saturating_mul(2));
            Demand::Volume {
                bytes,
                most,
                pace: if self.chance(0.5) {
                    Pace::Even
                } else {
                    Pace::Early
                },
            }
        } else {
            Demand::Rate(rate)
        };
        let diversity = match self.random.random_range(0..20) {
            0 => Disjoint::Links,
            1 => Disjoint::Sites,
            _ => Disjoint::No,
        };
        let preference = match self.random.random_range(0..3) {
            0 => Preference::FewestHops,
            1 => Preference::LeastLatency,
            _ => Preference::MostRoom,
        };
        let ends = self.pair();
        let mut elements = PathElements::default();
        if self.chance(0.05) {
            elements.no_links = BTreeSet::from([LinkId(self.random.random_range(0..self.links))]);
            elements.no_nodes = BTreeSet::from([NodeId(self.random.random_range(0..self.nodes))]);
        }
        let window = Window::new(start, start + length);
        (
            self.now,
            CircuitRequest {
                ends,
                window,
                wish,
                paths,
                diversity,
                preference,
                elements,
                bounds: PathBounds::default(),
            },
        )
    }
}
