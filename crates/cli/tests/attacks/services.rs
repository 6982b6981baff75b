//! Floods of HTTP services: the agent's page, the controller's archive, the page of metrics.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use longhaul_hostile::{StrangerBehaviour, Usage};

use crate::stage::Service;
use crate::world::*;

/// Hostile connections: more than any gate has permits for.
const STRANGERS: usize = 1400;
const PER_SECOND: u32 = 1500;
/// Maximum descriptors of a service during a flood.
const MAX_DESCRIPTORS_UNDER_STRANGERS: u64 = 400;
/// Requests with endless bodies, the bytes that each has sent, and the memory in bytes that a
/// service of the test build may use for all of them.
const UNFINISHED: usize = 300;
const BODY_BYTES: usize = 512 << 10;
const MAX_MEMORY_UNDER_BODIES: u64 = 128 << 20;

fn agent(world: &World) -> Service {
    let mut command = world.logged("me");
    command.args(["agent", "--listen", "127.0.0.1:0"]);
    world.stage.service(command, "http")
}

/// Returns the status of an answer to a request.
fn status(at: &str, request: &str) -> u16 {
    let mut stream = TcpStream::connect_timeout(&at.parse().unwrap(), HONEST).unwrap();
    stream.set_read_timeout(Some(HONEST)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let status = text
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.unwrap_or_default()
}

fn get(at: &str, path: &str, more: &str) -> u16 {
    status(
        at,
        &format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{more}\r\n"),
    )
}

fn bearer(world: &World, file: &str) -> String {
    let token = std::fs::read_to_string(world.stage.path(file)).unwrap();
    format!("Authorization: Bearer {}\r\n", token.trim())
}

fn assert_answers(world: &World, mut command: Command, arguments: &[&str]) {
    command.args(arguments);
    let output = world.within(HONEST, command).expect("no answer in time");
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {reported}");
}

fn assert_few_descriptors(service: &Service) {
    let held = Usage::read(service.process()).unwrap();
    assert!(
        held.descriptors <= MAX_DESCRIPTORS_UNDER_STRANGERS,
        "{held:?}"
    );
}

#[test]
fn idle_connections_do_not_block_the_agent() {
    let world = World::new();
    let agent = agent(&world);
    let _crowd = world.strangers(
        &agent.address,
        STRANGERS,
        PER_SECOND,
        StrangerBehaviour::Idle,
    );
    assert_eq!(
        get(
            &agent.address,
            "/api/v1/agent",
            &bearer(&world, "me/state/agent/token")
        ),
        200
    );
    assert_answers(&world, world.stage.longhaul("me"), &["jobs"]);
    assert_few_descriptors(&agent);
}

#[test]
fn unfinished_bodies_cost_the_agent_bounded_memory() {
    let world = World::new();
    let agent = agent(&world);
    let at: SocketAddr = agent.address.parse().unwrap();
    let head = format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        BODY_BYTES + 1
    );
    let body = vec![b' '; BODY_BYTES];
    let unfinished: Vec<TcpStream> = (0..UNFINISHED)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(at).ok()?;
            stream.set_write_timeout(Some(HONEST)).unwrap();
            // The service may refuse it before it is complete.
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&body));
            Some(stream)
        })
        .collect();
    assert_eq!(
        get(
            &agent.address,
            "/api/v1/agent",
            &bearer(&world, "me/state/agent/token")
        ),
        200
    );
    assert_answers(&world, world.stage.longhaul("me"), &["jobs"]);
    let held = Usage::read(agent.process()).unwrap();
    assert!(held.most_resident <= MAX_MEMORY_UNDER_BODIES, "{held:?}");
    assert_few_descriptors(&agent);
    drop(unfinished);
}

#[test]
fn idle_connections_do_not_block_the_archive() {
    let world = World::new();
    let mut command = world.logged("control");
    command.args(["control", "--archive", "127.0.0.1:0"]);
    let control = world.stage.service(command, "archive");
    let _crowd = world.strangers(
        &control.address,
        STRANGERS,
        PER_SECOND,
        StrangerBehaviour::Idle,
    );
    let post = format!(
        "POST /api/v1/pscheduler HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 0\r\n\
         {}\r\n",
        control.address,
        bearer(&world, "control/state/control/token"),
    );
    // It contains no measurement, so it is not a run of pScheduler's; it is accepted all the same.
    let answered = status(&control.address, &post);
    assert!(
        (400..500).contains(&answered) && ![401, 403, 429].contains(&answered),
        "{answered}"
    );
    assert_answers(
        &world,
        world.stage.longhaul("control"),
        &["control", "principals"],
    );
    assert_few_descriptors(&control);
}

#[test]
fn idle_connections_do_not_block_the_metrics_page() {
    let world = World::new();
    let mut command = world.logged("control");
    command.args(["control", "--metrics", "127.0.0.1:0"]);
    let control = world.stage.service(command, "metrics");
    let _crowd = world.strangers(
        &control.address,
        STRANGERS,
        PER_SECOND,
        StrangerBehaviour::Idle,
    );
    assert_eq!(get(&control.address, "/metrics", ""), 200);
    assert_few_descriptors(&control);
}
