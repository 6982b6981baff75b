//! Measures the cost of the on-ramp's proxies on loopback, compared with Dante's SOCKS server and
//! with no proxy: rate and processor time at 1 and at 64 connections, and the latency of a
//! connection and of an answer, in alternating rounds.
//!
//! `cargo bench -p longhaul-cli --bench proxies`. Dante (`danted`, Debian's dante-server) is left
//! out, with a message, if it is not installed.

// A benchmark that can't go on has failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod proxy;
mod server;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use proxy::{Kind, Proxy};

/// Bytes that all connections of a run carry together.
const BYTES: u64 = 4 << 30;
const CONNECTIONS: [u64; 2] = [1, 64];
/// Runs of each kind, of which the median counts.
const RUNS: usize = 5;
/// Connections, and answers over one of them, timed per round.
const TIMED: usize = 500;
/// Rounds in which the kinds alternate: the system's placement of the threads of both ends makes a
/// factor of two.
const ROUNDS: usize = 9;

fn main() {
    // cargo calls it like this to test rather than to measure.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let server = server::start();
    let mut proxies = Vec::new();
    for kind in Kind::ALL {
        match Proxy::start(kind, server) {
            Some(proxy) => proxies.push((kind.name(), proxy)),
            None => println!("{:<16} not installed", kind.name()),
        }
    }
    println!(
        "{:<16} {:>6} {:>12} {:>14}",
        "proxy", "conns", "Gbit/s", "CPU s/GB"
    );
    for (name, proxy) in &proxies {
        for connections in CONNECTIONS {
            let mut runs: Vec<(f64, f64)> = (0..RUNS)
                .map(|_| bulk(proxy, server, connections))
                .collect();
            runs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (rate, cpu) = runs[RUNS / 2];
            println!("{name:<16} {connections:>6} {rate:>12.2} {cpu:>14.3}");
        }
    }
    let mut times = vec![(Vec::new(), Vec::new()); proxies.len()];
    for _ in 0..ROUNDS {
        for ((_, proxy), (connects, answers)) in proxies.iter().zip(&mut times) {
            let (connect, answer) = latency(proxy, server);
            connects.push(connect);
            answers.push(answer);
        }
    }
    println!("{:<16} {:>24} {:>24}", "proxy", "connect us", "answer us");
    for ((name, _), (connects, answers)) in proxies.iter().zip(times) {
        println!(
            "{name:<16} {:>24} {:>24}",
            spread(connects),
            spread(answers)
        );
    }
}

/// Formats the median of the rounds, with the minimum and maximum.
fn spread(mut rounds: Vec<f64>) -> String {
    rounds.sort_by(f64::total_cmp);
    format!(
        "{:.0} ({:.0}..{:.0})",
        rounds[ROUNDS / 2],
        rounds[0],
        rounds[ROUNDS - 1]
    )
}

/// Downloads over this many connections at once. Returns Gbit/s, and the proxy's processor seconds
/// per gigabyte.
fn bulk(proxy: &Proxy, server: SocketAddr, connections: u64) -> (f64, f64) {
    let share = BYTES / connections;
    let ready = Barrier::new(connections as usize + 1);
    let before = proxy.processor_time();
    let seconds = std::thread::scope(|scope| {
        let downloads: Vec<_> = (0..connections)
            .map(|_| {
                scope.spawn(|| {
                    let mut stream = proxy.connect(server);
                    ready.wait();
                    download(&mut stream, share);
                })
            })
            .collect();
        ready.wait();
        let began = Instant::now();
        downloads
            .into_iter()
            .for_each(|download| download.join().unwrap());
        began.elapsed().as_secs_f64()
    });
    let cpu = proxy.processor_time().saturating_sub(before);
    let gigabytes = (share * connections) as f64 / 1e9;
    (gigabytes * 8.0 / seconds, cpu.as_secs_f64() / gigabytes)
}

fn download(stream: &mut TcpStream, bytes: u64) {
    stream.write_all(&bytes.to_be_bytes()).unwrap();
    let mut buffer = vec![0; 1 << 18];
    let mut left = bytes;
    while left > 0 {
        let read = stream.read(&mut buffer).unwrap() as u64;
        assert!(read > 0, "{left} bytes are missing");
        left -= read;
    }
}

/// Returns medians, in microseconds, of a connection up to its first byte, and of an answer of one
/// byte.
fn latency(proxy: &Proxy, server: SocketAddr) -> (f64, f64) {
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    let connects = (0..TIMED).map(|_| {
        let began = Instant::now();
        download(&mut proxy.connect(server), 1);
        began.elapsed()
    });
    let connects = median(connects.collect());
    let mut stream = proxy.connect(server);
    let answers = (0..TIMED).map(|_| {
        let began = Instant::now();
        download(&mut stream, 1);
        began.elapsed()
    });
    (connects, median(answers.collect()))
}
