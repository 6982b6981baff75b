//! Tests of a lab's traffic: TCP and UDP, on the routes and with the delays that were asked.

use std::process::{Child, Command};

use wanbed::{Backend, Lab, LinkVerdict, Overrides};

use super::{ROW, echo_server, inside, lab, lab_with};

/// Echoes a megabyte between two nodes by name. Returns the fastest round trip of single bytes, in
/// microseconds.
fn echo(lab: &Lab, from: &str, to: &str, source_port: &str) -> u64 {
    let (server, port) = echo_server(lab, to, "0.0.0.0");
    let client = inside(
        lab,
        from,
        "part_echo_client",
        &format!("{to} {port}{source_port}"),
    );
    fastest_echo(server, client)
}

/// Runs `client`, the echo client, to its end. Returns the fastest round trip in microseconds.
pub fn fastest_echo(mut server: Child, mut client: Command) -> u64 {
    let output = client.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(server.wait().unwrap().success());
    said.split("RTT ")
        .nth(1)
        .and_then(|rest| rest.split(';').next())
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn tcp_crosses_a_router_by_name_and_takes_the_asked_time() {
    let Some(lab) = lab(ROW) else { return };
    let fastest = echo(&lab, "left", "right", "");
    // Never less than asked. The excess depends on the machine's speed, which `wanbed check`
    // measures.
    assert!(fastest >= 8_000, "a round trip took {fastest} us");
    let report = lab.links().unwrap();
    for link in &report.links {
        for way in [&link.counters.forward, &link.counters.backward] {
            assert!(way.bytes > 1_000_000, "{report:?}");
        }
    }
}

#[test]
fn packet_sockets_carry_what_tun_devices_carry() {
    let Some(lab) = lab_with(ROW, &Overrides::default().backend(Backend::Packet)) else {
        return;
    };
    assert_eq!(lab.backend(), "packet");
    assert!(echo(&lab, "left", "right", "") >= 8_000);
}

#[test]
fn a_pinned_route_and_a_route_by_port_lead_where_they_say() {
    let text = r#"
        [nodes]
        left = {}
        one = {}
        two = {}
        right = {}
        [links]
        l1 = { ends = ["left", "one"], delay = "1 ms", rate = "200 Mbit/s" }
        r1 = { ends = ["one", "right"], delay = "1 ms", rate = "200 Mbit/s" }
        l2 = { ends = ["left", "two"], delay = "2 ms", rate = "200 Mbit/s" }
        r2 = { ends = ["two", "right"], delay = "2 ms", rate = "200 Mbit/s" }
        direct = { ends = ["left", "right"], delay = "9 ms", rate = "200 Mbit/s" }
        [[route]]
        from = "left"
        to = "right"
        via = ["direct"]
        [[route]]
        from = "left"
        to = "right"
        via = ["two"]
        ports = "21000-21999"
    "#;
    let Some(lab) = lab(text) else { return };
    let carried = || -> Vec<(u64, u64)> {
        let links = lab.links().unwrap().links;
        links
            .iter()
            .map(|link| {
                (
                    link.counters.forward.bytes / 1_000_000,
                    link.counters.backward.bytes / 1_000_000,
                )
            })
            .collect()
    };
    assert!(echo(&lab, "left", "right", "") >= 18_000);
    assert_eq!(
        carried(),
        [(0, 0), (0, 0), (0, 0), (0, 0), (1, 1)],
        "pinned: over the direct link, there and back"
    );
    assert!(echo(&lab, "left", "right", " 21007") >= 8_000);
    assert_eq!(
        carried(),
        [(0, 0), (0, 0), (1, 1), (1, 1), (1, 1)],
        "by port: over two, there and back"
    );
}

#[test]
fn timed_drop_loses_one_packet_of_a_stream() {
    let overrides = Overrides::default().set("links.far.drop_at", "0 s");
    let Some(lab) = lab_with(ROW, &overrides) else {
        return;
    };
    echo(&lab, "left", "right", "");
    let report = lab.down().unwrap();
    for way in [
        &report.links[1].counters.forward,
        &report.links[1].counters.backward,
    ] {
        assert_eq!(way.drops_loss, 1, "{way:?}");
    }
    assert_eq!(report.links[0].counters.forward.drops_loss, 0);
}

#[test]
fn a_nodes_settings_are_its_own() {
    let text = ROW.replace(
        "right = {}",
        "right = { congestion = \"cubic\", buffers = \"64 KB\", sysctl = { tcp_sack = 0 } }",
    );
    let Some(lab) = lab(&text) else { return };
    let read = |node: &str, what: &str| {
        let output = lab
            .command(node, "cat")
            .unwrap()
            .arg(format!("/proc/sys/net/{what}"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(read("left", "ipv4/tcp_congestion_control"), "reno");
    assert_eq!(read("left", "ipv4/tcp_no_metrics_save"), "1");
    assert_eq!(read("left", "ipv4/ip_forward"), "0");
    assert_eq!(read("middle", "ipv4/ip_forward"), "1");
    assert_eq!(read("right", "ipv4/tcp_window_scaling"), "0");
    assert_eq!(read("right", "ipv4/tcp_rmem"), "4096 131072 262144");
    assert_eq!(read("right", "ipv4/tcp_sack"), "0");
    // By sysctl if the kernel lets a namespace choose it, else on every route.
    let routes = lab
        .command("right", "ip")
        .unwrap()
        .args(["route"])
        .output()
        .unwrap();
    let on_routes = String::from_utf8_lossy(&routes.stdout).contains("congctl cubic");
    assert!(on_routes || read("right", "ipv4/tcp_congestion_control") == "cubic");
}

#[test]
fn a_check_finds_a_link_as_asked_and_reports_when_it_is_not() {
    let text = ROW
        .replace("200 Mbit/s", "20 Mbit/s")
        .replace("delay = \"3 ms\"", "delay = \"3 ms\", loss = \"2%\"");
    let Some(lab) = lab(&text) else { return };
    let check = lab.check(0, true).unwrap();
    let verdict = |what: &str| {
        check
            .findings
            .iter()
            .find(|finding| finding.what == what)
            .unwrap()
            .verdict
    };
    // Its delay and rate depend on this machine's current speed; its loss does not.
    assert_eq!(verdict("loss"), LinkVerdict::AsAsked, "{check:?}");

    // An additional bottleneck on the sender's side makes rate and delay wrong, whatever the
    // machine's speed.
    let shaped = lab
        .command("left", "tc")
        .unwrap()
        .args("qdisc replace dev near root tbf rate 5mbit burst 3000 latency 20ms".split(' '))
        .status();
    assert!(shaped.unwrap().success());
    let check = lab.check(0, true).unwrap();
    assert!(check.is_off(), "{check:?}");
    assert!(lab.check(2, true).is_err(), "there is no third link");
}
