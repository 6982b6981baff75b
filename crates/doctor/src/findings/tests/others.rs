//! Findings about measurements, devices, and the machine itself.

use super::*;

#[test]
fn a_black_hole() {
    let hole = measured(|measured| {
        measured.mtu = Fact::Known(PathMtu {
            bytes: 1400,
            first_hop: 1500,
            discovery: Discovery::BlackHole,
            method: ProbeMethod::Tcp,
        });
    });
    let found = only(&hole, |_| ());
    assert_eq!(
        (found.id, found.severity),
        ("mtu-black-hole", Severity::Serious)
    );
    assert_eq!(
        commands(&found),
        [
            "ip route replace 10.77.0.3/32 via 10.0.0.1 dev eth0 src 10.0.0.9 mtu 1400",
            "sysctl -w net.ipv4.tcp_mtu_probing=1"
        ]
    );
    let found = only(&hole, |facts| facts.tcp.mtu_probing = Fact::Known(1));
    assert_eq!(found.severity, Severity::Advice);
    assert!(
        found.cost.text.contains("stalls about 1.4 s"),
        "{}",
        found.cost.text
    );
    // A smaller path MTU that routers report is no fault.
    let reported = measured(|measured| {
        measured.mtu = Fact::Known(PathMtu {
            bytes: 1400,
            first_hop: 1500,
            discovery: Discovery::Works,
            method: ProbeMethod::Tcp,
        });
    });
    assert_eq!(findings(&sound(), &reported, FindingSide::Here), []);
    // The finding belongs to this end.
    assert_eq!(findings(&sound(), &hole, FindingSide::There), []);
}

#[test]
fn missing_tcp_options_are_found() {
    let without = |change: fn(&mut Negotiated)| {
        measured(|measured| {
            if let Fact::Known(negotiated) = &mut measured.negotiated {
                change(negotiated);
            }
        })
    };
    assert_eq!(
        only(&without(|n| n.window_scaling = false), |_| ()).id,
        "no-window-scaling"
    );
    assert_eq!(only(&without(|n| n.sack = false), |_| ()).id, "no-sack");
    assert_eq!(
        only(&without(|n| n.timestamps = false), |_| ()).id,
        "no-timestamps"
    );
    // If it is off at this end, this end is at fault, which is reported once.
    let found = only(&without(|n| n.sack = false), |facts| {
        facts.tcp.sack = Fact::Known(false)
    });
    assert_eq!(found.id, "sack-off");
    // The connection's congestion control takes precedence over the setting.
    let found = only(
        &without(|n| n.congestion = Some(CommandName::new("reno").unwrap())),
        |_| (),
    );
    assert_eq!(found.id, "congestion-control");
}

#[test]
fn devices() {
    let found = only(&AssessedPath::assumed(), |facts| {
        link(facts).speed_mbps = Fact::Known(100)
    });
    assert_eq!((found.id, found.cost.limit_bps), ("link-speed", Some(1e8)));
    let found = only(&AssessedPath::assumed(), |facts| {
        link(facts).full_duplex = Fact::Known(false)
    });
    assert_eq!(commands(&found), ["ethtool -s eth0 autoneg on"]);
    let queue = |kind: &str, rate| {
        Fact::Known(vec![QueueDiscipline {
            kind: name(kind),
            root: true,
            drops: 0,
            rate,
        }])
    };
    let found = only(&AssessedPath::assumed(), |facts| {
        link(facts).queues = queue("tbf", Some(12_500_000))
    });
    assert_eq!((found.id, found.cost.limit_bps), ("queue-rate", Some(1e8)));
    assert_eq!(commands(&found), ["tc qdisc del dev eth0 root"]);
    let mut facts = sound();
    link(&mut facts).queues = queue("tbf", Some(1_250_000_000));
    assert_eq!(
        findings(&facts, &AssessedPath::assumed(), FindingSide::Here),
        []
    );
    let found = only(&AssessedPath::assumed(), |facts| {
        link(facts).queues = queue("netem", None)
    });
    assert_eq!(found.id, "queue-emulates");
}

#[test]
fn short_transmit_queue_matters_without_pacing() {
    let unpaced = |facts: &mut Facts| {
        facts.tcp.congestion = Fact::Known(name("westwood"));
        if let Fact::Known(queues) = &mut link(facts).queues {
            queues[0].kind = name("pfifo_fast");
        }
    };
    // 1 Gbit/s x 100 ms are 8334 packets of 1500 bytes.
    let found = only(&AssessedPath::assumed(), unpaced);
    assert_eq!(
        (found.id, found.severity),
        ("transmit-queue", Severity::Advice)
    );
    assert!(
        found.what.starts_with("txqueuelen 1000 on eth0"),
        "{}",
        found.what
    );
    assert!(
        found.cost.text.contains("its window, 8334 packets"),
        "{}",
        found.cost.text
    );
    assert_eq!(
        commands(&found),
        [
            "ip link set dev eth0 txqueuelen 9000",
            "tc qdisc replace dev eth0 root fq"
        ]
    );
    let none = |path: &AssessedPath, change: &dyn Fn(&mut Facts)| {
        let mut facts = sound();
        unpaced(&mut facts);
        change(&mut facts);
        assert_eq!(findings(&facts, path, FindingSide::Here), []);
    };
    let assumed = AssessedPath::assumed();
    none(&assumed, &|facts| {
        link(facts).transmit_queue = Fact::Known(9000)
    });
    none(&over(1e9, 0.01), &|_| ());
    // bbr paces by itself, and other queues have limits of their own.
    none(&assumed, &|facts| {
        facts.tcp.congestion = Fact::Known(name("bbr"))
    });
    none(&assumed, &|facts| {
        if let Fact::Known(queues) = &mut link(facts).queues {
            queues[0].kind = name("fq_codel");
        }
    });
    // Where only an absurd queue would do, pacing is the remedy.
    let mut facts = sound();
    unpaced(&mut facts);
    let found = findings(&facts, &over(10e9, 0.2), FindingSide::Here);
    let found = found
        .iter()
        .find(|finding| finding.id == "transmit-queue")
        .unwrap();
    assert_eq!(commands(found), ["tc qdisc replace dev eth0 root fq"]);
}

#[test]
fn earlier_releases_do_not_report_the_transmit_queue() {
    let mut json = serde_json::to_value(sound()).unwrap();
    let device = &mut json["links"]["known"][0];
    device
        .as_object_mut()
        .unwrap()
        .remove("transmit_queue")
        .unwrap();
    let mut facts: Facts = serde_json::from_value(json).unwrap();
    assert_eq!(link(&mut facts).transmit_queue.known(), None);
}

#[test]
fn offloads_matter_more_on_faster_paths() {
    let off = |facts: &mut Facts| {
        link(facts).gso = Fact::Known(false);
        link(facts).tso = Fact::Known(false);
    };
    let found = only(&AssessedPath::assumed(), off);
    assert_eq!(
        (found.id, found.severity),
        ("offloads-off", Severity::Advice)
    );
    assert_eq!(commands(&found), ["ethtool -K eth0 tso on gso on"]);
    let mut facts = sound();
    off(&mut facts);
    let fast = findings(&facts, &over(2e9, 0.01), FindingSide::Here);
    assert!(
        fast.iter()
            .any(|f| f.id == "offloads-off" && f.severity == Severity::Serious)
    );
    // The stack segments late by itself.
    let mut facts = sound();
    link(&mut facts).tso = Fact::Known(false);
    assert_eq!(
        findings(&facts, &AssessedPath::assumed(), FindingSide::Here),
        []
    );
}

#[test]
fn errors_of_a_device() {
    let with = |errors, missed| {
        move |facts: &mut Facts| {
            link(facts).counters = Fact::Known(DeviceCounters {
                rx_packets: 999_900,
                rx_errors: errors,
                rx_missed: missed,
                ..DeviceCounters::default()
            });
        }
    };
    let found = only(&AssessedPath::assumed(), with(100, 0));
    assert_eq!(found.id, "link-errors");
    // One in ten thousand: 1448 bytes x sqrt(1.5) x 100, ten times a second.
    let expected = 1448.0 * 80.0 * 1.5f64.sqrt() * 100.0;
    assert!(
        (found.cost.limit_bps.unwrap() / expected - 1.0).abs() < 1e-9,
        "{found:?}"
    );
    assert!(found.mends.is_empty());
    assert!(
        commands(&only(&AssessedPath::assumed(), with(0, 100)))[0]
            .starts_with("ethtool -G eth0 rx ")
    );
    let mut facts = sound();
    with(1, 0)(&mut facts);
    assert_eq!(findings(&facts, &over(1e8, 0.01), FindingSide::Here), []);
}

#[test]
fn only_the_device_that_leads_there_counts() {
    let mut facts = sound();
    if let Fact::Known(links) = &mut facts.links {
        let other = NetworkDevice {
            name: name("eth1"),
            speed_mbps: Fact::Known(10),
            ..links[0].clone()
        };
        links.push(other);
    }
    assert_eq!(
        findings(&facts, &AssessedPath::assumed(), FindingSide::Here),
        []
    );
    facts.route = Fact::unknown("no default route");
    assert_eq!(
        findings(&facts, &AssessedPath::assumed(), FindingSide::Here)[0].id,
        "link-speed"
    );
}

#[test]
fn host_problems_are_found() {
    let slow = |facts: &mut Facts| {
        facts.cpu.ciphers = Fact::Known(vec![CipherRate {
            cipher: name("aes-256-gcm"),
            bytes_per_second: 50_000_000,
        }]);
    };
    let found = only(&AssessedPath::assumed(), slow);
    assert_eq!(
        (found.id, found.cost.limit_bps),
        ("encryption-rate", Some(4e8))
    );
    assert!(
        found.cost.text.contains("3 streams (--streams 3)"),
        "{}",
        found.cost.text
    );
    assert_eq!(
        only(&AssessedPath::assumed(), |facts| facts.cpu.aes =
            Fact::Known(false))
        .id,
        "no-aes"
    );
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.cpu.governor = Fact::Known(name("powersave"))
    });
    assert_eq!(found.id, "governor");
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.clock.synchronised = Fact::Known(false)
    });
    assert_eq!(commands(&found), ["timedatectl set-ntp true"]);
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.descriptors = Fact::Known(1024)
    });
    assert_eq!(commands(&found), ["ulimit -Hn 4096"]);
    let disk = |write, read| {
        move |facts: &mut Facts| {
            facts.disk = Some(DiskRates {
                directory: PrintableText::new("/store"),
                write: Fact::Known(write),
                read: Fact::Known(read),
                direct: true,
            });
        }
    };
    let found = only(&AssessedPath::assumed(), disk(25_000_000, 500_000_000));
    assert_eq!((found.id, found.cost.limit_bps), ("disk-write", Some(2e8)));
    assert_eq!(
        only(&AssessedPath::assumed(), disk(500_000_000, 25_000_000)).id,
        "disk-read"
    );
    let mut facts = sound();
    disk(500_000_000, 500_000_000)(&mut facts);
    assert_eq!(
        findings(&facts, &AssessedPath::assumed(), FindingSide::Here),
        []
    );
}

#[test]
fn clock_skew_is_found() {
    let apart = |seconds| {
        measured(|measured| {
            measured.skew = Some(Skew {
                seconds,
                uncertainty_seconds: 0.05,
            });
        })
    };
    let found = only(&apart(-90.0), |_| ());
    assert_eq!(
        (found.id, found.severity),
        ("clock-skew", Severity::Serious)
    );
    assert!(found.what.contains("90 s behind"), "{}", found.what);
    // A signature made here may be 120 s old there, but only 10 s ahead of the clock.
    assert_eq!(findings(&sound(), &apart(30.0), FindingSide::Here), []);
    assert_eq!(only(&apart(-8.0), |_| ()).id, "clock-skew");
    assert_eq!(only(&apart(61.0), |_| ()).id, "clock-skew");
    assert_eq!(findings(&sound(), &apart(-4.0), FindingSide::Here), []);
}

#[test]
fn serious_findings_come_first() {
    let mut facts = sound();
    facts.tcp.slow_start_after_idle = Fact::Known(true);
    facts.tcp.rmem_max = Fact::Known(1);
    facts.descriptors = Fact::Known(1024);
    facts.tcp.sack = Fact::Known(false);
    let found = findings(&facts, &AssessedPath::assumed(), FindingSide::There);
    assert_eq!(found[0].id, "sack-off");
    assert!(
        found
            .iter()
            .all(|finding| finding.side == FindingSide::There)
            && found.len() == 4
    );
}
