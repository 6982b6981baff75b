//! Attacks on the built programs, measured: what an honest copy loses to them, and what they make a server or a depot hold.

mod attack;
pub mod attacker;
mod bed;
mod page;
mod place;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::copy;
use crate::report;
pub use attack::Attack;
use bed::Bed;

/// What to measure.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder for attacks.json and attacks.md.
    #[arg(long, default_value = "docs/results")]
    out: PathBuf,
    /// Which attacks; all of them when not given.
    #[arg(long, value_enum)]
    only: Vec<Attack>,
    /// Copies of each, without the attack and under it.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Another `longhaul`, to be attacked in turn with the one that is built here: its results stand beside.
    #[arg(long, value_name = "BIN")]
    baseline: Option<PathBuf>,
    /// Attack nothing but the program of `--baseline`: its results are kept for the page of a later call.
    #[arg(long, requires = "baseline")]
    baseline_only: bool,
    /// Write the page from the runs that are there, and measure nothing.
    #[arg(long)]
    render: bool,
}

/// Which program was attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Build {
    /// The one beside this program.
    Now,
    /// The one of `--baseline`.
    Before,
}

/// One honest copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    attack: Attack,
    build: Build,
    round: u32,
    under_attack: bool,
    /// From the start of the command until data arrived, in seconds.
    begins_s: Option<f64>,
    /// From then to the end of the copy, in bit/s.
    rate_bps: Option<f64>,
    /// Why there was no copy.
    error: Option<String>,
    /// The most resident memory of the attacked process, in bytes.
    peak_memory: u64,
    /// The most descriptors of the attacked process that were seen.
    peak_descriptors: u64,
    /// What the attacked process logged, in bytes a second.
    log_bytes_per_s: f64,
    /// Whether the lab kept up.
    valid: bool,
}

/// Measures what is asked for, in place of earlier runs of the same, and writes the page.
///
/// # Errors
/// The lab or a program cannot be started, or a file cannot be read or written.
pub fn run(what: &Arguments) -> Result<()> {
    let file = what.out.join("attacks.json");
    let mut runs: Vec<Run> = report::read(&file)?;
    if !what.render {
        let mut builds = Vec::new();
        if !what.baseline_only {
            builds.push((Build::Now, copy::built("longhaul")?));
        }
        if let Some(baseline) = &what.baseline {
            let path = baseline
                .canonicalize()
                .with_context(|| baseline.display().to_string())?;
            builds.push((Build::Before, path));
        }
        let all = Attack::value_variants();
        let attacks = if what.only.is_empty() { all } else { &what.only };
        let bed = Bed::make(&copy::built("longhaul")?)?;
        for &attack in attacks {
            runs.retain(|run| run.attack != attack || builds.iter().all(|(build, _)| *build != run.build));
            for round in 0..what.rounds {
                for (build, program) in &builds {
                    // In turn, and the other way round in the next round: a slow minute of the machine meets both.
                    for first in [true, false] {
                        let under_attack = first == (round % 2 == 1);
                        let run = bed
                            .run(program, attack, *build, round, under_attack)
                            .with_context(|| format!("{attack:?}, round {round}"))?;
                        eprintln!("{run:?}");
                        runs.push(run);
                    }
                }
            }
            report::write(&file, &runs)?;
            write_page(&what.out, &runs)?;
        }
    }
    write_page(&what.out, &runs)
}

/// What the demonstration shows: a crowd of strangers at a server and at a depot, a key that takes all it can, names that nobody answers for.
const DEMONSTRATED: [Attack; 4] = [
    Attack::IdleAtServe,
    Attack::IdleAtDepot,
    Attack::HeldCopies,
    Attack::SlowNames,
];

/// One honest copy without and one under each of some attacks, a line each; fewer of them where it must be short.
///
/// # Errors
/// The lab or a program cannot be started, or a copy failed.
pub fn demonstrate(small: bool) -> Result<()> {
    let program = copy::built("longhaul")?;
    let bed = Bed::make(&program)?;
    println!("\nhonest copies of 24 MiB at 100 Mbit/s, alone and under attack:");
    for attack in DEMONSTRATED
        .into_iter()
        .take(if small { 1 } else { DEMONSTRATED.len() })
    {
        let mut shown = Vec::new();
        for under_attack in [false, true] {
            let run = bed.run(&program, attack, Build::Now, 0, under_attack)?;
            match (run.begins_s, run.rate_bps, run.error) {
                (Some(begins), Some(rate), None) => {
                    shown.push(format!("after {begins:.2} s at {:.1} Mbit/s", rate / 1e6));
                }
                (.., error) => bail!("{}: {}", attack.title(), error.unwrap_or_default()),
            }
        }
        println!("{:<78} {}", attack.title(), shown.join("; under it "));
    }
    Ok(())
}

fn write_page(out: &Path, runs: &[Run]) -> Result<()> {
    let path = out.join("attacks.md");
    std::fs::write(&path, page::of(runs)).with_context(|| format!("cannot write {}", path.display()))
}
