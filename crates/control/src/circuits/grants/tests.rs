use serde_json::json;

use super::*;

#[test]
fn each_path_is_granted_for_its_depots() {
    let [signer, depot, other] = [(); 3].map(|()| SigningKey::generate().unwrap());
    let map: Map = serde_json::from_value(json!({
        "sites": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
        "depots": [
            {"name": "on-it", "key": depot.public().to_string(), "site": "b", "addresses": []},
            {"name": "elsewhere", "key": other.public().to_string(), "site": "c", "addresses": []},
        ],
    }))
    .unwrap();
    let reservation = |provision: &str| -> Reservation {
        serde_json::from_value(json!({
            "id": 12, "owner": "k", "owner_name": "ana", "from": "dtn1", "to": "store",
            "wish": {"rate": {"rate_bps": 5}},
            "start_ms": 0, "end_ms": 100, "paths": 1, "disjoint": "no",
            "preference": "fewest-hops", "created_ms": 0,
            "pieces": [
                {
                    "start_ms": 0,
                    "end_ms": 50,
                    "paths": [{"rate_bps": 4, "links": [{"link": "ab", "from": "a", "to": "b"}]}]
                },
                {
                    "start_ms": 50,
                    "end_ms": 100,
                    "paths": [{"rate_bps": 5, "links": [{"link": "ab", "from": "a", "to": "b"}]}]
                },
            ],
            "state": {"reserve": "start", "provision": provision, "life": "created"},
        }))
        .unwrap()
    };
    let holder = other.public();
    let found = grants(&reservation("provisioned"), &map, holder, &signer, 60).unwrap();
    assert_eq!(
        (found.start_ms, found.items[0].depots.clone()),
        (50, vec!["on-it".to_owned()])
    );
    assert_eq!(found.items[0].route, None, "nobody knows where it listens");
    let grant: CircuitGrant = found.items[0].grant.as_ref().unwrap().parse().unwrap();
    assert_eq!((grant.rate, &grant.circuit[..]), (5, &b"12"[..]));
    let trusts = |issuer: &PublicKey| *issuer == signer.public();
    assert_eq!(grant.check(&holder, &depot.public(), 60, trusts), Ok(()));
    let none = |reservation: &Reservation, now| {
        grants(reservation, &map, holder, &signer, now).unwrap_err()
    };
    assert_eq!(none(&reservation("released"), 60), NoGrants::Released(12));
    assert_eq!(none(&reservation("provisioned"), 100), NoGrants::Over(12));
}

/// Returns a reservation of an hour, from second 100 on, over one path or two.
fn hour(links: &[&str], life: &str) -> Reservation {
    let path =
        |link: &&str| json!({"rate_bps": 4, "links": [{"link": link, "from": "a", "to": "b"}]});
    let paths: Vec<_> = links.iter().map(path).collect();
    serde_json::from_value(json!({
        "id": 12, "owner": "k", "owner_name": "ana", "from": "dtn1", "to": "store",
        "wish": {"rate": {"rate_bps": 5}}, "start_ms": 100_000, "end_ms": 3_700_000, "paths": 1,
        "disjoint": "no", "preference": "fewest-hops", "created_ms": 0,
        "pieces": [{"start_ms": 100_000, "end_ms": 3_700_000, "paths": paths}],
        "state": {"reserve": "start", "provision": "provisioned", "life": life},
    }))
    .unwrap()
}

#[test]
fn grants_last_a_minute_and_are_renewed() {
    let [signer, depot, other, holder] = [(); 4].map(|()| SigningKey::generate().unwrap());
    let map: Map = serde_json::from_value(json!({
        "sites": [{"name": "a"}, {"name": "b"}],
        "depots": [{
            "name": "on-it",
            "key": depot.public().to_string(),
            "site": "b",
            "addresses": []
        }],
    }))
    .unwrap();
    let one = hour(&["ab"], "created");
    let found = |now| grants(&one, &map, holder.public(), &signer, now).unwrap();
    assert_eq!(found(40_000).items[0].grant, None, "it begins in a minute");
    assert_eq!(
        (found(40_000).start_ms, found(40_000).end_ms),
        (100_000, 160_000)
    );
    for (now, end) in [
        (40_001, 100_001),
        (200_000, 260_000),
        (3_650_000, 3_700_000),
    ] {
        let text = found(now).items[0].grant.clone().unwrap();
        let grant: CircuitGrant = text.parse().unwrap();
        assert_eq!(grant.end_unix_ms, end, "at {now}");
        assert_eq!(found(now).end_ms, end, "at {now}");
    }
    let renewed = |of: &Reservation, circuit: &str, depot: &SigningKey, now| {
        let circuit = circuit.parse().unwrap();
        renewal(
            of,
            circuit,
            &depot.public(),
            &map,
            holder.public(),
            &signer,
            now,
        )
    };
    let text = renewed(&one, "12", &depot, 200_000).unwrap();
    let grant: CircuitGrant = text.parse().unwrap();
    assert_eq!(
        (grant.end_unix_ms, grant.holder),
        (260_000, holder.public())
    );
    let ended = [
        (
            renewed(&one, "12", &other, 200_000),
            NoGrants::Elsewhere(12),
        ),
        (
            renewed(&one, "12.1", &depot, 200_000),
            NoGrants::Elsewhere(12),
        ),
        (renewed(&one, "12", &depot, 10_000), NoGrants::Early(12, 90)),
        (renewed(&one, "12", &depot, 3_700_000), NoGrants::Over(12)),
    ];
    for (found, why) in ended {
        assert_eq!(found, Err(why));
    }
    let cancelled = hour(&["ab"], "terminated");
    assert_eq!(
        renewed(&cancelled, "12", &depot, 200_000),
        Err(NoGrants::Ended(12))
    );
    let two = hour(&["ab", "cd"], "created");
    renewed(&two, "12.2", &depot, 200_000).unwrap();
    assert_eq!(
        renewed(&two, "12", &depot, 200_000),
        Err(NoGrants::Elsewhere(12))
    );
}

#[test]
fn a_circuit_has_one_name() {
    for name in ["12", "12.1", "18446744073709551615"] {
        assert_eq!(name.parse::<CircuitName>().unwrap().to_string(), name);
    }
    for text in [
        "",
        "+12",
        "012",
        "12.",
        "12.01",
        "12.1.1",
        "18446744073709551616",
        "twelve",
    ] {
        assert_eq!(text.parse::<CircuitName>(), Err(NotACircuit), "{text}");
    }
}

#[test]
fn route_passes_one_depot_per_site_in_order() {
    let path: ReservedPath = serde_json::from_value(json!({"rate_bps": 4, "links": [
        {"link": "ca", "from": "c", "to": "a"}, {"link": "ab", "from": "a", "to": "b"}]}))
    .unwrap();
    let keys = [(); 5].map(|()| SigningKey::generate().unwrap().public());
    let depot = |at: usize, name: &str, site: &str, is_stale: bool| {
        let state = match is_stale {
            true => json!({"state": "stale", "heard": 0.0, "until": 1.0}),
            false => json!({"state": "listed"}),
        };
        json!({"name": name, "key": keys[at].to_string(), "site": site, "state": state,
            "addresses": [{"endpoint": format!("{name}.example:7510")}]})
    };
    let map: Map = serde_json::from_value(json!({
        "sites": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}],
        "depots": [depot(0, "a0", "a", true), depot(1, "a1", "a", false),
                   depot(2, "a2", "a", false), depot(3, "c0", "c", false),
            depot(4, "d0", "d", false)],
    }))
    .unwrap();
    let on_it = OnPath::of(&path, &map);
    assert_eq!(on_it.names(), ["c0", "a0", "a1", "a2"]);
    let [c0, a1] = [(3, "c0"), (1, "a1")]
        .map(|(at, name): (usize, &str)| format!("{}@{name}.example:7510", keys[at]));
    let way = on_it.route().map(|route| route.to_string());
    assert_eq!(way, Some(format!("{c0},{a1}")));
    let nowhere = OnPath { all: Vec::new() };
    assert_eq!(nowhere.route(), None);
}
