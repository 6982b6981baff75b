//! Transfers of up to 128 MB over the paper's two paths, one for each way of sizing and each seed.
//!
//! A transfer of N MB is the first N MB of a longer one: neither TCP nor the sizing knows how much will come. So one
//! transfer gives every point of a curve: the time from before connecting until the receiver had read that much.

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

/// One path of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path4 {
    /// 102.1 ms and 36 Mbit/s.
    Constant,
    /// A made-up series with the statistics of the measured path; each seed makes another.
    Varying,
}

/// One transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transfer {
    pub path: Path4,
    pub column: Column,
    pub seed: u64,
    /// Megabytes and the goodput of a transfer that long, Mbit/s.
    pub goodput: Vec<(u64, f64)>,
    pub receiver: End,
    pub sender: End,
    /// Bytes that the bottleneck's queue dropped, in packets.
    pub queue_drops: u64,
    pub valid: bool,
    pub invalid_because: Vec<String>,
    pub lag_p99_us: u64,
}

/// Share of the machine that one transfer takes: 36 Mbit/s are little.
const LOAD: f64 = 1.0 / 14.0;

#[derive(Clone, Copy)]
struct Job {
    path: Path4,
    column: Column,
    seed: u64,
}

impl Job {
    /// Megabytes: a 64 KB window needs five minutes for 128 MB over the varying path, so it stops at half.
    fn megabytes(self) -> u64 {
        match (self.path, self.column) {
            (Path4::Varying, Column::Stock | Column::Fixed) => 64,
            _ => 128,
        }
    }

    /// About how long it takes, seconds.
    fn about(self) -> u64 {
        let window_bps = match self.column {
            Column::Stock | Column::Fixed => 64e3 * 8.0,
            Column::Unlucky2004 => 160e3 * 8.0,
            Column::Unlucky => 212e3 * 8.0,
            _ => f64::INFINITY,
        };
        let (rtt, rate) = match self.path {
            Path4::Constant => (0.1021, 33e6),
            Path4::Varying => (0.157, 12e6),
        };
        (self.megabytes() as f64 * 8.4e6 / f64::min(window_bps / rtt, rate)) as u64 + 5
    }
}

pub fn file(out: &Path) -> PathBuf {
    out.join("drs-figure4.json")
}

pub fn read(out: &Path) -> Result<Vec<Transfer>> {
    report::read(&file(out))
}

pub fn measure(scenarios: &Path, what: &Arguments) -> Result<()> {
    let started = Instant::now();
    let earlier = read(&what.out)?;
    let mut jobs: Vec<Job> = [Path4::Constant, Path4::Varying]
        .into_iter()
        .flat_map(|path| {
            (1..=what.seeds).flat_map(move |seed| Column::ALL.map(|column| Job { path, column, seed }))
        })
        .filter(|job| {
            let done = |old: &Transfer| {
                old.valid && (old.path, old.column, old.seed) == (job.path, job.column, job.seed)
            };
            what.again || !earlier.iter().any(done)
        })
        .collect();
    // The longest first, so that they do not end alone.
    jobs.sort_by_key(|job| (job.path, std::cmp::Reverse(job.about())));
    let scratch = scratch()?;
    let payload = scratch.path().join("payload");
    dataset::sized_file(&payload, 16 << 20, 4)?;
    let kept = Mutex::new(earlier);
    let failures: Vec<String> = run_all(
        &jobs,
        |_| LOAD,
        |job| -> Result<()> {
            if what
                .within
                .is_some_and(|limit| started.elapsed().as_secs() + job.about() > limit)
            {
                return Ok(());
            }
            let run = transfer(scenarios, scratch.path(), &payload, *job)
                .with_context(|| format!("{:?} {} seed {}", job.path, job.column.title(), job.seed))?;
            eprintln!(
                "{:?} {} seed {}: {:?}{}",
                job.path,
                job.column.title(),
                job.seed,
                run.goodput.last(),
                if run.valid {
                    String::new()
                } else {
                    format!(" INVALID {:?}", run.invalid_because)
                },
            );
            let mut kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            kept.retain(|old| (old.path, old.column, old.seed) != (job.path, job.column, job.seed));
            kept.push(run);
            kept.sort_by_key(|run| (run.path, run.column, run.seed));
            report::write(&file(&what.out), &kept)
        },
    )
    .into_iter()
    .filter_map(Result::err)
    .map(|error| format!("{error:#}"))
    .collect();
    if !failures.is_empty() {
        bail!("{} transfers failed: {}", failures.len(), failures.join("; "));
    }
    Ok(())
}

fn transfer(scenarios: &Path, scratch: &Path, payload: &Path, job: Job) -> Result<Transfer> {
    let mut overrides = Overrides::default()
        .seed(job.seed)
        .set("nodes.*.buffers", format!("\"{}\"", job.column.hosts()));
    let scenario = match job.path {
        Path4::Constant => "drs.toml",
        Path4::Varying => {
            let trace = trace(scratch, job.seed)?;
            overrides = overrides.set(
                "links.wan.trace",
                format!("{{ file = \"{}\", repeat_after = \"3600 s\" }}", trace.display()),
            );
            "drs-trace.toml"
        }
    };
    let lab = Lab::up(&Scenario::read(scenarios.join(scenario))?, &overrides)?;
    let limit = Duration::from_secs(job.about() * 4 + 60);
    let own = std::env::current_exe()?;
    let column = super::publish::word(job.column);
    let mut command = lab.command("receiver", &own)?;
    command.args(["drs-receive", "--series", "--column", &column]);
    let receiver = Server::start(command, "the receiver", "listening")?;
    let mut command = lab.command("sender", &own)?;
    command
        .args(["drs-send", "--series", "--column", &column])
        .args(["--to", &format!("{}:{PORT}", lab.address("receiver")?)])
        .args(["--bytes", &(job.megabytes() << 20).to_string(), "--file"])
        .arg(payload);
    let (status, out, err) = output_within(command, "the sender", limit)?;
    if !status.success() {
        bail!("the sender ended with {status}: {}", err.trim());
    }
    let links = lab.links()?;
    let sender = super::publish::ends(&out)?;
    let receiver = super::publish::ends(&receiver.rest(Duration::from_secs(20))?.join("\n"))?;
    let (Some(sender), Some(receiver)) = (sender.into_iter().next(), receiver.into_iter().next()) else {
        bail!("an end said nothing");
    };
    // One run of each kind is drawn over time.
    let (mut sender, mut receiver) = (sender, receiver);
    if job.seed != 1 {
        sender.series.clear();
        receiver.series.clear();
    }
    let goodput = receiver
        .marks
        .iter()
        .map(|(bytes, at)| (bytes >> 20, *bytes as f64 * 8.0 / (at - sender.start) / 1e6))
        .collect();
    Ok(Transfer {
        path: job.path,
        column: job.column,
        seed: job.seed,
        goodput,
        queue_drops: links
            .links
            .iter()
            .map(|link| link.counters.forward.drops_queue)
            .sum(),
        valid: links.valid,
        invalid_because: links.reasons.clone(),
        lag_p99_us: crate::copy::worst_lag_p99_us(&links),
        receiver,
        sender,
    })
}

/// The made-up series of a seed.
fn trace(scratch: &Path, seed: u64) -> Result<PathBuf> {
    let path = scratch.join(format!("trace-{seed}.csv"));
    if !path.exists() {
        // Several transfers of a seed may come here at once: each writes the same.
        let part = scratch.join(format!("trace-{seed}-{:?}.part", std::thread::current().id()));
        std::fs::write(&part, wanbed::drs_trace::write(seed, 180))?;
        std::fs::rename(part, &path)?;
    }
    Ok(path)
}
