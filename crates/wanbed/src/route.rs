//! Routes of packets: the path with the shortest delay, except where the scenario pins a route.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::scenario::{Network, PinnedRoute, PortRange};

/// First routing table; those below are the kernel's own, or may be used by a person inside a node.
const FIRST_TABLE: u32 = 1000;
/// Priority of rules for ports. They precede rules for all traffic, and both precede the main
/// table's 32766.
const PORT_RULES: u32 = 1000;
const ADDRESS_RULES: u32 = 20_000;

/// Routes of one node, by index of node and link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeRoutes {
    /// Destinations, and the first link of the shortest path to each.
    pub(crate) main: Vec<(usize, usize)>,
    /// Traffic on other paths.
    pub(crate) pinned: Vec<PinnedHop>,
}

/// A rule and the one route of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PinnedHop {
    pub(crate) table: u32,
    pub(crate) priority: u32,
    /// Node whose traffic it is; `None` on that node itself, where packets may not have a source
    /// address yet.
    pub(crate) from: Option<usize>,
    pub(crate) to: usize,
    pub(crate) ports: Option<PortRange>,
    pub(crate) link: usize,
}

/// Returns the routes of every node.
pub(crate) fn tables(network: &Network) -> Vec<NodeRoutes> {
    let mut routes: Vec<NodeRoutes> = (0..network.nodes.len())
        .map(|node| NodeRoutes {
            main: first_links(network, node),
            pinned: Vec::new(),
        })
        .collect();
    for (index, route) in (0..).zip(&network.routes) {
        let mut at = route.from;
        for &link in &route.links {
            let ports_first = if route.ports.is_some() {
                PORT_RULES
            } else {
                ADDRESS_RULES
            };
            routes[at].pinned.push(PinnedHop {
                table: FIRST_TABLE + index,
                priority: ports_first + index,
                from: (at != route.from).then_some(route.from),
                to: route.to,
                ports: route.ports,
                link,
            });
            at = network.links[link].far_end(at);
        }
    }
    routes
}

/// Returns the single link with the shortest delay from one node to another.
pub(crate) fn shortest_link(network: &Network, from: usize, to: usize) -> Option<usize> {
    let joins = |&index: &usize| {
        let link = &network.links[index];
        (link.a == from && link.b == to) || (link.a == to && link.b == from)
    };
    (0..network.links.len())
        .filter(joins)
        .min_by_key(|&index| delay(network, index, from))
}

/// Returns the one-way delay of a link for a packet that enters it at `from`.
fn delay(network: &Network, link: usize, from: usize) -> Duration {
    let link = &network.links[link];
    if link.a == from {
        link.spec.forward.delay
    } else {
        link.spec.backward.delay
    }
}

/// Finds the first link of the shortest path to every reachable node (Dijkstra). Of equal delays
/// the path with fewer links wins, then the link that is first in the scenario.
fn first_links(network: &Network, source: usize) -> Vec<(usize, usize)> {
    let mut first: Vec<Option<usize>> = vec![None; network.nodes.len()];
    let mut done = vec![false; network.nodes.len()];
    let mut queue = BinaryHeap::from([Reverse((Duration::ZERO, 0_usize, usize::MAX, source))]);
    while let Some(Reverse((so_far, hops, via, node))) = queue.pop() {
        if std::mem::replace(&mut done[node], true) {
            continue;
        }
        first[node] = (via != usize::MAX).then_some(via);
        if node != source && !network.nodes[node].forwards {
            continue; // a host that passes nothing on is the end of any way
        }
        for (index, link) in network.links.iter().enumerate() {
            if link.a == node || link.b == node {
                let via = if via == usize::MAX { index } else { via };
                queue.push(Reverse((
                    so_far + delay(network, index, node),
                    hops + 1,
                    via,
                    link.far_end(node),
                )));
            }
        }
    }
    first
        .into_iter()
        .enumerate()
        .filter_map(|(node, link)| Some((node, link?)))
        .collect()
}

/// Shortest paths of every node, computed once.
pub(crate) struct Ways<'a> {
    network: &'a Network,
    /// First link, by source and destination.
    first: Vec<Vec<Option<usize>>>,
}

impl<'a> Ways<'a> {
    pub(crate) fn of(network: &'a Network) -> Self {
        let mut first = vec![vec![None; network.nodes.len()]; network.nodes.len()];
        for (source, row) in first.iter_mut().enumerate() {
            for (node, link) in first_links(network, source) {
                row[node] = Some(link);
            }
        }
        Ways { network, first }
    }

    /// Returns the links that a node's own packets to another one cross. A pinned route without
    /// ports precedes the shortest path.
    pub(crate) fn path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let pinned =
            |route: &&PinnedRoute| route.from == from && route.to == to && route.ports.is_none();
        if let Some(route) = self.network.routes.iter().find(pinned) {
            return Some(route.links.clone());
        }
        let mut at = from;
        let mut links = Vec::new();
        while at != to && links.len() <= self.network.nodes.len() {
            let link = self.first[at][to]?;
            links.push(link);
            at = self.network.links[link].far_end(at);
        }
        (at == to).then_some(links)
    }

    /// Returns for each link the round trip of the shortest control loop across it, with which its
    /// lag is compared.
    ///
    /// Control loops run between hosts: on the packets' routes, and on the paths that the scenario
    /// names, as a relayed session takes them. A node that relays ends every loop. A link that no
    /// loop crosses is compared with its own round trip.
    pub(crate) fn shortest_loops(&self) -> Vec<Duration> {
        let mut shortest: Vec<Option<Duration>> = vec![None; self.network.links.len()];
        let mut consider = |path: &[usize]| {
            for hop in self.hops(path) {
                let rtt: Duration = hop.iter().map(|&link| self.round_trip(link)).sum();
                for &link in hop {
                    shortest[link] = Some(shortest[link].map_or(rtt, |other| other.min(rtt)));
                }
            }
        };
        let hosts: Vec<usize> = (0..self.network.nodes.len())
            .filter(|&node| self.is_host(node))
            .collect();
        for (&from, &to) in hosts
            .iter()
            .flat_map(|from| hosts.iter().map(move |to| (from, to)))
        {
            if let Some(links) = self.path(from, to) {
                consider(&links);
            }
        }
        for route in &self.network.routes {
            consider(&route.links);
        }
        for path in &self.network.named_paths {
            consider(path);
        }
        shortest
            .iter()
            .enumerate()
            .map(|(link, rtt)| rtt.unwrap_or_else(|| self.round_trip(link)))
            .collect()
    }

    fn round_trip(&self, link: usize) -> Duration {
        let spec = &self.network.links[link].spec;
        spec.forward.delay + spec.backward.delay
    }

    /// Returns true if connections begin or end at this node: it relays them, or it is the end of a
    /// route or of the network. A node that is not a relay in this run is no host.
    fn is_host(&self, node: usize) -> bool {
        let Network {
            nodes,
            links,
            routes,
            ..
        } = self.network;
        nodes[node].relays.unwrap_or_else(|| {
            let degree = links
                .iter()
                .filter(|link| link.a == node || link.b == node)
                .count();
            degree <= 1
                || !nodes[node].forwards
                || routes
                    .iter()
                    .any(|route| route.from == node || route.to == node)
        })
    }

    /// Splits a path at the relays between its links.
    fn hops<'b>(&self, path: &'b [usize]) -> impl Iterator<Item = &'b [usize]> {
        path.chunk_by(|&one, &next| {
            let [one, next] = [one, next].map(|link| &self.network.links[link]);
            let relays = |node: usize| self.network.nodes[node].relays == Some(true);
            ![one.a, one.b]
                .into_iter()
                .any(|node| (node == next.a || node == next.b) && relays(node))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Overrides, Scenario};

    /// a - b - c in a row of short links, and a long direct link from a to c; d is attached to c.
    const SQUARE: &str = r#"
        [nodes.a]
        [nodes.b]
        [nodes.c]
        [nodes.d]
        [links]
        ab = { ends = ["a", "b"], delay = "1 ms", rate = "1 Gbit/s" }
        bc = { ends = ["b", "c"], delay = "38 ms", rate = "1 Gbit/s" }
        ac = { ends = ["a", "c"], delay = "53 ms", rate = "1 Gbit/s" }
        cd = { ends = ["c", "d"], delay = "2 ms", rate = "1 Gbit/s" }
    "#;

    fn network(text: &str) -> Network {
        Scenario::from_text("square.toml", text)
            .resolve(&Overrides::default())
            .unwrap()
    }

    fn names(network: &Network, links: &[usize]) -> Vec<String> {
        links
            .iter()
            .map(|&link| network.links[link].spec.name.clone())
            .collect()
    }

    #[test]
    fn the_shortest_way_is_by_delay_not_by_hops() {
        let network = network(SQUARE);
        assert_eq!(
            names(&network, &Ways::of(&network).path(0, 3).unwrap()),
            ["ab", "bc", "cd"]
        );
        assert_eq!(
            names(&network, &Ways::of(&network).path(3, 0).unwrap()),
            ["cd", "bc", "ab"]
        );
    }

    #[test]
    fn routes_avoid_hosts_that_do_not_forward() {
        let network = network(&SQUARE.replace("[nodes.b]", "[nodes.b]\nforwards = false"));
        assert_eq!(
            names(&network, &Ways::of(&network).path(0, 3).unwrap()),
            ["ac", "cd"]
        );
        assert_eq!(
            names(&network, &Ways::of(&network).path(0, 1).unwrap()),
            ["ab"]
        );
    }

    #[test]
    fn each_direction_has_its_own_delay() {
        let network = network(&SQUARE.replace(
            r#""53 ms", rate"#,
            r#""53 ms", backward = { delay = "5 ms" }, rate"#,
        ));
        assert_eq!(
            names(&network, &Ways::of(&network).path(0, 2).unwrap()),
            ["ab", "bc"]
        );
        assert_eq!(
            names(&network, &Ways::of(&network).path(2, 0).unwrap()),
            ["ac"]
        );
    }

    #[test]
    fn a_pinned_route_is_ruled_at_every_node_on_it_and_back() {
        let pinned = format!("{SQUARE}\n[[route]]\nfrom = \"a\"\nto = \"d\"\nvia = [\"ac\"]\n");
        let network = network(&pinned);
        let routes = tables(&network);
        let hop = |node: usize| -> Vec<(Option<usize>, usize, usize)> {
            routes[node]
                .pinned
                .iter()
                .map(|hop| (hop.from, hop.to, hop.link))
                .collect()
        };
        assert_eq!(hop(0), [(None, 3, 2)]);
        assert_eq!(hop(1), []);
        assert_eq!(hop(2), [(Some(0), 3, 3), (Some(3), 0, 2)]);
        assert_eq!(hop(3), [(None, 0, 3)]);
        assert_eq!(
            names(&network, &Ways::of(&network).path(0, 3).unwrap()),
            ["ac", "cd"]
        );
    }

    #[test]
    fn port_rules_come_before_address_rules() {
        let text = format!(
            "{SQUARE}\n[[route]]\nfrom = \"a\"\nto = \"c\"\nvia = [\"ac\"]\n\
             [[route]]\nfrom = \"a\"\nto = \"c\"\nvia = [\"b\"]\nports = \"21000-21999\"\n\
             one_way = true\n"
        );
        let network = network(&text);
        let routes = tables(&network);
        let [all, some] = &routes[0].pinned[..] else {
            panic!("two rules at a: {routes:?}")
        };
        assert!(all.ports.is_none() && some.ports.is_some());
        assert!(some.priority < all.priority);
        assert!(
            routes[2].pinned.iter().all(|hop| hop.ports.is_none()),
            "one way means one way"
        );
    }

    fn loops(network: &Network) -> Vec<u128> {
        let loops = Ways::of(network).shortest_loops();
        loops.iter().map(Duration::as_millis).collect()
    }

    #[test]
    fn a_loop_runs_between_hosts_and_ends_at_a_relay() {
        // a is not a host by its degree, because two links end there; the route makes it one.
        let routed = format!("{SQUARE}\n[[route]]\nfrom = \"a\"\nto = \"d\"\nvia = [\"ac\"]\n");
        assert_eq!(
            loops(&network(&routed)),
            [2, 76, 110, 110],
            "no loop crosses ab and bc"
        );
        let relayed = routed.replace("[nodes.b]", "[nodes.b]\nrelays = true");
        assert_eq!(loops(&network(&relayed)), [2, 80, 110, 80]);
        let two = relayed.replace("[nodes.c]", "[nodes.c]\nrelays = true");
        assert_eq!(loops(&network(&two)), [2, 76, 106, 4]);
    }

    #[test]
    fn a_run_says_which_nodes_relay() {
        let text = SQUARE
            .replace("[nodes.b]", "[nodes.b]\nrelays = true")
            .replace("[nodes.a]", "[nodes.a]\nforwards = false");
        let with = |overrides: &Overrides| {
            loops(
                &Scenario::from_text("s", text.as_str())
                    .resolve(overrides)
                    .unwrap(),
            )
        };
        assert_eq!(with(&Overrides::default()), [2, 80, 106, 80]);
        assert_eq!(with(&Overrides::default().relays(["b"])), [2, 80, 106, 80]);
        // From a to d on the shortest path, which b only forwards.
        assert_eq!(
            with(&Overrides::default().relays([""; 0])),
            [82, 82, 106, 82]
        );
        let error =
            Scenario::from_text("s", text.as_str()).resolve(&Overrides::default().relays(["x"]));
        assert_eq!(
            error.unwrap_err().to_string(),
            "the relays of this run: there is no node \"x\""
        );
    }

    #[test]
    fn a_named_path_is_a_loop_unless_a_relay_stands_on_it() {
        let mut network = network(SQUARE);
        network.named_paths.push(vec![0, 1, 3]);
        assert_eq!(loops(&network), [82, 82, 106, 82]);
        network.nodes[1].relays = Some(true);
        assert_eq!(loops(&network), [2, 80, 106, 80]);
    }
}
