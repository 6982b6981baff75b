//! Attackers without a key: idle, slow and invalid connections, and what they cause in logs.

use std::time::{Duration, Instant};

use longhaul_hostile::{StrangerBehaviour, Usage};

use crate::world::*;

/// Hostile connections: more than any gate has permits for, from four addresses.
const STRANGERS: usize = 1400;
/// New connections per second; closed ones are opened again.
const PER_SECOND: u32 = 1500;
/// Maximum descriptors of a server or a depot during the flood.
const MAX_DESCRIPTORS_UNDER_STRANGERS: u64 = 1_600;
/// Maximum memory of a server or a depot of the test build during the flood, in bytes.
const MAX_MEMORY_UNDER_STRANGERS: u64 = 96 << 20;
/// Maximum lines and bytes of log that some thousand invalid connections may cause at once, and the
/// lines that each second adds.
const MAX_LOG_LINES: usize = 300;
const MAX_LOG_BYTES: usize = 64 * 1024;
const LOG_LINES_PER_SECOND: usize = 10;

fn a_copy_from_serve_under(manner: StrangerBehaviour) {
    let world = World::new();
    let key = world.stage.key("me");
    let server = world.serve(&["--read", &key, "--write", &key]);
    let crowd = world.strangers(&server.address, STRANGERS, PER_SECOND, manner);
    world.assert_honest_copy(&server, "direct");
    let held = Usage::read(server.process()).unwrap();
    assert!(
        held.descriptors <= MAX_DESCRIPTORS_UNDER_STRANGERS,
        "{held:?}"
    );
    assert!(held.most_resident <= MAX_MEMORY_UNDER_STRANGERS, "{held:?}");
    assert!(crowd.made() > 0);
}

fn a_copy_over_a_depot_under(manner: StrangerBehaviour) {
    let world = World::new();
    let key = world.stage.key("me");
    let server = world.serve(&["--read", &key, "--write", &key]);
    let depot = world.open_depot();
    let crowd = world.strangers(&depot.address, STRANGERS, PER_SECOND, manner);
    world.assert_honest_copy(&server, &depot.address);
    let held = Usage::read(depot.process()).unwrap();
    assert!(
        held.descriptors <= MAX_DESCRIPTORS_UNDER_STRANGERS,
        "{held:?}"
    );
    assert!(held.most_resident <= MAX_MEMORY_UNDER_STRANGERS, "{held:?}");
    assert!(crowd.made() > 0);
}

#[test]
fn idle_connections_do_not_block_serve() {
    a_copy_from_serve_under(StrangerBehaviour::Idle);
}

#[test]
fn slow_connections_do_not_block_serve() {
    a_copy_from_serve_under(StrangerBehaviour::Drip);
}

#[test]
fn half_opens_do_not_block_serve() {
    a_copy_from_serve_under(StrangerBehaviour::HalfOpen);
}

#[test]
fn garbage_does_not_block_serve() {
    a_copy_from_serve_under(StrangerBehaviour::Garbage);
}

#[test]
fn idle_connections_do_not_block_a_depot() {
    a_copy_over_a_depot_under(StrangerBehaviour::Idle);
}

#[test]
fn slow_connections_do_not_block_a_depot() {
    a_copy_over_a_depot_under(StrangerBehaviour::Drip);
}

#[test]
fn half_opens_do_not_block_a_depot() {
    a_copy_over_a_depot_under(StrangerBehaviour::HalfOpen);
}

#[test]
fn garbage_does_not_block_a_depot() {
    a_copy_over_a_depot_under(StrangerBehaviour::Garbage);
}

/// Sends garbage for a while. Returns the log, and the seconds that it took.
fn log_of_garbage(world: &World, who: &str, address: &str) -> (String, usize) {
    let began = Instant::now();
    let crowd = world.strangers(address, 200, 2000, StrangerBehaviour::Garbage);
    let enough = world
        .attackers
        .block_on(crowd.has_made(2000, Duration::from_secs(120)));
    assert!(
        enough,
        "only {} senseless connections were made",
        crowd.made()
    );
    drop(crowd);
    let log = std::fs::read_to_string(world.log(who)).unwrap();
    (log, began.elapsed().as_secs() as usize)
}

fn assert_bounded((log, seconds): (String, usize)) {
    let lines = log.lines().count();
    let more = seconds * LOG_LINES_PER_SECOND;
    assert!(lines <= MAX_LOG_LINES + more, "{lines} lines of log");
    let max_bytes = MAX_LOG_BYTES + more * MAX_LOG_BYTES / MAX_LOG_LINES;
    assert!(log.len() <= max_bytes, "{} bytes of log", log.len());
}

#[test]
fn strangers_fill_the_log_of_serve_at_a_bounded_rate() {
    let world = World::new();
    let server = world.serve(&["--read", &world.stage.key("me")]);
    assert_bounded(log_of_garbage(&world, "server", &server.address));
}

#[test]
fn strangers_fill_the_log_of_a_depot_at_a_bounded_rate() {
    let world = World::new();
    let depot = world.open_depot();
    assert_bounded(log_of_garbage(&world, "depot", &depot.address));
}

#[test]
fn a_log_file_has_no_terminal_codes() {
    let world = World::new();
    let key = world.stage.key("me");
    let server = world.serve(&["--read", &key, "--write", &key]);
    let depot = world.open_depot();
    world.assert_honest_copy(&server, &depot.address);
    for (who, service) in [("server", server), ("depot", depot)] {
        drop(world.strangers(&service.address, 4, 100, StrangerBehaviour::Garbage));
        assert_eq!(service.terminate(), Some(0));
        let log = std::fs::read_to_string(world.log(who)).unwrap();
        assert!(!log.is_empty(), "{who} logs something");
        assert!(!log.contains('\u{1b}'), "{who}: {log:?}");
    }
}
