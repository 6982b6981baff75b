//! Tests of reservations over HTTP.

use longhaul_proto::SigningKey;
use serde_json::{Value, json};

use crate::bench::{Bench, now_ms};
use crate::secured::{now, signed_at};

const HOUR_MS: u64 = 3_600_000;
const PATH: &str = "/api/v1/reservations";
const RENEWALS: &str = "/api/v1/grants/renewals";

fn map() -> Value {
    let both = json!({"capacity": {"rate_bps": 1e10}});
    json!({
        "sites": [{"name": "west"}, {"name": "east"}],
        "hosts": [{"name": "store", "site": "east",
                   "addresses": ["store.example"], "access_bps": 4e9},
            {"name": "dtn", "site": "west", "addresses": ["192.0.2.0/24"]}],
        "links": [{"name": "w-e", "from": "west", "to": "east", "forward": both, "backward": both}]
    })
}

async fn bench() -> Bench {
    let bench = Bench::new().await;
    assert_eq!(
        bench
            .local("PUT", "/api/v1/map", &map().to_string())
            .await
            .0,
        200
    );
    bench
}

fn request(bps: u64) -> Value {
    json!({
        "from": "dtn",
        "to": "store.example",
        "wish": {"rate": {"rate_bps": bps}},
        "end_ms": now_ms() + HOUR_MS
    })
}

async fn reserve(bench: &Bench, key: &SigningKey, request: &Value) -> (u16, Value) {
    bench.ask(key, "POST", PATH, &request.to_string()).await
}

#[tokio::test]
async fn reservation_is_made_shown_changed_and_cancelled() {
    let bench = bench().await;
    let ana = bench.principal("reserver", "ana").await;
    let (status, answer) = reserve(&bench, &ana, &request(2_000_000_000)).await;
    assert_eq!(status, 201, "{answer}");
    let one = &answer["reservations"][0];
    assert_eq!(
        (&one["id"], &one["from"], &one["to"]),
        (&json!(1), &json!("dtn"), &json!("store"))
    );
    assert_eq!(
        (&one["owner_name"], &one["state"]["life"]),
        (&json!("ana"), &json!("created"))
    );
    let link = json!({"link": "w-e", "from": "west", "to": "east"});
    assert_eq!(
        one["pieces"][0]["paths"],
        json!([{"rate_bps": 2_000_000_000_u64, "links": [link]}])
    );
    let path = format!("{PATH}/1");
    let change = json!({"wish": {"rate": {"rate_bps": 1_000_000_000}}}).to_string();
    let (status, answer) = bench.ask(&ana, "PATCH", &path, &change).await;
    assert_eq!(
        (
            status,
            &answer["reservations"][0]["wish"]["rate"]["rate_bps"]
        ),
        (200, &json!(1_000_000_000))
    );
    for (action, provision) in [("provision", "provisioned"), ("release", "released")] {
        let (status, answer) = bench
            .ask(&ana, "POST", &format!("{path}/{action}"), "")
            .await;
        assert_eq!(
            (status, &answer["reservations"][0]["state"]["provision"]),
            (200, &json!(provision))
        );
    }
    assert_eq!(
        bench
            .ask(&ana, "POST", &format!("{path}/commit"), "")
            .await
            .0,
        409
    );
    let (status, answer) = bench.ask(&ana, "DELETE", &path, "").await;
    assert_eq!(
        (status, &answer["reservations"][0]["state"]["life"]),
        (200, &json!("terminated"))
    );
    let (_, list) = bench
        .ask(&ana, "GET", &format!("{PATH}?active=true"), "")
        .await;
    assert_eq!(list, json!({"items": [], "next": null}));
    let (_, list) = bench.ask(&ana, "GET", PATH, "").await;
    assert_eq!(list["items"][0]["id"], 1);
}

#[tokio::test]
async fn a_refusal_has_the_proof_and_offers_that_are_granted() {
    let bench = bench().await;
    let (ana, ben) = (
        bench.principal("reserver", "ana").await,
        bench.principal("reserver", "ben").await,
    );
    assert_eq!(reserve(&bench, &ana, &request(3_500_000_000)).await.0, 201);
    let (status, problem) = reserve(&bench, &ben, &request(3_000_000_000)).await;
    assert_eq!(
        (status, &problem["type"]),
        (409, &json!("urn:longhaul:problem:no-room"))
    );
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("only 1.5 Gbit/s is free on w-e"),
        "{problem}"
    );
    let refusal = &problem["refusal"];
    let full = &refusal["proof"]["links"][0];
    assert_eq!(
        (&full["left_bps"], &full["by"], &full["by_others"]),
        (&json!(1_500_000_000), &json!([]), &json!(1))
    );
    let (status, answer) = reserve(&bench, &ben, &refusal["offers"]["slower"]["request"]).await;
    assert_eq!(
        (
            status,
            &answer["reservations"][0]["wish"]["rate"]["rate_bps"]
        ),
        (201, &json!(1_500_000_000))
    );
    let (status, answer) = reserve(&bench, &ben, &refusal["offers"]["later"]["request"]).await;
    assert_eq!(
        (status, &answer["reservations"][0]["start_ms"]),
        (201, &refusal["proof"]["until_ms"])
    );
    // Neither sees the other's reservations.
    let (_, list) = bench.ask(&ana, "GET", PATH, "").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        bench.ask(&ana, "GET", &format!("{PATH}/2"), "").await.0,
        404
    );
    assert_eq!(
        bench.ask(&ana, "DELETE", &format!("{PATH}/2"), "").await.0,
        404
    );
    let (_, list) = bench.local("GET", &format!("{PATH}?limit=2"), "").await;
    assert_eq!(
        (list["items"].as_array().unwrap().len(), &list["next"]),
        (2, &json!("2"))
    );
    let (_, list) = bench.local("GET", &format!("{PATH}?after=2"), "").await;
    assert_eq!(
        (&list["items"][0]["id"], &list["next"]),
        (&json!(3), &Value::Null)
    );
}

#[tokio::test]
async fn recurring_request_is_granted_and_committed() {
    let bench = bench().await;
    let mut weekly = request(1_000_000_000);
    weekly["recurrence"] = json!({"rule": "FREQ=WEEKLY;COUNT=3", "time_zone": "Europe/Zurich"});
    weekly["hold"] = json!(true);
    let (status, answer) = bench.local("POST", PATH, &weekly.to_string()).await;
    assert_eq!(status, 201, "{answer}");
    let ids: Vec<&Value> = answer["reservations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(ids, [1, 2, 3]);
    let (status, answer) = bench.local("POST", &format!("{PATH}/2/commit"), "").await;
    assert_eq!(
        (status, answer["reservations"].as_array().unwrap().len()),
        (200, 3)
    );
    let (status, answer) = bench
        .local("DELETE", &format!("{PATH}/1?series=true"), "")
        .await;
    assert_eq!(
        (status, answer["reservations"].as_array().unwrap().len()),
        (200, 3)
    );
    for rule in ["FREQ=DAILY", "every day", ""] {
        weekly["recurrence"] = json!({"rule": rule});
        let (status, problem) = bench.local("POST", PATH, &weekly.to_string()).await;
        assert_eq!(status, 400, "{problem}");
    }
}

#[tokio::test]
async fn idempotent_reservation_survives_a_restart() {
    let bench = bench().await;
    let ana = bench.principal("reserver", "ana").await;
    let body = request(1_000_000_000).to_string();
    let keyed = async |bench: &Bench, body: &str| {
        let mut request = bench.service.request("POST", PATH, body);
        request
            .headers_mut()
            .insert("idempotency-key", "k".parse().unwrap());
        bench.send(signed_at(&ana, request, now(), |_| {})).await
    };
    let first = keyed(&bench, &body).await;
    assert_eq!(first.0, 201, "{}", first.1);
    assert_eq!(keyed(&bench, &body).await, first);
    assert_eq!(keyed(&bench, &request(1).to_string()).await.0, 422);
    let again = bench.again().await;
    let (_, list) = again.local("GET", PATH, "").await;
    assert_eq!(list["items"], first.1["reservations"]);
    assert_eq!(keyed(&again, &body).await, first);
}

#[tokio::test]
async fn forbidden_and_invalid_requests_are_refused() {
    let bench = bench().await;
    let client = bench.principal("client", "c").await;
    let (status, problem) = reserve(&bench, &client, &request(1)).await;
    assert_eq!(status, 403, "{problem}");
    let role = json!({"rights": [{
        "resource": "reservations", "permission": "create", "constraint": "any",
        "limits": {"rate_bps": 1000, "ahead_s": 86400}}]});
    let put = bench
        .local("PUT", "/api/v1/roles/slow", &role.to_string())
        .await;
    assert_eq!(put.0, 201, "{}", put.1);
    let slow = bench.principal("slow", "s").await;
    let (status, problem) = reserve(&bench, &slow, &request(1001)).await;
    assert_eq!(status, 403);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("1001 bit/s exceed the 1000"),
        "{problem}"
    );
    assert_eq!(reserve(&bench, &slow, &request(1000)).await.0, 201);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut request = request(1);
        change(&mut request);
        request.to_string()
    };
    for (body, expected, word) in [
        (with(&|r| r["to"] = json!("nowhere")), 404, "nowhere"),
        (with(&|r| r["to"] = json!("west")), 400, "site west"),
        (with(&|r| r["to"] = json!("")), 400, "1 to 253 bytes"),
        (with(&|r| r["end_ms"] = json!(5)), 400, "ends before"),
        (with(&|r| r["start_ms"] = json!(5)), 400, "began"),
        (with(&|r| r["paths"] = json!(9)), 400, "9 paths"),
        (
            with(&|r| r["wish"] = json!({"rate": {"rate_bps": 0}})),
            400,
            "0 bit/s",
        ),
        (
            with(&|r| r["wish"] = json!({"rate": {"rate_bps": 5_000_000_000_u64}})),
            400,
            "4000000000",
        ),
        (with(&|r| r["avoid_links"] = json!(["x"])), 400, "no link x"),
        (with(&|r| r["colour"] = json!("red")), 400, "colour"),
        ("nonsense".to_owned(), 400, ""),
    ] {
        let (status, problem) = bench.local("POST", PATH, &body).await;
        assert_eq!(status, expected, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(word),
            "{problem}"
        );
    }
    for (method, path) in [
        ("GET", "/0"),
        ("GET", "/7"),
        ("POST", "/7/commit"),
        ("DELETE", "/x"),
    ] {
        assert_eq!(
            bench.local(method, &format!("{PATH}{path}"), "").await.0,
            404,
            "{method} {path}"
        );
    }
    assert_eq!(
        bench.local("GET", &format!("{PATH}?after=x"), "").await.0,
        400
    );
}

#[tokio::test]
async fn path_options_are_resolved_checked_and_permitted() {
    let bench = bench().await;
    let both = json!({"capacity": {"rate_bps": 1e10}});
    let mut map = map();
    let more = [
        json!({"name": "w-n", "from": "west", "to": "north", "forward": both}),
        json!({"name": "n-e", "from": "north", "to": "east", "forward": both}),
    ];
    map["links"].as_array_mut().unwrap().extend(more);
    let sites = map["sites"].as_array_mut().unwrap();
    sites.push(json!({"name": "north"}));
    let hosts = map["hosts"].as_array_mut().unwrap();
    hosts.push(json!({"name": "relay", "site": "north", "addresses": ["relay.example"]}));
    assert_eq!(
        bench.local("PUT", "/api/v1/map", &map.to_string()).await.0,
        200
    );
    let with = |name: &str, value: Value| {
        let mut request = request(1_000);
        request["constraints"][name] = value;
        request
    };
    // A host stands for its site.
    let reserver = bench.principal("reserver", "r").await;
    let via = with("via", json!(["relay"]));
    let (status, granted) = reserve(&bench, &reserver, &via).await;
    assert_eq!(status, 201, "{granted}");
    let granted = &granted["reservations"][0];
    assert_eq!(granted["constraints"]["via"], json!(["north"]));
    assert_eq!(granted["pieces"][0]["paths"][0]["links"][0]["link"], "w-n");
    let path = json!([{"sites": ["dtn", "west", "relay", "store"], "rate_bps": 1_000}]);
    let (status, granted) = reserve(&bench, &reserver, &with("paths", path)).await;
    assert_eq!(status, 201, "{granted}");
    let sites = &granted["reservations"][0]["constraints"]["paths"][0]["sites"];
    assert_eq!(*sites, json!(["west", "north", "east"]));
    // To begin elsewhere needs permission; at the site of the end, it is nothing special.
    let own = with("ingress", json!("dtn"));
    assert_eq!(reserve(&bench, &reserver, &own).await.0, 201);
    let other = with("ingress", json!("relay"));
    let (status, problem) = reserve(&bench, &reserver, &other).await;
    assert_eq!(status, 403, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("allows ingress for such"), "{detail}");
    let (status, granted) = bench.local("POST", PATH, &other.to_string()).await;
    assert_eq!(status, 201, "{granted}");
    let links = &granted["reservations"][0]["pieces"][0]["paths"][0]["links"];
    assert_eq!(
        (links.as_array().unwrap().len(), &links[0]["link"]),
        (1, &json!("n-e"))
    );
    for (body, expected, word) in [
        (
            with("via", json!(["nowhere"])),
            404,
            "via: no host, depot or site",
        ),
        (with("max_hops", json!(0)), 400, "max-hops 0"),
        (
            with("only_links", json!(["none"])),
            400,
            "only-links: there is no link none",
        ),
        (with("colour", json!("red")), 400, "colour"),
        (
            with("via", json!(vec!["relay"; 17])),
            400,
            "at most 16 sites",
        ),
    ] {
        let (status, problem) = bench.local("POST", PATH, &body.to_string()).await;
        assert_eq!(status, expected, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(word), "{detail}");
    }
    // A refusal has the cause as data, too.
    let mut short = with("max_hops", json!(1));
    short["avoid_links"] = json!(["w-e"]);
    let (status, problem) = reserve(&bench, &reserver, &short).await;
    assert_eq!(status, 409, "{problem}");
    let causes = problem["refusal"]["cause"]["constraints"]
        .as_array()
        .unwrap();
    assert_eq!(causes[0]["kind"], "avoid-link");
    assert_eq!(
        causes[1],
        json!({"kind": "max-hops", "most": 1, "needed": 2, "unreachable": true})
    );
}

#[tokio::test]
async fn owner_gets_grants_for_depots_on_its_paths() {
    let bench = Bench::new().await;
    let depot = SigningKey::generate().unwrap().public();
    let mut map = map();
    map["depots"] = json!([{
        "name": "d",
        "key": depot.to_string(),
        "site": "east",
        "addresses": [{"endpoint": "198.51.100.9:7510"}]
    }]);
    assert_eq!(
        bench.local("PUT", "/api/v1/map", &map.to_string()).await.0,
        200
    );
    let ana = bench.principal("reserver", "ana").await;
    let mut asked = request(2_000_000_000);
    (asked["from_address"], asked["provision"]) = (json!("192.0.2.7"), json!(true));
    let (status, answer) = reserve(&bench, &ana, &asked).await;
    let one = &answer["reservations"][0];
    assert_eq!(
        (status, &one["from_address"], &one["state"]["provision"]),
        (201, &json!("192.0.2.7"), &json!("provisioned")),
        "{answer}"
    );
    let (status, granted) = bench
        .ask(&ana, "GET", &format!("{PATH}/1/grants"), "")
        .await;
    assert_eq!(
        (status, &granted["items"][0]["depots"]),
        (200, &json!(["d"])),
        "{granted}"
    );
    let text = granted["items"][0]["grant"].as_str().unwrap();
    let grant: longhaul_proto::CircuitGrant = text.parse().unwrap();
    assert_eq!(
        grant.check(&ana.public(), &depot, now_ms(), |_| true),
        Ok(())
    );
    assert_eq!((grant.rate, &grant.circuit[..]), (2_000_000_000, &b"1"[..]));
    // No other key sees the grants, and a released reservation has none.
    let bob = bench.principal("reserver", "bob").await;
    assert_eq!(
        bench
            .ask(&bob, "GET", &format!("{PATH}/1/grants"), "")
            .await
            .0,
        404
    );
    assert_eq!(
        bench
            .ask(&ana, "POST", &format!("{PATH}/1/release"), "")
            .await
            .0,
        200
    );
    assert_eq!(
        bench
            .ask(&ana, "GET", &format!("{PATH}/1/grants"), "")
            .await
            .0,
        409
    );
    // A reserver cannot have streams set up for addresses that the map does not list for its ends.
    asked["from_address"] = json!("203.0.113.9");
    let (status, refused) = reserve(&bench, &ana, &asked).await;
    let why = refused["detail"].as_str().unwrap();
    assert!(
        status == 400 && why.contains("192.0.2.0/24"),
        "{status} {refused}"
    );
}

/// Renews a grant of reservation 1 for its holder, and returns the answer.
async fn renewed(bench: &Bench, depot: &SigningKey, circuit: &str, holder: &SigningKey) -> Value {
    let item = json!({"circuit": circuit, "holder": holder.public().to_string()});
    let asked = json!({"items": [item]}).to_string();
    let (status, answer) = bench.ask(depot, "POST", RENEWALS, &asked).await;
    assert_eq!(status, 200, "{answer}");
    answer["items"][0].clone()
}

/// A grant is valid for a minute. Only depots on the path can renew it, while it is wanted.
#[tokio::test]
async fn grants_are_renewed_until_they_are_cancelled_or_revoked() {
    let bench = Bench::new().await;
    let depot = bench.principal("depot", "d").await;
    let elsewhere = bench.principal("depot", "e").await;
    let mut map = map();
    let address = json!([{"endpoint": "198.51.100.9:7510"}]);
    map["depots"] = json!([{
        "name": "d",
        "key": depot.public().to_string(),
        "site": "east",
        "addresses": address
    }]);
    assert_eq!(
        bench.local("PUT", "/api/v1/map", &map.to_string()).await.0,
        200
    );
    let ana = bench.principal("reserver", "ana").await;
    let mut asked = request(2_000_000_000);
    asked["provision"] = json!(true);
    for _ in 0..2 {
        assert_eq!(reserve(&bench, &ana, &asked).await.0, 201);
    }
    let (_, granted) = bench
        .ask(&ana, "GET", &format!("{PATH}/1/grants"), "")
        .await;
    let left = granted["end_ms"].as_u64().unwrap() - now_ms();
    assert!(left <= 60_000, "{granted}");
    let answer = renewed(&bench, &depot, "1", &ana).await;
    let grant: longhaul_proto::CircuitGrant = answer["grant"].as_str().unwrap().parse().unwrap();
    assert!(grant.end_unix_ms <= now_ms() + 60_000);
    assert_eq!(
        grant.check(&ana.public(), &depot.public(), now_ms(), |_| true),
        Ok(())
    );
    // Not for other depots, not for keys that may not use it, and not for other names of circuits.
    let ben = bench.principal("reserver", "ben").await;
    for (depot, circuit, holder, why) in [
        (&elsewhere, "1", &ana, "this depot is not on that path"),
        (&depot, "1.2", &ana, "this depot is not on that path"),
        (&depot, "1", &ben, "only of its own"),
        (&depot, "1", &depot, "no role of d"),
        (&depot, "9", &ana, "no such reservation"),
        (&depot, "one", &ana, "no such reservation"),
    ] {
        let answer = renewed(&bench, depot, circuit, holder).await;
        let ended = answer["ended"].as_str().unwrap();
        assert!(
            ended.contains(why) && answer["grant"].is_null(),
            "{circuit}: {answer}"
        );
    }
    let nothing = json!({"items": []}).to_string();
    assert_eq!(bench.ask(&ana, "POST", RENEWALS, &nothing).await.0, 403);
    assert_eq!(bench.local("POST", RENEWALS, &nothing).await.0, 400);
    let many = vec![json!({"circuit": "1", "holder": "k"}); 501];
    let many = json!({"items": many}).to_string();
    assert_eq!(bench.ask(&depot, "POST", RENEWALS, &many).await.0, 400);
    // One reservation is cancelled; for the other, the key loses its role.
    assert_eq!(
        bench.ask(&ana, "DELETE", &format!("{PATH}/1"), "").await.0,
        200
    );
    let answer = renewed(&bench, &depot, "1", &ana).await;
    assert!(
        answer["ended"].as_str().unwrap().contains("is cancelled"),
        "{answer}"
    );
    assert!(renewed(&bench, &depot, "2", &ana).await["grant"].is_string());
    let role = format!("/api/v1/principals/{}/roles/reserver", ana.public());
    assert_eq!(bench.local("DELETE", &role, "").await.0, 204);
    let answer = renewed(&bench, &depot, "2", &ana).await;
    assert!(
        answer["grant"].is_null() && answer["ended"].is_string(),
        "{answer}"
    );
}
