//! Tests of which depots a table adds.

#![allow(clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use longhaul_proto::{Route, ServiceName, SessionId};
use proptest::prelude::*;

use super::*;

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32])
}

fn table(text: &str) -> ForwardingTable {
    ForwardingTable::parse(text, Path::new("f.toml")).expect(text)
}

fn entry(to: &str, next_hop: &str) -> String {
    format!("[[forward]]\nto = [\"{to}\"]\nnext_hops = [\"{next_hop}\"]\n")
}

/// Returns an OPEN as the first depot of `route` receives it.
fn open_via(route: &str) -> Open {
    let open = Open::new(
        SessionId::from_bytes([7; 16]),
        ServiceName::COPY,
        route.parse::<Route>().expect(route),
        "store.example:7511".parse().expect("destination"),
        Duration::from_secs(10),
    );
    open.for_first_hop()
}

/// Returns the depot that `table` adds at the first depot of `route`, as text.
fn added(table: &ForwardingTable, route: &str) -> Option<String> {
    let hop = table.next_hop(&open_via(route), &key(1))?;
    Some(hop.to_string())
}

#[test]
fn only_loose_hops_get_a_depot() {
    let table = table(&entry("*", "added.example"));
    let hop = Some("added.example:7510".to_owned());
    assert_eq!(added(&table, "one.example,~two.example"), hop);
    assert_eq!(added(&table, "one.example,~192.0.2.1"), hop);
    assert_eq!(added(&table, "one.example,two.example"), None);
    assert_eq!(
        added(&table, "one.example"),
        None,
        "the destination is strict"
    );
    // The initiator dials the first hop itself.
    assert_eq!(added(&table, "~one.example,two.example"), None);
}

#[test]
fn the_most_specific_pattern_applies() {
    let text = [
        entry("*", "any.example"),
        entry("*.example", "suffix.test"),
        entry("*.far.example", "longer.test"),
        entry("a.far.example", "name.test"),
        entry("10.0.0.0/8", "wide.test"),
        entry("10.1.0.0/16", "quic:narrow.test:99"),
        entry("10.1.2.3", "direct"),
    ];
    let table = table(&text.concat());
    assert_eq!(table.len(), 7);
    for (loose, hop) in [
        ("elsewhere.org", "any.example:7510"),
        ("b.example", "suffix.test:7510"),
        ("b.far.example", "longer.test:7510"),
        ("A.far.example.", "name.test:7510"),
        ("192.0.2.1", "any.example:7510"),
        ("10.2.0.1", "wide.test:7510"),
        ("[::ffff:10.2.0.1]", "wide.test:7510"),
        ("10.1.0.1", "quic:narrow.test:99"),
    ] {
        let route = format!("one.test,~{loose}");
        assert_eq!(added(&table, &route).as_deref(), Some(hop), "{loose}");
    }
    assert_eq!(added(&table, "one.test,~10.1.2.3"), None, "direct");
}

#[test]
fn listed_hops_and_the_destination_are_not_added() {
    let keyed = format!("{}@added.example", key(9));
    let table = table(&entry("*", &keyed));
    for route in [
        "one.example,~ADDED.example.".to_owned(),
        "added.example,~two.example".to_owned(),
        format!("one.example,~{}@two.example", key(9)),
        format!("{}@one.example,~two.example,three.example", key(9)),
    ] {
        assert_eq!(added(&table, &route), None, "{route}");
    }
    let mut open = open_via("one.example,~two.example");
    assert!(table.next_hop(&open, &key(1)).is_some());
    assert!(table.next_hop(&open, &key(9)).is_none(), "the depot itself");
    open.destination = "added.example:7510".parse().expect("destination");
    assert!(table.next_hop(&open, &key(1)).is_none());
}

#[test]
fn a_second_addition_needs_a_key() {
    let (nameless, keyed) = ("b.example", format!("{}@b.example", key(9)));
    let mut open = open_via("one.example,~two.example");
    open.passed = vec![key(2)];
    let hop = |next_hop: &str| {
        table(&entry("*", next_hop))
            .next_hop(&open, &key(3))
            .cloned()
    };
    assert_eq!(hop(nameless), None, "b.example may have been passed");
    assert!(hop(&keyed).is_some());
    open.passed.push(key(9));
    assert_eq!(table(&entry("*", &keyed)).next_hop(&open, &key(3)), None);
}

#[test]
fn errors_name_line_field_and_remedy() {
    let begin = "[[forward]]\nto = [\"*\"]\n";
    for (text, message) in [
        (
            "[[forward]]\nto = []\nnext_hops = [\"d\"]",
            "f.toml:2: forward[1].to: is empty",
        ),
        (
            "[[forward]]\nto = [\"a b\"]\nnext_hops = [\"d\"]",
            "f.toml:2: forward[1].to: ",
        ),
        ("[[forward]]\nto = [\"a\"]", "f.toml:1: missing field"),
        ("x = 1", "f.toml:1: unknown field"),
        (
            &format!("{begin}next_hops = []"),
            "f.toml:3: forward[1].next_hops: is empty: write",
        ),
        (
            &format!("{begin}next_hops = [\"~d\"]"),
            "is not one depot: write HOST",
        ),
        (
            &format!("{begin}next_hops = [\"a,b\"]"),
            "is not one depot: write HOST",
        ),
        (
            &format!("{begin}next_hops = [\"lhk1:x@d\"]"),
            "is no depot: invalid key",
        ),
        (
            &format!("{begin}next_hops = [\"a\", \"direct\"]"),
            "remove \"direct\"",
        ),
        (
            &format!("{begin}next_hops = [\"a\", \"b\", \"c\", \"d\", \"e\"]"),
            "more than 4",
        ),
        (
            &format!("{begin}next_hops = [\"a\"]\n{begin}next_hops = [\"b\"]"),
            "f.toml:5: forward[2].to: \"*\" is in entry 1 already",
        ),
    ] {
        let error = ForwardingTable::parse(text, Path::new("f.toml")).expect_err(text);
        assert!(error.to_string().contains(message), "{error}");
    }
}

proptest! {
    /// The longest of the matching prefixes decides, whatever the order of the table.
    #[test]
    fn the_longest_prefix_decides(
        address: u32,
        prefixes in proptest::collection::hash_map((any::<u32>(), 0u8..=32), any::<()>(), 1..12),
        near in proptest::collection::hash_set(0u8..=32, 0..8),
    ) {
        // Some prefixes are those of the address, so that several match.
        let drawn = prefixes.into_keys().chain(near.into_iter().map(|bits| (address, bits)));
        let mut networks: Vec<(u32, u8)> = drawn
            .map(|(base, bits)| {
                (base & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0), bits)
            })
            .collect();
        networks.sort_unstable();
        networks.dedup();
        let text: String = networks
            .iter()
            .enumerate()
            .map(|(index, (base, bits))| {
                let network = format!("{}/{bits}", Ipv4Addr::from_bits(*base));
                entry(&network, &format!("d{index}.example"))
            })
            .collect();
        let expected = networks
            .iter()
            .enumerate()
            .filter(|(_, (base, bits))| {
                (base ^ address).leading_zeros() >= u32::from(*bits)
            })
            .max_by_key(|(_, (_, bits))| *bits)
            .map(|(index, _)| format!("d{index}.example:7510"));
        let loose = IpAddr::V4(Ipv4Addr::from_bits(address));
        let route = format!("one.example,~{loose}");
        prop_assert_eq!(added(&table(&text), &route), expected);
    }

    /// Depots that add each other end at the loose hop: no depot is passed twice, and the limits
    /// that suffice for the listed hops still do (LH-ROUTE-4 to LH-ROUTE-6).
    #[test]
    fn tables_form_no_loops_and_keep_the_limits(
        next in proptest::collection::vec(
            proptest::collection::vec((0usize..8, any::<bool>()), 1..4),
            8,
        ),
        hop_limit in 0u8..24,
        passed in 0usize..32,
        ahead in 1usize..8,
    ) {
        let depot = |number: usize| format!("d{number}.example");
        let tables: Vec<ForwardingTable> = next
            .iter()
            .map(|hops| {
                let hops: Vec<String> = hops
                    .iter()
                    .map(|(number, keyed)| match keyed {
                        true => format!("\"{}@{}\"", key(*number as u8), depot(*number)),
                        false => format!("\"{}\"", depot(*number)),
                    })
                    .collect();
                table(&format!("[[forward]]\nto = [\"*\"]\nnext_hops = [{}]\n", hops.join(",")))
            })
            .collect();
        // Depot 0 is the first of the route; `passed` others come before it.
        let before = (0..passed).map(|number| format!("b{number}.example")).take(8);
        let hops: Vec<String> = before
            .chain([depot(0)])
            .chain((0..ahead).map(|number| format!("~far{number}.example")))
            .take(16)
            .collect();
        let mut open = open_via(&hops.join(","));
        let listed = hops.len() - ahead;
        open.cursor = listed as u8;
        open.passed = (0..listed - 1).map(|number| key(100 + number as u8)).collect();
        open.hop_limit = hop_limit;
        let suffices = usize::from(hop_limit) > ahead;
        let mut holder = 0;
        let mut added = 0;
        while let Some(hop) = tables[holder].next_hop(&open, &key(holder as u8)).cloned() {
            open = open.detour(key(holder as u8), Duration::ZERO).expect("within the limits");
            holder = (0..8)
                .find(|number| hop.endpoint.to_string().starts_with(&depot(*number)))
                .expect("a depot of the test");
            prop_assert!(!open.passed.contains(&key(holder as u8)), "a loop at {}", hop);
            added += 1;
            prop_assert!(suffices);
            prop_assert!(added < 8);
        }
        // The listed hops can be passed.
        if suffices {
            let mut rest = open;
            rest = rest.forwarded(key(holder as u8), Duration::ZERO).expect("the loose hop");
            for number in 0..ahead {
                let hop = key(200 + number as u8);
                rest = rest.forwarded(hop, Duration::ZERO).expect("a hop ahead");
            }
        }
    }

    /// At most 32 depots are passed, whatever the hop limit (LH-ROUTE-4).
    #[test]
    fn at_most_32_depots_are_passed(passed in 0usize..=32, ahead in 1usize..=8) {
        let loose: Vec<String> = (0..ahead).map(|number| format!("~far{number}.example")).collect();
        let mut open = open_via(&format!("one.example,{}", loose.join(",")));
        open.hop_limit = u8::MAX;
        open.passed = (0..passed).map(|number| key(number as u8)).collect();
        let keyed = format!("{}@added.example", key(200));
        let adds = table(&entry("*", &keyed)).next_hop(&open, &key(201)).is_some();
        // This depot, the added one and the hops ahead.
        prop_assert_eq!(adds, passed + 2 + ahead <= MAX_PASSED_DEPOTS);
    }
}
