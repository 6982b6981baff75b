//! Findings about TCP settings.

use super::*;

#[test]
fn on_a_sound_machine_nothing_is_found() {
    assert_eq!(
        findings(&sound(), &AssessedPath::assumed(), FindingSide::Here),
        []
    );
    assert_eq!(findings(&sound(), &measured(|_| ()), FindingSide::Here), []);
    assert_eq!(
        findings(&sound(), &measured(|_| ()), FindingSide::There),
        []
    );
}

#[test]
fn unknown_facts_yield_no_findings() {
    // All facts unknown, as JSON, parsed like those of a far machine.
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
    assert_eq!(
        findings(&facts, &AssessedPath::assumed(), FindingSide::Here),
        []
    );
}

#[test]
fn the_receive_ceiling() {
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.rmem = Fact::Known([4096, 131_072, 6 * MIB])
    });
    assert_eq!(
        (found.id, found.severity),
        ("receive-buffer-ceiling", Severity::Serious)
    );
    // Half of 6 MiB, ten times a second.
    assert_eq!(found.cost.limit_bps, Some(3.0 * 1_048_576.0 * 8.0 / 0.1));
    assert_eq!(
        found.cost.text,
        "one stream carries about 252 Mbit/s of 1 Gbit/s at 100 ms"
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
    // The command's value is enough, and then there is no finding.
    let mut mended = sound();
    mended.tcp.rmem = Fact::Known([4096, 131_072, 25_165_824]);
    assert_eq!(
        findings(&mended, &AssessedPath::assumed(), FindingSide::Here),
        []
    );
    mended.tcp.rmem = Fact::Known([4096, 131_072, 6 * MIB]);
    assert_eq!(findings(&mended, &over(1e9, 0.02), FindingSide::Here), []);
}

#[test]
fn the_send_ceiling() {
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.wmem = Fact::Known([4096, 16_384, 4 * MIB])
    });
    assert_eq!(
        (found.id, found.severity),
        ("send-buffer-ceiling", Severity::Serious)
    );
    assert_eq!(found.cost.limit_bps, Some(3.0 * 1_048_576.0 * 8.0 / 0.1));
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_wmem='4096 16384 25165824'"]
    );
}

#[test]
fn no_ceiling_is_set_above_what_the_kernel_takes() {
    let mut facts = sound();
    facts.tcp.mem = Fact::unknown("not here");
    let found = findings(&facts, &over(1e12, 0.5), FindingSide::Here);
    let receive = found
        .iter()
        .find(|f| f.id == "receive-buffer-ceiling")
        .unwrap();
    assert_eq!(
        commands(receive),
        ["sysctl -w net.ipv4.tcp_rmem='4096 131072 2147483647'"]
    );
    assert!(
        receive.mends[0]
            .note
            .as_deref()
            .unwrap()
            .contains("streams")
    );
}

#[test]
fn buffers_that_do_not_grow() {
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.moderate_rcvbuf = Fact::Known(false)
    });
    assert_eq!(found.id, "receive-autotuning-off");
    assert_eq!(found.cost.limit_bps, Some(65_536.0 * 80.0));
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_moderate_rcvbuf=1"]
    );
}

#[test]
fn windows_of_64_kilobytes() {
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.window_scaling = Fact::Known(false)
    });
    assert_eq!(found.id, "window-scaling-off");
    assert_eq!(
        found.cost.text,
        "one stream carries about 5.24 Mbit/s of 1 Gbit/s at 100 ms"
    );
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_window_scaling=1"]
    );
    // Enough for a short path.
    let mut facts = sound();
    facts.tcp.window_scaling = Fact::Known(false);
    assert_eq!(findings(&facts, &over(1e8, 0.001), FindingSide::Here), []);
}

#[test]
fn explicit_buffer_limits_are_only_advice() {
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.rmem_max = Fact::Known(212_992)
    });
    assert_eq!(
        (found.id, found.severity),
        ("explicit-receive-buffer", Severity::Advice)
    );
    assert_eq!(commands(&found), ["sysctl -w net.core.rmem_max=12582912"]);
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.wmem_max = Fact::Known(212_992);
        facts.tcp.mem = Fact::unknown("in a namespace");
    });
    assert_eq!(found.id, "explicit-send-buffer");
    assert!(
        found.mends[0]
            .note
            .as_deref()
            .unwrap()
            .contains("namespace")
    );
}

#[test]
fn memory_of_all_connections() {
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.mem = Fact::Known([1000, 2000, 3000])
    });
    assert_eq!(found.id, "tcp-memory");
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_mem='6104 12208 24416'"]
    );
    let mut mended = sound();
    mended.tcp.mem = Fact::Known([6104, 12_208, 24_416]);
    assert_eq!(
        findings(&mended, &AssessedPath::assumed(), FindingSide::Here),
        []
    );
}

#[test]
fn timestamps_matter_more_on_faster_paths() {
    let off = |facts: &mut Facts| facts.tcp.timestamps = Fact::Known(false);
    let found = only(&AssessedPath::assumed(), off);
    assert_eq!(
        (found.id, found.severity),
        ("timestamps-off", Severity::Serious)
    );
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
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.sack = Fact::Known(false)
    });
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
    let found = only(&AssessedPath::assumed(), reno);
    assert_eq!(
        (found.id, found.severity),
        ("congestion-control", Severity::Serious)
    );
    // 12.5 MB / 1448 bytes / 2 round trips of 100 ms.
    assert!(
        found.cost.text.contains("takes 7.19 min"),
        "{}",
        found.cost.text
    );
    assert!(
        found.cost.text.contains("49.7 million"),
        "{}",
        found.cost.text
    );
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_congestion_control=cubic"]
    );
    assert_eq!(only(&over(1e8, 0.01), reno).severity, Severity::Advice);
    // In a namespace, only an allowed one can be set.
    let found = only(&AssessedPath::assumed(), |facts| {
        reno(facts);
        facts.tcp.mem = Fact::unknown("in a namespace");
        facts.tcp.allowed = Fact::Known(vec![name("reno"), name("bbr")]);
    });
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_congestion_control=bbr"]
    );
    // The route takes precedence over the setting.
    let found = only(&AssessedPath::assumed(), |facts| {
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
fn cubic_on_lossy_paths_is_advised_against() {
    let cubic = |facts: &mut Facts| facts.tcp.congestion = Fact::Known(name("cubic"));
    let found = only(&AssessedPath::assumed(), cubic);
    assert_eq!(
        (found.id, found.severity),
        ("loss-tolerance", Severity::Advice)
    );
    assert!(
        found.cost.text.contains("one segment in 1.7 million"),
        "{}",
        found.cost.text
    );
    assert_eq!(
        commands(&found),
        ["sysctl -w net.ipv4.tcp_congestion_control=bbr"]
    );
    let found = only(&AssessedPath::assumed(), |facts| {
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
    assert_eq!(findings(&facts, &over(1e8, 0.01), FindingSide::Here), []);
}

#[test]
fn cached_tcp_metrics_are_found() {
    let remembering = |ssthresh| CachedMetrics {
        host: HOST,
        ssthresh: Some(ssthresh),
        cwnd: None,
    };
    let found = only(&AssessedPath::assumed(), |facts| {
        facts.metrics = Fact::Known(Some(remembering(32)))
    });
    assert_eq!(
        (found.id, found.severity),
        ("remembered-threshold", Severity::Serious)
    );
    assert_eq!(commands(&found), ["ip tcp_metrics delete 10.77.0.3"]);
    let mut facts = sound();
    facts.metrics = Fact::Known(Some(remembering(20_000)));
    assert_eq!(
        findings(&facts, &AssessedPath::assumed(), FindingSide::Here),
        []
    );

    let found = only(&AssessedPath::assumed(), |facts| {
        facts.tcp.no_metrics_save = Fact::Known(false);
        facts.tcp.no_ssthresh_metrics_save = Fact::Known(false);
    });
    assert_eq!(found.id, "remembers-losses");
    facts = sound();
    facts.tcp.no_metrics_save = Fact::Known(false);
    assert_eq!(
        findings(&facts, &AssessedPath::assumed(), FindingSide::Here),
        []
    );
}

#[test]
fn slow_start_after_idle_is_found() {
    let on = |facts: &mut Facts| facts.tcp.slow_start_after_idle = Fact::Known(true);
    let found = only(&AssessedPath::assumed(), on);
    assert_eq!(
        (found.id, found.severity),
        ("slow-after-idle", Severity::Advice)
    );
    // log2(8633 / 10) is 9.8.
    assert!(
        found.cost.text.contains("10 round trips, 1 s"),
        "{}",
        found.cost.text
    );
    let mut facts = sound();
    on(&mut facts);
    assert_eq!(findings(&facts, &over(1e9, 0.01), FindingSide::Here), []);
}
