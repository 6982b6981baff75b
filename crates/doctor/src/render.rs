//! Formats reports for people.

use std::fmt::{Display, Write};

use crate::fact::Fact;
use crate::facts::Facts;
use crate::findings::{Finding, FindingSide, Severity, bytes, rate, seconds};
use crate::path::{AssessedPath, Discovery, NumberSource};

/// Formats the path that costs are calculated for, in a line or two.
pub fn path(path: &AssessedPath) -> String {
    let from = |source, named: &str| match source {
        NumberSource::Given => "given".to_owned(),
        NumberSource::Measured => "measured".to_owned(),
        NumberSource::Device => "the rate of the device that leads there".to_owned(),
        NumberSource::Default => format!("assumed; give {named}"),
    };
    let mut text = format!(
        "path: {} ({}) x {} ({}); {} under way fill it\n",
        rate(path.rate_bps),
        from(path.rate_from, "--rate"),
        seconds(path.rtt_seconds),
        from(path.rtt_from, "--rtt, or a host"),
        bytes(path.hop().bandwidth_delay_product())
    );
    let Some(measured) = &path.measured else {
        return text;
    };
    let _ = writeln!(text, "host: {}", measured.address);
    let mtu = measured.mtu.clone().map(|mtu| {
        let how = match mtu.discovery {
            Discovery::NotNeeded => "as large as the first hop's",
            Discovery::Works => "routers say so",
            Discovery::BlackHole => "larger ones vanish",
        };
        format!("{} bytes ({how})", mtu.bytes)
    });
    line(&mut text, "path MTU", &mtu);
    let negotiated = measured.negotiated.clone().map(|agreed| {
        format!(
            "window scaling {}, selective acknowledgement {}, timestamps {}, segments of {} bytes, \
             {}",
            on(agreed.window_scaling),
            on(agreed.sack),
            on(agreed.timestamps),
            agreed.send_mss,
            agreed
                .congestion
                .map_or("congestion control unknown".to_owned(), |name| name
                    .to_string())
        )
    });
    line(&mut text, "agreed", &negotiated);
    if let Some(quic) = &measured.quic {
        let quic = quic.clone().map(|quic| {
            format!(
                "round trip {}, {} of {} packets lost",
                seconds(quic.rtt.as_secs_f64()),
                quic.lost_packets,
                quic.sent_packets
            )
        });
        line(&mut text, "QUIC", &quic);
    }
    if let Some(skew) = measured.skew {
        let ahead = if skew.seconds < 0.0 {
            "behind"
        } else {
            "ahead"
        };
        let _ = writeln!(
            text,
            "  {:<12} {} {ahead} of this one, give or take {}",
            "far clock",
            seconds(skew.seconds.abs()),
            seconds(skew.uncertainty_seconds)
        );
    }
    text
}

/// Formats the facts of a machine.
pub fn facts(facts: &Facts) -> String {
    let mut text = String::new();
    let tcp = &facts.tcp;
    line(&mut text, "kernel", &facts.kernel);
    line(&mut text, "tcp_rmem", &tcp.rmem.clone().map(three));
    line(&mut text, "tcp_wmem", &tcp.wmem.clone().map(three));
    let limit = |fact: &Fact<u64>| fact.clone().map(|limit| bytes(limit as f64));
    line(&mut text, "rmem_max", &limit(&tcp.rmem_max));
    line(&mut text, "wmem_max", &limit(&tcp.wmem_max));
    let page = tcp.page_size as f64;
    let mem = tcp
        .mem
        .clone()
        .map(|mem| mem.map(|pages| bytes(pages as f64 * page)).join(", "));
    line(&mut text, "tcp_mem", &mem);
    let flags = [
        ("autotuning", &tcp.moderate_rcvbuf),
        ("scaling", &tcp.window_scaling),
        ("timestamps", &tcp.timestamps),
        ("sack", &tcp.sack),
        ("idle restart", &tcp.slow_start_after_idle),
    ];
    for (name, fact) in flags {
        line(&mut text, name, &fact.clone().map(on));
    }
    let joined = |names: &Fact<Vec<crate::fact::CommandName>>| {
        names.clone().map(|names| {
            names
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
    };
    line(&mut text, "congestion", &tcp.congestion);
    line(&mut text, "  available", &joined(&tcp.available));
    line(&mut text, "  allowed", &joined(&tcp.allowed));
    line(&mut text, "mtu_probing", &tcp.mtu_probing);
    line(
        &mut text,
        "route",
        &facts.route.clone().map(|route| {
            let via = route
                .gateway
                .map(|gateway| format!(" via {gateway}"))
                .unwrap_or_default();
            format!("{}{via}", route.device)
        }),
    );
    match &facts.links {
        Fact::Known(links) => links.iter().for_each(|link| links_line(&mut text, link)),
        Fact::Unknown(why) => {
            let _ = writeln!(text, "  {:<12} not known: {why}", "devices");
        }
    }
    let ciphers = facts.cpu.ciphers.clone().map(|ciphers| {
        let each = ciphers
            .iter()
            .map(|c| format!("{} {}", c.cipher, rate(c.bytes_per_second as f64 * 8.0)));
        each.collect::<Vec<_>>().join(", ")
    });
    line(&mut text, "cores", &facts.cpu.cores);
    line(
        &mut text,
        "AES in cores",
        &facts
            .cpu
            .aes
            .clone()
            .map(|aes| if aes { "yes" } else { "no" }),
    );
    line(&mut text, "one core", &ciphers);
    line(&mut text, "governor", &facts.cpu.governor);
    line(
        &mut text,
        "clock",
        &facts.clock.synchronised.clone().map(|yes| {
            if yes {
                "synchronised"
            } else {
                "not synchronised"
            }
        }),
    );
    line(&mut text, "open files", &facts.descriptors);
    if let Some(disk) = &facts.disk {
        let shown = |fact: &Fact<u64>| fact.clone().map(|bytes| rate(bytes as f64 * 8.0));
        let _ = writeln!(
            text,
            "  {:<12} {} (page cache {})",
            "disk",
            disk.directory,
            if disk.direct { "left out" } else { "in use" }
        );
        line(&mut text, "  writes", &shown(&disk.write));
        line(&mut text, "  reads", &shown(&disk.read));
    }
    text
}

fn links_line(text: &mut String, link: &crate::facts::NetworkDevice) {
    let speed = match &link.speed_mbps {
        Fact::Known(mbps) => rate(*mbps as f64 * 1e6),
        Fact::Unknown(why) => format!("rate unknown ({why})"),
    };
    let offloads = [("tso", &link.tso), ("gso", &link.gso), ("gro", &link.gro)];
    let offloads: Vec<String> = offloads
        .iter()
        .map(|(name, fact)| match fact {
            Fact::Known(true) => (*name).to_owned(),
            Fact::Known(false) => format!("no {name}"),
            Fact::Unknown(_) => format!("{name}?"),
        })
        .collect();
    let queues = match &link.queues {
        Fact::Known(queues) => queues
            .iter()
            .map(|queue| queue.kind.to_string())
            .collect::<Vec<_>>()
            .join("+"),
        Fact::Unknown(why) => format!("queue unknown ({why})"),
    };
    let length = match &link.transmit_queue {
        Fact::Known(packets) => packets.to_string(),
        Fact::Unknown(why) => format!("unknown ({why})"),
    };
    let _ = writeln!(
        text,
        "  {:<12} MTU {}, {speed}, {}, {queues}, txqueuelen {length}",
        link.name,
        link.mtu,
        offloads.join(" ")
    );
}

/// Formats the findings, each with its cost and its fixes.
pub fn findings(found: &[Finding]) -> String {
    let mut text = String::new();
    for finding in found {
        let mark = match finding.severity {
            Severity::Serious => "COSTS",
            Severity::Advice => "may cost",
        };
        let there = if finding.side == FindingSide::There {
            "on the far machine: "
        } else {
            ""
        };
        let _ = writeln!(text, "\n{mark}: {there}{} [{}]", finding.what, finding.id);
        let _ = writeln!(text, "  {}", finding.cost.text);
        for (index, mend) in finding.mends.iter().enumerate() {
            let word = if index == 0 { "fix:" } else { "or:" };
            let _ = writeln!(text, "  {word:<6} {}", mend.now);
            if let Some(keep) = &mend.keep {
                let _ = writeln!(text, "  keep:  {keep}");
            }
            if let Some(note) = &mend.note {
                let _ = writeln!(text, "         ({note})");
            }
        }
        if finding.mends.is_empty() {
            let _ = writeln!(text, "  no command fixes it");
        }
    }
    text
}

fn line(text: &mut String, name: &str, fact: &Fact<impl Display>) {
    let _ = match fact {
        Fact::Known(value) => writeln!(text, "  {name:<12} {value}"),
        Fact::Unknown(why) => writeln!(text, "  {name:<12} not known: {why}"),
    };
}

fn three([least, first, most]: [u64; 3]) -> String {
    [least, first, most]
        .map(|size| bytes(size as f64))
        .join(", ")
}

const fn on(flag: bool) -> &'static str {
    if flag { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{FindingCost, Fix};

    #[test]
    fn a_finding_shows_its_cost_and_its_commands() {
        let found = Finding {
            id: "sack-off",
            side: FindingSide::There,
            severity: Severity::Serious,
            what: "tcp_sack 0".to_owned(),
            cost: FindingCost {
                text: "a cost".to_owned(),
                limit_bps: None,
            },
            mends: vec![
                Fix {
                    now: "sysctl -w a=1".to_owned(),
                    keep: Some("echo 'a = 1' >> file".to_owned()),
                    note: None,
                },
                Fix {
                    now: "ip route".to_owned(),
                    keep: None,
                    note: Some("for one host".to_owned()),
                },
            ],
        };
        let expected = "
COSTS: on the far machine: tcp_sack 0 [sack-off]
  a cost
  fix:   sysctl -w a=1
  keep:  echo 'a = 1' >> file
  or:    ip route
         (for one host)
";
        assert_eq!(findings(&[found]), expected);
    }

    #[test]
    fn the_path_names_the_sources_of_its_numbers() {
        let expected = "path: 1 Gbit/s (assumed; give --rate) x 100 ms (assumed; give --rtt, or a \
            host); 11.9 MiB under way fill it\n";
        assert_eq!(path(&AssessedPath::assumed()), expected);
    }
}
