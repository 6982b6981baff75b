//! Three controllers on one PostgreSQL, under load. The leader is killed, the database is killed
//! and restarted, the network between a controller and the database is cut silently. Nothing
//! acknowledged is lost, nothing is stored twice, no link is overbooked.

mod relay;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::relay::Relay;
use crate::control::{Controller, ask};
use crate::postgres::Postgres;
use crate::stage::Stage;

/// Controllers of the fleet.
const CONTROLLERS: usize = 3;
/// Simultaneous requesters.
const ASKERS: u64 = 6;
/// Acknowledged reservations before each failure, and after it.
const ACKNOWLEDGED: usize = 60;
/// Time limit of every wait: far more than anything takes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
/// Time to wait for an answer before another controller is asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two controllers that have not answered.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A moment far ahead, in milliseconds: 2100.
const FAR_MS: u64 = 4_102_444_800_000;
/// Grid of reservation starts. A reservation lasts one and a half slots.
const SLOT_MS: u64 = 3_600_000;
/// Contended slots, and slots with room for all.
const HOT_SLOTS: u64 = 12;
const WIDE_SLOTS: u64 = 20_000;
/// The rate of each reservation, and the reservable rate of a link: half of its capacity.
const RATE_BPS: u64 = 1_000_000_000;
const RESERVABLE_BPS: u64 = 5_000_000_000;

const MAP: &str = r#"{"sites": [{"name": "west"}, {"name": "east"}],
    "hosts": [{"name": "dtn1", "site": "west", "addresses": ["192.0.2.1"]}, {"name": "store", "site": "east", "addresses": ["192.0.2.2"]}],
    "links": [
    {"name": "w-e", "from": "west", "to": "east", "forward": {"capacity": {"rate_bps": 1e10}}}]}"#;

/// Acknowledged reservations: by name the number, and the time.
#[derive(Default)]
struct Acknowledged {
    reservations: Mutex<BTreeMap<String, (u64, Instant)>>,
    added: Condvar,
}

impl Acknowledged {
    fn add(&self, name: String, id: u64) {
        let mut reservations = self.reservations.lock().unwrap();
        reservations.insert(name, (id, Instant::now()));
        self.added.notify_all();
    }

    /// Waits for the next one, but no longer than a controller should be left alone.
    fn wait_for_next(&self) {
        let reservations = self.reservations.lock().unwrap();
        let _ = self
            .added
            .wait_timeout(reservations, POLL_INTERVAL)
            .unwrap();
    }

    /// Waits until many more were acknowledged since a moment. Returns the time from then to the
    /// first of them.
    fn wait_for_more(&self, since: Instant) -> Duration {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let mut reservations = self.reservations.lock().unwrap();
        loop {
            let after = reservations
                .values()
                .filter_map(|(_, at)| at.checked_duration_since(since));
            let (count, first) = (after.clone().count(), after.min());
            match first {
                Some(first) if count >= ACKNOWLEDGED => return first,
                _ => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "never: {ACKNOWLEDGED} reservations; {count}"
            );
            reservations = self.added.wait_timeout(reservations, left).unwrap().0;
        }
    }
}

struct Fleet {
    stage: Stage,
    server: Mutex<Postgres>,
    relays: Vec<Relay>,
    controllers: Vec<RwLock<Controller>>,
}

impl Fleet {
    fn start() -> Self {
        Self::start_in(Stage::new())
    }

    fn start_in(stage: Stage) -> Self {
        let server = Postgres::start();
        server.create_database("fleet");
        let socket = postgres_dir(&server).join(".s.PGSQL.5432");
        let relays: Vec<Relay> = (0..CONTROLLERS).map(|_| Relay::start(&socket)).collect();
        let controllers = (0..CONTROLLERS).map(|at| RwLock::new(begin(&stage, &relays[at], at)));
        let controllers = controllers.collect();
        Self {
            stage,
            server: Mutex::new(server),
            relays,
            controllers,
        }
    }

    fn socket(&self, at: usize) -> PathBuf {
        self.controllers[at].read().unwrap().socket.clone()
    }

    /// Returns the controller that says that it leads, other than `but`.
    fn leader(&self, but: Option<usize>) -> usize {
        let leads = |at: &usize| {
            let info = answer(&self.socket(*at), "GET", "/controller", "", None);
            info.is_some_and(|(status, info)| status == 200 && info["leads"] == true)
        };
        let others = (0..CONTROLLERS).filter(|at| Some(*at) != but);
        until("somebody leads", || others.clone().find(leads).ok_or(()))
    }
}

/// Returns the result of `look` once it succeeds. On a timeout, reports its last failure.
fn until<T, S: std::fmt::Debug>(what: &str, mut look: impl FnMut() -> Result<T, S>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(began.elapsed() < WAIT_TIMEOUT, "never: {what}; {seen:?}"),
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn begin(stage: &Stage, relay: &Relay, at: usize) -> Controller {
    let store = format!("postgres://agent@{}/fleet?sslmode=disable", relay.address);
    let name = format!("c{at}");
    let mut more = vec![
        "--store",
        &store,
        "--name",
        &name,
        "--listen",
        "127.0.0.1:0",
    ];
    let config = stage.path(&format!("{name}.toml"));
    if config.exists() {
        more.extend(["--config", config.to_str().unwrap()]);
    }
    Controller::start_as(stage, &name, &more)
}

fn postgres_dir(server: &Postgres) -> PathBuf {
    let url = server.url_of("fleet");
    url.split_once("host=").unwrap().1.into()
}

/// Returns a controller's answer, if it answers in time.
fn answer(
    socket: &Path,
    method: &str,
    path: &str,
    body: &str,
    key: Option<&str>,
) -> Option<(u16, Value)> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    let key = key.map_or(String::new(), |key| format!("idempotency-key: {key}\r\n"));
    let length = body.len();
    let request = format!(
        "{method} /api/v1{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         {key}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).ok()?))
}

/// Returns a controller's answer, however slow the machine is.
fn answer_at_last(socket: &Path, method: &str, path: &str) -> (u16, Value) {
    until(&format!("{method} {path} is answered"), || {
        answer(socket, method, path, "", None).ok_or(())
    })
}

/// Reserves repeatedly, at any controller that accepts it, until it is over.
fn load(fleet: &Fleet, asker: u64, acknowledged: &Acknowledged, is_over: &AtomicBool) {
    let mut at = asker as usize % CONTROLLERS;
    let mut random = asker + 1;
    for number in 0.. {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let slot = match number % 3 {
            0 => (random >> 33) % HOT_SLOTS,
            _ => HOT_SLOTS + (random >> 33) % WIDE_SLOTS,
        };
        let start = FAR_MS + slot * SLOT_MS;
        let name = format!("{asker}-{number}");
        let body = json!({"from": "west", "to": "east", "wish": {"rate": {"rate_bps": RATE_BPS}},
            "start_ms": start, "end_ms": start + SLOT_MS * 3 / 2, "description": name});
        let body = body.to_string();
        loop {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            match answer(
                &fleet.socket(at),
                "POST",
                "/reservations",
                &body,
                Some(&name),
            ) {
                Some((201, reserved)) => {
                    let id = reserved["reservations"][0]["id"].as_u64().unwrap();
                    acknowledged.add(name, id);
                    break;
                }
                // Insufficient bandwidth is an answer, too.
                Some((409, _)) => break,
                // It does not lead, has too many requests, cannot work now, or is gone. With the
                // same key the request counts once at every controller.
                Some((429 | 503, _)) | None => {
                    at = (at + 1) % CONTROLLERS;
                    acknowledged.wait_for_next();
                }
                Some(other) => panic!("{other:?}"),
            }
        }
    }
}

/// Returns all reservations that a controller knows.
fn known(socket: &Path) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/reservations?limit=1000{after}");
        // After a failure it may still be reconnecting to its store.
        let page = until("reservations are listed", || {
            match answer(socket, "GET", &path, "", None) {
                Some((200, page)) => Ok(page),
                Some((503, _)) | None => Err(()),
                other => panic!("{other:?}"),
            }
        });
        found.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return found,
        }
    }
}

/// Returns the numbers of reservations, by their descriptions.
fn ids_by_description(all: &[Value]) -> BTreeMap<String, Vec<u64>> {
    let mut ids: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for one in all {
        let description = one["description"].as_str().unwrap().to_owned();
        ids.entry(description)
            .or_default()
            .push(one["id"].as_u64().unwrap());
    }
    ids
}

/// Checks that acknowledged reservations exist once under their number, that nothing exists twice,
/// and that no link is overbooked.
fn check(fleet: &Fleet, acknowledged: &Acknowledged) {
    let acknowledged = acknowledged.reservations.lock().unwrap().clone();
    for at in 0..CONTROLLERS {
        // Followers are behind the leader for a moment.
        let all = until(&format!("controller {at} has all of them"), || {
            let all = known(&fleet.socket(at));
            let ids = ids_by_description(&all);
            let doubled = ids.iter().find(|(_, ids)| ids.len() > 1);
            assert_eq!(doubled, None, "controller {at}");
            let is_known = |(name, (id, _)): (&String, &(u64, Instant))| {
                ids.get(name).is_some_and(|ids| ids[..] == [*id])
            };
            let lost = acknowledged.iter().find(|one| !is_known(*one));
            match lost {
                Some((name, (id, _))) => Err(format!("{name} ({id}) is missing")),
                None => Ok(all),
            }
        });
        overbooked(&all);
    }
    // Each record exists once, none is missing, and no record of an older writer follows one of a
    // newer.
    let query = "SELECT count(*) = max(number) AND min(number) = 1 AND bool_and(epoch >= before) \
        FROM \
        (SELECT number, epoch, lag(epoch, 1, epoch) OVER (ORDER BY number) AS before FROM \
        reservation_journal) AS journal";
    let said = Command::new("psql")
        .args(["-U", "agent", "-At", "-c", query, "-h"])
        .arg(postgres_dir(&fleet.server.lock().unwrap()))
        .arg("fleet")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&said.stdout).trim(),
        "t",
        "{said:?}"
    );
}

/// Sums the promised rates at each moment at which a reservation begins.
fn overbooked(all: &[Value]) {
    let mut by_link: BTreeMap<&str, Vec<(u64, u64, u64)>> = BTreeMap::new();
    let pieces = all.iter().flat_map(|one| one["pieces"].as_array().unwrap());
    for piece in pieces {
        let [start, end] = ["start_ms", "end_ms"].map(|field| piece[field].as_u64().unwrap());
        for path in piece["paths"].as_array().unwrap() {
            for link in path["links"].as_array().unwrap() {
                let taken = by_link.entry(link["link"].as_str().unwrap()).or_default();
                taken.push((start, end, path["rate_bps"].as_u64().unwrap()));
            }
        }
    }
    assert!(by_link.contains_key("w-e"));
    for (link, mut taken) in by_link {
        taken.sort_unstable();
        for (at, (moment, ..)) in taken.iter().enumerate() {
            let before = taken[..=at]
                .iter()
                .rev()
                .take_while(|(start, ..)| start + 2 * SLOT_MS > *moment);
            let behind = taken[at + 1..]
                .iter()
                .take_while(|(start, ..)| start == moment);
            let open = before.chain(behind).filter(|(_, end, _)| end > moment);
            let sum: u64 = open.map(|(.., rate)| rate).sum();
            assert!(sum <= RESERVABLE_BPS, "{link} has {sum} at {moment}");
        }
    }
}

/// Reserves while `blows` cause failures, and then checks the result.
fn under_load(fleet: &Fleet, blows: impl FnOnce(&Fleet, &Acknowledged)) {
    let (acknowledged, is_over) = (Acknowledged::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for asker in 0..ASKERS {
            let (acknowledged, is_over) = (&acknowledged, &is_over);
            scope.spawn(move || load(fleet, asker, acknowledged, is_over));
        }
        let blown =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| blows(fleet, &acknowledged)));
        is_over.store(true, Ordering::SeqCst);
        if let Err(panic) = blown {
            std::panic::resume_unwind(panic);
        }
    });
    check(fleet, &acknowledged);
    eprintln!(
        "acknowledged: {}",
        acknowledged.reservations.lock().unwrap().len()
    );
}

/// Starts a fleet with a map.
fn fleet() -> Fleet {
    with_map(Fleet::start())
}

fn with_map(fleet: Fleet) -> Fleet {
    let leader = fleet.leader(None);
    // Any controller accepts it; it reaches the leader, which another may be by now.
    let other = (leader + 1) % CONTROLLERS;
    until("the map is accepted", || {
        match answer(&fleet.socket(other), "PUT", "/map", MAP, None) {
            Some((200, _)) => Ok(()),
            Some((503, said)) => Err(said),
            None => Err(Value::Null),
            Some(other) => panic!("{other:?}"),
        }
    });
    until("the map is known", || {
        let (_, map) = ask(&fleet.socket(leader), true, "GET", "/map", "").unwrap();
        if map["map"]["links"] == json!([]) {
            Err(map)
        } else {
            Ok(())
        }
    });
    fleet
}

#[test]
fn a_killed_leader_is_replaced_without_loss() {
    let fleet = fleet();
    under_load(&fleet, |fleet, acknowledged| {
        acknowledged.wait_for_more(Instant::now());
        for _ in 0..3 {
            let leader = fleet.leader(None);
            let blow = Instant::now();
            fleet.controllers[leader].write().unwrap().kill();
            fleet.leader(Some(leader));
            let leads = blow.elapsed();
            let reserves = acknowledged.wait_for_more(Instant::now());
            eprintln!("killed: another leads after {leads:?}, reserves {reserves:?} later");
            *fleet.controllers[leader].write().unwrap() =
                begin(&fleet.stage, &fleet.relays[leader], leader);
        }
    });
}

#[test]
fn a_cut_off_leader_is_replaced_and_cannot_write() {
    let fleet = fleet();
    under_load(&fleet, |fleet, acknowledged| {
        for _ in 0..2 {
            acknowledged.wait_for_more(Instant::now());
            let leader = fleet.leader(None);
            let blow = Instant::now();
            fleet.relays[leader].cut(true);
            fleet.leader(Some(leader));
            let leads = blow.elapsed();
            // The old leader knows by now that it no longer leads, and says so; it acknowledges
            // nothing that it cannot write.
            let (status, info) = answer_at_last(&fleet.socket(leader), "GET", "/controller");
            assert_eq!((status, &info["leads"]), (200, &json!(false)), "{info}");
            until("the old one says that it does not lead", || {
                let (status, problem) =
                    answer_at_last(&fleet.socket(leader), "POST", "/reservations/1/commit");
                assert_eq!(status, 503, "{problem}");
                let is_not_leading = problem["type"] == "urn:longhaul:problem:not-leading";
                if is_not_leading { Ok(()) } else { Err(problem) }
            });
            let reserves = acknowledged.wait_for_more(Instant::now());
            eprintln!("cut off: another leads after {leads:?}, reserves {reserves:?} later");
            // Delayed data arrives now.
            fleet.relays[leader].cut(false);
            // It follows, and names the leader. On a busy machine, this may be a third one.
            until("the old one follows", || {
                let new = fleet.leader(None);
                let (_, info) = answer_at_last(&fleet.socket(leader), "GET", "/controller");
                let url = info["leader"].as_str();
                let names = url.is_some_and(|url| url.starts_with("https://"));
                if new == leader || names {
                    Ok(())
                } else {
                    Err(info)
                }
            });
        }
    });
}

#[test]
fn the_fleet_has_a_leader_after_the_database_restarts() {
    let fleet = fleet();
    under_load(&fleet, |fleet, acknowledged| {
        for _ in 0..3 {
            acknowledged.wait_for_more(Instant::now());
            let blow = Instant::now();
            fleet.server.lock().unwrap().crash_and_restart();
            let there = blow.elapsed();
            let reserves = acknowledged.wait_for_more(Instant::now());
            eprintln!(
                "the server died, and was there after {there:?}: reserves {reserves:?} later"
            );
        }
    });
}

/// A client that names several controllers reserves at the leader, also during a takeover.
#[test]
fn a_client_of_several_controllers_uses_the_leader() {
    let fleet = fleet();
    let site = |at: usize| format!("url = \"unix:{}\"\n", fleet.socket(at).display());
    let leader = fleet.leader(None);
    let others = (0..CONTROLLERS).filter(|at| *at != leader);
    let others: Vec<String> = others
        .map(|at| format!("[[other]]\n{}", site(at)))
        .collect();
    let home = fleet.stage.path("me");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(
        home.join("controller.toml"),
        site(leader) + &others.concat(),
    )
    .unwrap();
    let reserve = |what: &str| {
        let mut command = fleet.stage.longhaul("me");
        let window = [
            "--from",
            "2100-01-04 18:00",
            "--for",
            "2h",
            "--description",
            what,
        ];
        command
            .args(["reserve", "west", "east", "--rate", "1G"])
            .args(window);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    reserve("before");
    fleet.controllers[leader].write().unwrap().kill();
    reserve("after");
    let new = fleet.leader(Some(leader));
    let all = known(&fleet.socket(new));
    let found: Vec<&str> = all
        .iter()
        .map(|one| one["description"].as_str().unwrap())
        .collect();
    assert_eq!(found, ["before", "after"]);
}

/// Only the leading controller contacts the nodes that several share. A new leader takes over the
/// circuits without tearing any down.
#[test]
fn only_the_leader_contacts_nodes() {
    let stage = Stage::new();
    let (driver, log) = (stage.path("driver"), stage.path("asked"));
    let script = r#"#!/bin/sh
read -r request
echo "$1 $request" >> "$2"
case "$request" in
*'"do":"list"'*) echo '{"answer":"parts","parts":[]}' ;;
*'"do":"counters"'*) echo '{"answer":"counters","bytes":1,"packets":1,"drops":0}' ;;
*) echo '{"answer":"done"}' ;;
esac
"#;
    std::fs::write(&driver, script).unwrap();
    for at in 0..CONTROLLERS {
        let program = json!(["/bin/sh", driver, format!("c{at}"), log]);
        let config = format!("[setup.nodes.west]\nprogram = {program}\n");
        std::fs::write(stage.path(&format!("c{at}.toml")), config).unwrap();
    }
    let fleet = with_map(Fleet::start_in(stage));
    let leader = fleet.leader(None);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let end = u64::try_from(now.as_millis()).unwrap() + SLOT_MS;
    let body = json!({
        "from": "dtn1", "to": "store", "wish": {"rate": {"rate_bps": RATE_BPS}}, "end_ms": end
    });
    let body = body.to_string();
    let (status, reserved) =
        ask(&fleet.socket(leader), true, "POST", "/reservations", &body).unwrap();
    assert_eq!(status, 201, "{reserved}");
    let (status, said) = ask(
        &fleet.socket(leader),
        true,
        "POST",
        "/reservations/1/provision",
        "",
    )
    .unwrap();
    assert_eq!(status, 200, "{said}");
    let asked = || std::fs::read_to_string(&log).unwrap_or_default();
    let wait_for = |who: usize| {
        let (who, set_up) = (format!("c{who} "), r#""do":"set_up""#);
        until("the nodes are asked", || {
            let asked = asked();
            let mut lines = asked.lines();
            let is_asked = lines.any(|line| line.starts_with(&who) && line.contains(set_up));
            if is_asked { Ok(()) } else { Err(asked) }
        });
    };
    wait_for(leader);
    let of_leader = format!("c{leader} ");
    assert!(
        asked().lines().all(|line| line.starts_with(&of_leader)),
        "{}",
        asked()
    );
    fleet.controllers[leader].write().unwrap().kill();
    let new = fleet.leader(Some(leader));
    wait_for(new);
    until("the circuit is set up", || {
        let (_, one) = ask(&fleet.socket(new), true, "GET", "/reservations/1", "").unwrap();
        if one["circuit"]["standing"] == "set-up" {
            Ok(())
        } else {
            Err(one)
        }
    });
    assert!(!asked().contains("tear_down"), "{}", asked());
    let third = 3 - leader - new;
    assert!(!asked().contains(&format!("c{third} ")), "{}", asked());
}
