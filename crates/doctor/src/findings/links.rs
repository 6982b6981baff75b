//! Findings about the device that leads to the far host or, if it is unknown, about every device.

use std::net::IpAddr;

use quantities::{
    Probability,
    path::{CongestionControl, Hop},
};

use super::{FindingCost, FindingList, Fix, Severity, bytes, rate, transmit_queue};
use crate::facts::{HostRoute, NetworkDevice};

/// Rate up to which a core processes single packets without trouble.
const SINGLE_PACKET_RATE_BPS: f64 = 1e9;
/// A super-packet of segmentation offload, in bytes.
const SUPER_PACKET_BYTES: f64 = 65_536.0;

pub(super) fn check(list: &mut FindingList<'_>) {
    let facts = list.facts;
    let Some(links) = facts.links.known() else {
        return;
    };
    let through = facts.route.known().map(|route| &route.device);
    for link in links
        .iter()
        .filter(|link| through.is_none_or(|device| *device == link.name))
    {
        speed(list, link);
        queues(list, link);
        transmit_queue::check(list, link);
        offloads(list, link);
        errors(list, link);
    }
}

fn speed(list: &mut FindingList<'_>, link: &NetworkDevice) {
    if let Some(&mbps) = link.speed_mbps.known() {
        let bps = mbps as f64 * 1e6;
        if bps < list.path.rate_bps {
            let cost = FindingCost {
                text: format!(
                    "all streams together carry at most {} of {}",
                    rate(bps),
                    rate(list.path.rate_bps)
                ),
                limit_bps: Some(bps),
            };
            let what = format!("{} runs at {}", link.name, rate(bps));
            list.add("link-speed", Severity::Serious, what, cost, vec![]);
        }
    }
    if link.full_duplex.known() == Some(&false) {
        let cost = FindingCost::words(
            "acknowledgements and data take turns, and collide: far less than the link's rate",
        );
        let mends = vec![
            Fix::command(format!("ethtool -s {} autoneg on", link.name))
                .noting("and let the other end of the cable negotiate as well"),
        ];
        list.add(
            "half-duplex",
            Severity::Serious,
            format!("{} sends or receives, never both", link.name),
            cost,
            mends,
        );
    }
}

fn queues(list: &mut FindingList<'_>, link: &NetworkDevice) {
    for queue in link.queues.known().map_or(&[][..], Vec::as_slice) {
        if let Some(bytes_per_second) = queue.rate {
            let bps = bytes_per_second as f64 * 8.0;
            if bps < list.path.rate_bps {
                let cost = FindingCost {
                    text: format!(
                        "all streams together carry at most {} of {}",
                        rate(bps),
                        rate(list.path.rate_bps)
                    ),
                    limit_bps: Some(bps),
                };
                let what = format!(
                    "queue {} on {} holds it to {}",
                    queue.kind,
                    link.name,
                    rate(bps)
                );
                let mends = if queue.root {
                    vec![
                        Fix::command(format!("tc qdisc del dev {} root", link.name))
                            .noting("find out first why it was set"),
                    ]
                } else {
                    vec![]
                };
                list.add("queue-rate", Severity::Serious, what, cost, mends);
            }
        }
        if queue.kind.as_str() == "netem" {
            let cost = FindingCost::words(
                "delays, drops or reorders packets as configured: an emulator's queue does not \
                 belong on a machine in production",
            );
            let mends = vec![Fix::command(format!("tc qdisc del dev {} root", link.name))];
            list.add(
                "queue-emulates",
                Severity::Advice,
                format!("queue netem on {}", link.name),
                cost,
                mends,
            );
        }
    }
}

fn offloads(list: &mut FindingList<'_>, link: &NetworkDevice) {
    let wrong = [("tso", &link.tso), ("gso", &link.gso), ("gro", &link.gro)];
    let off: Vec<&str> = wrong
        .iter()
        .filter(|(_, fact)| fact.known() == Some(&false))
        .map(|(name, _)| *name)
        .collect();
    // With GSO the stack segments late by itself, so the lack of TSO alone costs little.
    if off.is_empty() || off == ["tso"] {
        return;
    }
    let per_second = list.path.rate_bps / 8.0;
    let text = format!(
        "at {} the kernel handles {:.0} packets a second one by one, instead of {:.0} of up to {}",
        rate(list.path.rate_bps),
        per_second / f64::from(list.path.hop().mss),
        per_second / SUPER_PACKET_BYTES,
        bytes(SUPER_PACKET_BYTES)
    );
    let severity = if list.path.rate_bps > SINGLE_PACKET_RATE_BPS {
        Severity::Serious
    } else {
        Severity::Advice
    };
    let switches: Vec<String> = off.iter().map(|name| format!("{name} on")).collect();
    let mends = vec![Fix::command(format!(
        "ethtool -K {} {}",
        link.name,
        switches.join(" ")
    ))];
    let what = format!("{} off on {}", off.join(", "), link.name);
    list.add(
        "offloads-off",
        severity,
        what,
        FindingCost::words(text),
        mends,
    );
}

fn errors(list: &mut FindingList<'_>, link: &NetworkDevice) {
    let Some(counters) = link.counters.known() else {
        return;
    };
    let lost = counters.rx_errors.saturating_add(counters.rx_missed);
    if lost == 0 || counters.rx_packets == 0 {
        return;
    }
    let p = lost as f64 / counters.rx_packets.saturating_add(lost) as f64;
    let reno = Hop {
        loss: Probability::nearest(p),
        control: CongestionControl::Reno,
        ..list.path.hop()
    };
    let at_most = reno.loss_limited_rate();
    if at_most < list.path.rate_bps {
        let what = format!(
            "{} lost {lost} of {} packets it received ({} damaged, {} for lack of buffers)",
            link.name, counters.rx_packets, counters.rx_errors, counters.rx_missed
        );
        let cost = FindingCost {
            text: format!(
                "at this loss a stream under reno carries at most {} of {}",
                rate(at_most),
                rate(list.path.rate_bps)
            ),
            limit_bps: Some(at_most),
        };
        let mends = if counters.rx_missed > counters.rx_errors {
            vec![Fix::command(format!(
                "ethtool -G {name} rx $(ethtool -g {name} | awk '/^RX:/ {{print $2; exit}}')",
                name = link.name
            ))]
        } else {
            vec![]
        };
        list.add("link-errors", Severity::Advice, what, cost, mends);
    }
}

/// Returns the command that sets an MTU or a congestion control on the route to one host, and keeps
/// its other known properties.
pub(super) fn replace_route(
    to: IpAddr,
    route: &HostRoute,
    congestion: Option<&str>,
    mtu: Option<u32>,
) -> String {
    let bits = if to.is_ipv4() { 32 } else { 128 };
    let mut command = format!("ip route replace {to}/{bits}");
    if let Some(gateway) = route.gateway {
        command += &format!(" via {gateway}");
    }
    command += &format!(" dev {}", route.device);
    if let Some(source) = route.source {
        command += &format!(" src {source}");
    }
    if let Some(mtu) = mtu {
        command += &format!(" mtu {mtu}");
    }
    if let Some(congestion) = congestion {
        command += &format!(" congctl {congestion}");
    }
    command
}
