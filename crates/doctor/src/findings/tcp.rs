//! Findings about TCP: options, reaction to losses, cached metrics.

use quantities::{
    ByteCount,
    path::{CongestionControl, Hop, INITIAL_WINDOW},
};

use super::{FindingCost, FindingList, Fix, Severity, rate, seconds};
use crate::fact::CommandName;
use crate::facts::CachedMetrics;

/// Maximum lifetime of a segment in the network (RFC 9293, 3.4.2), in seconds.
const MAX_SEGMENT_LIFETIME_SECONDS: f64 = 120.0;
/// Example number of losses when a queue overflows, for a cost in words.
const EXAMPLE_LOSSES: f64 = 10.0;
/// Recovery time from which the cost is serious, in seconds: a stream of a minute or so would
/// notice.
const LONG_RECOVERY_SECONDS: f64 = 10.0;

pub(super) fn check(list: &mut FindingList<'_>) {
    timestamps(list);
    sack(list);
    congestion(list);
    memory_of_hosts(list);
    idle(list);
}

fn timestamps(list: &mut FindingList<'_>) {
    if list.facts.tcp.timestamps.known() == Some(&false) {
        let (severity, cost) = without_timestamps(list.path.rate_bps);
        let mends = vec![Fix::sysctl("net.ipv4.tcp_timestamps", 1)];
        list.add(
            "timestamps-off",
            severity,
            "tcp_timestamps 0".to_owned(),
            cost,
            mends,
        );
    }
}

/// Returns the cost of missing timestamps. An old segment may be mistaken for a new one once
/// sequence numbers wrap within a segment's lifetime (RFC 7323, 5), and round trips are measured
/// once a window.
pub(super) fn without_timestamps(bps: f64) -> (Severity, FindingCost) {
    let wrap = 4_294_967_296.0 * 8.0 / bps.max(1.0);
    let unsafe_ = wrap < MAX_SEGMENT_LIFETIME_SECONDS;
    let end = if unsafe_ {
        ", before the last old segment is surely gone: data may be damaged unnoticed by TCP"
    } else {
        ""
    };
    let text = format!(
        "the round trip is measured once a window instead of with every acknowledgement, and at {} \
         sequence numbers come round every {}{end}",
        rate(bps),
        seconds(wrap)
    );
    let severity = if unsafe_ {
        Severity::Serious
    } else {
        Severity::Advice
    };
    (severity, FindingCost::words(text))
}

fn sack(list: &mut FindingList<'_>) {
    if list.facts.tcp.sack.known() == Some(&false) {
        let cost = without_sack(list.path.rtt_seconds);
        let mends = vec![Fix::sysctl("net.ipv4.tcp_sack", 1)];
        list.add(
            "sack-off",
            Severity::Serious,
            "tcp_sack 0".to_owned(),
            cost,
            mends,
        );
    }
}

/// Returns the cost of missing selective acknowledgement: one loss is repaired per round trip (RFC
/// 6582).
pub(super) fn without_sack(rtt: f64) -> FindingCost {
    FindingCost::words(format!(
        "one loss is repaired each round trip: {EXAMPLE_LOSSES:.0} losses in a window take {} \
         instead of {}",
        seconds(EXAMPLE_LOSSES * rtt),
        seconds(rtt)
    ))
}

fn congestion(list: &mut FindingList<'_>) {
    let measured = list
        .path
        .measured
        .as_ref()
        .filter(|_| list.side == super::FindingSide::Here);
    // The connection's actual congestion control takes precedence over the route's, and that over
    // the setting.
    let of_connection = measured
        .and_then(|measured| measured.negotiated.known())
        .and_then(|negotiated| negotiated.congestion.as_ref());
    let route = list.facts.route.known();
    let of_route = route.and_then(|route| route.congestion.as_ref());
    let Some(current) = of_connection
        .or(of_route)
        .or(list.facts.tcp.congestion.known())
    else {
        return;
    };
    let under = |control| Hop {
        control,
        ..list.path.hop()
    };
    let one_in = |hop: &Hop| 1.0 / hop.max_harmless_loss().value();
    let current = current.clone();
    match current.as_str() {
        "reno" => {
            let reno = under(CongestionControl::Reno);
            let recovery = reno.recovery().as_secs_f64();
            let text = format!(
                "after a single loss reno takes {} to come back to {}: it fills the path only if \
                 fewer than one segment in {} is lost",
                seconds(recovery),
                rate(list.path.rate_bps),
                count(one_in(&reno))
            );
            let severity = if recovery >= LONG_RECOVERY_SECONDS {
                Severity::Serious
            } else {
                Severity::Advice
            };
            // Reported even if this machine offers nothing better.
            let mends = congestion_fix(list, &["cubic", "bbr"], &current)
                .into_iter()
                .collect();
            let what = "congestion control reno".to_owned();
            list.add(
                "congestion-control",
                severity,
                what,
                FindingCost::words(text),
                mends,
            );
        }
        "cubic" => {
            let one_in = one_in(&under(CongestionControl::Cubic));
            // One loss in a hundred thousand segments is a clean path; tolerating more does not
            // matter.
            if one_in > 1e5
                && let Some(mend) = congestion_fix(list, &["bbr"], &current)
            {
                let text = format!(
                    "cubic fills {} only if fewer than one segment in {} is lost; bbr does not \
                     slow down for single losses",
                    rate(list.path.rate_bps),
                    count(one_in)
                );
                list.add(
                    "loss-tolerance",
                    Severity::Advice,
                    "congestion control cubic".to_owned(),
                    FindingCost::words(text),
                    vec![mend],
                );
            }
        }
        _ => {}
    }
}

/// Returns the command for the first available of `wanted`. A congestion control on the route takes
/// precedence over the setting.
fn congestion_fix(list: &FindingList<'_>, wanted: &[&str], current: &CommandName) -> Option<Fix> {
    let tcp = &list.facts.tcp;
    let has = |names: Option<&Vec<CommandName>>, name: &str| {
        names.is_some_and(|names| names.iter().any(|n| n.as_str() == name))
    };
    // Inside a network namespace only the allowed ones can be set.
    let may = |name: &&&str| {
        has(tcp.allowed.known(), name)
            || (tcp.mem.known().is_some() && has(tcp.available.known(), name))
    };
    let ready = wanted.iter().find(may);
    let loadable = || wanted.iter().find(|_| tcp.mem.known().is_some());
    let (name, load) = match ready {
        Some(name) => (name, ""),
        None => (loadable()?, "modprobe tcp_"),
    };
    if let Some(route) = list.facts.route.known()
        && route.congestion.as_ref() == Some(current)
        && let Some(to) = route.to
    {
        return Some(
            Fix::command(super::links::replace_route(
                to,
                route,
                Some(name),
                route.mtu,
            ))
            .noting(
                "the route names a congestion control, which goes before \
                 net.ipv4.tcp_congestion_control",
            ),
        );
    }
    let mut mend = Fix::sysctl("net.ipv4.tcp_congestion_control", name);
    if !load.is_empty() {
        mend.now = format!("{load}{name} && {}", mend.now);
        mend.note = Some(format!("if the kernel has tcp_{name} as a module"));
    }
    Some(mend)
}

fn count(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{:.1} thousand million", n / 1e9),
        n if n >= 1e6 => format!("{:.1} million", n / 1e6),
        n => format!("{n:.0}"),
    }
}

fn memory_of_hosts(list: &mut FindingList<'_>) {
    let tcp = &list.facts.tcp;
    let forgets = tcp.no_metrics_save.known() != Some(&false);
    let window = list.path.hop().full_window();
    if let Some(Some(CachedMetrics {
        host,
        ssthresh: Some(ssthresh),
        ..
    })) = list.facts.metrics.known()
    {
        let ssthresh = f64::from(*ssthresh);
        if ssthresh < window {
            let rounds = window - ssthresh;
            let text = format!(
                "every new connection leaves slow start at {ssthresh:.0} of {window:.0} segments; \
                 growing by one each round trip, the rest takes {}",
                seconds(rounds * list.path.rtt_seconds)
            );
            let what = format!(
                "TCP remembers a slow-start threshold of {ssthresh:.0} segments for {host}"
            );
            let mends = vec![Fix::command(format!("ip tcp_metrics delete {host}"))];
            let severity = if rounds * list.path.rtt_seconds >= LONG_RECOVERY_SECONDS {
                Severity::Serious
            } else {
                Severity::Advice
            };
            list.add(
                "remembered-threshold",
                severity,
                what,
                FindingCost::words(text),
                mends,
            );
        }
    }
    if !forgets && tcp.no_ssthresh_metrics_save.known() == Some(&false) {
        let text =
            "after a copy that met losses, the next to the same host leaves slow start early"
                .to_owned();
        let mends = vec![Fix::sysctl("net.ipv4.tcp_no_metrics_save", 1)];
        let what = "tcp_no_metrics_save 0 and tcp_no_ssthresh_metrics_save 0".to_owned();
        list.add(
            "remembers-losses",
            Severity::Advice,
            what,
            FindingCost::words(text),
            mends,
        );
    }
}

fn idle(list: &mut FindingList<'_>) {
    if list.facts.tcp.slow_start_after_idle.known() != Some(&true) {
        return;
    }
    let ramp = list.path.hop().slow_start_phase(ByteCount(u64::MAX));
    let (rounds, lost) = (ramp.round_trips, ramp.time.as_secs_f64());
    // Less than half a second is not noticeable.
    if lost >= 0.5 {
        let text = format!(
            "a stream that paused for longer than its retransmission timeout begins again with \
             {INITIAL_WINDOW} segments: {rounds} round trips, {}, until it is back at {}",
            seconds(lost),
            rate(list.path.rate_bps)
        );
        let mends = vec![Fix::sysctl("net.ipv4.tcp_slow_start_after_idle", 0)];
        list.add(
            "slow-after-idle",
            Severity::Advice,
            "tcp_slow_start_after_idle 1".to_owned(),
            FindingCost::words(text),
            mends,
        );
    }
}
