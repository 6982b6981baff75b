//! Forecasts of all measured quantities, and the hops and outcomes from which routes are chosen.
//! All of it is in memory, is rebuilt from the store at the start, and does no I/O.
//! [`longhaul_routing`] makes the decisions.

mod answer;
mod assumed;
mod inferred;
mod intake;
mod outcomes;
mod table;

use std::collections::{BTreeMap, HashMap};

use longhaul_control_api::forecasts::{Coverage, Forecast, ForecastQuery, Spread};
use longhaul_control_api::map::{DepotSource, Map as Places};
use longhaul_routing::Quantiles;
use longhaul_routing::forecast::{PromiseLedger, Series};
use longhaul_routing::route::NodeId;
use longhaul_routing::route::choice::Policy;
use longhaul_routing::route::explore::ExplorationAccount;
use longhaul_routing::route::map::{HopForecast, Node, RelayLimits, RouteMap as Hops};
use longhaul_routing::route::trust::{HopReports, TransferOutcomes};

pub use answer::RouteQuery;
use assumed::{WithinSite, within_sites};

use crate::probes::KnownPath;
use crate::store::measurements::SeriesKey;

/// Time after which assumed hops are renewed, in seconds.
const ASSUMPTION_LIFE_S: f64 = 60.0;
/// Default number of streams of a transfer: as many as a copy begins with on a path where they
/// matter (`docs/copying.md`).
const DEFAULT_STREAMS: u16 = 16;

/// Series with its newest value.
#[derive(Debug)]
struct KnownSeries {
    series: Series,
    newest: f64,
}

/// Forecasts and routes of the network.
#[derive(Debug)]
pub struct RoutingState {
    series: BTreeMap<SeriesKey, KnownSeries>,
    names: Vec<String>,
    ids: HashMap<String, NodeId>,
    /// Number of series of each reporter.
    of_reporters: HashMap<String, usize>,
    /// Current forecasts of measured hops, by their ends.
    measured: BTreeMap<(NodeId, NodeId), HopForecast>,
    /// Size of the last train over each path, in bytes, if it ended before the rate was visible.
    unseen: HashMap<(NodeId, NodeId), u64>,
    /// Time when each path last carried real traffic, in milliseconds since the Unix epoch.
    carried: HashMap<(NodeId, NodeId), u64>,
    reports: HopReports,
    /// Key that last reported for each end of a hop, its start first.
    reporters: HashMap<(NodeId, NodeId), [Option<Box<str>>; 2]>,
    hops: Hops,
    /// Hops within sites on the map, whose forecasts are assumed until they are measured.
    within_sites: Vec<WithinSite>,
    /// Time of the last assumption, in seconds since the Unix epoch.
    assumed_at: f64,
    /// Inferred forecasts of hops.
    inferred: BTreeMap<(NodeId, NodeId), HopForecast>,
    /// If true, `hops` does not include all known hops.
    has_new: bool,
    depots: MapDepots,
    outcomes: TransferOutcomes,
    policy: Policy,
    account: ExplorationAccount,
    ledger: PromiseLedger,
    unpromised: u64,
    failed: u64,
    map_version: u64,
}

/// Depots and hosts of the map.
#[derive(Debug, Default)]
struct MapDepots {
    /// Depots by name.
    known: HashMap<String, DepotLocation>,
    /// Names by first address, as in routes.
    by_address: HashMap<String, String>,
    /// Names and networks of hosts.
    hosts: BTreeMap<String, Vec<String>>,
    /// Sites by the names of hosts and depots.
    sites: HashMap<String, String>,
    /// Depots of each site, by name.
    at_site: HashMap<String, Vec<String>>,
}

#[derive(Debug, Clone)]
struct DepotLocation {
    address: String,
    key: String,
    relay: Option<RelayLimits>,
}

impl Default for RoutingState {
    fn default() -> Self {
        Self {
            series: BTreeMap::new(),
            names: Vec::new(),
            ids: HashMap::new(),
            of_reporters: HashMap::new(),
            measured: BTreeMap::new(),
            unseen: HashMap::new(),
            carried: HashMap::new(),
            reports: HopReports::default(),
            reporters: HashMap::new(),
            within_sites: Vec::new(),
            assumed_at: 0.0,
            inferred: BTreeMap::new(),
            hops: Hops::new(Vec::new(), &[]),
            has_new: false,
            depots: MapDepots::default(),
            outcomes: TransferOutcomes::default(),
            policy: Policy::default(),
            account: ExplorationAccount::default(),
            ledger: PromiseLedger::default(),
            unpromised: 0,
            failed: 0,
            map_version: 0,
        }
    }
}

impl RoutingState {
    /// Returns the number of series.
    #[must_use]
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns true if there are no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Replaces the map.
    pub fn take_map(&mut self, map: &Places, version: u64) {
        let mut depots = MapDepots::default();
        for depot in &map.depots {
            let Some(address) = depot.addresses.first() else {
                continue;
            };
            let address = address.endpoint.to_string();
            let rate = depot.limits.max_rate.map(|rate| rate.bits_per_second());
            let relay = depot.state.is_usable().then_some(RelayLimits {
                rate: rate.unwrap_or(f64::INFINITY),
                ..RelayLimits::UNLIMITED
            });
            // The operator's map takes precedence over registrations.
            let is_listed = depot.source != DepotSource::Registered;
            if is_listed || !depots.by_address.contains_key(&address) {
                depots
                    .by_address
                    .insert(address.clone(), depot.name.clone());
            }
            let place = DepotLocation {
                address,
                key: depot.key.to_string(),
                relay,
            };
            depots.known.insert(depot.name.clone(), place);
        }
        depots.hosts = map
            .hosts
            .iter()
            .map(|host| (host.name.clone(), host.addresses.clone()))
            .collect();
        let of_hosts = map.hosts.iter().map(|host| (&host.name, Some(&host.site)));
        let of_depots = map
            .depots
            .iter()
            .map(|depot| (&depot.name, depot.site.as_ref()));
        // As in `MapIndex`: if a host and a depot have the same name, the host's site counts.
        let of_both = of_depots.chain(of_hosts);
        depots.sites = of_both
            .filter_map(|(name, site)| Some((name.clone(), site?.clone())))
            .collect();
        for depot in map.depots.iter().filter(|depot| depot.state.is_usable()) {
            if let Some(site) = &depot.site {
                let at_site = depots.at_site.entry(site.clone()).or_default();
                at_site.push(depot.name.clone());
            }
        }
        self.inferred.clear();
        self.depots = depots;
        self.within_sites = within_sites(map);
        // Hops may have been added or removed.
        self.has_new = true;
        self.map_version = version;
        for (id, name) in self.names.iter().enumerate() {
            self.hops.set_node(node_id(id), self.depots.node(name));
        }
    }

    /// Returns the number of an end, which is assigned when it is first named.
    fn id(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = node_id(self.names.len());
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        self.has_new = true;
        id
    }

    /// Rebuilds the hops if new ones are known, and renews assumed ones from time to time, as
    /// assumptions do not age.
    fn refresh_hops(&mut self, now: f64) {
        if !self.has_new && now - self.assumed_at < ASSUMPTION_LIFE_S {
            return;
        }
        self.assumed_at = now;
        let within = std::mem::take(&mut self.within_sites);
        let mut assumed = Vec::new();
        for hop in &within {
            let (host, depot) = (self.id(&hop.host), self.id(&hop.depot));
            for ends in [(host, depot), (depot, host)] {
                if !self.measured.contains_key(&ends) {
                    assumed.push((ends, hop.forecast(now)));
                }
            }
        }
        self.within_sites = within;
        if self.has_new {
            self.make_hops(&assumed);
        }
        for ((from, to), forecast) in assumed {
            if let Some(hop) = self.hops.hop(from, to) {
                let _ = self.hops.update(hop, &forecast);
            }
        }
    }

    fn make_hops(&mut self, assumed: &[((NodeId, NodeId), HopForecast)]) {
        self.has_new = false;
        let nodes: Vec<Node> = self
            .names
            .iter()
            .map(|name| self.depots.node(name))
            .collect();
        let known = self.measured.keys().chain(self.inferred.keys()).copied();
        let ends: Vec<(NodeId, NodeId)> =
            known.chain(assumed.iter().map(|(ends, _)| *ends)).collect();
        let mut hops = Hops::new(nodes, &ends);
        // Measurements of a hop itself take precedence over inference.
        for ((from, to), taken) in self.inferred.iter().chain(&self.measured) {
            if let Some(hop) = hops.hop(*from, *to) {
                let _ = hops.update(hop, taken);
            }
        }
        self.hops = hops;
    }

    fn name(&self, id: NodeId) -> String {
        let index = usize::try_from(id.0).unwrap_or(usize::MAX);
        self.names.get(index).cloned().unwrap_or_default()
    }

    /// Returns at most `limit` forecasts by path and quantity, after the first `skip`.
    #[must_use]
    pub fn forecasts(&self, query: &ForecastQuery, skip: usize, limit: usize) -> Vec<Forecast> {
        let wanted = |key: &SeriesKey| {
            query.from.as_ref().is_none_or(|from| *from == key.from)
                && query.to.as_ref().is_none_or(|to| *to == key.to)
                && query
                    .quantity
                    .is_none_or(|quantity| quantity == key.quantity)
        };
        let found = self.series.iter().filter(|(key, _)| wanted(key));
        let all = found.filter_map(|(key, known)| {
            let forecast = known.series.forecast()?;
            Some(Forecast {
                from: key.from.clone(),
                to: key.to.clone(),
                reporter: key.reporter.clone(),
                quantity: key.quantity,
                next: spread(&forecast.quantiles),
                measured_ms: u64::try_from(known.series.newest()? / intake::MS_US)
                    .unwrap_or_default(),
                samples: forecast.samples,
                coverage: Coverage {
                    of_100: forecast.coverage_100,
                    of_1000: forecast.coverage_1000,
                },
            })
        });
        all.skip(skip).take(limit).collect()
    }

    /// Returns the time when a path last carried real traffic, in milliseconds since the Unix
    /// epoch.
    #[must_use]
    pub fn carried_ms(&self, from: &str, to: &str) -> Option<u64> {
        let path = (*self.ids.get(from)?, *self.ids.get(to)?);
        self.carried.get(&path).copied()
    }

    /// Returns what is known of a path to measure.
    #[must_use]
    pub fn known_path(&self, from: &str, to: &str) -> KnownPath {
        let ends = self.ids.get(from).copied().zip(self.ids.get(to).copied());
        ends.map_or_else(KnownPath::default, |ends| KnownPath {
            rate_bps: self.measured.get(&ends).map(|known| known.rate.p50),
            unseen_bytes: self.unseen.get(&ends).copied(),
        })
    }

    /// Returns the newest value of each series.
    pub fn newest(&self) -> impl Iterator<Item = (&SeriesKey, f64)> {
        self.series.iter().map(|(key, known)| (key, known.newest))
    }
}

impl MapDepots {
    /// Returns a node: a depot that is not stale can relay, everything else is an end.
    fn node(&self, name: &str) -> Node {
        Node {
            relay: self.known.get(name).and_then(|depot| depot.relay),
            ..Node::END
        }
    }
}

fn node_id(index: usize) -> NodeId {
    NodeId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn spread(quantiles: &Quantiles) -> Spread {
    Spread {
        p10: quantiles.p10,
        p50: quantiles.p50,
        p90: quantiles.p90,
    }
}

#[cfg(test)]
mod tests;
