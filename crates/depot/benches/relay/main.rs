//! Cost of relaying, compared with HAProxy in TCP mode with splicing: CPU seconds per gigabyte,
//! memory of 1,000 idle sessions, and session set-ups per second. Loopback only.
//!
//! Both relays run as separate processes with the same number of threads and the same pipe size,
//! between the same in-memory ends, alternately (A B A B). HAProxy always splices
//! (`option splice-request` and `splice-response`). With `splice-auto`, its heuristics choose to
//! copy here, at more than twice the CPU (`--also-auto` shows it). CPU time is user and system time
//! of the relay's process, from `/proc/PID/stat`. For both relays, it excludes kernel work in
//! interrupts that hit other processes.
//!
//! ```sh
//! cargo bench -p longhaul-depot --bench relay -- [--rounds 7] [--gigabytes 2] [--flows 1,4] \
//!     [--threads 2] [--also-auto] [--setups 4000]
//! ```
//!
//! Prints a line of text for each result and, as the last line, all of them as JSON. Exits with 2
//! if HAProxy is missing.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark that cannot run panics"
)]

mod ends;
mod idle;
mod relays;
mod setups;

use std::process::ExitCode;
use std::time::Instant;

use longhaul_proto::SigningKey;
use serde_json::{Value, json};

use relays::Relay;

/// Command-line options.
struct Options {
    rounds: usize,
    gigabytes: f64,
    flows: Vec<usize>,
    threads: usize,
    pipe: usize,
    also_auto: bool,
    idle_sessions: usize,
    setups: usize,
}

impl Options {
    fn read(arguments: &[String]) -> Self {
        let value = |name: &str| {
            arguments
                .iter()
                .position(|argument| argument == name)
                .and_then(|at| arguments.get(at + 1))
                .cloned()
        };
        let number = |name: &str, default: f64| {
            value(name).map_or(default, |text| text.parse().expect(name))
        };
        Self {
            rounds: number("--rounds", 7.0) as usize,
            gigabytes: number("--gigabytes", 2.0),
            flows: value("--flows").map_or(vec![1, 4], |text| {
                text.split(',')
                    .map(|flows| flows.parse().expect("--flows"))
                    .collect()
            }),
            threads: number("--threads", 2.0) as usize,
            pipe: number("--pipe", f64::from(1 << 20)) as usize,
            also_auto: arguments.iter().any(|argument| argument == "--also-auto"),
            idle_sessions: number("--idle-sessions", 1000.0) as usize,
            setups: number("--setups", 4000.0) as usize,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "depot") {
        relays::depot_process(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    relays::raise_descriptor_limit();
    let options = Options::read(&arguments);
    let key = SigningKey::generate().expect("key");
    let destination = ends::Sink::open();
    let mut relays = vec![Relay::depot(&key, options.threads, options.pipe)];
    match Relay::haproxy(
        "haproxy",
        destination.address(),
        options.threads,
        options.pipe,
        relays::ALWAYS,
    ) {
        Some(haproxy) => relays.push(haproxy),
        None => {
            eprintln!("haproxy is not installed: apt-get install haproxy, then run this again");
            return ExitCode::from(2);
        }
    }
    if options.also_auto {
        let auto = Relay::haproxy(
            "haproxy splice-auto",
            destination.address(),
            options.threads,
            options.pipe,
            relays::AUTO,
        );
        relays.extend(auto);
    }
    let settings: Vec<Value> = options
        .flows
        .iter()
        .map(|&flows| {
            let measured = measure(&options, flows, &relays, &destination, &key);
            report(flows, &measured)
        })
        .collect();
    let idle = idle::measure(&relays[0], &destination, &key, options.idle_sessions);
    println!(
        "{} idle sessions: {:.1} KiB of resident memory each, {:.1} KiB of pipes each (bound: 64 \
         KiB together)",
        options.idle_sessions,
        idle["resident_bytes_per_session"]
            .as_f64()
            .unwrap_or(f64::NAN)
            / 1024.0,
        idle["pipe_bytes_per_session"].as_f64().unwrap_or(f64::NAN) / 1024.0,
    );
    let setups = setups::measure(&relays[0], &destination, &key, options.setups);
    println!(
        "set-ups: {:.0} a second, {:.0} us of processor time each",
        setups["per_second"].as_f64().unwrap_or(f64::NAN),
        setups["cpu_microseconds_each"].as_f64().unwrap_or(f64::NAN),
    );
    let all = json!({
        "benchmark": "relay",
        "gigabytes_per_run": options.gigabytes,
        "rounds": options.rounds,
        "threads": options.threads,
        "pipe_bytes": options.pipe,
        "haproxy_version": relays::haproxy_version(),
        "settings": settings,
        "idle": idle,
        "setups": setups,
    });
    println!("{all}");
    ExitCode::SUCCESS
}

/// Measurements of one relay's runs.
struct Measured {
    name: String,
    cpu_seconds_per_gigabyte: Vec<f64>,
    gigabits_per_second: Vec<f64>,
}

fn measure(
    options: &Options,
    flows: usize,
    relays: &[Relay],
    destination: &ends::Sink,
    key: &SigningKey,
) -> Vec<Measured> {
    let new = |relay: &Relay| Measured {
        name: relay.name.clone(),
        cpu_seconds_per_gigabyte: Vec::new(),
        gigabits_per_second: Vec::new(),
    };
    let mut measured: Vec<Measured> = relays.iter().map(new).collect();
    let bytes = (options.gigabytes * 1e9) as u64;
    // One short warm-up round, so that cold caches and new pipes are not measured.
    for round in 0..=options.rounds {
        let bytes = if round == 0 { bytes / 10 } else { bytes };
        for (relay, results) in relays.iter().zip(&mut measured) {
            let (before, start) = (relay.cpu_seconds(), Instant::now());
            ends::transfer(relay.address, destination, key, flows, bytes / flows as u64);
            let (seconds, cpu) = (start.elapsed().as_secs_f64(), relay.cpu_seconds() - before);
            if round > 0 {
                results
                    .cpu_seconds_per_gigabyte
                    .push(cpu / (bytes as f64 / 1e9));
                results
                    .gigabits_per_second
                    .push(bytes as f64 * 8.0 / 1e9 / seconds);
            }
        }
    }
    measured
}

fn report(flows: usize, measured: &[Measured]) -> Value {
    let runs: Vec<Value> = measured
        .iter()
        .map(|relay| {
            let cpu = spread(&relay.cpu_seconds_per_gigabyte);
            println!(
                "{flows} flow(s), {}: {:.3} CPU s/GB (median; {:.3} to {:.3}), {:.1} Gbit/s",
                relay.name,
                cpu.median,
                cpu.least,
                cpu.most,
                spread(&relay.gigabits_per_second).median
            );
            json!({
                "relay": relay.name,
                "cpu_seconds_per_gigabyte": relay.cpu_seconds_per_gigabyte,
                "median": cpu.median, "least": cpu.least, "most": cpu.most,
                "gigabits_per_second_median": spread(&relay.gigabits_per_second).median,
            })
        })
        .collect();
    let ratios: Vec<f64> = measured[0]
        .cpu_seconds_per_gigabyte
        .iter()
        .zip(&measured[1].cpu_seconds_per_gigabyte)
        .map(|(depot, haproxy)| depot / haproxy)
        .collect();
    let ratio = spread(&measured[0].cpu_seconds_per_gigabyte).median
        / spread(&measured[1].cpu_seconds_per_gigabyte).median;
    let paired = spread(&ratios);
    println!(
        "{flows} flow(s): the depot's CPU is {ratio:.2} of HAProxy's (medians; run by run {:.2} to \
         {:.2})",
        paired.least, paired.most
    );
    json!({
        "flows": flows, "relays": runs, "ratio_of_medians": ratio, "ratios": ratios,
        "ratio_median": paired.median,
    })
}

struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

fn spread(values: &[f64]) -> Spread {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    let middle = sorted.len() / 2;
    let median = if sorted.len().is_multiple_of(2) && middle > 0 {
        f64::midpoint(at(middle - 1), at(middle))
    } else {
        at(middle)
    };
    Spread {
        least: at(0),
        median,
        most: at(sorted.len().saturating_sub(1)),
    }
}
