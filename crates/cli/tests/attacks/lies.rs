//! Depots that lie about the result of an OPEN, or misdirect sessions.

use std::process::{Output, Stdio};
use std::time::Duration;

use longhaul_hostile::{HostileDepot, Lie};
use longhaul_proto::{PublicKey, StatusCode};

use crate::stage::{Service, errors};
use crate::world::*;

const LIMIT: Duration = Duration::from_secs(60);
/// Reverses the direction of a line, hides what follows, and contains unusual line breaks.
const STEERING: &str =
    "all is well\u{202e}\u{2066}\u{200b}\u{200f}\u{2028}\u{2029}\u{feff}\u{1b}[2Jrm";

fn lying(world: &World, lie: Lie) -> HostileDepot {
    world
        .attackers
        .block_on(HostileDepot::start(ANY, lie))
        .unwrap()
}

fn serve(world: &World) -> Service {
    let key = world.stage.key("me");
    world.serve(&["--read", &key, "--write", &key])
}

fn push_over(world: &World, server: &Service, route: &str, more: &[&str]) -> Output {
    world.stage.noise("here/f", 1000);
    let there = format!("lh://{}/f", server.address);
    let mut arguments = vec!["--host-key", &server.key, "--route", route];
    arguments.extend(more);
    arguments.extend(["here/f", &there]);
    let output = world.cp_within(LIMIT, "me", &arguments);
    output.expect("a copy over a lying depot did not end")
}

#[test]
fn text_of_a_depot_cannot_control_the_terminal() {
    let world = World::new();
    let server = serve(&world);
    let depot = lying(
        &world,
        Lie::Fails {
            code: StatusCode::Refused,
            detail: STEERING.as_bytes().to_vec(),
        },
    );
    for more in [&[][..], &["--json"]] {
        let output = push_over(&world, &server, &depot.address.to_string(), more);
        assert_ne!(output.status.code(), Some(0));
        let shown = errors(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(steering(&shown), Vec::<char>::new(), "{shown:?}");
    }
}

#[test]
fn a_depot_cannot_fail_in_the_name_of_another() {
    let world = World::new();
    let server = serve(&world);
    let honest = world.open_depot();
    let reporter: PublicKey = honest.key.parse().unwrap();
    let depot = lying(
        &world,
        Lie::FailsForNext {
            code: StatusCode::Draining,
            reporter: Some(reporter),
        },
    );
    let route = format!("{},{}", depot.address, honest.address);
    let output = push_over(&world, &server, &route, &[]);
    let reported = errors(&output);
    assert_ne!(output.status.code(), Some(0));
    // Nobody drained the next depot: a claim in its name is not proved by its key.
    assert!(!reported.contains("is draining"), "{reported}");
}

#[test]
fn unsigned_failures_are_ignored_if_the_route_names_keys() {
    let world = World::new();
    let server = serve(&world);
    let honest = world.open_depot();
    for reporter in [None, Some(honest.key.parse().unwrap())] {
        let code = StatusCode::Draining;
        let depot = lying(&world, Lie::FailsForNext { code, reporter });
        let route = format!("{},{}@{}", depot.address, honest.key, honest.address);
        let output = push_over(&world, &server, &route, &[]);
        let reported = errors(&output);
        // 2 is the code for a route that cannot be parsed.
        assert!(!matches!(output.status.code(), Some(0 | 2)), "{reported}");
        assert!(!reported.contains("is draining"), "{reported}");
    }
}

#[test]
fn a_route_that_names_keys_takes_no_other_depot() {
    let world = World::new();
    let server = serve(&world);
    let honest = world.open_depot();
    let good = format!("{}@{}", honest.key, honest.address);
    let output = push_over(&world, &server, &good, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let other = format!("{}@{}", world.stage.key("other"), honest.address);
    let output = push_over(&world, &server, &other, &["--overwrite"]);
    assert_ne!(output.status.code(), Some(0));
    let depot = lying(&world, Lie::None);
    let posing = format!("{}@{}", honest.key, depot.address);
    let output = push_over(&world, &server, &posing, &["--overwrite"]);
    assert_ne!(output.status.code(), Some(0));
}

#[test]
fn false_reports_of_nothing_forwarded_corrupt_no_copy() {
    let world = World::new();
    let server = serve(&world);
    let depot = lying(&world, Lie::NothingWentOn);
    let output = push_over(
        &world,
        &server,
        &depot.address.to_string(),
        &["--fall-back"],
    );
    // Whether it falls back or fails, the committed file is whole or absent.
    match output.status.code() {
        Some(0) => assert_eq!(
            std::fs::read(world.stage.path("root/f")).unwrap(),
            std::fs::read(world.stage.path("here/f")).unwrap()
        ),
        _ => assert!(!world.stage.path("root/f").exists()),
    }
    assert!(crate::stage::no_temps(world.stage.tmp.path()));
}

#[test]
fn a_depot_that_swaps_two_sessions_of_one_key_breaks_both() {
    let world = World::new();
    let server = serve(&world);
    let depot = lying(&world, Lie::SwapsPairs);
    let route = depot.address.to_string();
    let copies: Vec<_> = ["a", "b"]
        .map(|name| {
            world.stage.noise(&format!("here/{name}"), 100_000);
            let mut command = world.stage.longhaul("me");
            command
                .args([
                    "cp",
                    "--host-key",
                    &server.key,
                    "--streams",
                    "1",
                    "--route",
                    &route,
                ])
                .arg(format!("here/{name}"))
                .arg(format!("lh://{}/{name}", server.address))
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            let mut command = tokio::process::Command::from(command);
            command.kill_on_drop(true);
            world
                .attackers
                .spawn(async move { tokio::time::timeout(LIMIT, command.output()).await })
        })
        .into();
    for copy in copies {
        let output = world.attackers.block_on(copy).unwrap();
        let output = output.expect("a swapped copy did not end").unwrap();
        assert_ne!(
            output.status.code(),
            Some(0),
            "a session went through under the OPEN of another"
        );
    }
    for name in ["a", "b"] {
        assert!(!world.stage.path(&format!("root/{name}")).exists());
    }
}
