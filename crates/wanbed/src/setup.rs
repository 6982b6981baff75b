//! Lines for `ip` and sysctls that turn a namespace into a node of the scenario.

pub(crate) mod ipv6;

use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result, WhileDoing};
use crate::route::{NodeRoutes, PinnedHop};
use crate::scenario::{Node, ScenarioNetwork};

/// Hardware address of every node's end of a veth pair. With ARP off a device answers to its own
/// address, and a link has only two ends.
pub(crate) const NODE_MAC: [u8; 6] = [0x02, 0x77, 0, 0, 0, 1];

/// Returns sysctls that are set before any device is created, so that new devices inherit them.
pub(crate) fn base_sysctls(node: &Node) -> Vec<(String, String)> {
    let forward = if node.forwards { "1" } else { "0" };
    let fixed = [
        ("net.ipv4.conf.all.rp_filter", "0"), // routes may differ by direction
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.ip_forward", forward),
        ("net.ipv4.tcp_no_metrics_save", "1"), // one run must not teach the next
    ];
    let own = node.sysctls.iter().cloned();
    ipv6::base_sysctls(node)
        .iter()
        .chain(&fixed)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .chain(own)
        .collect()
}

/// Writes sysctls of the calling thread's network namespace.
pub(crate) fn write_sysctls(node: &str, sysctls: &[(String, String)]) -> Result<()> {
    for (key, value) in sysctls {
        let path = Path::new("/proc/sys").join(key.replace('.', "/"));
        let written = std::fs::write(&path, value);
        // A kernel without IPv6 has nothing to turn off.
        if let Err(source) = written.or_else(|e| {
            if key.starts_with("net.ipv6.") && !path.exists() {
                Ok(())
            } else {
                Err(e)
            }
        }) {
            return Err(Error::Sysctl {
                node: node.to_owned(),
                key: key.clone(),
                value: value.clone(),
                source,
            });
        }
    }
    Ok(())
}

/// Sets a node's default congestion control, by sysctl if the kernel lets a namespace set it.
/// Otherwise returns its name, which then has to be on every route (`congctl`). A socket's own
/// choice precedes both.
pub(crate) fn choose_congestion(node: &Node) -> Result<Option<String>> {
    const KEY: &str = "net.ipv4.tcp_congestion_control";
    let Some(name) = &node.congestion else {
        return Ok(None);
    };
    let choice = [(KEY.to_owned(), name.clone())];
    match write_sysctls(&node.name, &choice) {
        Ok(()) => Ok(None),
        // Only those in tcp_allowed_congestion_control may be set here, but every loaded one may be
        // on a route.
        Err(Error::Sysctl { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Ok(Some(name.clone()))
        }
        Err(Error::Sysctl { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let list =
                std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
                    .unwrap_or_default();
            Err(Error::Congestion {
                node: node.name.clone(),
                name: name.clone(),
                available: list.trim().to_owned(),
            })
        }
        Err(error) => Err(error),
    }
}

/// Kind of a node's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    Tun,
    /// The node's end of a veth pair.
    Veth,
}

/// Returns the lines for `ip -batch` inside a node, after its devices exist.
pub(crate) fn node_lines(
    network: &ScenarioNetwork,
    index: usize,
    routes: &NodeRoutes,
    device: DeviceKind,
    congestion: Option<&str>,
) -> Vec<String> {
    let node = &network.nodes[index];
    let mut lines = vec![
        "link set dev lo up".to_owned(),
        format!("addr add {}/32 dev lo", node.address),
    ];
    let multicast = if node.ipv6.is_some() {
        ipv6::DEVICE_OPTION
    } else {
        ""
    };
    for link in network
        .links
        .iter()
        .filter(|link| link.a == index || link.b == index)
    {
        let extra = match device {
            DeviceKind::Tun => String::new(),
            DeviceKind::Veth => format!(" address {} arp off", mac(NODE_MAC)),
        };
        lines.push(format!(
            "link set dev {} mtu {} txqueuelen 10000{extra}{multicast} up",
            link.spec.name, link.spec.mtu
        ));
    }
    let address = |node: &Node| Some(node.address.into());
    lines.extend(route_lines(network, index, routes, congestion, address));
    lines
}

/// Returns the lines for a node's routes between the addresses that `address` returns. There are
/// none if a node has no such address.
fn route_lines(
    network: &ScenarioNetwork,
    index: usize,
    routes: &NodeRoutes,
    congestion: Option<&str>,
    address: impl Fn(&Node) -> Option<IpAddr>,
) -> Vec<String> {
    let Some(addresses) = network
        .nodes
        .iter()
        .map(address)
        .collect::<Option<Vec<_>>>()
    else {
        return Vec::new();
    };
    let congestion = congestion
        .map(|name| format!(" congctl {name}"))
        .unwrap_or_default();
    let route = |to: usize, link: usize| {
        let (to, device) = (host(addresses[to]), &network.links[link].spec.name);
        let source = addresses[index];
        format!("route add {to} dev {device} src {source}{congestion}")
    };
    let mut lines: Vec<String> = routes
        .main
        .iter()
        .map(|&(to, link)| route(to, link))
        .collect();
    for hop in &routes.pinned {
        lines.push(format!("{} table {}", route(hop.to, hop.link), hop.table));
        lines.push(rule(&addresses, hop));
    }
    lines
}

/// Returns the prefix of a single address.
fn host(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

fn rule(addresses: &[IpAddr], hop: &PinnedHop) -> String {
    // `iif lo` matches what a node sends itself; its packets may be routed before they have a
    // source address.
    let source = hop.from.map_or("iif lo".to_owned(), |from| {
        format!("from {}", host(addresses[from]))
    });
    let ports = hop.ports.map_or(String::new(), |range| {
        let end = if range.at_sender { "sport" } else { "dport" };
        format!(" ipproto tcp {end} {}-{}", range.first, range.last)
    });
    let to = host(addresses[hop.to]);
    format!(
        "rule add {source} to {to}{ports} lookup {} pref {}",
        hop.table, hop.priority
    )
}

pub(crate) fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Runs lines through `ip -batch` in the calling thread's namespaces.
pub(crate) fn batch(program: &'static str, node: &str, lines: &[String]) -> Result<()> {
    batch_with(program, &[], node, lines)
}

fn batch_with(program: &'static str, options: &[&str], node: &str, lines: &[String]) -> Result<()> {
    let mut child = Command::new(program)
        .args(options)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| missing(program, source))?;
    let mut input = lines.join("\n");
    input.push('\n');
    let written = child
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child
        .wait_with_output()
        .while_doing(|| format!("waiting for {program}"))?;
    if output.status.success() && written.is_ok() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // "RTNETLINK answers: ...", then "Command failed -:3" with the number of the line.
    let number = said.lines().find_map(|line| {
        line.strip_prefix("Command failed -:")?
            .trim()
            .parse::<usize>()
            .ok()
    });
    let line = number
        .and_then(|number| lines.get(number.checked_sub(1)?))
        .cloned()
        .unwrap_or_else(|| "its input".to_owned());
    let answer = said
        .lines()
        .find(|line| !line.is_empty() && !line.starts_with("Command failed"))
        .unwrap_or("no reason given");
    Err(Error::SetUp {
        program,
        node: node.to_owned(),
        line,
        answer: answer.to_owned(),
    })
}

/// Returns an error that names the package of a missing program.
pub(crate) fn missing(program: &'static str, source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::NotFound {
        Error::Missing {
            program,
            package: "iproute2 (Fedora: iproute)",
        }
    } else {
        Error::System {
            doing: format!("starting {program}"),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route;
    use crate::scenario::{Overrides, Scenario};

    const THREE: &str = r#"
        [nodes]
        a = {}
        b = {}
        c = {}
        [links]
        ab = { ends = ["a", "b"], delay = "1 ms", rate = "1 Gbit/s", mtu = 9000 }
        bc = { ends = ["b", "c"], delay = "1 ms", rate = "1 Gbit/s" }
        ac = { ends = ["a", "c"], delay = "9 ms", rate = "1 Gbit/s" }
        [[route]]
        from = "a"
        to = "c"
        via = ["ac"]
        ports = "21000-21999"
    "#;

    pub(super) fn three(overrides: &Overrides) -> ScenarioNetwork {
        Scenario::from_text("three.toml", THREE)
            .resolve(overrides)
            .unwrap()
    }

    fn lines(index: usize, device: DeviceKind, congestion: Option<&str>) -> Vec<String> {
        let network = three(&Overrides::default());
        node_lines(
            &network,
            index,
            &route::tables(&network)[index],
            device,
            congestion,
        )
    }

    #[test]
    fn a_nodes_lines_are_complete() {
        let expected = [
            "link set dev lo up",
            "addr add 10.77.0.1/32 dev lo",
            "link set dev ab mtu 9000 txqueuelen 10000 up",
            "link set dev ac mtu 1500 txqueuelen 10000 up",
            "route add 10.77.0.2/32 dev ab src 10.77.0.1",
            "route add 10.77.0.3/32 dev ab src 10.77.0.1",
            "route add 10.77.0.3/32 dev ac src 10.77.0.1 table 1000",
            "rule add iif lo to 10.77.0.3/32 ipproto tcp sport 21000-21999 lookup 1000 pref 1000",
        ];
        assert_eq!(lines(0, DeviceKind::Tun, None), expected);
    }

    #[test]
    fn answers_go_back_by_the_ports_they_go_to() {
        let at_c = lines(2, DeviceKind::Tun, Some("cubic"));
        assert!(
            at_c.contains(
                &"rule add iif lo to 10.77.0.1/32 ipproto tcp dport 21000-21999 lookup 1001 pref \
                1001"
                    .to_owned()
            )
        );
        assert!(at_c.contains(
            &"route add 10.77.0.1/32 dev ac src 10.77.0.3 congctl cubic table 1001".to_owned()
        ));
        assert!(
            at_c.iter()
                .filter(|line| line.starts_with("route"))
                .all(|line| line.contains("congctl cubic"))
        );
    }

    #[test]
    fn veth_devices_need_no_neighbours() {
        assert_eq!(
            lines(0, DeviceKind::Veth, None)[3],
            "link set dev ac mtu 1500 txqueuelen 10000 address 02:77:00:00:00:01 arp off up"
        );
    }

    #[test]
    fn only_routers_forward() {
        let network = Scenario::from_text(
            "three.toml",
            THREE.replace("c = {}", "c = { forwards = false }"),
        )
        .resolve(&Overrides::default())
        .unwrap();
        let forward = |node: usize| {
            base_sysctls(&network.nodes[node])
                .into_iter()
                .find(|(key, _)| key.ends_with("ip_forward"))
        };
        assert_eq!(forward(1).unwrap().1, "1");
        assert_eq!(forward(2).unwrap().1, "0");
    }
}
