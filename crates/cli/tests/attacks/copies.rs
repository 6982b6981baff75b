//! One listed key against `longhaul serve`: what it takes is its own, and what it costs is bounded.

use std::time::Duration;

use longhaul_hostile::client::{self, Heard, Stream};
use longhaul_hostile::{Usage, frames};
use tokio::task::JoinSet;

use crate::stage::Service;
use crate::world::*;

/// How long an attack may go on here.
const ATTACK: Duration = Duration::from_secs(6);
/// Descriptors that a server may hold while one key opens all it can.
const MAX_DESCRIPTORS_UNDER_ONE_KEY: u64 = 1_800;
/// Memory, in bytes, by which one key may make a server of the test build grow.
const MAX_MEMORY_OF_ONE_KEY: u64 = 64 << 20;
/// Lines and bytes of log that one key may cause within some seconds.
const MAX_LOG_LINES: usize = 2_000;
const MAX_LOG_BYTES: usize = 512 * 1024;

/// A server that lets `me` do everything, and `attacker` this.
fn serve(world: &World, attacker: &str) -> Service {
    let (me, key) = (world.stage.key("me"), world.stage.key("attacker"));
    world.serve(&["--read", &me, "--write", &me, attacker, &key])
}

/// So many sessions of the attacker, each of which has said what `hello` gives.
fn streams(world: &World, server: &Service, count: usize, hello: impl Fn() -> Vec<u8>) -> Vec<Stream> {
    let target = world.target(server, "attacker");
    world.attackers.block_on(async {
        let mut set = JoinSet::new();
        for _ in 0..count {
            let (target, hello) = (target.clone(), hello());
            set.spawn(async move {
                let mut stream = target.connect().await.ok()?;
                stream.hold(&hello).await.ok()?;
                // What is refused has been said by then, and what is accepted has begun.
                if !hello.is_empty() {
                    stream.hear_a_little(ATTACK).await;
                }
                Some(stream)
            });
        }
        set.join_all().await.into_iter().flatten().collect()
    })
}

/// Says `pieces` on a stream of its own that pushes to `to`; what was heard, and the stream.
fn push(
    world: &World,
    server: &Service,
    to: &str,
    pieces: impl Iterator<Item = Vec<u8>>,
    enough: impl Fn(&Heard) -> bool,
) -> (Heard, Stream) {
    let hello = || frames::push_hello(to.as_bytes(), &[b"s"]);
    let mut stream = streams(world, server, 1, hello).pop().unwrap();
    let said = stream.say(pieces, ATTACK, enough);
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
    // As many as eight copies may have, and without a HELLO besides.
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
    let _held: Vec<Stream> = world.attackers.block_on(async {
        let mut set = JoinSet::new();
        for copy in 0..7 {
            let target = target.clone();
            set.spawn(async move {
                let mut stream = target.connect().await.ok()?;
                let hello = frames::push_hello(format!("d{copy}").as_bytes(), &[b"s"]);
                let said = std::iter::once(hello)
                    .chain(std::iter::once(frames::directory(0xffff, b"")))
                    .chain(client::open_files(3_900));
                stream.say(said, ATTACK, |heard| heard.total >= 3_900 * 21).await;
                Some(stream)
            });
        }
        set.join_all().await.into_iter().flatten().collect()
    });
    let usage = Usage::of(server.process()).unwrap();
    assert!(
        usage.descriptors <= MAX_DESCRIPTORS_UNDER_ONE_KEY,
        "{usage:?}: 7 streams, some 310 KB each"
    );
    world.assert_honest_copy(&server, "direct");
}

#[test]
fn failures_that_a_client_reports_fill_neither_log_nor_memory() {
    const FAILURES: u64 = 60_000;
    let world = World::new();
    let server = serve(&world, "--write");
    let before = Usage::of(server.process()).unwrap();
    // Their reports: RESULT with a reason is more than 15 bytes.
    let enough = |heard: &Heard| heard.total >= FAILURES * 500;
    let (heard, _stream) = push(&world, &server, "d", client::failures(FAILURES), enough);
    let after = Usage::of(server.process()).unwrap();
    let log = std::fs::read_to_string(world.log("server")).unwrap();
    let lines = log.lines().count();
    println!("{} bytes sent, {after:?}, log {lines} lines", heard.sent);
    assert!(
        lines <= MAX_LOG_LINES,
        "{lines} lines of log, {} bytes",
        log.len()
    );
    assert!(log.len() <= MAX_LOG_BYTES, "{} bytes of log", log.len());
    assert!(after.most_resident <= before.most_resident + MAX_MEMORY_OF_ONE_KEY);
    world.assert_honest_copy(&server, "direct");
}

/// Processor seconds of this thread.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn holes_cost_less_than_hashing_them() {
    const BLOCKS: u64 = 16_000;
    let world = World::new();
    let server = serve(&world, "--write");
    let before = Usage::of(server.process()).unwrap();
    let (heard, _stream) = push(&world, &server, "d", client::holes(BLOCKS), |heard| {
        heard.total >= BLOCKS * 21
    });
    let cost = Usage::of(server.process()).unwrap().processor_seconds - before.processor_seconds;
    // What hashing all of it would cost here and now.
    let zeros = vec![0; 1 << 20];
    let began = processor_seconds();
    let sample = 64;
    for _ in 0..sample {
        std::hint::black_box(blake3::hash(&zeros));
    }
    let each = (processor_seconds() - began) / f64::from(sample);
    let answered = heard.total / 21;
    let hashing = each * answered as f64;
    println!("{answered} holes: {cost:.2} s, hashing them {hashing:.2} s");
    assert!(
        answered >= BLOCKS / 2,
        "only {answered} of {BLOCKS} were answered"
    );
    assert!(
        cost < hashing / 2.0,
        "{cost:.2} s of processor for {answered} holes; hashing them all costs {hashing:.2} s"
    );
}

#[test]
fn scattered_blocks_cost_bounded_memory() {
    const FILES: u64 = 4;
    const BLOCKS_OF_EACH: u64 = 50_000;
    let world = World::new();
    let server = serve(&world, "--write");
    let before = Usage::of(server.process()).unwrap();
    let enough = |heard: &Heard| heard.total >= FILES * BLOCKS_OF_EACH * 21;
    let scattered = client::scattered(FILES, BLOCKS_OF_EACH);
    let (heard, _stream) = push(&world, &server, "d", scattered, enough);
    let after = Usage::of(server.process()).unwrap();
    let grown = after.most_resident.saturating_sub(before.most_resident);
    println!("{} bytes sent, grown by {grown}", heard.sent);
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
    let (heard, _stream) = push(&world, &server, "d", said.into_iter(), |_| false);
    assert!(heard.closed || heard.has(15), "it is over");
    world.assert_honest_copy(&server, "direct");
    assert_eq!(server.ended(), None);
    let log = std::fs::read_to_string(world.log("server")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}
