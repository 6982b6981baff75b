//! Tests of reservations that a delegate makes for a principal.

use longhaul_proto::{DelegatedAction, Delegation, PublicKey, SigningKey};
use serde_json::{Value, json};

use crate::bench::{Bench, now_ms};

const MINUTE_MS: u64 = 60_000;
const PATH: &str = "/api/v1/reservations";
const RATE: u64 = 1_000_000_000;

/// A bench with a principal that may reserve, and a depot between two hosts.
struct World {
    bench: Bench,
    ana: SigningKey,
    depot: SigningKey,
}

impl World {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let ana = bench.principal("reserver", "ana").await;
        let depot = bench.principal("depot", "near").await;
        let both = json!({"capacity": {"rate_bps": 1e10}});
        let map = json!({
            "sites": [{"name": "west"}, {"name": "east"}],
            "hosts": [{"name": "server", "site": "east", "addresses": ["192.0.2.9"]}],
            "depots": [{
                "name": "near", "key": depot.public().to_string(), "site": "west",
                "addresses": [{"endpoint": "192.0.2.1:7510"}]
            }],
            "links": [{
                "name": "w-e", "from": "west", "to": "east", "forward": both, "backward": both
            }]
        });
        let (status, _) = bench.local("PUT", "/api/v1/map", &map.to_string()).await;
        assert_eq!(status, 200);
        Self { bench, ana, depot }
    }

    /// Returns ana's delegation to the depot, changed and signed by `key`.
    fn delegation(&self, key: &SigningKey, change: impl FnOnce(&mut Delegation)) -> String {
        let mut given = Delegation {
            id: [1; 16],
            action: DelegatedAction::Circuit,
            principal: key.public(),
            delegate: self.depot.public(),
            audience: Some(self.bench.controller.settings().key),
            from: self.depot.public().to_string(),
            to: "192.0.2.9".to_owned(),
            both_ways: false,
            max_rate: RATE,
            start_unix_ms: now_ms(),
            end_unix_ms: now_ms() + 10 * MINUTE_MS,
            signature: [0; 64],
        };
        change(&mut given);
        given.sign(key).unwrap();
        given.to_text().unwrap()
    }

    async fn ask(&self, by: &SigningKey, delegation: &str, bps: u64, minutes: u64) -> (u16, Value) {
        let request = json!({
            "from": "near", "to": "server", "wish": {"rate": {"rate_bps": bps}},
            "end_ms": now_ms() + minutes * MINUTE_MS, "delegation": delegation
        });
        self.bench.ask(by, "POST", PATH, &request.to_string()).await
    }
}

fn id(answer: &Value) -> u64 {
    answer["reservations"][0]["id"]
        .as_u64()
        .unwrap_or_else(|| panic!("{answer:#}"))
}

#[tokio::test]
async fn the_book_names_owner_and_delegate() {
    let world = World::new().await;
    let given = world.delegation(&world.ana, |_| {});
    let (status, answer) = world.ask(&world.depot, &given, RATE, 5).await;
    assert_eq!(status, 201, "{answer:#}");
    let made = &answer["reservations"][0];
    assert_eq!(made["owner"], world.ana.public().to_string());
    assert_eq!(made["owner_name"], "ana");
    assert_eq!(made["delegate"]["key"], world.depot.public().to_string());
    assert_eq!(made["delegate"]["name"], "near");
    assert_eq!(made["delegate"]["delegation"], given);
    // Both may see it; the depot has no right of its own to reservations.
    let path = format!("{PATH}/{}", id(&answer));
    for key in [&world.ana, &world.depot] {
        assert_eq!(world.bench.ask(key, "GET", &path, "").await.0, 200);
    }
    let other = world.bench.principal("depot", "far").await;
    assert_eq!(world.bench.ask(&other, "GET", &path, "").await.0, 404);
    assert_eq!(world.bench.ask(&other, "DELETE", &path, "").await.0, 404);
    // The delegate may not change it, and a restart forgets nothing.
    let change = json!({"wish": {"rate": {"rate_bps": 5}}}).to_string();
    assert_eq!(
        world
            .bench
            .ask(&world.depot, "PATCH", &path, &change)
            .await
            .0,
        404
    );
    let bench = world.bench.again().await;
    let (_, kept) = bench.ask(&world.ana, "GET", &path, "").await;
    assert_eq!(kept["delegate"]["delegation"], given, "{kept:#}");
    let (status, gone) = bench.ask(&world.depot, "DELETE", &path, "").await;
    assert_eq!(status, 200, "{gone:#}");
    assert_eq!(gone["reservations"][0]["state"]["life"], "terminated");
}

#[tokio::test]
async fn a_delegation_permits_nothing_wider() {
    let world = World::new().await;
    let World { bench, ana, depot } = &world;
    let stranger = bench.principal("reserver", "eve").await;
    let unknown = SigningKey::generate().unwrap();
    let usual = world.delegation(ana, |_| {});
    let minute = now_ms() - MINUTE_MS;
    let expired = world.delegation(ana, |given| {
        (given.start_unix_ms, given.end_unix_ms) = (minute - 1, minute);
    });
    let elsewhere = world.delegation(ana, |given| given.to = "west".to_owned());
    let other_controller = world.delegation(ana, |given| given.audience = Some(ana.public()));
    let tokens = world.delegation(ana, |given| given.action = DelegatedAction::Other(3));
    // Signed by another key in ana's name, and by a key without rights.
    let mut forged: Delegation = world.delegation(&unknown, |_| {}).parse().unwrap();
    forged.principal = ana.public();
    let forged = forged.to_text().unwrap();
    let powerless = world.delegation(&unknown, |_| {});
    for (by, given, bps, minutes, why) in [
        (&stranger, &usual, RATE, 5, "only that key can use it"),
        (ana, &usual, RATE, 5, "only that key can use it"),
        (depot, &usual, RATE + 1, 5, "at most 1000000000 bit/s"),
        (depot, &usual, RATE, 11, "after the delegation"),
        (depot, &expired, RATE, 5, "the delegation ended 60 s ago"),
        (
            depot,
            &elsewhere,
            RATE,
            5,
            "to west: ask for one between these ends",
        ),
        (depot, &other_controller, RATE, 5, "is for the controller"),
        (depot, &tokens, RATE, 5, "not for circuits"),
        (depot, &forged, RATE, 5, "signature does not match"),
        (depot, &powerless, RATE, 5, ""),
    ] {
        let (status, answer) = world.ask(by, given, bps, minutes).await;
        assert_eq!(status, 403, "{answer:#}");
        assert!(
            answer["detail"].as_str().unwrap().contains(why),
            "{answer:#}"
        );
    }
    let odd = world.ask(depot, "lhd1:a", RATE, 5).await;
    assert_eq!(odd.0, 403, "{odd:?}");
    // The operator has no key over the socket.
    let request = json!({
        "from": "near", "to": "server", "wish": {"rate": {"rate_bps": RATE}},
        "end_ms": now_ms() + MINUTE_MS, "delegation": usual
    });
    assert_eq!(bench.local("POST", PATH, &request.to_string()).await.0, 400);
    // Nothing of this was reserved.
    let (_, page) = bench.local("GET", PATH, "").await;
    assert_eq!(page["items"], json!([]), "{page:#}");
}

#[tokio::test]
async fn a_delegation_has_one_circuit_at_a_time() {
    let world = World::new().await;
    let given = world.delegation(&world.ana, |_| {});
    let (_, first) = world.ask(&world.depot, &given, RATE / 2, 5).await;
    let (status, replayed) = world.ask(&world.depot, &given, RATE / 2, 6).await;
    assert_eq!(status, 403, "{replayed:#}");
    let why = format!("in use by reservation {}", id(&first));
    assert!(
        replayed["detail"].as_str().unwrap().contains(&why),
        "{replayed:#}"
    );
    let path = format!("{PATH}/{}", id(&first));
    assert_eq!(
        world.bench.ask(&world.depot, "DELETE", &path, "").await.0,
        200
    );
    let (status, second) = world.ask(&world.depot, &given, RATE / 2, 6).await;
    assert_eq!(status, 201, "{second:#}");
}

#[tokio::test]
async fn both_ways_only_if_the_principal_says_so() {
    let world = World::new().await;
    let back = |given: &str| {
        json!({
            "from": "server", "to": "near", "wish": {"rate": {"rate_bps": RATE}},
            "end_ms": now_ms() + MINUTE_MS, "delegation": given
        })
        .to_string()
    };
    let one_way = world.delegation(&world.ana, |_| {});
    let refused = world
        .bench
        .ask(&world.depot, "POST", PATH, &back(&one_way))
        .await;
    assert_eq!(refused.0, 403, "{refused:?}");
    let both = world.delegation(&world.ana, |given| given.both_ways = true);
    let made = world
        .bench
        .ask(&world.depot, "POST", PATH, &back(&both))
        .await;
    assert_eq!(made.0, 201, "{made:?}");
}

#[tokio::test]
async fn offers_to_a_delegate_repeat_the_delegation() {
    let world = World::new().await;
    let given = world.delegation(&world.ana, |given| given.max_rate = 20 * RATE);
    let (status, refused) = world.ask(&world.depot, &given, 20 * RATE, 5).await;
    assert_eq!(status, 409, "{refused:#}");
    let offer = &refused["refusal"]["offers"]["slower"]["request"];
    assert_eq!(offer["delegation"], given, "{refused:#}");
    let taken = world
        .bench
        .ask(&world.depot, "POST", PATH, &offer.to_string())
        .await;
    assert_eq!(taken.0, 201, "{taken:?}");
    let _: PublicKey = taken.1["reservations"][0]["owner"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
}
