//! States of a map's links in a database.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use quantities::Rate;

use super::{Edge, TrafficDatabase};
use crate::live::LiveDirection;
use crate::model::{Link, Map};

/// Maximum number of problems that are listed.
const MAX_PROBLEMS: usize = 100;

/// Names of the network's routers and links on the map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouterNames {
    /// Router ids by site.
    pub routers: BTreeMap<String, Ipv4Addr>,
    /// Addresses of the interfaces of a link, by its name, at one of its sites or at both. Links
    /// that are not named have all interfaces between the two routers.
    pub interfaces: BTreeMap<String, BTreeSet<Ipv4Addr>>,
}

/// State of a link in a database.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ObservedLink {
    /// If true, both routers announce the link.
    pub up: bool,
    /// Direction from `from` to `to`.
    pub forward: LiveDirection,
    /// Direction from `to` to `from`.
    pub backward: LiveDirection,
}

/// States of all links of a map that are followed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedLinks {
    /// States by link.
    pub links: BTreeMap<String, ObservedLink>,
    /// Faults of the names, one line each.
    pub problems: Vec<String>,
}

/// Returns the states of a map's links in a database.
#[must_use]
pub fn observe(map: &Map, names: &RouterNames, database: &TrafficDatabase) -> ObservedLinks {
    let mut problems = unknown_names(map, names);
    // Two links between the same routers are told apart by addresses only.
    let mut parallel: BTreeMap<BTreeSet<Ipv4Addr>, usize> = BTreeMap::new();
    let followed: Vec<(&Link, Ipv4Addr, Ipv4Addr)> = map
        .links
        .iter()
        .filter_map(|link| {
            let router = |site| names.routers.get(site).copied();
            Some((link, router(&link.from)?, router(&link.to)?))
        })
        .filter(|(_, from, to)| from != to)
        .collect();
    for (_, from, to) in &followed {
        *parallel.entry([*from, *to].into()).or_default() += 1;
    }
    let mut links = BTreeMap::new();
    for (link, from, to) in followed {
        let interfaces = names.interfaces.get(&link.name);
        let is_alone = parallel.get(&[from, to].into()) == Some(&1);
        if interfaces.is_none() && !is_alone {
            problems.push(format!(
                "ospf: {:?} is not followed: several links join {:?} and {:?}; add the addresses \
                 of its interfaces under ospf.links",
                link.name, link.from, link.to
            ));
            continue;
        }
        links.insert(
            link.name.clone(),
            observe_link(database, from, to, interfaces),
        );
    }
    problems.truncate(MAX_PROBLEMS);
    ObservedLinks { links, problems }
}

fn observe_link(
    database: &TrafficDatabase,
    from: Ipv4Addr,
    to: Ipv4Addr,
    interfaces: Option<&BTreeSet<Ipv4Addr>>,
) -> ObservedLink {
    let own = |from, to| -> Vec<Edge> {
        let is_own = |edge: &&Edge| {
            let mut addresses = edge.addresses.iter().flatten();
            interfaces.is_none_or(|own| addresses.any(|address| own.contains(address)))
        };
        let edges = database.edges(from, to).iter();
        edges.filter(is_own).copied().collect()
    };
    let (forward, backward) = (own(from, to), own(to, from));
    let up = !forward.is_empty() && !backward.is_empty();
    let (forward, backward) = (together(&forward), together(&backward));
    // FRR may forget the rates of one direction.
    let known = |own: LiveDirection, opposite: LiveDirection| match own == LiveDirection::default()
    {
        true if up => opposite,
        _ => own,
    };
    ObservedLink {
        up,
        forward: known(forward, backward),
        backward: known(backward, forward),
    }
}

/// Returns the rates of all interfaces of a link together. A rate is known if all announce it.
fn together(edges: &[Edge]) -> LiveDirection {
    let sum = |rate: fn(&Edge) -> Option<Rate>| -> Option<Rate> {
        let rates: Option<Vec<f64>> = edges
            .iter()
            .map(|edge| rate(edge).map(Rate::bits_per_second))
            .collect();
        let rates = rates.filter(|rates| !rates.is_empty())?;
        Rate::new(rates.iter().sum())
    };
    LiveDirection {
        capacity: sum(|edge| edge.capacity),
        reservable: sum(|edge| edge.reservable),
    }
}

/// Returns the names that are not on the map.
fn unknown_names(map: &Map, names: &RouterNames) -> Vec<String> {
    let sites: BTreeSet<&str> = map.sites.iter().map(|site| site.name.as_str()).collect();
    let links: BTreeSet<&str> = map.links.iter().map(|link| link.name.as_str()).collect();
    let routers = names.routers.keys();
    let no_site = routers
        .filter(|site| !sites.contains(site.as_str()))
        .map(|site| format!("ospf.routers: there is no site {site:?} on the map"));
    let interfaces = names.interfaces.keys();
    let no_link = interfaces
        .filter(|link| !links.contains(link.as_str()))
        .map(|link| format!("ospf.links: there is no link {link:?} on the map"));
    no_site.chain(no_link).take(MAX_PROBLEMS).collect()
}
