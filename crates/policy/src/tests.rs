//! Tests of what a policy allows.

#![allow(clippy::indexing_slicing, reason = "a panic is how a test fails")]

use proptest::prelude::*;

use super::*;

const KEY: &str = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn policy_of(rule: &str) -> Policy {
    let text = format!("[[allow]]\nprincipals = [\"{KEY}\"]\n{rule}\n");
    Policy::parse(&text, Path::new("p.toml")).expect(&text)
}

fn key() -> PublicKey {
    KEY.parse().expect("key")
}

/// Returns the addresses that may be dialled for `destination` through `hop`, if the next hop
/// resolves to `resolved`.
fn dialled(
    policy: &Policy,
    destination: &str,
    hop: Option<&str>,
    resolved: &[&str],
) -> Vec<SocketAddr> {
    let destination: Endpoint = destination.parse().expect("destination");
    let hop = hop.map(|hop| longhaul_proto::Hop {
        endpoint: hop.parse().expect("hop"),
        strict: true,
        key: None,
        transport: None,
    });
    let next = hop
        .as_ref()
        .map_or(NextReceiver::Destination(&destination), NextReceiver::Hop);
    let addresses: Vec<SocketAddr> = resolved
        .iter()
        .map(|a| a.parse().expect("address"))
        .collect();
    let own = OwnAddresses::default();
    let rules = policy
        .candidates(
            &key(),
            AccessRequest::Relay {
                destination: &destination,
                next,
            },
            &own,
        )
        .rules;
    rules
        .iter()
        .map(|rule| {
            rule.allowed(
                AccessRequest::Relay {
                    destination: &destination,
                    next,
                },
                &addresses,
                &own,
            )
        })
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

#[test]
fn nothing_is_allowed_by_default() {
    assert!(!Policy::deny_all().has_rules_for(&key(), Role::Depot));
    let other = PublicKey::from_bytes([7; 32]);
    let policy = policy_of("to = [\"192.0.2.0/24\"]");
    assert!(
        policy.has_rules_for(&key(), Role::Depot) && !policy.has_rules_for(&other, Role::Depot)
    );
    assert!(admitted(&policy, &other, "192.0.2.1:7511").rules.is_empty());
}

/// Returns the candidates of `policy` for `principal` and a direct session to `destination`.
fn admitted(policy: &Policy, principal: &PublicKey, destination: &str) -> Candidates {
    let destination: Endpoint = destination.parse().expect("destination");
    let next = NextReceiver::Destination(&destination);
    policy.candidates(
        principal,
        AccessRequest::Relay {
            destination: &destination,
            next,
        },
        &OwnAddresses::default(),
    )
}

#[test]
fn listed_keys_differ_from_wildcard_keys() {
    let text = format!(
        "[[allow]]\nprincipals = [\"*\"]\nto = [\"192.0.2.0/24\"]\n
        [[allow]]\nprincipals = [\"*\", \"{KEY}\"]\nto = [\"192.0.2.0/25\"]\n"
    );
    let policy = Policy::parse(&text, Path::new("p.toml")).expect("policy");
    let other = PublicKey::from_bytes([7; 32]);
    for (principal, destination, rules, listed) in [
        (key(), "192.0.2.1:7511", 2, true),
        (other, "192.0.2.1:7511", 2, false),
        // The rule that lists the key does not allow this destination.
        (key(), "192.0.2.200:7511", 1, false),
        (key(), "192.0.3.1:7511", 0, false),
    ] {
        let admitted = admitted(&policy, &principal, destination);
        assert_eq!(
            (admitted.rules.len(), admitted.listed),
            (rules, listed),
            "{principal} to {destination}"
        );
    }
    let error = Policy::parse(
        "[[allow]]\nprincipals = [\"*\", \"me\"]\nto = [\"*\"]",
        Path::new("p.toml"),
    );
    assert!(error.is_err(), "a key beside * must be one");
}

#[test]
fn wide_network_excludes_own_addresses() {
    let policy =
        policy_of("to = [\"0.0.0.0/0\", \"20.0.0.5\"]\nnext_hops = [\"direct\", \"0.0.0.0/0\"]");
    let own: OwnAddresses = ["20.0.0.1", "20.0.0.5"]
        .iter()
        .map(|address| address.parse::<std::net::IpAddr>().expect("address"))
        .collect();
    let admits = |next: NextReceiver<'_>, destination: &Endpoint| {
        let candidates =
            policy.candidates(&key(), AccessRequest::Relay { destination, next }, &own);
        !candidates.rules.is_empty()
    };
    let at = |text: &str| -> Endpoint { text.parse().expect(text) };
    for (destination, allowed) in [
        ("20.0.0.1:7511", false),
        ("20.0.0.5:7511", true),
        ("20.0.0.2:7511", true),
    ] {
        let destination = at(destination);
        assert_eq!(
            admits(NextReceiver::Destination(&destination), &destination),
            allowed,
            "{destination}"
        );
    }
    for (hop, allowed) in [("20.0.0.1:7510", false), ("20.0.0.2:7510", true)] {
        let hop = longhaul_proto::Hop {
            endpoint: at(hop),
            strict: true,
            key: None,
            transport: None,
        };
        assert_eq!(
            admits(NextReceiver::Hop(&hop), &at("20.0.0.3:7511")),
            allowed,
            "{hop:?}"
        );
    }
    // The rule may grant a name; its addresses are checked once it is resolved.
    let name = at("dtn.example.org:7511");
    let next = NextReceiver::Destination(&name);
    let asked = AccessRequest::Relay {
        destination: &name,
        next,
    };
    let rules = policy.candidates(&key(), asked, &own).rules;
    let answers =
        ["20.0.0.1:7511", "20.0.0.2:7511", "20.0.0.5:7511"].map(|a| a.parse().expect("address"));
    assert_eq!(rules[0].allowed(asked, &answers, &own), answers[1..]);
}

#[test]
fn ports_default_to_the_acceptors() {
    let policy = policy_of("to = [\"192.0.2.0/24\"]");
    assert_eq!(
        dialled(&policy, "192.0.2.1:7511", None, &["192.0.2.1:7511"]).len(),
        1
    );
    assert!(dialled(&policy, "192.0.2.1:22", None, &["192.0.2.1:22"]).is_empty());
    let some = policy_of("to = [\"192.0.2.0/24\"]\nports = [80, \"8000-8002\"]");
    for (port, allowed) in [
        (80, true),
        (81, false),
        (8001, true),
        (8003, false),
        (7511, false),
    ] {
        let at = format!("192.0.2.1:{port}");
        assert_eq!(
            !dialled(&some, &at, None, &[&at]).is_empty(),
            allowed,
            "{at}"
        );
    }
    for any in ["[\"any\"]", "[80, \"any\"]"] {
        let any = policy_of(&format!("to = [\"192.0.2.0/24\"]\nports = {any}"));
        for at in ["192.0.2.1:1", "192.0.2.1:65535"] {
            assert_eq!(dialled(&any, at, None, &[at]).len(), 1);
        }
    }
}

#[test]
fn resolved_addresses_are_checked_one_by_one() {
    let policy = policy_of("to = [\"*.example.org\", \"10.1.0.0/16\"]");
    let answers = [
        "20.0.0.1:7511",
        "10.1.2.3:7511",
        "10.2.0.1:7511",
        "127.0.0.1:7511",
        "[::1]:7511",
    ];
    let allowed = dialled(&policy, "dtn.example.org:7511", None, &answers);
    assert_eq!(
        allowed,
        [answers[0].parse().unwrap(), answers[1].parse().unwrap()]
    );
    let elsewhere = dialled(&policy, "dtn.example.com:7511", None, &answers);
    assert_eq!(
        elsewhere,
        [answers[1].parse().unwrap()],
        "a network grants its addresses whatever the name"
    );
}

#[test]
fn next_hops_default_to_direct() {
    let direct = policy_of("to = [\"dtn.example.org\"]");
    assert!(
        dialled(
            &direct,
            "dtn.example.org:7511",
            Some("198.51.100.9:7510"),
            &["198.51.100.9:7510"]
        )
        .is_empty()
    );
    let through = policy_of("to = [\"dtn.example.org\"]\nnext_hops = [\"198.51.100.0/24\"]");
    assert_eq!(
        dialled(
            &through,
            "dtn.example.org:7511",
            Some("198.51.100.9:7510"),
            &["198.51.100.9:7510"]
        )
        .len(),
        1
    );
    assert!(
        dialled(
            &through,
            "dtn.example.org:7511",
            Some("198.51.100.9:22"),
            &["198.51.100.9:22"]
        )
        .is_empty()
    );
    assert!(
        dialled(
            &through,
            "dtn.example.org:7511",
            None,
            &["203.0.113.1:7511"]
        )
        .is_empty()
    );
    assert!(
        dialled(
            &through,
            "other.example.org:7511",
            Some("198.51.100.9:7510"),
            &["198.51.100.9:7510"]
        )
        .is_empty(),
        "the destination counts too when another depot will dial it"
    );
}

#[test]
fn next_hop_ports() {
    for (text, port, allowed) in [
        ("198.51.100.0/24:99", 99, true),
        ("198.51.100.0/24:99", 7510, false),
        ("198.51.100.0/24:*", 1, true),
        ("198.51.100.9", 7510, true),
    ] {
        let policy = policy_of(&format!("to = [\"*\"]\nnext_hops = [\"{text}\"]"));
        let hop = format!("198.51.100.9:{port}");
        assert_eq!(
            !dialled(&policy, "d.example:7511", Some(&hop), &[&hop]).is_empty(),
            allowed,
            "{text} {port}"
        );
    }
    let six = policy_of("to = [\"*\"]\nnext_hops = [\"2001:db8::/32\", \"[2001:db9::1]:99\"]");
    for (hop, allowed) in [
        ("[2001:db8::7]:7510", true),
        ("[2001:db9::1]:99", true),
        ("[2001:db9::1]:7510", false),
    ] {
        assert_eq!(
            !dialled(&six, "d.example:7511", Some(hop), &[hop]).is_empty(),
            allowed,
            "{hop}"
        );
    }
}

fn server_policy(rule: &str) -> Policy {
    policy_of(&format!("{rule}\nports = [80, \"8000-8100\"]"))
}

/// Returns the addresses that an off-ramp may dial for `server`, if it resolves to `resolved`.
fn let_off(
    policy: &Policy,
    server: &str,
    resolved: &[&str],
    own: &OwnAddresses,
) -> Vec<SocketAddr> {
    let server: Endpoint = server.parse().expect("server");
    let addresses: Vec<SocketAddr> = resolved
        .iter()
        .map(|a| a.parse().expect("address"))
        .collect();
    let asked = AccessRequest::Server(&server);
    let rules = policy.candidates(&key(), asked, own).rules;
    rules
        .iter()
        .flat_map(|rule| rule.allowed(asked, &addresses, own))
        .collect()
}

#[test]
fn servers_apply_to_offramps_destinations_to_depots() {
    let servers = server_policy("servers = [\"192.0.2.0/24\"]");
    assert!(
        servers.has_rules_for(&key(), Role::Offramp) && !servers.has_rules_for(&key(), Role::Depot)
    );
    assert_eq!(
        (
            servers.count_rules(Role::Offramp),
            servers.count_rules(Role::Depot)
        ),
        (1, 0)
    );
    assert!(dialled(&servers, "192.0.2.1:80", None, &["192.0.2.1:80"]).is_empty());
    let own = OwnAddresses::default();
    assert_eq!(
        let_off(&servers, "192.0.2.1:80", &["192.0.2.1:80"], &own).len(),
        1
    );
    assert!(let_off(&servers, "192.0.2.1:81", &["192.0.2.1:81"], &own).is_empty());
    let depots = policy_of("to = [\"192.0.2.0/24\"]\nports = [80]");
    assert!(let_off(&depots, "192.0.2.1:80", &["192.0.2.1:80"], &own).is_empty());
    assert!(!depots.has_rules_for(&key(), Role::Offramp));
}

#[test]
fn inside_server_needs_a_rule_that_names_it() {
    let own: OwnAddresses = ["20.0.0.1"]
        .iter()
        .map(|a| a.parse::<std::net::IpAddr>().expect("address"))
        .collect();
    let everywhere = server_policy("servers = [\"0.0.0.0/0\", \"::/0\", \"*\"]");
    let beside = server_policy("servers = [\"127.0.0.1\", \"169.254.0.0/16\", \"10.0.0.0/8\"]");
    for (address, by_everywhere, by_name, by_beside) in [
        ("127.0.0.1", false, false, true),
        ("127.0.0.2", false, false, false),
        ("169.254.169.254", false, false, true),
        ("10.1.2.3", true, true, true),
        ("20.0.0.1", false, false, false),
        ("20.0.0.2", true, true, false),
        ("224.0.0.1", false, false, false),
    ] {
        let at = format!("{address}:80");
        let asked =
            |policy: &Policy, server: &str| !let_off(policy, server, &[&at], &own).is_empty();
        assert_eq!(asked(&everywhere, &at), by_everywhere, "{address}");
        // With a network in the rule, a name may resolve into it; otherwise only to global
        // addresses.
        assert_eq!(asked(&everywhere, "db.example:80"), by_name, "{address}");
        assert_eq!(asked(&beside, &at), by_beside, "{address}");
    }
    let names = server_policy("servers = [\"*.example\"]");
    assert!(
        let_off(
            &names,
            "db.example:80",
            &["10.1.2.3:80", "127.0.0.1:80"],
            &own
        )
        .is_empty()
    );
    assert_eq!(
        let_off(
            &names,
            "db.example:80",
            &["10.1.2.3:80", "20.0.0.2:80"],
            &own
        )
        .len(),
        1
    );
}

#[test]
fn rule_is_for_depots_or_offramps() {
    for (rule, field) in [
        ("servers = [\"192.0.2.1\"]", "ports"),
        (
            "servers = [\"192.0.2.1\"]\nto = [\"192.0.2.1\"]\nports = [80]",
            "servers",
        ),
        (
            "servers = [\"192.0.2.1\"]\nports = [80]\nnext_hops = [\"direct\"]",
            "next_hops",
        ),
        ("ports = [80]", "to"),
        ("servers = []\nports = [80]", "servers"),
    ] {
        let text = format!("[[allow]]\nprincipals = [\"{KEY}\"]\n{rule}\n");
        let error = Policy::parse(&text, Path::new("p.toml"))
            .expect_err(rule)
            .to_string();
        assert!(
            error.contains(&format!("allow[1].{field}: ")),
            "{rule}: {error}"
        );
    }
}

proptest! {
    /// A look-up is requested only if it could grant something, and only candidates are granted.
    #[test]
    fn grants_are_a_subset_of_candidates(
        to in proptest::sample::subsequence(
            vec![
                "0.0.0.0/0", "::/0", "10.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "20.0.0.1",
                "*.example.org", "*"
            ], 1..4),
        hops in proptest::sample::subsequence(
            vec!["direct", "20.0.0.0/8", "depot.example.org", "ff00::/8"],
            1..3
        ),
        destination in proptest::sample::select(
            vec![
                "20.0.0.1:7511", "10.0.0.1:7511", "127.0.0.1:7511", "dtn.example.org:7511",
                "localhost:7511", "[::1]:7511"
            ]),
        hop in proptest::sample::select(vec![
            None,
            Some("20.0.0.1:7510"),
            Some("depot.example.org:7510"),
            Some("[::1]:7510")
        ]),
        answer: std::net::IpAddr,
        own: Vec<std::net::IpAddr>,
    ) {
        let policy = policy_of(&format!("to = {to:?}\nnext_hops = {hops:?}"));
        let own: OwnAddresses = own.into_iter()
            .chain(["20.0.0.1".parse().expect("address")])
            .collect();
        let destination: Endpoint = destination.parse().expect("destination");
        let hop = hop.map(
            |hop| longhaul_proto::Hop {
                endpoint: hop.parse().expect("hop"),
                strict: true,
                key: None,
                transport: None,
            }
        );
        let next = hop.as_ref().map_or(NextReceiver::Destination(&destination), NextReceiver::Hop);
        let endpoint = next.endpoint().expect("somewhere");
        let address = match endpoint.host {
            Host::Ip(address) => address,
            Host::Name(_) => answer,
        };
        let candidates = policy
            .candidates(&key(), AccessRequest::Relay { destination: &destination, next }, &own)
            .rules;
        let addresses = [SocketAddr::new(address, endpoint.port)];
        let allowed = |rule: &Arc<Rule>| !rule
            .allowed(AccessRequest::Relay { destination: &destination, next }, &addresses, &own)
            .is_empty();
        if matches!(endpoint.host, Host::Ip(_)) {
            prop_assert!(candidates.iter().all(allowed), "an address is granted or not");
        }
        if candidates.is_empty() && hop.is_none() && hops.contains(&"direct") {
            prop_assert!(!policy.rules.iter().any(allowed), "nothing could be granted");
        }
    }
}
