//! What each peer reaches over a clean path: a check of the peers, and an example of their use.

use super::iperf3::Iperf3;
use super::one_copy::{Direction, Job, Timed, one_copy};
use super::place::Place;
use super::{Peer, Program, all, relays};
use crate::copy::{self, Source};
use crate::dataset;
use anyhow::{Result, bail};
use std::path::Path;
use wanbed::{Lab, Overrides, Scenario};

/// Two hosts with a depot's node in the middle, 20 ms of round trip at 200 Mbit/s, without loss.
const SCENARIO: &str = r#"
title = "200 Mbit/s, 20 ms, clean"
[nodes]
client = { congestion = "cubic", buffers = "16 MB" }
depot = { congestion = "cubic", buffers = "16 MB" }
server = { congestion = "cubic", buffers = "16 MB" }
[links]
west = { ends = ["client", "depot"], delay = "5 ms", rate = "200 Mbit/s", queue = "1 bdp of 20 ms" }
east = { ends = ["depot", "server"], delay = "5 ms", rate = "200 Mbit/s", queue = "1 bdp of 20 ms" }
"#;

/// What to measure.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Which peers, by name; all of them when not given.
    #[arg(long)]
    only: Vec<String>,
    /// Bytes of the file.
    #[arg(long, default_value_t = 32 << 20)]
    bytes: u64,
    /// Copies of each; the table has their median.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Streams, for the peers that have a choice.
    #[arg(long, default_value_t = 4)]
    streams: u32,
}

/// Copies a file with each peer that is installed, and prints a table of rates in Mbit/s.
///
/// # Errors
/// The lab does not come up, a name is unknown, or a copy fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    let scratch = copy::scratch()?;
    let source = Source {
        root: scratch.path().join("source"),
        name: "file".into(),
    };
    dataset::sized_file(&source.root.join(&source.name), arguments.bytes, 1)?;
    let lab = Lab::up(
        &Scenario::from_text("the peers' path", SCENARIO),
        &Overrides::default(),
    )?;
    let peers = all();
    if let Some(unknown) = arguments
        .only
        .iter()
        .find(|name| peers.iter().all(|peer| peer.name() != name.as_str()))
    {
        let names: Vec<_> = peers.iter().map(|peer| peer.name()).collect();
        bail!("there is no peer {unknown} (there are: {})", names.join(", "));
    }
    let relays = relays();
    println!(
        "| peer | options | N | fetch | send | fetch through {} | {} |",
        relays[0].title(),
        relays[1].title()
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    for peer in &peers {
        if !arguments.only.is_empty() && arguments.only.iter().all(|name| name != peer.name()) {
            continue;
        }
        if let Err(missing) = peer.installed() {
            eprintln!("{} left out: {missing}", peer.name());
            continue;
        }
        let able = peer.abilities();
        let job = Job {
            lab: &lab,
            client: "client",
            server: "server",
            relay: None,
            scratch: scratch.path(),
            source: &source,
            direction: Direction::Fetch,
            streams: if able.streams { arguments.streams } else { 1 },
        };
        let mut cells = vec![
            median(peer.as_ref(), &job, arguments.runs)?,
            if able.send {
                median(
                    peer.as_ref(),
                    &Job {
                        direction: Direction::Send,
                        ..job
                    },
                    arguments.runs,
                )?
            } else {
                "-".into()
            },
        ];
        for (relay, able) in relays.iter().zip([able.forward, able.socks]) {
            let relayed = Job {
                relay: Some((relay.as_ref(), "depot")),
                ..job
            };
            cells.push(match (able, relay.installed()) {
                (true, Ok(())) => median(peer.as_ref(), &relayed, arguments.runs)?,
                _ => "-".into(),
            });
        }
        println!(
            "| {} | {} | {} | {} |",
            peer.title(),
            peer.options(),
            job.streams,
            cells.join(" | ")
        );
    }
    if arguments.only.is_empty() {
        memory_to_memory(&lab, scratch.path(), arguments)?;
    }
    let report = lab.down()?;
    if !report.valid {
        println!("\nNot valid: {}", report.reasons.join("; "));
    }
    Ok(())
}

/// The median rate of so many copies, in Mbit/s.
fn median(peer: &dyn Peer, job: &Job, runs: u32) -> Result<String> {
    let copies: Result<Vec<Timed>> = (0..runs.max(1)).map(|_| one_copy(peer, job)).collect();
    Ok(middle(copies?.iter().map(Timed::goodput_bps).collect()))
}

fn middle(mut rates: Vec<f64>) -> String {
    rates.sort_by(f64::total_cmp);
    rates
        .get(rates.len() / 2)
        .map_or_else(|| "-".into(), |rate| format!("{:.1}", rate / 1e6))
}

fn memory_to_memory(lab: &Lab, scratch: &Path, arguments: &Arguments) -> Result<()> {
    if let Err(missing) = Iperf3.installed() {
        eprintln!("iperf3 left out: {missing}");
        return Ok(());
    }
    let place = |node| Place { lab, node, scratch };
    let serving = Iperf3.serve(&place("server"))?;
    let rates = |direction| -> Result<String> {
        let rates: Result<Vec<f64>> = (0..arguments.runs.max(1))
            .map(|_| {
                Iperf3.goodput_bps(
                    &place("client"),
                    &serving,
                    arguments.bytes,
                    direction,
                    arguments.streams,
                )
            })
            .collect();
        Ok(middle(rates?))
    };
    let (fetch, send) = (rates(Direction::Fetch)?, rates(Direction::Send)?);
    println!(
        "| {} | {} | {} | {fetch} | {send} | - | - |",
        Iperf3.title(),
        Iperf3.options(),
        arguments.streams
    );
    Ok(())
}
