#![allow(clippy::unwrap_used, clippy::panic)]

use longhaul_control_api::domains::PeerDomain;

use super::*;

fn topology(name: &str, peers: &[(&str, &SigningKey)], made_ms: u64) -> DomainTopology {
    let peers = peers.iter().map(|(domain, key)| PeerDomain {
        domain: domain.parse().unwrap(),
        key: key.public().to_string(),
    });
    DomainTopology {
        domain: name.parse().unwrap(),
        made_ms,
        peers: peers.collect(),
        edges: Vec::new(),
        crossings: Vec::new(),
        accesses: Vec::new(),
        forecasts: Vec::new(),
    }
}

#[test]
fn changed_topologies_are_refused() {
    let key = SigningKey::generate().unwrap();
    let signed = sign(&topology("a", &[], 1_000), &key).unwrap();
    assert!(check(signed.clone(), None, 2_000).is_ok());
    let changed = SignedTopology {
        document: signed.document.replace("1000", "1001"),
        ..signed.clone()
    };
    let domain: DomainName = "a".parse().unwrap();
    assert_eq!(
        check(changed, None, 2_000).unwrap_err(),
        PublicationFault::Signature(domain.clone())
    );
    let other = SignedTopology {
        key: SigningKey::generate().unwrap().public().to_string(),
        ..signed.clone()
    };
    assert!(check(other, None, 2_000).is_err());
    for now in [
        1_000 + MAX_AGE_MS + 1,
        1_000_u64.saturating_sub(MAX_AHEAD_MS + 1),
    ] {
        let verdict = check(signed.clone(), None, now);
        assert_eq!(verdict.is_err(), now > 1_000, "{now}");
    }
    let garbage = SignedTopology {
        signature: "é".repeat(64),
        ..signed
    };
    assert_eq!(
        check(garbage, None, 2_000).unwrap_err(),
        PublicationFault::Signature(domain)
    );
}

#[test]
fn keys_are_learned_from_neighbours_and_the_nearest_counts() {
    let [a, b, c, forged] = std::array::from_fn(|_| SigningKey::generate().unwrap());
    let accept = |topology: &DomainTopology, key: &SigningKey| {
        check(sign(topology, key).unwrap(), None, 1_000).unwrap()
    };
    let found = vec![
        accept(&topology("a", &[("b", &b)], 1_000), &a),
        accept(&topology("b", &[("c", &c)], 1_000), &b),
        accept(&topology("c", &[("b", &forged)], 1_000), &c),
        // Nobody near names this key for these domains.
        accept(&topology("b", &[], 1_001), &forged),
        accept(&topology("x", &[], 1_000), &forged),
    ];
    let peers = BTreeMap::from([("b".parse().unwrap(), b.public())]);
    let trusted = trusted(&"a".parse().unwrap(), &peers, a.public(), found);
    let names: Vec<String> = trusted.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(trusted[&"b".parse::<DomainName>().unwrap()].key, b.public());
}
