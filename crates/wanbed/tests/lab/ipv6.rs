//! Tests of labs with IPv6: its traffic takes the same routes in the same time as that of IPv4.

use wanbed::{Backend, Error, Lab, Overrides};

use super::carries::fastest_echo;
use super::{ROW, echo_server, inside, lab, lab_with};

fn with_ipv6() -> Overrides {
    Overrides::default().set("ipv6", "true")
}

/// Echoes a megabyte over IPv6. Returns the fastest round trip of single bytes, in microseconds.
fn echo(lab: &Lab, from: &str, to: &str, source_port: &str) -> u64 {
    let address = lab.ipv6_address(to).unwrap();
    let (server, port) = echo_server(lab, to, &address.to_string());
    let endpoint = format!("{address} {port}{source_port}");
    fastest_echo(server, inside(lab, from, "part_echo_client", &endpoint))
}

fn output(lab: &Lab, node: &str, words: &[&str]) -> String {
    let output = lab
        .command(node, words[0])
        .unwrap()
        .args(&words[1..])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn ipv6_crosses_a_router_in_the_asked_time() {
    let Some(lab) = lab_with(ROW, &with_ipv6()) else {
        return;
    };
    // The first connection is made as soon as the lab is up: no address waits for its check.
    let fastest = echo(&lab, "left", "right", "");
    assert!(fastest >= 8_000, "a round trip took {fastest} us");
    for link in &lab.links().unwrap().links {
        for way in [&link.counters.forward, &link.counters.backward] {
            assert!(way.bytes > 1_000_000 && way.malformed == 0, "{way:?}");
        }
    }
    assert_eq!(
        lab.endpoint("right", 7511).unwrap().to_string(),
        "[fd77::3]:7511"
    );
    let environment = lab.environment();
    assert!(environment.contains(&("WANBED_IPV6_RIGHT".to_owned(), "fd77::3".to_owned())));
}

#[test]
fn packet_sockets_carry_ipv6() {
    let Some(lab) = lab_with(ROW, &with_ipv6().backend(Backend::Packet)) else {
        return;
    };
    assert_eq!(lab.backend(), "packet");
    assert!(echo(&lab, "left", "right", "") >= 8_000);
}

#[test]
fn names_lead_to_both_addresses() {
    let Some(lab) = lab_with(ROW, &with_ipv6()) else {
        return;
    };
    for (database, expected) in [("ahostsv4", "10.77.0.3"), ("ahostsv6", "fd77::3")] {
        let found = output(&lab, "left", &["getent", database, "right"]);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn ipv6_follows_pinned_routes_and_ports() {
    let text = r#"
        ipv6 = true
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
    let carried = || -> Vec<u64> {
        let links = lab.links().unwrap().links;
        let megabytes = |link: &wanbed::LinkReport| {
            link.counters
                .forward
                .bytes
                .min(link.counters.backward.bytes)
                / 1_000_000
        };
        links.iter().map(megabytes).collect()
    };
    assert!(echo(&lab, "left", "right", "") >= 18_000);
    assert_eq!(
        carried(),
        [0, 0, 0, 0, 1],
        "pinned: over the direct link, there and back"
    );
    assert!(echo(&lab, "left", "right", " 21007") >= 8_000);
    assert_eq!(
        carried(),
        [0, 0, 1, 1, 1],
        "by port: over two, there and back"
    );
}

#[test]
fn devices_send_nothing_of_their_own() {
    let Some(lab) = lab_with(ROW, &with_ipv6()) else {
        return;
    };
    let addresses = output(&lab, "middle", &["ip", "-6", "address"]);
    assert!(addresses.contains("fd77::2/128"), "{addresses}");
    assert!(
        !addresses.contains("fe80:") && !addresses.contains("tentative"),
        "{addresses}"
    );
    assert_eq!(
        output(
            &lab,
            "middle",
            &["cat", "/proc/sys/net/ipv6/conf/all/forwarding"]
        ),
        "1\n"
    );
    // A device in the all-routers group (ff02::2) would report that with packets of its own.
    let groups = output(&lab, "middle", &["cat", "/proc/net/igmp6"]);
    let all_routers = "ff020000000000000000000000000002";
    let joined: Vec<&str> = groups
        .lines()
        .filter(|line| line.contains(all_routers) && !line.contains(" lo "))
        .collect();
    assert!(joined.is_empty(), "{groups}");
}

#[test]
fn labs_without_ipv6_say_so() {
    let Some(lab) = lab(ROW) else { return };
    assert!(matches!(lab.ipv6_address("left"), Err(Error::NoIpv6(_))));
    assert_eq!(lab.endpoint("left", 1).unwrap().to_string(), "10.77.0.1:1");
    assert_eq!(output(&lab, "left", &["ip", "-6", "address"]), "");
}
