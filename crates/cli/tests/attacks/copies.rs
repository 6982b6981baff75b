//! One listed key against `longhaul serve`: it can only use its own share, and its cost is bounded.

use std::time::Duration;

use longhaul_hostile::client::{self, Exchange, RawStream};
use longhaul_hostile::{Usage, frames};

use crate::stage::Service;
use crate::world::*;

/// Duration of an attack.
const ATTACK: Duration = Duration::from_secs(6);
/// Maximum descriptors of a server while one key opens all it can: two for each of its 2,048 files,
/// and the server's own (docs/serving.md).
const MAX_DESCRIPTORS_UNDER_ONE_KEY: u64 = 2 * 2_048 + 256;
/// Maximum growth of a server's memory caused by one key, in bytes. Its share of the state is 128
/// MiB, and allocators round up (docs/serving.md).
const MAX_MEMORY_OF_ONE_KEY: u64 = 192 << 20;
/// Maximum lines and bytes of log that one key may cause within some seconds.
const MAX_LOG_LINES: usize = 2_000;
const MAX_LOG_BYTES: usize = 512 * 1024;

/// Starts a server that grants `me` everything, and the attacker `attacker`.
fn serve(world: &World, attacker: &str) -> Service {
    let (me, key) = (world.stage.key("me"), world.stage.key("attacker"));
    world.serve(&["--read", &me, "--write", &me, attacker, &key])
}

/// Opens this many sessions of the attacker, each with the first message that `hello` returns.
fn streams(
    world: &World,
    server: &Service,
    count: usize,
    hello: impl Fn() -> Vec<u8>,
) -> Vec<RawStream> {
    let target = world.target(server, "attacker");
    let hellos = (0..count).map(|_| hello());
    let held = client::open_held_sessions(&target, hellos, ATTACK);
    world.attackers.block_on(held)
}

/// Sends `pieces` on a new stream that pushes to `to`. Returns what was received, and the stream.
fn push(
    world: &World,
    server: &Service,
    to: &str,
    pieces: impl Iterator<Item = Vec<u8>>,
    enough: impl Fn(&Exchange) -> bool,
) -> (Exchange, RawStream) {
    let hello = || frames::push_hello(to.as_bytes(), &[b"s"]);
    let mut stream = streams(world, server, 1, hello).pop().unwrap();
    let said = stream.exchange(pieces, ATTACK, enough);
    (world.attackers.block_on(said), stream)
}

#[test]
fn a_key_that_may_read_cannot_hold_every_copy() {
    let world = World::new();
    let server = serve(&world, "--read");
    world.stage.noise("root/big", 4 << 20);
    let hello = || frames::pull_hello(frames::fresh_token(), false, &[b"big"]);
    let held = streams(&world, &server, 64, hello);
    assert!(held.len() >= 4, "{} sessions were held", held.len());
    world.assert_honest_copy(&server, "direct");
}

#[test]
fn a_key_cannot_hold_every_stream() {
    let world = World::new();
    let server = serve(&world, "--read");
    world.stage.noise("root/big", 4 << 20);
    // As many as eight copies may have, plus streams without a HELLO.
    let tokens: Vec<u64> = (0..8).map(|_| frames::fresh_token()).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let hello = || match next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        n if n < 448 => frames::pull_hello(tokens[n % tokens.len()], false, &[b"big"]),
        _ => Vec::new(),
    };
    let held = streams(&world, &server, 520, hello);
    assert!(held.len() >= 4, "{} sessions were held", held.len());
    world.assert_honest_copy(&server, "direct");
}

#[test]
fn a_key_cannot_take_every_descriptor() {
    let world = World::new();
    let server = serve(&world, "--write");
    let target = world.target(&server, "attacker");
    let held = client::open_held_files(&target, 7, 3_900, ATTACK);
    let _held: Vec<RawStream> = world.attackers.block_on(held);
    let usage = Usage::read(server.process()).unwrap();
    assert!(
        usage.descriptors <= MAX_DESCRIPTORS_UNDER_ONE_KEY,
        "{usage:?}: 7 streams, some 310 KB each"
    );
    world.assert_honest_copy(&server, "direct");
}

#[test]
fn reported_failures_fill_neither_log_nor_memory() {
    const FAILURES: u64 = 60_000;
    let world = World::new();
    let server = serve(&world, "--write");
    let before = Usage::read(server.process()).unwrap();
    // Their failure reports: a RESULT with a reason is longer than 15 bytes.
    let enough = |received: &Exchange| received.total >= FAILURES * 500;
    let (received, _stream) = push(&world, &server, "d", client::failures(FAILURES), enough);
    let after = Usage::read(server.process()).unwrap();
    let log = std::fs::read_to_string(world.log("server")).unwrap();
    let lines = log.lines().count();
    println!("{} bytes sent, {after:?}, log {lines} lines", received.sent);
    assert!(
        lines <= MAX_LOG_LINES,
        "{lines} lines of log, {} bytes",
        log.len()
    );
    assert!(log.len() <= MAX_LOG_BYTES, "{} bytes of log", log.len());
    assert!(after.most_resident <= before.most_resident + MAX_MEMORY_OF_ONE_KEY);
    world.assert_honest_copy(&server, "direct");
}

/// BLAKE3 chunks carry their numbers, so holes must be hashed, and 27 bytes request a megabyte of
/// hashing. Low-priority threads hash one hole at a time.
#[test]
fn hashing_holes_does_not_delay_others() {
    const BLOCKS: u64 = 16_000;
    let world = World::new();
    let server = serve(&world, "--write");
    let (received, _stream) = push(&world, &server, "d", client::holes(BLOCKS), |received| {
        received.total >= BLOCKS * 21
    });
    println!("{} holes were answered", received.total / 21);
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.process())).unwrap();
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    // proc_pid_stat(5): the name is in parentheses, and niceness is the 17th field after it.
    let niceness: Vec<i32> = stats
        .filter_map(|stat| {
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            let nice = rest.split_whitespace().nth(16)?.parse().ok()?;
            (name == "holes").then_some(nice)
        })
        .collect();
    assert!(
        !niceness.is_empty() && niceness.iter().all(|&nice| nice == 19),
        "{niceness:?}"
    );
    world.assert_honest_copy(&server, "direct");
}

#[test]
fn scattered_blocks_cost_bounded_memory() {
    const FILES: u64 = 4;
    const BLOCKS_OF_EACH: u64 = 50_000;
    let world = World::new();
    let server = serve(&world, "--write");
    let before = Usage::read(server.process()).unwrap();
    let enough = |received: &Exchange| received.total >= FILES * BLOCKS_OF_EACH * 21;
    let scattered = client::scattered(FILES, BLOCKS_OF_EACH);
    let (received, _stream) = push(&world, &server, "d", scattered, enough);
    let after = Usage::read(server.process()).unwrap();
    let grown = after.most_resident.saturating_sub(before.most_resident);
    println!("{} bytes sent, grown by {grown}", received.sent);
    assert!(grown <= MAX_MEMORY_OF_ONE_KEY, "grown by {grown} bytes");
    world.assert_honest_copy(&server, "direct");
}

#[test]
fn totals_beyond_all_bounds_harm_no_server() {
    let world = World::new();
    let mut server = serve(&world, "--write");
    let said = [
        frames::totals(u64::MAX, u64::MAX, true),
        frames::honest_small(0, b"", b"x"),
        frames::totals(u64::MAX, u64::MAX, false),
        frames::end(1),
    ];
    let (received, _stream) = push(&world, &server, "d", said.into_iter(), |_| false);
    assert!(received.closed || received.has(15), "it is over");
    world.assert_honest_copy(&server, "direct");
    assert_eq!(server.ended(), None);
    let log = std::fs::read_to_string(world.log("server")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}
