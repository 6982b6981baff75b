//! Runs the demonstration and the published measurements, and writes their tables and plots.
//!
//! Every figure of this project's documents comes out of here: `demo` for a first look, `figures`
//! for all of them, `fit` for the loss rates that the LSL scenarios state.

mod children;
mod columns;
mod comparison;
mod controlled;
mod copy;
mod dataset;
mod demo;
mod experiment;
mod experiments;
mod fit;
mod gateways;
mod history;
mod identities;
mod ip;
mod listed;
mod marks;
mod measured;
mod network;
mod noise;
mod origins;
mod page;
mod peers;
mod plans;
mod plot;
mod provenance;
mod publish;
mod published;
mod record;
mod runner;
mod runs;
mod schedule;
mod setting;
mod single;
mod size;
mod stats;
mod store;
mod template;
mod text;
mod tools;
mod usage;
mod watched_copy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use experiments::attacks::attacker::Attacker;
use experiments::classify::flow::Flow;
use experiments::load::part::LoadPart;
use experiments::rate_fit;
use experiments::right_sizing::program;
use ip::IpVersion;
use listed::Listed;
use noise::Noise;
use runner::{DEFAULT_RETRIES, Extent, FIRST_PUBLISHED_SEED};
use tools::Tools;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Folder of the scenario files.
    #[arg(long, global = true, default_value = "scenarios")]
    scenarios: PathBuf,
    #[command(subcommand)]
    what: FiguresCommand,
}

#[derive(Subcommand)]
enum FiguresCommand {
    /// Shows what Longhaul does, on emulated long-haul paths.
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
    /// Lists the experiments; measures those that are named; writes their pages. Runs that are not
    /// made again stay, and their pages say which commit made them.
    Figures(Figures),
    /// Fits the loss rate of an LSL scenario to the paper's average at 32 MB.
    Fit {
        /// The parameters to fit.
        #[arg(value_enum)]
        what: fit::LslScenario,
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
    /// One end of a flow whose limit is known, in a lab's node.
    #[command(hide = true)]
    Flow(Flow),
    /// The receiving program of right-sizing, in a lab's node.
    #[command(hide = true)]
    DrsReceive(program::Receive),
    /// The sending program of right-sizing, in a lab's node.
    #[command(hide = true)]
    DrsSend(program::Send),
    /// The sending program of rate fitting, in a lab's node.
    #[command(hide = true)]
    FittedSend(rate_fit::program::Send),
    /// The receiving program of rate fitting, in a lab's node.
    #[command(hide = true)]
    FittedReceive,
    /// The attacker, in a lab's node.
    #[command(hide = true)]
    Attacker(Attacker),
    /// Both ends of the sessions of a load, in a lab's node.
    #[command(hide = true)]
    LoadPart(LoadPart),
}

/// The experiments to measure.
#[derive(clap::Args)]
struct Figures {
    /// Experiments, or `all`; none lists them.
    names: Vec<String>,
    /// Seeds of each cell; each experiment has its own, small number.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed. Thresholds were chosen and losses fitted with seeds below the default.
    #[arg(long, default_value_t = FIRST_PUBLISHED_SEED)]
    first_seed: u64,
    /// Measure only what this code has no valid run of yet.
    #[arg(long)]
    resume: bool,
    /// Begin no run that would end after so many minutes; `--resume` goes on another time.
    #[arg(long)]
    minutes: Option<f64>,
    /// Number of repeats of a run if the lab did not keep up.
    #[arg(long, default_value_t = DEFAULT_RETRIES)]
    retries: u32,
    /// With which noise on the links (repeatable); as they are when not given.
    #[arg(long, value_enum)]
    noise: Vec<Noise>,
    /// Over IPv6 instead of IPv4: the cells of the experiments whose programs can.
    #[arg(long)]
    ipv6: bool,
    /// Only cells that name this (repeatable): a setting, a congestion control.
    #[arg(long)]
    only: Vec<String>,
    /// Write pages from the runs that are there, and measure nothing.
    #[arg(long)]
    render: bool,
    /// Say which pages do not say what the runs say, and write nothing.
    #[arg(long)]
    check: bool,
    /// Folder for runs, pages and plots. Documents quote figures from the default alone.
    #[arg(long, default_value = RESULTS)]
    out: PathBuf,
}

/// Folder of the published results.
const RESULTS: &str = "docs/results";

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
        FiguresCommand::Demo { out, small, seed } => demo::run(scenarios, &out, small, seed),
        FiguresCommand::Figures(what) => figures(scenarios, &what),
        FiguresCommand::Fit {
            what,
            start,
            seeds,
            steps,
        } => {
            let tools = Tools::prepare(scenarios)?;
            fit::fit(&tools, &what.fit()?, start / 100.0, seeds, steps).map(|_| ())
        }
        FiguresCommand::Flow(flow) => flow.run(),
        FiguresCommand::DrsReceive(what) => program::receive(&what),
        FiguresCommand::DrsSend(what) => program::send(&what),
        FiguresCommand::FittedSend(what) => rate_fit::program::send(&what),
        FiguresCommand::FittedReceive => rate_fit::program::receive(),
        FiguresCommand::Attacker(attacker) => attacker.run(),
        FiguresCommand::LoadPart(part) => part.run(),
    }
}

fn figures(scenarios: &Path, what: &Figures) -> Result<()> {
    let documents = if what.out == Path::new(RESULTS) {
        documents()?
    } else {
        vec![]
    };
    if what.check {
        return publish::check(&what.out, &documents);
    }
    if what.render {
        return publish::write(&what.out, &documents);
    }
    let extent = what.extent()?;
    let all = experiments::all();
    if what.names.is_empty() {
        list(&all, &extent);
        return Ok(());
    }
    let chosen = choose(&all, &what.names)?;
    if !what.only.is_empty() && chosen.iter().all(|one| one.size(&extent).0 == 0) {
        bail!(
            "no cell of {} names {:?}: the cells stand in its runs (`{}`)",
            what.names.join(", "),
            what.only.join(", "),
            what.out.join("NAME.json").display()
        );
    }
    if what.ipv6 && chosen.iter().all(|one| one.size(&extent).0 == 0) {
        bail!(
            "no program of {} is measured over IPv6: leave out --ipv6",
            what.names.join(", ")
        );
    }
    let tools = Tools::prepare(scenarios)?;
    let commit = provenance::commit(Path::new("."));
    let mut failures = vec![];
    for experiment in chosen {
        // The others are measured all the same.
        if let Err(error) = experiment.measure(&tools, &extent, &what.out, &commit) {
            failures.push(format!("{error:#}"));
        }
        publish::write(&what.out, &documents)?;
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

impl Figures {
    fn extent(&self) -> Result<Extent> {
        let until = self
            .minutes
            .map(|minutes| Duration::try_from_secs_f64(60.0 * minutes))
            .transpose()
            .context("--minutes")?
            .and_then(|time| Instant::now().checked_add(time));
        let noises = match self.noise.is_empty() {
            true => vec![Noise::None],
            false => self.noise.clone(),
        };
        Ok(Extent {
            seeds: self.seeds,
            first_seed: self.first_seed,
            resume: self.resume,
            until,
            retries: self.retries,
            noises,
            ip: match self.ipv6 {
                true => IpVersion::Ipv6,
                false => IpVersion::Ipv4,
            },
            only: self.only.clone(),
        })
    }
}

/// Returns the experiments of these names, in the order of the index.
fn choose<'a>(all: &'a [Box<dyn Listed>], names: &[String]) -> Result<Vec<&'a dyn Listed>> {
    for name in names {
        if name != "all" && !all.iter().any(|one| one.name() == name) {
            let known: Vec<&str> = all.iter().map(|one| one.name()).collect();
            bail!(
                "there is no experiment {name:?}: there are {}, and all",
                known.join(", ")
            );
        }
    }
    let chosen = |one: &&dyn Listed| names.iter().any(|name| name == "all" || name == one.name());
    Ok(all.iter().map(AsRef::as_ref).filter(chosen).collect())
}

fn list(all: &[Box<dyn Listed>], extent: &Extent) {
    let mut sum = Duration::ZERO;
    for one in all {
        let (runs, about) = one.size(extent);
        sum += about;
        let minutes = about.as_secs_f64() / 60.0;
        println!(
            "{:<10} {runs:>4} runs, about {minutes:>4.1} min  {}",
            one.name(),
            one.title()
        );
    }
    println!("all of them: about {:.0} min", sum.as_secs_f64() / 60.0);
}

/// Returns the documents that may quote figures.
fn documents() -> Result<Vec<PathBuf>> {
    let mut documents = vec![PathBuf::from("README.md")];
    let entries = std::fs::read_dir("docs")
        .context("docs is not here: run this in the project's own folder")?;
    for entry in entries {
        let path = entry.context("docs")?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
    documents.sort();
    Ok(documents)
}
