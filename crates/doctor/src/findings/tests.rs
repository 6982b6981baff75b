//! Fictional machines: each finding appears where it should, with its cost and its command, and
//! nowhere else.

use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::fact::{CommandName, Fact, PrintableText};
use crate::facts::{
    CachedMetrics, CipherRate, Clock, DeviceCounters, DiskRates, HostRoute, NetworkDevice,
    Processors, QueueDiscipline, TcpSettings,
};
use crate::path::{
    Discovery, Negotiated, NumberSource, PathMeasurement, PathMtu, ProbeMethod, Skew,
};

mod others;
mod settings;

const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 3));
const MIB: u64 = 1 << 20;

fn name(text: &str) -> CommandName {
    CommandName::new(text).unwrap()
}

/// A machine without findings at 1 Gbit/s x 100 ms (a bandwidth-delay product of 12.5 MB).
fn sound() -> Facts {
    let names = |names: &[&str]| Fact::Known(names.iter().map(|text| name(text)).collect());
    Facts {
        kernel: Fact::Known(PrintableText::new("6.12.0")),
        tcp: TcpSettings {
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
        links: Fact::Known(vec![NetworkDevice {
            name: name("eth0"),
            mtu: 1500,
            kind: None,
            speed_mbps: Fact::Known(10_000),
            full_duplex: Fact::Known(true),
            tso: Fact::Known(true),
            gso: Fact::Known(true),
            gro: Fact::Known(true),
            transmit_queue: Fact::Known(1000),
            queues: Fact::Known(vec![QueueDiscipline {
                kind: name("fq"),
                root: true,
                drops: 0,
                rate: None,
            }]),
            counters: Fact::Known(DeviceCounters {
                rx_packets: 1_000_000_000,
                ..DeviceCounters::default()
            }),
        }]),
        route: Fact::Known(HostRoute {
            to: Some(HOST),
            device: name("eth0"),
            gateway: Some([10, 0, 0, 1].into()),
            source: Some([10, 0, 0, 9].into()),
            mtu: None,
            congestion: None,
        }),
        metrics: Fact::Known(None),
        cpu: Processors {
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

/// A measurement without findings.
fn clean() -> PathMeasurement {
    PathMeasurement {
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
        quic: None,
        skew: None,
    }
}

fn over(rate_bps: f64, rtt_seconds: f64) -> AssessedPath {
    AssessedPath {
        rate_bps,
        rate_from: NumberSource::Given,
        rtt_seconds,
        rtt_from: NumberSource::Given,
        measured: None,
    }
}

fn measured(change: impl FnOnce(&mut PathMeasurement)) -> AssessedPath {
    let mut measured = clean();
    change(&mut measured);
    AssessedPath {
        measured: Some(measured),
        ..AssessedPath::assumed()
    }
}

/// Returns the only finding on a sound machine after `change`.
fn only(path: &AssessedPath, change: impl FnOnce(&mut Facts)) -> Finding {
    let mut facts = sound();
    change(&mut facts);
    let mut found = findings(&facts, path, FindingSide::Here);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

fn commands(finding: &Finding) -> Vec<&str> {
    finding.mends.iter().map(|mend| mend.now.as_str()).collect()
}

fn link(facts: &mut Facts) -> &mut NetworkDevice {
    match &mut facts.links {
        Fact::Known(links) => &mut links[0],
        Fact::Unknown(why) => panic!("{why}"),
    }
}
