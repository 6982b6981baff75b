//! Conversion of the located document into the resolved network: nodes, routes, and the spreading
//! of losses.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::document;
use super::fields::{ScenarioField, name};
use super::quantity;
use super::{
    Located, Node, Overrides, PinnedRoute, PortRange, ScenarioLink, ScenarioNetwork, read_link,
};
use crate::error::{Result, ScenarioError};
use crate::route;
use crate::spec::LossModel;

/// Maximum number of nodes, far more than one machine can run; it keeps addresses and routing
/// tables in their ranges.
const MAX_NODES: usize = 200;
const MAX_ROUTES: usize = 500;
/// Minimum MTU of every link that carries IPv6 (RFC 8200, section 5).
const MIN_IPV6_MTU: u32 = 1280;
/// Window below which `buffers` alone cannot limit TCP's window.
const UNSCALED_WINDOW: u64 = 65_536;

pub(super) fn network(
    file: &str,
    directory: &Path,
    text: &str,
    overrides: &Overrides,
) -> Result<ScenarioNetwork> {
    let root = ScenarioField::root(document::parse(file, text, &overrides.settings)?);
    let mut fields = root.fields()?;
    let title = fields
        .optional("title")
        .map(|field| field.text().map(str::to_owned))
        .transpose()?
        .unwrap_or_default();
    let file_seed = match fields.optional("seed") {
        Some(field) => {
            u64::try_from(field.integer()?).map_err(|_| field.wrong("a seed cannot be negative"))?
        }
        None => 1,
    };
    let seed = overrides.seed.unwrap_or(file_seed);
    let ipv6 = fields
        .optional("ipv6")
        .map(|field| field.boolean())
        .transpose()?
        .unwrap_or(false);
    let nodes_field = fields.required("nodes")?;
    let links_field = fields.required("links")?;
    let spread = fields.optional("spread");
    let routes = fields.optional("route");
    fields.finish()?;

    let mut nodes = nodes(&nodes_field, ipv6)?;
    if let Some(relays) = &overrides.relays {
        choose_relays(&mut nodes, relays)?;
    }
    let mut links = read_link::links(&links_field, &nodes, directory, seed)?;
    if ipv6 {
        check_ipv6_mtu(&links_field, &links)?;
    }
    let mut named_paths = Vec::new();
    if let Some(spread) = spread {
        for (_, field) in spread.entries()? {
            named_paths.push(spread_loss(&field, &mut links)?);
        }
    }
    for (index, (node, explicit)) in nodes.iter_mut().enumerate() {
        let degree = links
            .iter()
            .filter(|link| link.a == index || link.b == index)
            .count();
        node.forwards = explicit.unwrap_or(degree > 1);
    }
    let nodes: Vec<Node> = nodes.into_iter().map(|(node, _)| node).collect();
    let mut network = ScenarioNetwork {
        title,
        seed,
        nodes,
        links,
        routes: Vec::new(),
        named_paths,
    };
    if let Some(field) = routes {
        for entry in field.list()? {
            let pinned = pinned_route(&entry, &network)?;
            network.routes.extend(pinned);
            if network.routes.len() > MAX_ROUTES {
                return Err(entry.wrong(format!("more than {MAX_ROUTES} routes")).into());
            }
        }
    }
    Ok(network)
}

/// Reads the nodes, each with the scenario's setting of its forwarding.
fn nodes(field: &ScenarioField, ipv6: bool) -> Located<Vec<(Node, Option<bool>)>> {
    let entries = field.entries()?;
    if entries.is_empty() || entries.len() > MAX_NODES {
        return Err(field.wrong(format!("a scenario has 1 to {MAX_NODES} nodes")));
    }
    let mut nodes: Vec<(Node, Option<bool>)> = Vec::new();
    for (index, (key, field)) in entries.into_iter().enumerate() {
        name(&field, &key, 60)?;
        if key == "localhost" {
            return Err(field.wrong("`localhost` is every node's name for itself"));
        }
        let mut fields = field.fields()?;
        let congestion = match fields.optional("congestion") {
            Some(field) => {
                let name = field.text()?;
                let plain = !name.is_empty()
                    && name.len() < 16
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                if !plain {
                    return Err(field.wrong(format!(
                        "{name:?} is not a supported congestion control: write \"reno\", \"cubic\" \
                         or \"bbr\""
                    )));
                }
                Some(name.to_owned())
            }
            None => None,
        };
        let mut sysctls = Vec::new();
        if let Some(field) = fields.optional("buffers") {
            sysctls.extend(buffers(&field)?);
        }
        if let Some(field) = fields.optional("sysctl") {
            for (key, value) in field.entries()? {
                sysctls.push((sysctl_name(&value, &key)?, value.sysctl_value()?));
            }
        }
        let mut flag = |key| {
            fields
                .optional(key)
                .map(|field| field.boolean())
                .transpose()
        };
        let (forwards, relays) = (flag("forwards")?, flag("relays")?);
        fields.finish()?;
        // 10.77.0.1 and up, in the order of the file: MAX_NODES fits the last byte.
        let number = u8::try_from(index + 1).unwrap_or(u8::MAX);
        let address = Ipv4Addr::new(10, 77, 0, number);
        // The same in the unique local network fd77::/64 (RFC 4193).
        let ipv6 = ipv6.then(|| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()));
        nodes.push((
            Node {
                name: key,
                address,
                ipv6,
                forwards: false,
                relays,
                congestion,
                sysctls,
            },
            forwards,
        ));
    }
    Ok(nodes)
}

fn check_ipv6_mtu(field: &ScenarioField, links: &[ScenarioLink]) -> Located<()> {
    for ((_, field), link) in field.entries()?.into_iter().zip(links) {
        if link.spec.mtu < MIN_IPV6_MTU {
            return Err(field.wrong(format!(
                "IPv6 needs an MTU of at least {MIN_IPV6_MTU} bytes, and this link has {}: raise \
                 it, or set ipv6 = false",
                link.spec.mtu
            )));
        }
    }
    Ok(())
}

/// Makes these nodes the only ones that relay. A relay of the file that is not named is not a relay
/// in this run.
fn choose_relays(nodes: &mut [(Node, Option<bool>)], relays: &[String]) -> Located<()> {
    for (node, _) in nodes.iter_mut() {
        node.relays = node.relays.map(|_| false);
    }
    for name in relays {
        let Some((node, _)) = nodes.iter_mut().find(|(node, _)| node.name == *name) else {
            return Err(ScenarioError {
                place: "the relays of this run".to_owned(),
                field: String::new(),
                problem: format!("there is no node {name:?}"),
            });
        };
        node.relays = Some(true);
    }
    Ok(())
}

/// Returns the sysctls that let a TCP window grow to a size and no further.
fn buffers(field: &ScenarioField) -> Located<Vec<(String, String)>> {
    let size = field.quantity(quantity::bytes)?;
    let sysctl = |name: &str, value: String| (format!("net.ipv4.{name}"), value);
    if size == UNSCALED_WINDOW {
        // An untuned host: without window scaling, it can offer at most 64 KB.
        return Ok(vec![
            sysctl("tcp_window_scaling", "0".to_owned()),
            sysctl("tcp_rmem", "4096 131072 262144".to_owned()),
            sysctl("tcp_wmem", "4096 65536 262144".to_owned()),
        ]);
    }
    if !(2 * UNSCALED_WINDOW..=1 << 30).contains(&size) {
        return Err(field
            .wrong("buffers are \"64 KB\" (no window scaling), or from \"128 KB\" to \"1 GB\""));
    }
    // Linux counts its bookkeeping as part of the buffer: twice the window holds the window.
    Ok(vec![
        sysctl("tcp_window_scaling", "1".to_owned()),
        sysctl("tcp_rmem", format!("4096 131072 {}", 2 * size)),
        sysctl("tcp_wmem", format!("4096 65536 {}", 2 * size)),
    ])
}

/// Accepts only sysctls of a network namespace: one outside `net.` would be the host's.
fn sysctl_name(field: &ScenarioField, key: &str) -> Located<String> {
    let name = if key.contains('.') {
        key.to_owned()
    } else {
        format!("net.ipv4.{key}")
    };
    let plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && !name.contains("..");
    if name.starts_with("net.") && plain {
        Ok(name)
    } else {
        Err(field.wrong(
            "only sysctls under net. belong to a node; a name without a dot means net.ipv4.NAME",
        ))
    }
}

/// Reads `[spread.NAME]`: one loss rate for a whole path, divided among its links in proportion to
/// their delay. Returns the path.
fn spread_loss(field: &ScenarioField, links: &mut [ScenarioLink]) -> Located<Vec<usize>> {
    let mut fields = field.fields()?;
    let loss = fields.required("loss")?.probability()?;
    let path_field = fields.required("path")?;
    let path = link_list(&path_field, links)?;
    let also = fields
        .optional("also")
        .map(|field| link_list(&field, links))
        .transpose()?
        .unwrap_or_default();
    fields.finish()?;
    // Half the link's own round trip, so that a link with unequal directions has the same loss in
    // both.
    let delay = |link: &ScenarioLink| {
        (link.spec.forward.delay + link.spec.backward.delay).as_secs_f64() / 2.0
    };
    let whole: f64 = path.iter().map(|&link| delay(&links[link])).sum();
    if whole <= 0.0 {
        return Err(path_field.wrong("this path has no delay to share the loss by"));
    }
    for index in path.iter().copied().chain(also) {
        let link = &mut links[index];
        let probability = 1.0 - (1.0 - loss).powf(delay(link) / whole);
        let model = if probability > 0.0 {
            LossModel::Independent { probability }
        } else {
            LossModel::None
        };
        for direction in [&mut link.spec.forward, &mut link.spec.backward] {
            if direction.loss != LossModel::None {
                return Err(field.wrong(format!(
                    "link {} has a loss already: keep one of the two",
                    link.spec.name
                )));
            }
            direction.loss = model;
        }
    }
    Ok(path)
}

fn link_list(field: &ScenarioField, links: &[ScenarioLink]) -> Located<Vec<usize>> {
    let mut found = Vec::new();
    for item in field.list()? {
        let name = item.text()?;
        let index = links.iter().position(|link| link.spec.name == name);
        found.push(index.ok_or_else(|| item.wrong(format!("there is no link {name:?}")))?);
    }
    Ok(found)
}

/// Reads one `[[route]]`: its direction there and, unless it is one-way, the same path back.
fn pinned_route(field: &ScenarioField, network: &ScenarioNetwork) -> Located<Vec<PinnedRoute>> {
    let mut fields = field.fields()?;
    let end = |field: ScenarioField| {
        let name = field.text()?;
        network
            .node(name)
            .ok_or_else(|| field.wrong(format!("there is no node {name:?}")))
    };
    let from = end(fields.required("from")?)?;
    let to_field = fields.required("to")?;
    let to = end(to_field.clone())?;
    if from == to {
        return Err(to_field.wrong("a route leads to another node"));
    }
    let via = fields.optional("via");
    let ports = fields
        .optional("ports")
        .map(|field| port_range(&field))
        .transpose()?;
    let one_way = fields
        .optional("one_way")
        .map(|field| field.boolean())
        .transpose()?
        .unwrap_or(false);
    fields.finish()?;

    let links = walk(field, via.as_ref(), from, to, network)?;
    let ports = ports.map(|(first, last)| PortRange {
        first,
        last,
        at_sender: true,
    });
    let back = PinnedRoute {
        from: to,
        to: from,
        links: links.iter().rev().copied().collect(),
        ports: ports.map(|range| PortRange {
            at_sender: false,
            ..range
        }),
    };
    let there = PinnedRoute {
        from,
        to,
        links,
        ports,
    };
    Ok(if one_way {
        vec![there]
    } else {
        vec![there, back]
    })
}

/// Returns the links from `from` to `to` through every name in `via`. A named link is crossed; a
/// named node is reached by the one link that leads there.
fn walk(
    route: &ScenarioField,
    via: Option<&ScenarioField>,
    from: usize,
    to: usize,
    network: &ScenarioNetwork,
) -> Located<Vec<usize>> {
    let mut at = from;
    let mut crossed = Vec::new();
    let mut seen = HashSet::from([from]);
    let mut step = |field: &ScenarioField, at: &mut usize, link: usize| {
        *at = network.links[link].far_end(*at);
        crossed.push(link);
        if seen.insert(*at) {
            Ok(())
        } else {
            Err(field.wrong(format!("passes {} twice", network.nodes[*at].name)))
        }
    };
    for item in via
        .map(ScenarioField::list)
        .transpose()?
        .unwrap_or_default()
    {
        let name = item.text()?;
        let here = &network.nodes[at].name;
        let link = match network.links.iter().position(|link| link.spec.name == name) {
            Some(link) if network.links[link].a == at || network.links[link].b == at => link,
            Some(_) => return Err(item.wrong(format!("link {name} does not begin at {here}"))),
            None => {
                let node = network
                    .node(name)
                    .ok_or_else(|| item.wrong(format!("there is no node or link {name:?}")))?;
                route::shortest_link(network, at, node)
                    .ok_or_else(|| item.wrong(format!("no link leads from {here} to {name}")))?
            }
        };
        step(&item, &mut at, link)?;
    }
    if at != to {
        let (here, there) = (&network.nodes[at].name, &network.nodes[to].name);
        let link = route::shortest_link(network, at, to).ok_or_else(|| {
            route.wrong(format!(
                "no link leads from {here} to {there}: name what lies between in `via`"
            ))
        })?;
        step(route, &mut at, link)?;
    }
    Ok(crossed)
}

fn port_range(field: &ScenarioField) -> Located<(u16, u16)> {
    let wrong = || field.wrong("ports are TCP source ports, written like \"21000-21999\"");
    let (first, last) = field.text()?.split_once('-').ok_or_else(wrong)?;
    let port = |text: &str| {
        text.trim()
            .parse::<u16>()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(wrong)
    };
    let (first, last) = (port(first)?, port(last)?);
    if first <= last {
        Ok((first, last))
    } else {
        Err(wrong())
    }
}
