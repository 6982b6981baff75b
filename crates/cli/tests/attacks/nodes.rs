//! Attacks that need addresses or a name server of their own. Each test runs itself again as a
//! process in a node of a lab.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use longhaul_hostile::{CrowdPlan, Flood, SilentNames, StrangerBehaviour, opens};
use longhaul_proto::{Endpoint, Host, StatusCode};
use wanbed::{Lab, Overrides, Scenario};

use crate::common::has_labs;
use crate::world::*;

const NODES: &str = "title = \"a node to be attacked in\"\nnodes = { depot = {}, other = {} }\n\
    [links]\nl = { ends = [\"depot\", \"other\"], delay = \"1 ms\", rate = \"unlimited\" }\n";
/// Set by the lab for processes in a node.
const IN_A_NODE: &str = "WANBED_NODE";
const ANSWER: Duration = Duration::from_secs(60);

/// Runs `body` in a node of a lab. Outside of one, it starts the test called `name` again, inside.
pub fn in_a_node(name: &str, body: impl FnOnce(IpAddr)) {
    if std::env::var_os(IN_A_NODE).is_some() {
        let address = std::env::var("NODE_ADDRESS").unwrap();
        return body(address.parse().unwrap());
    }
    if !has_labs() {
        return;
    }
    let lab = Lab::up(
        &Scenario::from_text("attacks", NODES),
        &Overrides::default(),
    )
    .unwrap();
    let mut again = lab
        .command("depot", std::env::current_exe().unwrap())
        .unwrap();
    again
        .args(["--exact", name, "--nocapture"])
        .env("NODE_ADDRESS", lab.address("depot").unwrap().to_string())
        .stdin(Stdio::null());
    let output = again.output().unwrap();
    let reported = [&output.stdout[..], &output.stderr].concat();
    let reported = String::from_utf8_lossy(&reported);
    println!("in the node:\n{reported}");
    assert!(output.status.success(), "it failed in the node");
    assert!(
        reported.contains("1 passed"),
        "the test is not called {name}:\n{reported}"
    );
}

/// Returns the answer of a depot with this policy to an OPEN for `host`.
fn answer(world: &World, depot: SocketAddr, host: Host) -> StatusCode {
    let me = world.identity("me");
    let open = opens::to_depot(me.signing_key(), depot, Endpoint::new(host, 9)).unwrap();
    let bytes = opens::bytes(&open).unwrap();
    let asked = opens::ask(depot, None, &bytes, ANSWER);
    world.attackers.block_on(asked).unwrap().code
}

fn everywhere(world: &World) -> String {
    let rule = policy(&[world.stage.key("me")], "0.0.0.0/0");
    rule.replace(
        "[\"0.0.0.0/0\"]",
        "[\"0.0.0.0/0\", \"::/0\", \"*.example\"]",
    )
    .replace(
        "[\"direct\", \"0.0.0.0/0\"]",
        "[\"direct\", \"0.0.0.0/0\", \"::/0\"]",
    )
}

/// Opens idle connections to a depot from `count` networks of 64 bits, `apart` from each other;
/// then copies through it.
fn strangers_of_ipv6(count: u32, apart: u128) {
    // A lab's nodes have no IPv6 by default, and the test binds many addresses without configuring
    // them.
    for (setting, value) in [
        ("conf/all/disable_ipv6", "0"),
        ("conf/lo/disable_ipv6", "0"),
        ("ip_nonlocal_bind", "1"),
    ] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/{setting}"), value);
    }
    let mut ip = std::process::Command::new("ip");
    ip.args(["-6", "route", "add", "local", "fd66::/16", "dev", "lo"]);
    match ip.output() {
        Ok(output) if output.status.success() => {}
        other => return eprintln!("not tested: no IPv6 in this node ({other:?})"),
    }
    let world = World::new();
    let key = world.stage.key("me");
    let server = world.serve(&["--read", &key, "--write", &key]);
    let depot = world.depot("depot", "[::]:0", &policy(&[key], "127.0.0.0/8"));
    let port = depot.address.parse::<SocketAddr>().unwrap().port();
    let first = Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, 1).to_bits();
    let crowd = world.gather(&CrowdPlan {
        target: SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
        sources: (0..u128::from(count))
            .map(|n| Ipv6Addr::from_bits(first + n * apart).into())
            .collect(),
        connections: 1400,
        per_second: 3000,
        manner: StrangerBehaviour::Idle,
    });
    assert!(crowd.made() > 0, "{} could not be made", crowd.failed());
    world.assert_honest_copy(&server, &format!("127.0.0.1:{port}"));
}

#[test]
fn four_ipv6_networks_do_not_block_a_depot() {
    in_a_node("nodes::four_ipv6_networks_do_not_block_a_depot", |_| {
        // Each in its own /32.
        strangers_of_ipv6(4, 1 << 96);
    });
}

#[test]
fn a_wide_ipv6_prefix_does_not_block_a_depot() {
    in_a_node("nodes::a_wide_ipv6_prefix_does_not_block_a_depot", |_| {
        // All in one /48.
        strangers_of_ipv6(1400, 1 << 64);
    });
}

/// Loopback, link-local and never-dialled addresses, and their IPv6 forms.
const HELD: [&str; 8] = [
    "127.0.0.1",
    "::1",
    "169.254.169.254",
    "0.0.0.0",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
];
/// IPv4-translated (RFC 2765), NAT64 (RFC 6052), 6to4 (RFC 3056) and Teredo (RFC 4380; the client's
/// address is complemented).
const CARRIED: [&str; 4] = [
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "2002:7f00:1::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
];

#[test]
fn a_catch_all_rule_excludes_local_addresses() {
    in_a_node("nodes::a_catch_all_rule_excludes_local_addresses", |_| {
        let world = World::new();
        let depot = world.depot("depot", "127.0.0.1:0", &everywhere(&world));
        let depot = depot.address.parse().unwrap();
        for text in HELD {
            let host = Host::Ip(text.parse().unwrap());
            assert_eq!(answer(&world, depot, host), StatusCode::Refused, "{text}");
        }
    });
}

#[test]
fn a_catch_all_rule_excludes_the_depots_addresses() {
    in_a_node(
        "nodes::a_catch_all_rule_excludes_the_depots_addresses",
        |own| {
            let world = World::new();
            let depot = world.depot("depot", "0.0.0.0:0", &everywhere(&world));
            let port = depot.address.parse::<SocketAddr>().unwrap().port();
            let depot = SocketAddr::new(own, port);
            assert_eq!(answer(&world, depot, Host::Ip(own)), StatusCode::Refused);
            let named = policy(&[world.stage.key("me")], &own.to_string());
            let second = world.depot("named", "127.0.0.1:0", &named);
            let code = answer(&world, second.address.parse().unwrap(), Host::Ip(own));
            assert_eq!(code, StatusCode::DialRefused, "named, it may be dialled");
        },
    );
}

#[test]
fn translated_and_teredo_addresses_need_explicit_rules() {
    in_a_node(
        "nodes::translated_and_teredo_addresses_need_explicit_rules",
        |_| {
            let world = World::new();
            let depot = world.depot("depot", "127.0.0.1:0", &everywhere(&world));
            let depot = depot.address.parse().unwrap();
            for text in [CARRIED[0], CARRIED[3]] {
                let host = Host::Ip(text.parse().unwrap());
                assert_eq!(answer(&world, depot, host), StatusCode::Refused, "{text}");
            }
        },
    );
}

#[test]
fn names_cannot_lead_to_internal_addresses_in_any_form() {
    in_a_node(
        "nodes::names_cannot_lead_to_internal_addresses_in_any_form",
        |own| {
            let world = World::new();
            let own = own.to_string();
            let tricks: Vec<&str> = HELD
                .into_iter()
                .chain(CARRIED)
                .chain([&own[..], "10.1.2.3"])
                .collect();
            let hosts: String = tricks
                .iter()
                .enumerate()
                .map(|(n, address)| format!("{address} trick{n}.example\n"))
                .collect();
            std::fs::write("/etc/hosts", "127.0.0.1 localhost\n".to_owned() + &hosts).unwrap();
            let rule =
                policy(&[world.stage.key("me")], "*.example").replace(", \"*.example\"]", "]");
            let depot = world.depot("depot", "127.0.0.1:0", &rule);
            let depot = depot.address.parse().unwrap();
            for (n, address) in tricks.iter().enumerate() {
                let host = Host::parse(&format!("trick{n}.example")).unwrap();
                let code = answer(&world, depot, host);
                // The system's resolver refuses to look up some of them.
                assert!(
                    matches!(code, StatusCode::Refused | StatusCode::NameNotFound),
                    "{address}: {code:?}"
                );
            }
        },
    );
}

/// `attacker`, whose rule leads to `to`, requests names that are never answered, 96 at a time; then
/// `me` copies by a name that the machine knows.
fn slow_names(to: &str) {
    let world = World::new();
    let key = world.stage.key("me");
    let server = world.serve(&["--read", &key, "--write", &key]);
    std::fs::write("/etc/hosts", "127.0.0.1 localhost server.example\n").unwrap();
    std::fs::write("/etc/resolv.conf", "nameserver 127.0.0.53\n").unwrap();
    let silent = world
        .attackers
        .block_on(SilentNames::bind(([127, 0, 0, 53], 53).into()))
        .unwrap();
    let rules = policy(&[key], "127.0.0.0/8") + &policy(&[world.stage.key("attacker")], to);
    let depot = world.depot("depot", "127.0.0.1:0", &rules);
    let address: SocketAddr = depot.address.parse().unwrap();
    let attacker = world.identity("attacker");
    let _on = world.attackers.enter();
    let number = std::sync::atomic::AtomicU64::new(0);
    let flood = Flood::start(address, &addresses(1), 96, 400, move || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = Host::parse(&format!("slow{number}.example.net")).ok()?;
        let open = opens::to_depot(attacker.signing_key(), address, Endpoint::new(name, 7511));
        open.and_then(|open| opens::bytes(&open)).ok()
    });
    // Wait until the depot makes 32 look-ups at once and the attacker has sent 96 OPENs.
    world.attackers.block_on(async {
        let mut look = tokio::time::interval(Duration::from_millis(10));
        let begun = async {
            while silent.question_count() < 32 || flood.sent() < 96 {
                look.tick().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(1500), begun).await;
    });
    let port = server.address.parse::<SocketAddr>().unwrap().port();
    world.stage.noise("here/f", 1000);
    let there = format!("lh://server.example:{port}/f");
    let arguments = [
        "--host-key",
        &server.key,
        "--route",
        &depot.address,
        "here/f",
        &there,
    ];
    let output = world
        .cp_within(HONEST, "me", &arguments)
        .expect("a copy did not end");
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{reported}");
    println!("{} questions, {:?}", silent.question_count(), flood.tally());
}

#[test]
fn slow_names_without_a_rule_do_not_block_a_depot() {
    in_a_node(
        "nodes::slow_names_without_a_rule_do_not_block_a_depot",
        |_| slow_names("192.0.2.0/24"),
    );
}

#[test]
fn slow_names_with_a_rule_do_not_block_a_depot() {
    in_a_node("nodes::slow_names_with_a_rule_do_not_block_a_depot", |_| {
        slow_names("*.example.net")
    });
}
