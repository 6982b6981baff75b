//! How often the estimator names what limits a flow: flows of known limits in the lab, sampled at both ends, judged, counted.

mod example;
pub mod flow;
mod matrix;
mod truth;

use crate::children::output_within;
use crate::schedule::run_all;
use anyhow::{Context, Result, bail};
use drs::{Estimator, Limit, Sample, Side};
use matrix::{Judged, Judgements};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use truth::Case;
use wanbed::{Lab, Overrides, Scenario};

/// Port of the receiving end inside the lab, whose nodes run nothing else.
const PORT: u16 = 7600;
/// Share of the machine that one flow needs.
const LOAD: f64 = 0.125;
/// A flow lasts some seconds; an end that takes this much longer hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// What to classify.
#[derive(clap::Args)]
pub struct Options {
    /// Folder for the table, the JSON and the plot.
    #[arg(long, default_value = "docs/results")]
    out: PathBuf,
    /// Seeds of each class and congestion control.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Keep the traces of all flows here, and make only those flows that have none yet.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Only this class (repeatable): makes its flows, and leaves the results that are written alone.
    #[arg(long, value_parser = class)]
    only: Vec<Limit>,
    /// Write a thinned trace of the first seed of every class and congestion control here, as the replay test of `drs` takes them.
    #[arg(long)]
    examples: Option<PathBuf>,
    /// How often a flow is repeated when the lab did not keep up.
    #[arg(long, default_value_t = 2)]
    repeats: u32,
}

fn class(word: &str) -> Result<Limit, String> {
    let known = || truth::CLASSES.into_iter();
    known().find(|class| class.word() == word).ok_or_else(|| {
        let words: Vec<_> = known().map(Limit::word).collect();
        format!("no such class; there are {}", words.join(", "))
    })
}

/// Makes the flows, judges them, and writes what came out.
///
/// # Errors
/// A lab or an end of a flow failed, or a file cannot be written.
pub fn run(scenarios: &Path, options: &Options) -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a folder for traces")?;
    let traces = options.traces.as_deref().unwrap_or(scratch.path());
    fs::create_dir_all(traces).with_context(|| format!("cannot make {}", traces.display()))?;
    let scenario = Scenario::read(scenarios.join("classify.toml"))?;
    let wanted = |class: &Limit| options.only.is_empty() || options.only.contains(class);
    let mut cases = vec![];
    for class in truth::CLASSES.into_iter().filter(wanted) {
        for congestion in truth::congestions(class) {
            let seeds = options.first..options.first.saturating_add(options.seeds);
            cases.extend(seeds.map(|seed| truth::case(class, congestion, seed)));
        }
    }
    let judged = run_all(
        &cases,
        |_| LOAD,
        |case| {
            let made = make(&scenario, traces, case, options.repeats)?;
            judge(traces, case, made)
        },
    );
    if let Some(examples) = &options.examples {
        for case in cases.iter().filter(|case| case.seed == options.first) {
            example::write(examples, traces, case)?;
        }
    }
    let flows = judged.into_iter().collect::<Result<Vec<_>>>()?;
    let text = matrix::markdown(&flows);
    println!("{text}");
    if options.only.is_empty() {
        matrix::write(&options.out, &flows, &text)?;
    }
    Ok(())
}

/// How the making of a flow went.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Made {
    valid: bool,
    invalid_because: Vec<String>,
    discarded: u32,
}

fn trace_of(traces: &Path, case: &Case, end: &str) -> PathBuf {
    traces.join(format!("{}-{end}.jsonl", case.name()))
}

/// Makes a flow unless its traces are there.
fn make(scenario: &Scenario, traces: &Path, case: &Case, repeats: u32) -> Result<Made> {
    let note = traces.join(format!("{}-lab.json", case.name()));
    if let Ok(text) = fs::read(&note) {
        return serde_json::from_slice(&text).with_context(|| format!("{} does not parse", note.display()));
    }
    let mut discarded = 0;
    let made = loop {
        let links = once(scenario, traces, case).with_context(|| case.name())?;
        let made = Made {
            valid: links.valid,
            invalid_because: links.reasons,
            discarded,
        };
        if made.valid || discarded == repeats {
            break made;
        }
        let why = made.invalid_because.join("; ");
        eprintln!("thrown away and repeated: {}: {why}", case.name());
        discarded += 1;
    };
    fs::write(&note, serde_json::to_vec(&made)?)
        .with_context(|| format!("cannot write {}", note.display()))?;
    Ok(made)
}

fn once(scenario: &Scenario, traces: &Path, case: &Case) -> Result<wanbed::Report> {
    let start = Overrides::default().seed(case.seed);
    let overrides = case
        .set
        .iter()
        .fold(start, |all, (path, value)| all.set(path.clone(), value.clone()));
    let lab = Lab::up(scenario, &overrides)?;
    let own = std::env::current_exe().context("cannot find this program")?;
    let end = |node: &str, arguments: &[String]| -> Result<Command> {
        let mut command = lab.command(node, &own)?;
        command
            .args(["flow", "--port", &PORT.to_string()])
            .args(["--seconds", &case.seconds.to_string(), "--trace"])
            .arg(trace_of(traces, case, node))
            .args(arguments);
        Ok(command)
    };
    let mut sender = end("sender", &case.sender)?;
    sender.args(["--to", &lab.address("receiver")?.to_string()]);
    sender.args(["--congestion", case.congestion]);
    let receiver = end("receiver", &case.receiver)?;
    thread::scope(|scope| -> Result<()> {
        let receiving = scope.spawn(|| finish(receiver, "the receiving end"));
        let sending = finish(sender, "the sending end");
        let receiving = receiving
            .join()
            .unwrap_or_else(|_| bail!("the receiving end was lost"));
        sending.and(receiving)
    })?;
    Ok(lab.links()?)
}

fn finish(command: Command, name: &str) -> Result<()> {
    let (status, _, err) = output_within(command, name, LIMIT)?;
    if !status.success() {
        bail!("{name} ended with {status}: {}", err.trim());
    }
    Ok(())
}

fn judge(traces: &Path, case: &Case, made: Made) -> Result<Judged> {
    Ok(Judged {
        class: case.class.word(),
        congestion: case.congestion,
        seed: case.seed,
        rtt_ms: case.rtt.as_secs_f64() * 1e3,
        rate_mbps: case.rate / 1e6,
        valid: made.valid,
        invalid_because: made.invalid_because,
        discarded: made.discarded,
        sending: verdicts(&trace_of(traces, case, "sender"), case, Side::Sending)?,
        receiving: verdicts(&trace_of(traces, case, "receiver"), case, Side::Receiving)?,
    })
}

fn read(path: &Path) -> Result<Vec<Sample>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    drs::read_trace(BufReader::new(file)).with_context(|| format!("cannot read {}", path.display()))
}

/// The verdicts on the intervals that lie in the steady part.
fn verdicts(path: &Path, case: &Case, side: Side) -> Result<Judgements> {
    let samples = read(path)?;
    let mut estimator = Estimator::new(side);
    let mut counts = Judgements::default();
    for sample in &samples {
        let Some(verdict) = estimator.observe(sample) else {
            continue;
        };
        let begun = sample.at.saturating_sub(verdict.evidence.interval);
        if begun >= case.steady.start && sample.at <= case.steady.end {
            *counts.entry(verdict.limit.word()).or_default() += 1;
        }
    }
    Ok(counts)
}
