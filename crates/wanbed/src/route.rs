//! Which way packets go: the shortest by delay, except where the scenario pins a route.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::scenario::{Network, PinnedRoute, PortRange};

/// Tables below this are the kernel's own or likely to be used by a person inside a node.
const FIRST_TABLE: u32 = 1000;
/// Rules for ports are looked at before rules for all traffic, and both before the main table's 32766.
const PORT_RULES: u32 = 1000;
const ADDRESS_RULES: u32 = 20_000;

/// The routes of one node, by index of node and link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeRoutes {
    /// Destination and the link towards it, the shortest way.
    pub(crate) main: Vec<(usize, usize)>,
    /// What goes another way.
    pub(crate) pinned: Vec<PinnedHop>,
}

/// A rule and the one route of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PinnedHop {
    pub(crate) table: u32,
    pub(crate) priority: u32,
    /// Whose traffic; `None` on the node that sends it, where packets may not have a source address yet.
    pub(crate) from: Option<usize>,
    pub(crate) to: usize,
    pub(crate) ports: Option<PortRange>,
    pub(crate) link: usize,
}

/// The routes of every node.
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

/// The shortest single link from one node to another.
pub(crate) fn shortest_link(network: &Network, from: usize, to: usize) -> Option<usize> {
    let joins = |&index: &usize| {
        let link = &network.links[index];
        (link.a == from && link.b == to) || (link.a == to && link.b == from)
    };
    (0..network.links.len())
        .filter(joins)
        .min_by_key(|&index| delay(network, index, from))
}

/// One-way delay of a link for a packet that enters it at `from`.
fn delay(network: &Network, link: usize, from: usize) -> Duration {
    let link = &network.links[link];
    if link.a == from {
        link.spec.forward.delay
    } else {
        link.spec.backward.delay
    }
}

/// Dijkstra: for every node that can be reached, the first link of the shortest way. Of equal delays the fewer links
/// win, then the link that stands first in the scenario.
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

/// Every node's shortest ways, worked out once.
pub(crate) struct Ways<'a> {
    network: &'a Network,
    /// By source, then destination: the first link.
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

    /// The links a node's own packets to another cross, on the pinned route where there is one without ports.
    pub(crate) fn path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let pinned = |route: &&PinnedRoute| route.from == from && route.to == to && route.ports.is_none();
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

    /// For each link, the longest round trip over a way that crosses it: what its lag is measured against. A way is a route of packets,
    /// or a path that the scenario names, as a relayed session takes it: by one route to the depot, by another from there.
    pub(crate) fn longest_round_trips(&self) -> Vec<Duration> {
        let round = |&link: &usize| {
            let spec = &self.network.links[link].spec;
            spec.forward.delay + spec.backward.delay
        };
        let mut longest: Vec<Duration> = (0..self.network.links.len()).map(|link| round(&link)).collect();
        let mut consider = |there: &[usize]| {
            let rtt: Duration = there.iter().map(round).sum();
            for &link in there {
                longest[link] = longest[link].max(rtt);
            }
        };
        let nodes = 0..self.network.nodes.len();
        for (from, to) in nodes
            .clone()
            .flat_map(|from| nodes.clone().map(move |to| (from, to)))
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
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Overrides, Scenario};

    /// a - b - c in a row of short links, and a long direct link from a to c; d hangs on c.
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
    fn a_host_that_does_not_forward_is_gone_round() {
        let network = network(&SQUARE.replace("[nodes.b]", "[nodes.b]\nforwards = false"));
        assert_eq!(
            names(&network, &Ways::of(&network).path(0, 3).unwrap()),
            ["ac", "cd"]
        );
        assert_eq!(names(&network, &Ways::of(&network).path(0, 1).unwrap()), ["ab"]);
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
        assert_eq!(names(&network, &Ways::of(&network).path(2, 0).unwrap()), ["ac"]);
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
             [[route]]\nfrom = \"a\"\nto = \"c\"\nvia = [\"b\"]\nports = \"21000-21999\"\none_way = true\n"
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

    #[test]
    fn lag_is_measured_against_the_longest_round_trip_across_a_link() {
        let network = network(SQUARE);
        assert_eq!(
            Ways::of(&network).longest_round_trips(),
            [82, 82, 106, 82].map(Duration::from_millis)
        );
    }

    #[test]
    fn a_relayed_session_takes_a_path_that_no_packet_takes_whole() {
        let mut network = network(SQUARE);
        let whole: Vec<usize> = (0..network.links.len()).collect();
        let rtt: Duration = network
            .links
            .iter()
            .map(|link| link.spec.forward.delay + link.spec.backward.delay)
            .sum();
        network.named_paths.push(whole);
        assert!(
            Ways::of(&network)
                .longest_round_trips()
                .iter()
                .all(|longest| *longest == rtt)
        );
    }
}
