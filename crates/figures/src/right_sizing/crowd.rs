//! Many connections on one bottleneck: fairness of a memory budget, and friendliness to stock flows.

use super::Arguments;
use super::column::Column;
use super::program::{End, PORT};
use crate::children::{Server, output_within};
use crate::copy::scratch;
use crate::schedule::run_all;
use crate::{dataset, report};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wanbed::{Lab, Overrides, Scenario};

/// Connections from each of the four senders.
const FROM_EACH: usize = 50;
/// Buffer memory of the receiver for all connections, as the kernel accounts it, in megabytes: ample, and scarce.
const BUDGETS_MB: [u64; 2] = [64, 16];
/// Seconds that are counted, after the seconds to settle.
const COUNTED: u32 = 25;
const SETTLE: u32 = 15;
/// Flows of each kind in the test of friendliness.
pub const EACH: usize = 4;

/// Four senders at different distances, one receiver behind a bottleneck of 500 Mbit/s.
const CROWD: &str = r#"
title = "200 connections of four round trips on one bottleneck"
[nodes.near]
[nodes.middle]
[nodes.far]
[nodes.farthest]
[nodes.hub]
[nodes.receiver]
[links.a]
ends = ["near", "hub"]
delay = "4 ms"
rate = "unlimited"
[links.b]
ends = ["middle", "hub"]
delay = "24 ms"
rate = "unlimited"
[links.c]
ends = ["far", "hub"]
delay = "74 ms"
rate = "unlimited"
[links.d]
ends = ["farthest", "hub"]
delay = "149 ms"
rate = "unlimited"
[links.bottleneck]
ends = ["hub", "receiver"]
delay = "1 ms"
rate = "500 Mbit/s"
queue = "1 bdp of 100 ms"
"#;
/// The senders and their round trips in milliseconds.
pub const SENDERS: [(&str, u32); 4] = [("near", 10), ("middle", 50), ("far", 150), ("farthest", 300)];

/// How the receiver's memory is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// The same fixed buffer for each.
    Equal,
    /// `Mode::PaperPlus` under one budget.
    Budget,
}

/// One run of the crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crowd {
    pub sharing: Sharing,
    pub budget_mb: u64,
    pub seed: u64,
    /// Goodput of each connection, Mbit/s.
    pub rates: Vec<f64>,
    /// The round trip of each connection, milliseconds.
    pub round_trips_ms: Vec<u32>,
    /// The sum over connections of their mean buffers, and of their largest, bytes.
    pub buffers_mean: f64,
    pub buffers_max: u64,
    pub valid: bool,
    pub invalid_because: Vec<String>,
}

/// One run of right-sized flows beside as many stock ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    pub column: Column,
    pub congestion: String,
    pub seed: u64,
    /// Goodput of each flow, Mbit/s.
    pub sized: Vec<f64>,
    pub stock: Vec<f64>,
    pub valid: bool,
    pub invalid_because: Vec<String>,
}

impl Beside {
    /// The right-sized flows' share of what all carried.
    pub fn share(&self) -> f64 {
        let (sized, stock) = (self.sized.iter().sum::<f64>(), self.stock.iter().sum::<f64>());
        sized / (sized + stock)
    }
}

/// Jain's fairness index: 1 when all are equal, 1/n when one has all.
pub fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(a, b), x| (a + x, b + x * x));
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (rates.len() as f64 * squares)
    }
}

pub fn fairness_file(out: &Path) -> PathBuf {
    out.join("drs-fairness.json")
}

pub fn friendly_file(out: &Path) -> PathBuf {
    out.join("drs-friendly.json")
}

pub fn measure_fairness(what: &Arguments) -> Result<()> {
    let started = Instant::now();
    let path = fairness_file(&what.out);
    let mut runs: Vec<Crowd> = report::read(&path)?;
    let scratch = scratch()?;
    let payload = scratch.path().join("payload");
    dataset::sized_file(&payload, 16 << 20, 4)?;
    for (seed, budget_mb) in (1..=what.seeds).flat_map(|seed| BUDGETS_MB.map(|budget| (seed, budget))) {
        for sharing in [Sharing::Equal, Sharing::Budget] {
            let same = |run: &Crowd| (run.sharing, run.budget_mb, run.seed) == (sharing, budget_mb, seed);
            if !what.again && runs.iter().any(|run| same(run) && run.valid) {
                continue;
            }
            let about = u64::from(COUNTED + SETTLE) + 10;
            if what
                .within
                .is_some_and(|limit| started.elapsed().as_secs() + about > limit)
            {
                return Ok(());
            }
            let run = crowd(&payload, sharing, budget_mb, seed)?;
            eprintln!(
                "{sharing:?} {budget_mb} MB seed {seed}: {:.1} Mbit/s, fairness {:.3}{}",
                run.rates.iter().sum::<f64>(),
                jain(&run.rates),
                if run.valid {
                    String::new()
                } else {
                    format!(" INVALID {:?}", run.invalid_because)
                }
            );
            runs.retain(|run| !same(run));
            runs.push(run);
            runs.sort_by_key(|run| (std::cmp::Reverse(run.budget_mb), run.sharing, run.seed));
            report::write(&path, &runs)?;
        }
    }
    Ok(())
}

fn crowd(payload: &Path, sharing: Sharing, budget_mb: u64, seed: u64) -> Result<Crowd> {
    let scenario = Scenario::from_text("crowd", CROWD);
    let overrides = Overrides::default()
        .seed(seed)
        .set("nodes.*.buffers", "\"8 MB\"")
        .set("nodes.*.congestion", "cubic");
    let lab = Lab::up(&scenario, &overrides)?;
    let own = std::env::current_exe()?;
    let all = FROM_EACH * SENDERS.len();
    let mut command = lab.command("receiver", &own)?;
    command
        .args(["drs-receive", "--connections", &all.to_string()])
        .args([
            "--seconds",
            &(SETTLE + COUNTED).to_string(),
            "--settle",
            &SETTLE.to_string(),
        ]);
    match sharing {
        // Half of a share, because the kernel doubles it.
        Sharing::Equal => command.args([
            "--column",
            "kernel",
            "--buffer",
            &((budget_mb << 20) / all as u64 / 2).to_string(),
        ]),
        Sharing::Budget => command.args([
            "--column",
            "paper-plus",
            "--budget",
            &(budget_mb << 20).to_string(),
        ]),
    };
    let receiver = Server::start(command, "the receiver", "listening")?;
    let to = format!("{}:{PORT}", lab.address("receiver")?);
    let limit = Duration::from_secs(u64::from(SETTLE + COUNTED) + 60);
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let senders: Vec<_> = SENDERS
            .map(|(node, _)| {
                let command = lab.command(node, &own).map(|mut command| {
                    command
                        .args([
                            "drs-send",
                            "--column",
                            "kernel",
                            "--connections",
                            &FROM_EACH.to_string(),
                        ])
                        .args(["--to", &to, "--file"])
                        .arg(payload);
                    command
                });
                scope.spawn(move || -> Result<()> {
                    let (status, _, err) = output_within(command?, "a sender", limit)?;
                    if status.success() {
                        Ok(())
                    } else {
                        bail!("a sender ended with {status}: {}", err.trim())
                    }
                })
            })
            .into();
        senders
            .into_iter()
            .map(|sender| {
                sender
                    .join()
                    .unwrap_or_else(|_| bail!("a sender's thread ended badly"))
            })
            .collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    let links = lab.links()?;
    let ends = super::publish::ends(&receiver.rest(limit)?.join("\n"))?;
    Ok(Crowd {
        sharing,
        budget_mb,
        seed,
        rates: rates(&ends, COUNTED),
        round_trips_ms: ends
            .iter()
            .map(|end| {
                let from = SENDERS.iter().find(|(node, _)| {
                    lab.address(node)
                        .is_ok_and(|address| address.to_string() == end.peer)
                });
                from.map_or(0, |(_, rtt)| *rtt)
            })
            .collect(),
        buffers_mean: ends.iter().map(|end| end.buffer_mean).sum(),
        buffers_max: ends.iter().map(|end| end.buffer_max).sum(),
        valid: links.valid,
        invalid_because: links.reasons,
    })
}

fn rates(ends: &[End], seconds: u32) -> Vec<f64> {
    ends.iter()
        .map(|end| end.bytes as f64 * 8.0 / f64::from(seconds) / 1e6)
        .collect()
}

pub fn measure_friendly(what: &Arguments) -> Result<()> {
    let started = Instant::now();
    let path = friendly_file(&what.out);
    let earlier: Vec<Beside> = report::read(&path)?;
    let scratch = scratch()?;
    let payload = scratch.path().join("payload");
    dataset::sized_file(&payload, 16 << 20, 4)?;
    let columns = [Column::Kernel, Column::Auto, Column::Classic, Column::PaperPlus];
    let jobs: Vec<(Column, &str, u64)> = (1..=what.seeds)
        .flat_map(|seed| {
            columns
                .into_iter()
                .flat_map(move |column| ["reno", "cubic", "bbr"].map(|congestion| (column, congestion, seed)))
        })
        .filter(|(column, congestion, seed)| {
            let done = |run: &Beside| {
                run.valid && (run.column, run.congestion.as_str(), run.seed) == (*column, congestion, *seed)
            };
            what.again || !earlier.iter().any(done)
        })
        .collect();
    let kept = Mutex::new(earlier);
    let failures: Vec<String> = run_all(
        &jobs,
        |_| 1.0 / 10.0,
        |&(column, congestion, seed)| -> Result<()> {
            if what
                .within
                .is_some_and(|limit| started.elapsed().as_secs() + 80 > limit)
            {
                return Ok(());
            }
            let run = beside(&payload, column, congestion, seed)
                .with_context(|| format!("{} {congestion} seed {seed}", column.title()))?;
            eprintln!(
                "{} {congestion} seed {seed}: share {:.3}{}",
                column.title(),
                run.share(),
                if run.valid {
                    String::new()
                } else {
                    format!(" INVALID {:?}", run.invalid_because)
                }
            );
            let mut kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            kept.retain(|old| (old.column, old.congestion.as_str(), old.seed) != (column, congestion, seed));
            kept.push(run);
            kept.sort_by(|a, b| (a.column, &a.congestion, a.seed).cmp(&(b.column, &b.congestion, b.seed)));
            report::write(&path, &kept)
        },
    )
    .into_iter()
    .filter_map(Result::err)
    .map(|error| format!("{error:#}"))
    .collect();
    if failures.is_empty() {
        Ok(())
    } else {
        bail!("{} runs failed: {}", failures.len(), failures.join("; "))
    }
}

fn beside(payload: &Path, column: Column, congestion: &str, seed: u64) -> Result<Beside> {
    const SECONDS: u32 = 60;
    let scenario = Scenario::from_text(
        "friendly",
        r#"
title = "right-sized flows beside stock ones: 102.1 ms, 36 Mbit/s"
[nodes.sender]
[nodes.receiver]
[links.wan]
ends = ["sender", "receiver"]
delay = "51.05 ms"
rate = "36 Mbit/s"
queue = "1 bdp"
"#,
    );
    let overrides = Overrides::default().seed(seed).set("nodes.*.buffers", "\"8 MB\"");
    let lab = Lab::up(&scenario, &overrides)?;
    let own = std::env::current_exe()?;
    let limit = Duration::from_secs(u64::from(SECONDS) + 60);
    let one = |column: Column, port: u16| -> Result<Vec<f64>> {
        let (word, count) = (super::publish::word(column), EACH.to_string());
        let mut command = lab.command("receiver", &own)?;
        command
            .args([
                "drs-receive",
                "--column",
                &word,
                "--connections",
                &count,
                "--port",
                &port.to_string(),
            ])
            .args(["--seconds", &SECONDS.to_string()]);
        let receiver = Server::start(command, "the receiver", "listening")?;
        let mut command = lab.command("sender", &own)?;
        command
            .args([
                "drs-send",
                "--column",
                &word,
                "--connections",
                &count,
                "--congestion",
                congestion,
            ])
            .args(["--to", &format!("{}:{port}", lab.address("receiver")?), "--file"])
            .arg(payload);
        let (status, _, err) = output_within(command, "the sender", limit)?;
        if !status.success() {
            bail!("the sender ended with {status}: {}", err.trim());
        }
        Ok(rates(
            &super::publish::ends(&receiver.rest(limit)?.join("\n"))?,
            SECONDS,
        ))
    };
    let (sized, stock) = std::thread::scope(|scope| {
        let stock = scope.spawn(|| one(Column::Kernel, PORT + 1));
        (
            one(column, PORT),
            stock
                .join()
                .unwrap_or_else(|_| bail!("the stock flows' thread ended badly")),
        )
    });
    let links = lab.links()?;
    Ok(Beside {
        column,
        congestion: congestion.to_owned(),
        seed,
        sized: sized?,
        stock: stock?,
        valid: links.valid,
        invalid_because: links.reasons,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_runs_from_one_to_one_in_n() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[0.0, 8.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((jain(&[1.0, 2.0, 3.0]) - 36.0 / 42.0).abs() < 1e-12);
    }
}
