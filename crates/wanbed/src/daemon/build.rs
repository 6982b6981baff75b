//! Building a network: namespaces, devices, addresses, routes and links.

use std::path::Path;
use std::time::Instant;

use super::reaper::Reaper;
use crate::control::{LabDescription, LaunchRequest, NodeDescription};
use crate::error::{Error, Result};
use crate::link::{self, DirectionSnapshot, LinkHandle, Port};
use crate::machine::CpuTicks;
use crate::namespace::{NodeThread, hosts_file};
use crate::report::{LinkReport, Report, lag_limit_us, reasons};
use crate::route::{self, ShortestPaths};
use crate::scenario::{Backend, ScenarioNetwork};
use crate::setup::ipv6::Ipv6Setup;
use crate::setup::{self, DeviceKind, NODE_MAC};

/// A lab that is up.
pub(crate) struct Running {
    name: String,
    scenario: String,
    pub(crate) network: ScenarioNetwork,
    pub(crate) nodes: Vec<NodeThread>,
    /// Namespace of the emulator's ends of veth pairs; without veth pairs it has only its loopback.
    _wire: NodeThread,
    port: PortKind,
    links: Vec<LinkHandle>,
    loop_rtt_ms: Vec<f64>,
    up_since: Instant,
    cpu_at_start: CpuTicks,
    _reaper: Reaper,
}

impl Running {
    pub(super) fn build(
        launch: &LaunchRequest,
        network: ScenarioNetwork,
        directory: &Path,
        mut reaper: Reaper,
    ) -> Result<Self> {
        let hosts = hosts_file(network.nodes.iter().flat_map(|node| {
            let addresses = std::iter::once(node.address.into());
            addresses
                .chain(node.ipv6.map(Into::into))
                .map(|address| (address, node.name.as_str()))
        }));
        let mut start = |name: &str| -> Result<NodeThread> {
            let thread = NodeThread::start(name, hosts.clone(), directory)?;
            reaper.watch(thread.thread_id())?;
            Ok(thread)
        };
        let wire = start("wire")?;
        let nodes = network
            .nodes
            .iter()
            .map(|node| start(&node.name))
            .collect::<Result<Vec<_>>>()?;
        let port = choose(launch.overrides.backend)?;

        let congestion = prepare(&network, &nodes)?;
        let cpu_at_start = CpuTicks::now();
        let up_since = Instant::now();
        let ports = match port {
            PortKind::Tun => {
                let ports = tun_ports(&network, &nodes)?;
                configure(&network, &nodes, DeviceKind::Tun, &congestion)?;
                ports
            }
            PortKind::Packet => {
                veth_pairs(&network, &nodes, &wire)?;
                configure(&network, &nodes, DeviceKind::Veth, &congestion)?;
                packet_ports(&network, &wire)?
            }
        };
        let links = start_links(&network, ports)?;
        let loop_rtt_ms = ShortestPaths::compute(&network)
            .shortest_loops()
            .iter()
            .map(|rtt| rtt.as_secs_f64() * 1e3)
            .collect();
        Ok(Running {
            name: launch.name.clone(),
            scenario: launch.scenario.file().display().to_string(),
            network,
            nodes,
            _wire: wire,
            port,
            links,
            loop_rtt_ms,
            up_since,
            cpu_at_start,
            _reaper: reaper,
        })
    }

    pub(crate) fn description(&self) -> LabDescription {
        let node = |(node, thread): (&crate::scenario::Node, &NodeThread)| NodeDescription {
            name: node.name.clone(),
            address: node.address,
            ipv6: node.ipv6,
            thread: thread.thread_id(),
        };
        let name_of = |node: usize| self.network.nodes[node].name.clone();
        LabDescription {
            lab: self.name.clone(),
            process: std::process::id(),
            scenario: self.scenario.clone(),
            title: self.network.title.clone(),
            seed: self.network.seed,
            backend: self.port.name().to_owned(),
            nodes: self
                .network
                .nodes
                .iter()
                .zip(&self.nodes)
                .map(node)
                .collect(),
            links: self
                .network
                .links
                .iter()
                .map(|link| (link.spec.name.clone(), name_of(link.a), name_of(link.b)))
                .collect(),
        }
    }

    /// Returns the counters since the lab came up.
    pub(crate) fn report(&self) -> Result<Report> {
        let seconds = self.up_since.elapsed().as_secs_f64();
        let snapshots = self
            .links
            .iter()
            .map(LinkHandle::counters)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Error::Refused(error.to_string()))?;
        let ends = self
            .network
            .links
            .iter()
            .zip(&self.loop_rtt_ms)
            .zip(snapshots);
        let links: Vec<LinkReport> = ends
            .map(|((link, rtt), counters)| LinkReport {
                a: self.network.nodes[link.a].name.clone(),
                b: self.network.nodes[link.b].name.clone(),
                loop_rtt_ms: *rtt,
                lag_limit_us: lag_limit_us(*rtt),
                counters,
            })
            .collect();
        let cpu = CpuTicks::now().since(self.cpu_at_start);
        let reasons = reasons(&links, cpu);
        Ok(Report {
            lab: self.name.clone(),
            scenario: self.scenario.clone(),
            seed: self.network.seed,
            backend: self.port.name().to_owned(),
            seconds,
            links,
            cpu,
            valid: reasons.is_empty(),
            reasons,
        })
    }

    /// Returns the counters of one direction of a link.
    pub(crate) fn direction(&self, link: usize, forward: bool) -> Result<DirectionSnapshot> {
        let link = self
            .links
            .get(link)
            .ok_or_else(|| Error::Refused(format!("there is no link number {link}")))?;
        let snapshot = link
            .counters()
            .map_err(|error| Error::Refused(error.to_string()))?;
        Ok(if forward {
            snapshot.forward
        } else {
            snapshot.backward
        })
    }

    /// Returns the time since the links started, at which traces start, too.
    pub(crate) fn age(&self) -> std::time::Duration {
        self.up_since.elapsed()
    }
}

/// Kind of port from which links take packets and to which they give them.
#[derive(Debug, Clone, Copy)]
enum PortKind {
    Tun,
    Packet,
}

impl PortKind {
    fn name(self) -> &'static str {
        match self {
            PortKind::Tun => "tun",
            PortKind::Packet => "packet",
        }
    }
}

fn choose(asked: Backend) -> Result<PortKind> {
    let tun = || {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
    };
    match asked {
        Backend::Packet => Ok(PortKind::Packet),
        Backend::User => Ok(tun().map_or(PortKind::Packet, |_| PortKind::Tun)),
        Backend::Tun => match tun() {
            Ok(_) => Ok(PortKind::Tun),
            Err(error) => Err(Error::Backend {
                backend: "tun",
                reason: format!("/dev/net/tun: {error}"),
            }),
        },
    }
}

/// Sets the sysctls of every node. Returns the congestion control that each node's routes have to
/// name.
fn prepare(network: &ScenarioNetwork, nodes: &[NodeThread]) -> Result<Vec<Option<String>>> {
    let prepare_one = |(node, thread): (&crate::scenario::Node, &NodeThread)| {
        let node = node.clone();
        thread.run(move || {
            setup::write_sysctls(&node.name, &setup::base_sysctls(&node))?;
            setup::choose_congestion(&node)
        })?
    };
    network.nodes.iter().zip(nodes).map(prepare_one).collect()
}

fn configure(
    network: &ScenarioNetwork,
    nodes: &[NodeThread],
    kind: DeviceKind,
    congestion: &[Option<String>],
) -> Result<()> {
    let routes = route::tables(network);
    for (index, thread) in nodes.iter().enumerate() {
        let lines = setup::node_lines(
            network,
            index,
            &routes[index],
            kind,
            congestion[index].as_deref(),
        );
        let ipv6 = Ipv6Setup::of_node(network, index, &routes[index], congestion[index].as_deref());
        let name = network.nodes[index].name.clone();
        thread.run(move || {
            setup::batch("ip", &name, &lines)?;
            ipv6.map_or(Ok(()), |ipv6| ipv6.apply(&name))
        })??;
    }
    Ok(())
}

fn tun_ports(network: &ScenarioNetwork, nodes: &[NodeThread]) -> Result<Vec<[Port; 2]>> {
    let port = |node: usize, name: &str| -> Result<Port> {
        let name = name.to_owned();
        let made = nodes[node].run(move || link::tun::create(&name))?;
        made.map(Port::Tun)
            .map_err(|error| Error::Refused(error.to_string()))
    };
    network
        .links
        .iter()
        .map(|link| {
            Ok([
                port(link.a, &link.spec.name)?,
                port(link.b, &link.spec.name)?,
            ])
        })
        .collect()
}

/// Returns the names of a link's two ends in the wire namespace.
fn wire_ends(link: usize) -> [String; 2] {
    [format!("w{link}a"), format!("w{link}b")]
}

/// Creates a pair for each end of each link: one half in the node, the other in the wire namespace,
/// both up and of the same MTU.
fn veth_pairs(network: &ScenarioNetwork, nodes: &[NodeThread], wire: &NodeThread) -> Result<()> {
    let mut lines = Vec::new();
    for (index, link) in network.links.iter().enumerate() {
        let (name, mtu) = (&link.spec.name, link.spec.mtu);
        for (end, node) in wire_ends(index).iter().zip([link.a, link.b]) {
            // Any thread in a namespace names it to `ip`.
            let thread = nodes[node].thread_id();
            lines.push(format!(
                "link add {end} mtu {mtu} txqueuelen 10000 type veth peer name \
                {name} mtu {mtu} netns {thread}"
            ));
            lines.push(format!("link set dev {end} up"));
        }
    }
    wire.run(move || {
        let quiet = [("net.ipv6.conf.all.disable_ipv6".to_owned(), "1".to_owned())];
        setup::write_sysctls("wire", &quiet)?;
        setup::batch("ip", "wire", &lines)
    })?
}

fn packet_ports(network: &ScenarioNetwork, wire: &NodeThread) -> Result<Vec<[Port; 2]>> {
    let port = |end: String| -> Result<Port> {
        let made = wire.run(move || link::packet::open(&end, NODE_MAC))?;
        made.map(Port::Packet)
            .map_err(|error| Error::Refused(error.to_string()))
    };
    let ports = |index: usize| -> Result<[Port; 2]> {
        let [a, b] = wire_ends(index);
        Ok([port(a)?, port(b)?])
    };
    (0..network.links.len()).map(ports).collect()
}

fn start_links(network: &ScenarioNetwork, ports: Vec<[Port; 2]>) -> Result<Vec<LinkHandle>> {
    let start = |(link, [a, b]): (&crate::scenario::ScenarioLink, [Port; 2])| {
        link::start(link.spec.clone(), a, b).map_err(|error| Error::Refused(error.to_string()))
    };
    network.links.iter().zip(ports).map(start).collect()
}
