//! What a policy allows, and what its errors say.

use super::*;

const KEY: &str = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn policy_of(rule: &str) -> Policy {
    let text = format!("[[allow]]\nprincipals = [\"{KEY}\"]\n{rule}\n");
    Policy::parse(&text, Path::new("p.toml")).expect(&text)
}

fn key() -> PublicKey {
    KEY.parse().expect("key")
}

/// The addresses that may be dialled for `destination` through `hop`, when `resolved` is what the next place resolves to.
fn dialled(policy: &Policy, destination: &str, hop: Option<&str>, resolved: &[&str]) -> Vec<SocketAddr> {
    let destination: Endpoint = destination.parse().expect("destination");
    let hop = hop.map(|hop| longhaul_proto::Hop {
        endpoint: hop.parse().expect("hop"),
        strict: true,
        key: None,
    });
    let next = hop.as_ref().map_or(Next::Destination(&destination), Next::Hop);
    let addresses: Vec<SocketAddr> = resolved.iter().map(|a| a.parse().expect("address")).collect();
    let rules = policy.candidates(&key(), &destination, next);
    rules
        .iter()
        .map(|rule| rule.allowed(next, &addresses))
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

#[test]
fn nothing_is_allowed_by_default() {
    assert!(!Policy::deny_all().knows(&key()));
    let other = PublicKey::from_bytes([7; 32]);
    let policy = policy_of("to = [\"192.0.2.0/24\"]");
    assert!(policy.knows(&key()) && !policy.knows(&other));
    let destination: Endpoint = "192.0.2.1:7511".parse().expect("endpoint");
    assert!(
        policy
            .candidates(&other, &destination, Next::Destination(&destination))
            .is_empty()
    );
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
        assert_eq!(!dialled(&some, &at, None, &[&at]).is_empty(), allowed, "{at}");
    }
    let none = policy_of("to = [\"192.0.2.0/24\"]\nports = []");
    assert!(dialled(&none, "192.0.2.1:80", None, &["192.0.2.1:80"]).is_empty());
}

#[test]
fn resolved_addresses_are_checked_one_by_one() {
    let policy = policy_of("to = [\"*.example.org\", \"10.1.0.0/16\"]");
    let answers = [
        "198.51.100.1:7511",
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
fn next_hops_are_direct_unless_said() {
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
    assert!(dialled(&through, "dtn.example.org:7511", None, &["203.0.113.1:7511"]).is_empty());
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

#[test]
fn sessions_of_a_rule_are_bounded_and_given_back() {
    let policy = policy_of("to = [\"192.0.2.0/24\"]\nmax_sessions = 1");
    let destination: Endpoint = "192.0.2.1:7511".parse().expect("endpoint");
    let rule = policy
        .candidates(&key(), &destination, Next::Destination(&destination))
        .remove(0);
    let first = rule.enter();
    assert!(first.is_some() && rule.enter().is_none());
    drop(first);
    assert!(rule.enter().is_some());
}

#[test]
fn errors_name_file_line_and_field() {
    let head = format!("# a comment\n[[allow]]\nprincipals = [\"{KEY}\"]\n");
    for (rest, expected) in [
        ("to = [\"10.0.0.0/8\"]\nports = [0]", "p.toml:5: allow[1].ports: "),
        (
            "to = [\"10.0.0.0/8\",\n  \"10.0.0.1/8\"]",
            "p.toml:5: allow[1].to: ",
        ),
        ("to = []", "p.toml:4: allow[1].to: "),
        (
            "to = [\"*\"]\nmax_rate = \"2 GB/s\"",
            "p.toml:5: allow[1].max_rate: ",
        ),
        (
            "to = [\"*\"]\nmax_sessions = 0",
            "p.toml:5: allow[1].max_sessions: ",
        ),
        (
            "to = [\"*\"]\nnext_hops = [\"x:y\"]",
            "p.toml:5: allow[1].next_hops: ",
        ),
        ("to = [\"*\"]\nport = [1]", "p.toml:5: unknown field `port`"),
        ("to = \"*\"", "p.toml:4: "),
        ("to = [", "p.toml:4: "),
    ] {
        let error = Policy::parse(&format!("{head}{rest}"), Path::new("p.toml"))
            .expect_err(rest)
            .to_string();
        assert!(
            error.starts_with(expected),
            "{error:?} should start with {expected:?}"
        );
        assert!(!error.contains('\n'), "{error:?} is more than a line");
    }
    let error = Policy::parse(
        "[[allow]]\nprincipals = [\"me\"]\nto = [\"*\"]",
        Path::new("p.toml"),
    )
    .expect_err("key");
    assert!(
        error
            .to_string()
            .starts_with("p.toml:2: allow[1].principals: \"me\" is not a public key"),
        "{error}"
    );
    let missing = Policy::load(Path::new("/nonexistent/p.toml")).expect_err("no file");
    assert!(
        missing
            .to_string()
            .starts_with("/nonexistent/p.toml: cannot read"),
        "{missing}"
    );
}

#[test]
fn rates_have_units() {
    let policy = policy_of("to = [\"*\"]\nmax_rate = \"1.5 Mbit/s\"");
    assert!(policy.rules[0].limits.is_some());
}
