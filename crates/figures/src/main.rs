//! Runs the demonstration and the published measurements, and writes their tables and plots.
//!
//! Every figure of this project's documents comes out of here: `demo` for a first look, `figures` for all of them,
//! `fit` for the loss rates that the LSL scenarios state.

mod attacks;
mod children;
mod classify;
mod copy;
mod dataset;
mod demo;
mod drs_run;
mod fit;
mod identities;
mod lsr;
mod paper;
mod peers;
mod plan;
mod plot;
mod record;
mod report;
mod right_sizing;
mod schedule;
mod setting;
mod stats;
mod streams;
mod sweep;
mod table;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Folder of the scenario files.
    #[arg(long, global = true, default_value = "scenarios")]
    scenarios: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Copies a real data set over each setting, direct and through depots.
    Demo {
        /// Folder for report.json.
        #[arg(long, default_value = "target/demo")]
        out: PathBuf,
        /// A few megabytes over two settings, for continuous integration.
        #[arg(long)]
        small: bool,
        /// First seed of the losses; a setting with several copies takes those that follow.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Measures every size and seed; a part that is measured again replaces its earlier runs.
    Figures {
        /// Folder for runs.json, the tables and the plots.
        #[arg(long, default_value = "docs/results")]
        out: PathBuf,
        /// Which parts; all of them when not given.
        #[arg(long, value_enum)]
        only: Vec<Part>,
        /// Seeds of each cell; each part has its own default.
        #[arg(long)]
        seeds: Option<u64>,
        /// Keep the valid runs that are there, and measure only what has none.
        #[arg(long)]
        resume: bool,
        /// Start no run after so many minutes; `--resume` goes on another time.
        #[arg(long)]
        minutes: Option<f64>,
        /// How often a run is repeated when the lab did not keep up.
        #[arg(long, default_value_t = 2)]
        repeats: u32,
        /// A README with marks for the short table.
        #[arg(long)]
        readme: Option<PathBuf>,
        /// Write tables and plots from the runs that are there, and measure nothing.
        #[arg(long)]
        render: bool,
    },
    /// Measures the Land Speed Record's path with `longhaul perf` and iperf3.
    Lsr {
        /// Folder for lsr.json and lsr.md.
        #[arg(long, default_value = "docs/results")]
        out: PathBuf,
        /// Runs of each sender.
        #[arg(long, default_value_t = 3)]
        repeats: u32,
        /// How long each sends, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// How often a run is repeated when the lab did not keep up.
        #[arg(long, default_value_t = 2)]
        retries: u32,
        /// Begin no run after this many minutes; what is there is kept, so that another call goes on.
        #[arg(long)]
        minutes: Option<f64>,
    },
    /// Makes flows whose limit is known, and counts how often the estimator names it.
    Classify(classify::Options),
    /// One end of such a flow, in a lab's node.
    #[command(hide = true)]
    Flow(classify::flow::Flow),
    /// Measures unmodified programs under `drs run`: busybox httpd sends a file to curl.
    DrsRun {
        /// Folder for drs-run.json and drs-run.md.
        #[arg(long, default_value = "docs/results")]
        out: PathBuf,
        /// Which hosts; all of them when not given.
        #[arg(long, value_enum)]
        only: Vec<drs_run::Place>,
        /// Copies each way.
        #[arg(long, default_value_t = 5)]
        runs: u32,
    },
    /// Measures right-sizing: Figure 4 of the DRS paper, fairness under a budget, friendliness.
    Drs(right_sizing::Arguments),
    /// The receiving program of `drs`, in a node of the lab.
    #[command(hide = true)]
    DrsReceive(right_sizing::program::Receive),
    /// The sending program of `drs`, in a node of the lab.
    #[command(hide = true)]
    DrsSend(right_sizing::program::Send),
    /// Measures copies with fixed numbers of streams, and with as many as they take by themselves.
    Streams {
        /// Folder for streams.json and streams.md.
        #[arg(long, default_value = "docs/results")]
        out: PathBuf,
        /// Seeds of each cell.
        #[arg(long, default_value_t = 3)]
        seeds: u64,
    },
    /// Measures honest copies under attack, and what attacked processes hold.
    Attacks(attacks::Arguments),
    /// Copies a file with each peer (scp, rsync, GridFTP, ...) over a clean path, and prints the rates.
    Peers(peers::Arguments),
    /// The attacker of `attacks`, in a node of the lab.
    #[command(hide = true)]
    Attacker(attacks::attacker::Attacker),
    /// Fits the loss rate of an LSL scenario to the paper's average at 32 MB.
    Fit {
        /// What to fit.
        #[arg(value_enum)]
        what: fit::What,
        /// Loss rate to start from, in percent.
        #[arg(long)]
        start: f64,
        /// Copies of each round.
        #[arg(long, default_value_t = 12)]
        seeds: u64,
        /// Rounds.
        #[arg(long, default_value_t = 4)]
        steps: u32,
    },
}

/// A part of the full figures.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Both LSL paths at all sizes.
    Lsl,
    /// LSL path 2 with 64 KB hosts.
    #[value(name = "lsl-64k")]
    Lsl64k,
    /// MNEMONIC with 64 KB hosts.
    Untuned,
    /// MNEMONIC with large buffers under each congestion control.
    Tuned,
    /// The clean path.
    Clean,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("longhaul-figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    let scenarios = &arguments.scenarios;
    match arguments.what {
        What::Demo { out, small, seed } => demo::run(scenarios, &out, small, seed),
        What::Figures {
            out,
            readme,
            render: true,
            ..
        } => publish(&out, readme.as_deref()),
        What::Figures {
            out,
            only,
            seeds,
            readme,
            resume,
            repeats,
            minutes,
            render: false,
        } => {
            let until = minutes
                .map(|minutes| Duration::try_from_secs_f64(60.0 * minutes))
                .transpose()
                .context("--minutes")?
                .and_then(|time| Instant::now().checked_add(time));
            let parts: &[Part] = if only.is_empty() {
                Part::value_variants()
            } else {
                &only
            };
            for part in parts {
                let cells = match part {
                    Part::Lsl => plan::lsl(seeds.unwrap_or(16)),
                    Part::Lsl64k => plan::lsl_64k(seeds.unwrap_or(16)),
                    Part::Untuned => plan::untuned(seeds.unwrap_or(8)),
                    Part::Tuned => plan::tuned(seeds.unwrap_or(8)),
                    Part::Clean => plan::clean(seeds.unwrap_or(8)),
                };
                sweep::run(scenarios, &out, &cells, resume, repeats, until)?;
                publish(&out, readme.as_deref())?;
            }
            Ok(())
        }
        What::Lsr {
            out,
            repeats,
            seconds,
            retries,
            minutes,
        } => {
            let extent = lsr::Extent {
                repeats,
                seconds,
                retries,
                minutes,
            };
            lsr::run(scenarios, &out, &extent)
        }
        What::Classify(options) => classify::run(scenarios, &options),
        What::Flow(flow) => flow.run(),
        What::DrsRun { out, only, runs } => {
            let all = drs_run::Place::value_variants();
            let places: &[drs_run::Place] = if only.is_empty() { all } else { &only };
            drs_run::run(scenarios, &out, places, runs)
        }
        What::Drs(what) => right_sizing::run(scenarios, &what),
        What::DrsReceive(what) => right_sizing::program::receive(&what),
        What::DrsSend(what) => right_sizing::program::send(&what),
        What::Streams { out, seeds } => streams::run(scenarios, &out, seeds),
        What::Attacks(what) => attacks::run(&what),
        What::Peers(what) => peers::run(&what),
        What::Attacker(attacker) => attacker.run(),
        What::Fit {
            what,
            start,
            seeds,
            steps,
        } => {
            let tools = copy::Tools::prepare(scenarios)?;
            fit::fit(&tools, &what.fit(), start / 100.0, seeds, steps).map(|_| ())
        }
    }
}

/// Writes all that is made of the runs in `out`.
fn publish(out: &Path, readme: Option<&Path>) -> Result<()> {
    report::render(out)?;
    match readme {
        Some(readme) => report::put_into_readme(readme, &report::read(&out.join("runs.json"))?),
        None => Ok(()),
    }
}
