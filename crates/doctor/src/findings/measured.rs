//! Findings about the measurements towards the far host.

use super::{FindingCost, FindingList, Fix, Severity, links, seconds, tcp};
use crate::path::{Discovery, Negotiated, PathMeasurement, PathMtu};

/// Consecutive timeouts after which the kernel tries smaller segments (`tcp_retries1`), the first
/// of at least 200 ms.
const TIMEOUTS_BEFORE_SMALLER_SEGMENTS: i32 = 3;
const FIRST_TIMEOUT_SECONDS: f64 = 0.2;

pub(super) fn check(list: &mut FindingList<'_>, measured: &PathMeasurement) {
    if let Some(mtu) = measured.mtu.known() {
        black_hole(list, measured, *mtu);
    }
    if let Some(negotiated) = measured.negotiated.known() {
        missing_options(list, negotiated);
    }
}

fn black_hole(list: &mut FindingList<'_>, measured: &PathMeasurement, mtu: PathMtu) {
    if mtu.discovery != Discovery::BlackHole {
        return;
    }
    let (host, facts) = (measured.address.ip(), list.facts);
    let route = facts.route.known().filter(|route| route.to == Some(host));
    let mut mends = Vec::new();
    if let Some(route) = route {
        let command = links::replace_route(
            host,
            route,
            route.congestion.as_ref().map(|name| name.as_str()),
            Some(mtu.bytes),
        );
        mends.push(
            Fix::command(command)
                .noting("for this host alone; better, let the router on the way send ICMP again"),
        );
    }
    let copes = facts.tcp.mtu_probing.known().is_some_and(|mode| *mode > 0);
    let stall = FIRST_TIMEOUT_SECONDS.max(2.0 * list.path.rtt_seconds)
        * (f64::from(2u32).powi(TIMEOUTS_BEFORE_SMALLER_SEGMENTS) - 1.0);
    let what = format!(
        "packets to {host} larger than {} of {} bytes vanish silently (an MTU black hole)",
        mtu.bytes, mtu.first_hop
    );
    if copes {
        let cost = FindingCost::words(format!(
            "each connection stalls about {} until TCP finds out by itself (tcp_mtu_probing)",
            seconds(stall)
        ));
        list.add("mtu-black-hole", Severity::Advice, what, cost, mends);
    } else {
        let cost = FindingCost {
            text: "transfers stop at the first full packet and time out after minutes; small \
                answers get through, so logins seem to work"
                .to_owned(),
            limit_bps: Some(0.0),
        };
        mends.push(Fix::sysctl("net.ipv4.tcp_mtu_probing", 1).noting(format!(
            "for all hosts; each connection then stalls about {} first",
            seconds(stall)
        )));
        list.add("mtu-black-hole", Severity::Serious, what, cost, mends);
    }
}

/// Checks the options that this end offers and the connection lacks: the far end has them off, or a
/// middlebox removes them.
fn missing_options(list: &mut FindingList<'_>, negotiated: &Negotiated) {
    let tcp_here = &list.facts.tcp;
    let on = |fact: &crate::fact::Fact<bool>| fact.known() == Some(&true);
    let where_ = "the far end has it off, or something on the way takes it out of the packets";
    if !negotiated.window_scaling && on(&tcp_here.window_scaling) {
        let mends =
            vec![Fix::sysctl("net.ipv4.tcp_window_scaling", 1).noting("on the far machine")];
        let at_most = list.path.hop().window_rate(65_535.0);
        list.bound(
            "no-window-scaling",
            at_most,
            format!("connections get no window scaling: {where_}"),
            mends,
        );
    }
    if !negotiated.sack && on(&tcp_here.sack) {
        let mends = vec![Fix::sysctl("net.ipv4.tcp_sack", 1).noting("on the far machine")];
        let cost = tcp::without_sack(list.path.rtt_seconds);
        list.add(
            "no-sack",
            Severity::Serious,
            format!("connections get no selective acknowledgement: {where_}"),
            cost,
            mends,
        );
    }
    if !negotiated.timestamps && on(&tcp_here.timestamps) {
        let mends = vec![Fix::sysctl("net.ipv4.tcp_timestamps", 1).noting("on the far machine")];
        let (severity, cost) = tcp::without_timestamps(list.path.rate_bps);
        list.add(
            "no-timestamps",
            severity,
            format!("connections get no timestamps: {where_}"),
            cost,
            mends,
        );
    }
}
