//! Tests of the classification, range by range, and of the rules that grant each class.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

fn own(addresses: &[&str]) -> OwnAddresses {
    addresses.iter().map(|address| ip(address)).collect()
}

/// Returns true if a rule that names `network` grants `address`, on a machine with the addresses
/// `own`.
fn network_leads(network: &str, address: &str, own: &OwnAddresses) -> bool {
    leads(Some(&network.parse().expect(network)), ip(address), own)
}

/// Returns true if a rule that names a name grants `address`, to which the name resolved.
fn name_leads(address: &str) -> bool {
    leads(None, ip(address), &OwnAddresses::default())
}

fn reach(address: &str) -> Reach {
    Reach::of(ip(address).to_canonical(), &OwnAddresses::default())
}

#[test]
fn special_ranges_are_classified_from_end_to_end() {
    for (range, first, last) in [
        ("RFC 1918", "10.0.0.0", "10.255.255.255"),
        ("RFC 1918", "172.16.0.0", "172.31.255.255"),
        ("RFC 1918", "192.168.0.0", "192.168.255.255"),
        ("RFC 6598, shared", "100.64.0.0", "100.127.255.255"),
        ("RFC 6890, protocol assignments", "192.0.0.0", "192.0.0.255"),
        ("RFC 5737, documentation", "192.0.2.0", "192.0.2.255"),
        ("RFC 5737, documentation", "198.51.100.0", "198.51.100.255"),
        ("RFC 5737, documentation", "203.0.113.0", "203.0.113.255"),
        ("RFC 7526, 6to4 relays", "192.88.99.0", "192.88.99.255"),
        ("RFC 2544, benchmarking", "198.18.0.0", "198.19.255.255"),
        (
            "RFC 2928, protocol assignments",
            "2001:1::",
            "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 5180, benchmarking",
            "2001:2::",
            "2001:2:0:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 4843, ORCHID",
            "2001:10::",
            "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 7343, ORCHIDv2",
            "2001:20::",
            "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 9374, drones",
            "2001:30::",
            "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 3849, documentation",
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 9637, documentation",
            "3fff::",
            "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 8215, local NAT64",
            "64:ff9b:1::",
            "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 9602, segment routing",
            "5f00::",
            "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 4193, unique local",
            "fc00::",
            "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "RFC 3879, site-local",
            "fec0::",
            "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "not assigned",
            "4000::",
            "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "not assigned",
            "200::",
            "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
    ] {
        for address in [first, last] {
            assert_eq!(reach(address), Reach::Private, "{range}: {address}");
            assert!(!name_leads(address), "{range}: {address}");
            let all = if address.contains(':') {
                "::/0"
            } else {
                "0.0.0.0/0"
            };
            assert!(network_leads(all, address, &own(&[])), "{range}: {address}");
        }
    }
}

#[test]
fn addresses_beside_special_ranges_are_global() {
    for address in [
        "9.255.255.255",
        "11.0.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.1.255",
        "192.0.3.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "192.88.98.255",
        "192.88.100.0",
        "198.17.255.255",
        "198.20.0.0",
        "1.0.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "223.255.255.255",
        "2000::",
        "2001:200::",
        "2001:db7:ffff::",
        "2001:db9::",
        "2003::",
        "3ffe:ffff::",
        "3fff:1000::",
        // AS112 (RFC 7534, RFC 7535) and AMT (RFC 7450) are globally reachable.
        "192.31.196.1",
        "192.52.193.1",
        "192.175.48.1",
        "2620:4f:8000::1",
    ] {
        assert_eq!(reach(address), Reach::Global, "{address}");
        assert!(name_leads(address), "{address}");
    }
}

#[test]
fn non_destinations_are_never_granted() {
    for address in [
        "0.0.0.0",
        "0.255.255.255",
        "224.0.0.0",
        "239.255.255.255",
        "240.0.0.0",
        "255.255.255.255",
        "::",
        "ff00::",
        "ff02::1",
        "100::",
        "100::ffff:ffff:ffff:ffff",
        "100:0:0:1::",
        "100:0:0:1:ffff:ffff:ffff:ffff",
        // IPv4-compatible.
        "::2",
        "::10.0.0.1",
        "::127.0.0.1",
    ] {
        assert_eq!(reach(address), Reach::Never, "{address}");
        for network in ["0.0.0.0/0", "::/0", address] {
            assert!(
                !network_leads(network, address, &own(&[address])),
                "{network}: {address}"
            );
        }
        assert!(
            leads_nowhere(&address.parse().expect("network")),
            "{address}"
        );
    }
    for network in ["0.0.0.0/0", "::/0", "::1", "128.0.0.0/1", "192.0.2.0/24"] {
        assert!(
            !leads_nowhere(&network.parse().expect("network")),
            "{network}"
        );
    }
}

#[test]
fn loopback_and_link_need_a_network_of_their_own() {
    for (wide, narrow, address) in [
        ("0.0.0.0/0", "127.0.0.0/8", "127.0.0.1"),
        ("0.0.0.0/0", "127.0.0.1", "::ffff:127.0.0.1"),
        ("126.0.0.0/7", "127.0.0.0/8", "127.255.255.255"),
        ("0.0.0.0/0", "169.254.0.0/16", "169.254.169.254"),
        ("::/0", "::1", "::1"),
        ("::/127", "::1", "::1"),
        ("::/0", "fe80::/10", "fe80::1"),
        ("fe00::/9", "fe80::/64", "fe80::1"),
    ] {
        assert!(
            !network_leads(wide, address, &own(&[])),
            "{wide} must not mean {address}"
        );
        assert!(
            network_leads(narrow, address, &own(&[])),
            "{narrow} means {address}"
        );
        assert!(!name_leads(address), "{address}");
        // The same holds on the machine that has these addresses.
        assert!(
            !network_leads(wide, address, &own(&[address])),
            "{wide} must not mean {address}"
        );
    }
    assert!(network_leads(
        "127.0.0.0/8",
        "127.0.0.9",
        &own(&["127.0.0.1"])
    ));
}

#[test]
fn own_addresses_need_a_network_of_their_own() {
    let own = own(&[
        "20.0.0.1",
        "10.0.0.4",
        "10.0.0.5",
        "::ffff:10.0.0.9",
        "2600::1",
        "fe80::1",
    ]);
    for (address, wide) in [
        ("20.0.0.1", "0.0.0.0/0"),
        ("20.0.0.1", "20.0.0.0/31"),
        ("::ffff:20.0.0.1", "0.0.0.0/0"),
        ("10.0.0.5", "10.0.0.0/8"),
        ("10.0.0.5", "10.0.0.4/30"),
        ("10.0.0.9", "10.0.0.8/31"),
        ("2600::1", "2000::/3"),
        ("2600::1", "2600::/64"),
        ("2600::1", "2600::/127"),
        ("fe80::1", "fe80::/10"),
    ] {
        assert!(
            !network_leads(wide, address, &own),
            "{wide} must not mean {address}"
        );
        assert!(
            network_leads(wide, address, &OwnAddresses::default()),
            "{wide} means {address} elsewhere"
        );
        let itself = ip(address).to_canonical().to_string();
        assert!(
            network_leads(&itself, address, &own),
            "{itself} means {address}"
        );
        assert!(
            !leads(None, ip(address), &own),
            "no name leads to {address}"
        );
    }
    assert!(
        network_leads("10.0.0.4/31", "10.0.0.5", &own),
        "a network of nothing else"
    );
    assert!(
        network_leads("20.0.0.0/8", "20.0.0.2", &own),
        "the neighbours are reached"
    );
}

/// Returns, for each range with embedded addresses, the address that embeds `v4` and the network
/// that embeds `v4/bits`.
fn carriers(v4: Ipv4Addr, bits: u8) -> [(&'static str, Ipv6Addr, Network); 4] {
    let [a, b, c, d] = v4.octets().map(u16::from);
    let (high, low) = (a << 8 | b, c << 8 | d);
    [
        ("NAT64", [0x64, 0xff9b, 0, 0, 0, 0, high, low], 96),
        ("IPv4-translated", [0, 0, 0, 0, 0xffff, 0, high, low], 96),
        ("6to4", [0x2002, high, low, 0, 0, 0, 0, 1], 16),
        (
            "Teredo client",
            [0x2001, 0, 0x1400, 1, 0, 0, !high, !low],
            96,
        ),
    ]
    .map(|(what, groups, at)| {
        let [a, b, c, d, e, f, g, h] = groups;
        let address = Ipv6Addr::new(a, b, c, d, e, f, g, h);
        (what, address, Network::around(address.into(), at + bits))
    })
}

#[test]
fn embedded_addresses_decide_the_class() {
    let own = own(&["20.0.0.9"]);
    for (v4, bits) in [
        ("127.0.0.1", 8),
        ("169.254.169.254", 16),
        ("10.1.2.3", 8),
        ("192.168.1.1", 16),
        ("100.64.0.1", 10),
        ("203.0.113.9", 24),
        ("20.0.0.9", 32),
    ] {
        for (what, address, range) in carriers(v4.parse().expect(v4), bits) {
            assert!(
                !leads(None, address.into(), &own),
                "{what}: no name leads to {address} ({v4})"
            );
            let carrying = CARRIERS
                .iter()
                .find(|carrier| carrier.range.contains(address.into()));
            for wide in [Network::v6([0; 8], 0), carrying.expect(what).range] {
                assert!(
                    !leads(Some(&wide), address.into(), &own),
                    "{what}: {wide:?} must not mean {address} ({v4})"
                );
            }
            assert!(
                leads(Some(&range), address.into(), &own),
                "{what}: {range:?} means {address} ({v4})"
            );
        }
    }
    for v4 in ["0.0.0.0", "224.0.0.1", "255.255.255.255"] {
        for (what, address, range) in carriers(v4.parse().expect(v4), 32) {
            assert!(
                !leads(Some(&range), address.into(), &own),
                "{what}: {address} carries {v4}"
            );
        }
    }
    for (what, address, _) in carriers(Ipv4Addr::new(20, 0, 0, 1), 32) {
        assert!(
            network_leads("::/0", &address.to_string(), &own),
            "{what}: {address}"
        );
        assert_eq!(
            leads(None, address.into(), &own),
            what == "NAT64",
            "{what}: {address}"
        );
    }
}

#[test]
fn both_teredo_addresses_count() {
    let server_inside = "2001:0:a00:1::ebff:fffe"; // by way of 10.0.0.1 to 20.0.0.1
    assert!(!network_leads("::/0", server_inside, &own(&[])));
    assert!(!network_leads("2001::/32", server_inside, &own(&[])));
    assert!(network_leads("2001:0:a00::/40", server_inside, &own(&[])));
}

#[test]
fn own_address_that_embeds_another_is_own() {
    let own = own(&["2002:1400:1::1"]);
    assert!(!network_leads("2002:1400:1::/48", "2002:1400:1::1", &own));
    assert!(network_leads("2002:1400:1::1", "2002:1400:1::1", &own));
}

#[test]
fn local_addresses_are_the_machines_and_its_links() {
    let own = own(&["192.0.2.7", "2001:db8::7"]);
    for local in [
        "127.0.0.1",
        "127.255.255.255",
        "::1",
        "169.254.0.1",
        "fe80::1",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "192.0.2.7",
        "2001:db8::7",
        "::ffff:192.0.2.7",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::192.0.2.7",
        "2002:c000:207::1",
    ] {
        assert!(is_local(ip(local), &own), "{local}");
    }
    for elsewhere in [
        "192.0.2.8",
        "2001:db8::8",
        "10.0.0.1",
        "198.51.100.1",
        "fd00::1",
        "2600::1",
    ] {
        assert!(!is_local(ip(elsewhere), &own), "{elsewhere}");
    }
}
