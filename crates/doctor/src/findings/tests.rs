//! Made-up machines: each finding fires where it should, with its cost and its command, and nowhere else.

use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::fact::{Fact, Name, Text};
use crate::facts::{CachedMetrics, CipherRate, Clock, Counters, Cpu, Disk, Link, Queue, Route, Tcp};
use crate::path::{Discovery, Measured, Negotiated, PathMtu, ProbeMethod, Skew, Source};

const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 3));
const MIB: u64 = 1 << 20;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A machine on which nothing is wrong at 1 Gbit/s x 100 ms (a bandwidth-delay product of 12.5 MB).
fn sound() -> Facts {
    let names = |names: &[&str]| Fact::Known(names.iter().map(|text| name(text)).collect());
    Facts {
        kernel: Fact::Known(Text::new("6.12.0")),
        tcp: Tcp {
            rmem: Fact::Known([4096, 131_072, 64 * MIB]),
            wmem: Fact::Known([4096, 16_384, 64 * MIB]),
            rmem_max: Fact::Known(64 * MIB),
            wmem_max: Fact::Known(64 * MIB),
            mem: Fact::Known([250_000, 500_000, 1_000_000]),
            page_size: 4096,
            moderate_rcvbuf: Fact::Known(true),
            window_scaling: Fact::Known(true),
            timestamps: Fact::Known(true),
            sack: Fact::Known(true),
            no_metrics_save: Fact::Known(true),
            no_ssthresh_metrics_save: Fact::Known(true),
            slow_start_after_idle: Fact::Known(false),
            mtu_probing: Fact::Known(0),
            congestion: Fact::Known(name("bbr")),
            available: names(&["reno", "cubic", "bbr"]),
            allowed: names(&["reno", "cubic", "bbr"]),
        },
        links: Fact::Known(vec![Link {
            name: name("eth0"),
            mtu: 1500,
            kind: None,
            speed_mbps: Fact::Known(10_000),
            full_duplex: Fact::Known(true),
            tso: Fact::Known(true),
            gso: Fact::Known(true),
            gro: Fact::Known(true),
            queues: Fact::Known(vec![Queue {
                kind: name("fq"),
                root: true,
                drops: 0,
                rate: None,
            }]),
            counters: Fact::Known(Counters {
                rx_packets: 1_000_000_000,
                ..Counters::default()
            }),
        }]),
        route: Fact::Known(Route {
            to: Some(HOST),
            device: name("eth0"),
            gateway: Some([10, 0, 0, 1].into()),
            source: Some([10, 0, 0, 9].into()),
            mtu: None,
            congestion: None,
        }),
        metrics: Fact::Known(None),
        cpu: Cpu {
            cores: Fact::Known(8),
            aes: Fact::Known(true),
            governor: Fact::Known(name("performance")),
            ciphers: Fact::Known(vec![CipherRate {
                cipher: name("aes-256-gcm"),
                bytes_per_second: 3_000_000_000,
            }]),
        },
        clock: Clock {
            synchronised: Fact::Known(true),
            max_error_us: Fact::Known(1000),
        },
        descriptors: Fact::Known(1 << 20),
        disk: None,
    }
}

/// A measurement in which nothing is wrong.
fn clean() -> Measured {
    Measured {
        address: (HOST, 7511).into(),
        rtt: Duration::from_millis(100),
        negotiated: Fact::Known(Negotiated {
            timestamps: true,
            sack: true,
            window_scaling: true,
            congestion: None,
            send_mss: 1448,
        }),
        mtu: Fact::Known(PathMtu {
            bytes: 1500,
            first_hop: 1500,
            discovery: Discovery::NotNeeded,
            method: ProbeMethod::Tcp,
        }),
        skew: None,
    }
}

fn over(rate_bps: f64, rtt_seconds: f64) -> Path {
    Path {
        rate_bps,
        rate_from: Source::Given,
        rtt_seconds,
        rtt_from: Source::Given,
        measured: None,
    }
}

fn measured(change: impl FnOnce(&mut Measured)) -> Path {
    let mut measured = clean();
    change(&mut measured);
    Path {
        measured: Some(measured),
        ..Path::table()
    }
}

/// The only finding on a machine that is sound but for `change`.
fn only(path: &Path, change: impl FnOnce(&mut Facts)) -> Finding {
    let mut facts = sound();
    change(&mut facts);
    let mut found = findings(&facts, path, Side::Here);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

fn commands(finding: &Finding) -> Vec<&str> {
    finding.mends.iter().map(|mend| mend.now.as_str()).collect()
}

fn link(facts: &mut Facts) -> &mut Link {
    match &mut facts.links {
        Fact::Known(links) => &mut links[0],
        Fact::Unknown(why) => panic!("{why}"),
    }
}

#[test]
fn on_a_sound_machine_nothing_is_found() {
    assert_eq!(findings(&sound(), &Path::table(), Side::Here), []);
    assert_eq!(findings(&sound(), &measured(|_| ()), Side::Here), []);
    assert_eq!(findings(&sound(), &measured(|_| ()), Side::There), []);
}

#[test]
fn a_machine_of_which_nothing_is_known_has_no_findings() {
    // All facts unknown, as JSON, through the same door that a far machine's come through.
    fn forget(value: &mut serde_json::Value) {
        if let Some(object) = value.as_object_mut() {
            if object.remove("known").is_some() {
                object.insert("unknown".into(), "nobody said".into());
            } else {
                object.values_mut().for_each(forget);
            }
        }
    }
    let mut json = serde_json::to_value(sound()).unwrap();
    forget(&mut json);
    let facts: Facts = serde_json::from_value(json).unwrap();
    assert!(facts.tcp.rmem.known().is_none() && facts.links.known().is_none());
    assert_eq!(findings(&facts, &Path::table(), Side::Here), []);
}

#[test]
fn the_receive_ceiling() {
    let found = only(&Path::table(), |facts| {
        facts.tcp.rmem = Fact::Known([4096, 131_072, 6 * MIB])
    });
    assert_eq!(
        (found.id, found.severity),
        ("receive-buffer-ceiling", Severity::Serious)
    );
    // Half of 6 MiB, ten times a second.
    assert_eq!(found.cost.at_most_bps, Some(3.0 * 1_048_576.0 * 8.0 / 0.1));
    assert_eq!(
        found.cost.text,
        "one stream carries at most 252 Mbit/s of 1 Gbit/s at 100 ms"
    );
    // Twice 12.5 MB, in whole MiB: 24.
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_rmem='4096 131072 25165824'"]
    );
    assert_eq!(
        found.mends[0].keep.as_deref(),
        Some("echo 'net.ipv4.tcp_rmem = 4096 131072 25165824' >> /etc/sysctl.d/90-longhaul.conf")
    );
    // What the command sets is enough, and a path that needs no more finds nothing.
    let mut mended = sound();
    mended.tcp.rmem = Fact::Known([4096, 131_072, 25_165_824]);
    assert_eq!(findings(&mended, &Path::table(), Side::Here), []);
    mended.tcp.rmem = Fact::Known([4096, 131_072, 6 * MIB]);
    assert_eq!(findings(&mended, &over(1e9, 0.02), Side::Here), []);
}

#[test]
fn the_send_ceiling() {
    let found = only(&Path::table(), |facts| {
        facts.tcp.wmem = Fact::Known([4096, 16_384, 4 * MIB])
    });
    assert_eq!(
        (found.id, found.severity),
        ("send-buffer-ceiling", Severity::Serious)
    );
    assert_eq!(found.cost.at_most_bps, Some(4.0 * 1_048_576.0 * 8.0 / 0.1));
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_wmem='4096 16384 25165824'"]
    );
}

#[test]
fn no_ceiling_is_set_above_what_the_kernel_takes() {
    let mut facts = sound();
    facts.tcp.mem = Fact::unknown("not here");
    let found = findings(&facts, &over(1e12, 0.5), Side::Here);
    let receive = found.iter().find(|f| f.id == "receive-buffer-ceiling").unwrap();
    assert_eq!(
        commands(receive),
        ["sysctl -w net.ipv4.tcp_rmem='4096 131072 2147483647'"]
    );
    assert!(receive.mends[0].note.as_deref().unwrap().contains("streams"));
}

#[test]
fn buffers_that_do_not_grow() {
    let found = only(&Path::table(), |facts| {
        facts.tcp.moderate_rcvbuf = Fact::Known(false)
    });
    assert_eq!(found.id, "receive-autotuning-off");
    assert_eq!(found.cost.at_most_bps, Some(65_536.0 * 80.0));
    assert_eq!(commands(&found), ["sysctl -w net.ipv4.tcp_moderate_rcvbuf=1"]);
}

#[test]
fn windows_of_64_kilobytes() {
    let found = only(&Path::table(), |facts| {
        facts.tcp.window_scaling = Fact::Known(false)
    });
    assert_eq!(found.id, "window-scaling-off");
    assert_eq!(
        found.cost.text,
        "one stream carries at most 5.24 Mbit/s of 1 Gbit/s at 100 ms"
    );
    assert_eq!(commands(&found), ["sysctl -w net.ipv4.tcp_window_scaling=1"]);
    // Enough for a short way.
    let mut facts = sound();
    facts.tcp.window_scaling = Fact::Known(false);
    assert_eq!(findings(&facts, &over(1e8, 0.001), Side::Here), []);
}

#[test]
fn what_programs_may_set_is_only_advice() {
    let found = only(&Path::table(), |facts| facts.tcp.rmem_max = Fact::Known(212_992));
    assert_eq!(
        (found.id, found.severity),
        ("explicit-receive-buffer", Severity::Advice)
    );
    assert_eq!(commands(&found), ["sysctl -w net.core.rmem_max=12582912"]);
    let found = only(&Path::table(), |facts| {
        facts.tcp.wmem_max = Fact::Known(212_992);
        facts.tcp.mem = Fact::unknown("in a namespace");
    });
    assert_eq!(found.id, "explicit-send-buffer");
    assert!(found.mends[0].note.as_deref().unwrap().contains("namespace"));
}

#[test]
fn memory_of_all_connections() {
    let found = only(&Path::table(), |facts| {
        facts.tcp.mem = Fact::Known([1000, 2000, 3000])
    });
    assert_eq!(found.id, "tcp-memory");
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_mem='6104 12208 24416'"]
    );
    let mut mended = sound();
    mended.tcp.mem = Fact::Known([6104, 12_208, 24_416]);
    assert_eq!(findings(&mended, &Path::table(), Side::Here), []);
}

#[test]
fn timestamps_matter_more_on_faster_paths() {
    let off = |facts: &mut Facts| facts.tcp.timestamps = Fact::Known(false);
    let found = only(&Path::table(), off);
    assert_eq!((found.id, found.severity), ("timestamps-off", Severity::Serious));
    assert!(
        found.cost.text.contains("come round every 34.4 s"),
        "{}",
        found.cost.text
    );
    assert_eq!(commands(&found), ["sysctl -w net.ipv4.tcp_timestamps=1"]);
    assert_eq!(only(&over(1e8, 0.1), off).severity, Severity::Advice);
}

#[test]
fn losses_without_selective_acknowledgement() {
    let found = only(&Path::table(), |facts| facts.tcp.sack = Fact::Known(false));
    assert_eq!((found.id, found.severity), ("sack-off", Severity::Serious));
    assert!(
        found.cost.text.contains("take 1 s instead of 100 ms"),
        "{}",
        found.cost.text
    );
    assert_eq!(commands(&found), ["sysctl -w net.ipv4.tcp_sack=1"]);
}

#[test]
fn reno_on_a_long_path() {
    let reno = |facts: &mut Facts| facts.tcp.congestion = Fact::Known(name("reno"));
    let found = only(&Path::table(), reno);
    assert_eq!(
        (found.id, found.severity),
        ("congestion-control", Severity::Serious)
    );
    // 12.5 MB / 1448 bytes / 2 round trips of 100 ms.
    assert!(found.cost.text.contains("takes 7.19 min"), "{}", found.cost.text);
    assert!(found.cost.text.contains("49.7 million"), "{}", found.cost.text);
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_congestion_control=cubic"]
    );
    assert_eq!(only(&over(1e8, 0.01), reno).severity, Severity::Advice);
    // In a namespace, only what is allowed can be set.
    let found = only(&Path::table(), |facts| {
        reno(facts);
        facts.tcp.mem = Fact::unknown("in a namespace");
        facts.tcp.allowed = Fact::Known(vec![name("reno"), name("bbr")]);
    });
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_congestion_control=bbr"]
    );
    // A route goes before the setting.
    let found = only(&Path::table(), |facts| {
        if let Fact::Known(route) = &mut facts.route {
            route.congestion = Some(name("reno"));
        }
    });
    assert_eq!(
        commands(&found),
        ["ip route replace 10.77.0.3/32 via 10.0.0.1 dev eth0 src 10.0.0.9 congctl cubic"]
    );
}

#[test]
fn cubic_where_losses_are_to_be_feared() {
    let cubic = |facts: &mut Facts| facts.tcp.congestion = Fact::Known(name("cubic"));
    let found = only(&Path::table(), cubic);
    assert_eq!((found.id, found.severity), ("loss-tolerance", Severity::Advice));
    assert!(
        found.cost.text.contains("one segment in 1.7 million"),
        "{}",
        found.cost.text
    );
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_congestion_control=bbr"]
    );
    let found = only(&Path::table(), |facts| {
        cubic(facts);
        facts.tcp.available = Fact::Known(vec![name("reno"), name("cubic")]);
        facts.tcp.allowed = Fact::Known(vec![name("reno"), name("cubic")]);
    });
    assert_eq!(
        commands(&found),
        ["modprobe tcp_bbr && sysctl -w net.ipv4.tcp_congestion_control=bbr"]
    );
    let mut facts = sound();
    cubic(&mut facts);
    assert_eq!(findings(&facts, &over(1e8, 0.01), Side::Here), []);
}

#[test]
fn what_tcp_remembers() {
    let remembering = |ssthresh| CachedMetrics {
        host: HOST,
        ssthresh: Some(ssthresh),
        cwnd: None,
    };
    let found = only(&Path::table(), |facts| {
        facts.metrics = Fact::Known(Some(remembering(32)))
    });
    assert_eq!(
        (found.id, found.severity),
        ("remembered-threshold", Severity::Serious)
    );
    assert_eq!(commands(&found), ["ip tcp_metrics delete 10.77.0.3"]);
    let mut facts = sound();
    facts.metrics = Fact::Known(Some(remembering(20_000)));
    assert_eq!(findings(&facts, &Path::table(), Side::Here), []);

    let found = only(&Path::table(), |facts| {
        facts.tcp.no_metrics_save = Fact::Known(false);
        facts.tcp.no_ssthresh_metrics_save = Fact::Known(false);
    });
    assert_eq!(found.id, "remembers-losses");
    facts = sound();
    facts.tcp.no_metrics_save = Fact::Known(false);
    assert_eq!(findings(&facts, &Path::table(), Side::Here), []);
}

#[test]
fn starting_again_after_a_pause() {
    let on = |facts: &mut Facts| facts.tcp.slow_start_after_idle = Fact::Known(true);
    let found = only(&Path::table(), on);
    assert_eq!((found.id, found.severity), ("slow-after-idle", Severity::Advice));
    // log2(8633 / 10) is 9.8.
    assert!(
        found.cost.text.contains("10 round trips, 1 s"),
        "{}",
        found.cost.text
    );
    let mut facts = sound();
    on(&mut facts);
    assert_eq!(findings(&facts, &over(1e9, 0.01), Side::Here), []);
}

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
    assert_eq!((found.id, found.severity), ("mtu-black-hole", Severity::Serious));
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
    // A smaller path MTU that routers tell of is no fault.
    let told = measured(|measured| {
        measured.mtu = Fact::Known(PathMtu {
            bytes: 1400,
            first_hop: 1500,
            discovery: Discovery::Works,
            method: ProbeMethod::Tcp,
        });
    });
    assert_eq!(findings(&sound(), &told, Side::Here), []);
    // And it is this end's finding.
    assert_eq!(findings(&sound(), &hole, Side::There), []);
}

#[test]
fn what_a_connection_did_not_get() {
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
    // Off at this end, it is this end's fault, told once.
    let found = only(&without(|n| n.sack = false), |facts| {
        facts.tcp.sack = Fact::Known(false)
    });
    assert_eq!(found.id, "sack-off");
    // What the connection runs goes before the setting.
    let found = only(
        &without(|n| n.congestion = Some(Name::new("reno").unwrap())),
        |_| (),
    );
    assert_eq!(found.id, "congestion-control");
}

#[test]
fn devices() {
    let found = only(&Path::table(), |facts| link(facts).speed_mbps = Fact::Known(100));
    assert_eq!((found.id, found.cost.at_most_bps), ("link-speed", Some(1e8)));
    let found = only(&Path::table(), |facts| {
        link(facts).full_duplex = Fact::Known(false)
    });
    assert_eq!(commands(&found), ["ethtool -s eth0 autoneg on"]);
    let queue = |kind: &str, rate| {
        Fact::Known(vec![Queue {
            kind: name(kind),
            root: true,
            drops: 0,
            rate,
        }])
    };
    let found = only(&Path::table(), |facts| {
        link(facts).queues = queue("tbf", Some(12_500_000))
    });
    assert_eq!((found.id, found.cost.at_most_bps), ("queue-rate", Some(1e8)));
    assert_eq!(commands(&found), ["tc qdisc del dev eth0 root"]);
    let mut facts = sound();
    link(&mut facts).queues = queue("tbf", Some(1_250_000_000));
    assert_eq!(findings(&facts, &Path::table(), Side::Here), []);
    let found = only(&Path::table(), |facts| link(facts).queues = queue("netem", None));
    assert_eq!(found.id, "queue-emulates");
}

#[test]
fn offloads_matter_more_on_faster_paths() {
    let off = |facts: &mut Facts| {
        link(facts).gso = Fact::Known(false);
        link(facts).tso = Fact::Known(false);
    };
    let found = only(&Path::table(), off);
    assert_eq!((found.id, found.severity), ("offloads-off", Severity::Advice));
    assert_eq!(commands(&found), ["ethtool -K eth0 tso on gso on"]);
    let mut facts = sound();
    off(&mut facts);
    let fast = findings(&facts, &over(2e9, 0.01), Side::Here);
    assert!(
        fast.iter()
            .any(|f| f.id == "offloads-off" && f.severity == Severity::Serious)
    );
    // The stack cuts late by itself.
    let mut facts = sound();
    link(&mut facts).tso = Fact::Known(false);
    assert_eq!(findings(&facts, &Path::table(), Side::Here), []);
}

#[test]
fn errors_of_a_device() {
    let with = |errors, missed| {
        move |facts: &mut Facts| {
            link(facts).counters = Fact::Known(Counters {
                rx_packets: 999_900,
                rx_errors: errors,
                rx_missed: missed,
                ..Counters::default()
            });
        }
    };
    let found = only(&Path::table(), with(100, 0));
    assert_eq!(found.id, "link-errors");
    // One in ten thousand: 1448 bytes x sqrt(1.5) x 100, ten times a second.
    let expected = 1448.0 * 80.0 * 1.5f64.sqrt() * 100.0;
    assert!(
        (found.cost.at_most_bps.unwrap() / expected - 1.0).abs() < 1e-9,
        "{found:?}"
    );
    assert!(found.mends.is_empty());
    assert!(commands(&only(&Path::table(), with(0, 100)))[0].starts_with("ethtool -G eth0 rx "));
    let mut facts = sound();
    with(1, 0)(&mut facts);
    assert_eq!(findings(&facts, &over(1e8, 0.01), Side::Here), []);
}

#[test]
fn only_the_device_that_leads_there_counts() {
    let mut facts = sound();
    if let Fact::Known(links) = &mut facts.links {
        let other = Link {
            name: name("eth1"),
            speed_mbps: Fact::Known(10),
            ..links[0].clone()
        };
        links.push(other);
    }
    assert_eq!(findings(&facts, &Path::table(), Side::Here), []);
    facts.route = Fact::unknown("no default route");
    assert_eq!(findings(&facts, &Path::table(), Side::Here)[0].id, "link-speed");
}

#[test]
fn the_machine_behind_the_network() {
    let slow = |facts: &mut Facts| {
        facts.cpu.ciphers = Fact::Known(vec![CipherRate {
            cipher: name("aes-256-gcm"),
            bytes_per_second: 50_000_000,
        }]);
    };
    let found = only(&Path::table(), slow);
    assert_eq!((found.id, found.cost.at_most_bps), ("encryption-rate", Some(4e8)));
    assert!(
        found.cost.text.contains("3 streams (--streams 3)"),
        "{}",
        found.cost.text
    );
    assert_eq!(
        only(&Path::table(), |facts| facts.cpu.aes = Fact::Known(false)).id,
        "no-aes"
    );
    let found = only(&Path::table(), |facts| {
        facts.cpu.governor = Fact::Known(name("powersave"))
    });
    assert_eq!(found.id, "governor");
    let found = only(&Path::table(), |facts| {
        facts.clock.synchronised = Fact::Known(false)
    });
    assert_eq!(commands(&found), ["timedatectl set-ntp true"]);
    let found = only(&Path::table(), |facts| facts.descriptors = Fact::Known(1024));
    assert_eq!(commands(&found), ["ulimit -Hn 4096"]);
    let disk = |write, read| {
        move |facts: &mut Facts| {
            facts.disk = Some(Disk {
                directory: Text::new("/store"),
                write: Fact::Known(write),
                read: Fact::Known(read),
                direct: true,
            });
        }
    };
    let found = only(&Path::table(), disk(25_000_000, 500_000_000));
    assert_eq!((found.id, found.cost.at_most_bps), ("disk-write", Some(2e8)));
    assert_eq!(
        only(&Path::table(), disk(500_000_000, 25_000_000)).id,
        "disk-read"
    );
    let mut facts = sound();
    disk(500_000_000, 500_000_000)(&mut facts);
    assert_eq!(findings(&facts, &Path::table(), Side::Here), []);
}

#[test]
fn clocks_that_lie_apart() {
    let apart = |seconds| {
        measured(|measured| {
            measured.skew = Some(Skew {
                seconds,
                uncertainty_seconds: 0.05,
            });
        })
    };
    let found = only(&apart(-90.0), |_| ());
    assert_eq!((found.id, found.severity), ("clock-skew", Severity::Serious));
    assert!(found.what.contains("90.0 s behind"), "{}", found.what);
    assert_eq!(findings(&sound(), &apart(30.0), Side::Here), []);
}

#[test]
fn the_serious_come_first() {
    let mut facts = sound();
    facts.tcp.slow_start_after_idle = Fact::Known(true);
    facts.tcp.rmem_max = Fact::Known(1);
    facts.descriptors = Fact::Known(1024);
    facts.tcp.sack = Fact::Known(false);
    let found = findings(&facts, &Path::table(), Side::There);
    assert_eq!(found[0].id, "sack-off");
    assert!(found.iter().all(|finding| finding.side == Side::There) && found.len() == 4);
}
