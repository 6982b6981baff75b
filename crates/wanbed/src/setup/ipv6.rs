//! IPv6 of a node: one address, the same routes as for IPv4, and no packets of the kernel's own.
//!
//! Devices get no link-local address and join no group that is reported, and no address waits for
//! duplicate address detection. Links have no neighbours to discover. So the first packet on a link
//! is one of a program, as with IPv4.

use super::{batch_with, host, route_lines, write_sysctls};
use crate::error::Result;
use crate::route::NodeRoutes;
use crate::scenario::{Node, ScenarioNetwork};

/// Option of `ip link set` that keeps a forwarding node from reporting its membership of the
/// all-routers group on every device.
pub(super) const DEVICE_OPTION: &str = " multicast off";

/// Returns sysctls that are set before any device is created.
pub(super) fn base_sysctls(node: &Node) -> &'static [(&'static str, &'static str)] {
    const OFF: &[(&str, &str)] = &[
        ("net.ipv6.conf.all.disable_ipv6", "1"), // no autoconfiguration noise on the links
        ("net.ipv6.conf.default.disable_ipv6", "1"),
    ];
    const ON: &[(&str, &str)] = &[
        ("net.ipv6.conf.all.disable_ipv6", "0"),
        ("net.ipv6.conf.default.disable_ipv6", "0"),
        ("net.ipv6.conf.default.addr_gen_mode", "1"), // no link-local address
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.accept_ra", "0"),
        ("net.ipv6.conf.default.autoconf", "0"),
        ("net.ipv6.conf.default.router_solicitations", "0"),
    ];
    if node.ipv6.is_some() { ON } else { OFF }
}

/// Settings of a node that has IPv6, to be made after its devices are up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ipv6Setup {
    lines: Vec<String>,
    sysctls: Vec<(String, String)>,
}

impl Ipv6Setup {
    /// Returns the settings of a node, or `None` in a scenario without IPv6.
    pub(crate) fn of_node(
        network: &ScenarioNetwork,
        index: usize,
        routes: &NodeRoutes,
        congestion: Option<&str>,
    ) -> Option<Self> {
        const FORWARDING: &str = "net.ipv6.conf.all.forwarding";
        let node = &network.nodes[index];
        let own = node.ipv6?;
        // An address is usable as a source only after duplicate address detection, or without it.
        let mut lines = vec![format!("addr add {} dev lo nodad", host(own.into()))];
        let address = |node: &Node| node.ipv6.map(Into::into);
        lines.extend(route_lines(network, index, routes, congestion, address));
        // Set late: a device that joins a forwarding node reports the all-routers group.
        let chosen = node.sysctls.iter().any(|(key, _)| key == FORWARDING);
        let sysctls = if node.forwards && !chosen {
            vec![(FORWARDING.to_owned(), "1".to_owned())]
        } else {
            Vec::new()
        };
        Some(Self { lines, sysctls })
    }

    /// Makes the settings in the calling thread's namespaces.
    pub(crate) fn apply(&self, node: &str) -> Result<()> {
        batch_with("ip", &["-6"], node, &self.lines)?;
        write_sysctls(node, &self.sysctls)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::three;
    use super::super::{DeviceKind, node_lines};
    use super::*;
    use crate::route;
    use crate::scenario::Overrides;

    fn setup(index: usize, congestion: Option<&str>, overrides: Overrides) -> Option<Ipv6Setup> {
        let network = three(&overrides);
        let routes = route::tables(&network);
        Ipv6Setup::of_node(&network, index, &routes[index], congestion)
    }

    fn with_ipv6() -> Overrides {
        Overrides::default().set("ipv6", "true")
    }

    #[test]
    fn ipv6_has_the_routes_of_ipv4() {
        let found = setup(0, Some("cubic"), with_ipv6()).unwrap();
        let expected = [
            "addr add fd77::1/128 dev lo nodad",
            "route add fd77::2/128 dev ab src fd77::1 congctl cubic",
            "route add fd77::3/128 dev ab src fd77::1 congctl cubic",
            "route add fd77::3/128 dev ac src fd77::1 congctl cubic table 1000",
            "rule add iif lo to fd77::3/128 ipproto tcp sport 21000-21999 lookup 1000 pref 1000",
        ];
        assert_eq!(found.lines, expected);
    }

    #[test]
    fn only_routers_forward_ipv6() {
        let forwards =
            |index, overrides| !setup(index, None, overrides).unwrap().sysctls.is_empty();
        assert!(forwards(1, with_ipv6()));
        assert!(!forwards(2, with_ipv6().set("nodes.c.forwards", "false")));
        // The scenario's own value stays.
        let own = r#"{ "net.ipv6.conf.all.forwarding" = 0 }"#;
        assert!(!forwards(1, with_ipv6().set("nodes.b.sysctl", own)));
    }

    #[test]
    fn without_ipv6_nothing_is_set() {
        assert_eq!(setup(0, None, Overrides::default()), None);
        let network = three(&Overrides::default());
        assert_eq!(base_sysctls(&network.nodes[0])[0].1, "1");
        let network = three(&with_ipv6());
        assert_eq!(base_sysctls(&network.nodes[0])[0].1, "0");
        let routes = route::tables(&network);
        let lines = node_lines(&network, 0, &routes[0], DeviceKind::Tun, None);
        assert!(
            lines.contains(&"link set dev ab mtu 9000 txqueuelen 10000 multicast off up".into())
        );
    }
}
