//! Accuracy of the estimator: flows with known limits in the lab, sampled and judged at both ends.

mod example;
pub mod flow;
mod matrix;
mod truth;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use drs::{Estimator, Limit, Sample, Side};
use serde::{Deserialize, Serialize};

use crate::children::succeed_within;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;
use matrix::Judgements;
use truth::Case;

/// Port of the receiving end inside the lab, whose nodes run nothing else.
const PORT: u16 = 7600;
/// Share of the machine that one flow needs.
const SHARE: f64 = 0.125;
/// Time that an end may take beyond the flow's duration; after that it hangs.
const FLOW_TIMEOUT: Duration = Duration::from_secs(30);
/// Variable with the folder for thinned traces, in the format of the replay test of `drs`.
const EXAMPLES: &str = "LONGHAUL_FIGURES_EXAMPLES";

/// The experiment.
pub struct Classify;

/// One flow; its numbers are drawn by its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Limit of the flow, in the estimator's word.
    limited_by: String,
    /// The sender's congestion control.
    congestion: String,
}

impl Cell {
    fn new(class: Limit, congestion: &str) -> Self {
        Self {
            limited_by: class.as_str().to_owned(),
            congestion: congestion.to_owned(),
        }
    }

    fn case(&self, seed: u64) -> Result<Case> {
        let class = truth::CLASSES
            .into_iter()
            .find(|class| class.as_str() == self.limited_by);
        let class = class.ok_or_else(|| anyhow!("there is no class {}", self.limited_by))?;
        let congestions = truth::congestions(class).iter();
        let congestion = congestions.copied().find(|name| *name == self.congestion);
        let congestion =
            congestion.ok_or_else(|| anyhow!("{} is not made under {}", class, self.congestion))?;
        Ok(truth::case(class, congestion, seed))
    }
}

/// Number of each verdict on the intervals of the steady part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Round trip of the path, in ms.
    rtt_ms: f64,
    /// Rate of the bottleneck, in Mbit/s.
    rate_mbps: f64,
    /// Verdicts of the sender.
    sending: Judgements,
    /// Verdicts of the receiver.
    receiving: Judgements,
}

impl Experiment for Classify {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "classify"
    }

    fn title(&self) -> &'static str {
        "What limits a flow: how often the verdict is right"
    }

    fn cells(&self) -> Vec<Cell> {
        let under = |class| {
            truth::congestions(class)
                .iter()
                .map(move |congestion| Cell::new(class, congestion))
        };
        truth::CLASSES.into_iter().flat_map(under).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        4
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost::new(SHARE, truth::SECONDS + 2.0)
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        Ok(())
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, seed: u64) -> Result<Network> {
        let network = Network::load(tools, "classify.toml")?;
        let set = cell.case(seed)?.set.into_iter();
        Ok(set.fold(network, |network, (path, value)| network.set(path, value)))
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        let case = cell.case(here.seed)?;
        make(here, &case)?;
        if let Some(examples) = std::env::var_os(EXAMPLES) {
            example::write(Path::new(&examples), here.folder, &case)?;
        }
        Ok(Observation {
            rtt_ms: case.rtt.as_secs_f64() * 1e3,
            rate_mbps: case.rate / 1e6,
            sending: verdicts(&trace_of(here.folder, "sender"), &case, Side::Sending)?,
            receiving: verdicts(&trace_of(here.folder, "receiver"), &case, Side::Receiving)?,
        })
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        true
    }

    fn outcome(&self, seen: &Observation) -> String {
        let words = seen
            .sending
            .iter()
            .map(|(word, count)| format!("{count} {word}"));
        words.collect::<Vec<_>>().join(", ")
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        matrix::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        matrix::figures(runs)
    }
}

fn trace_of(folder: &Path, end: &str) -> PathBuf {
    folder.join(format!("{end}.jsonl"))
}

/// Runs the flow; both ends record their samples.
fn make(here: &Here<'_, ()>, case: &Case) -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let end = |node: &str, arguments: &[String]| -> Result<Command> {
        let mut command = here.lab.command(node, &own)?;
        command
            .args(["flow", "--port", &PORT.to_string()])
            .args(["--seconds", &case.seconds.to_string(), "--trace"])
            .arg(trace_of(here.folder, node))
            .args(arguments);
        Ok(command)
    };
    let mut sender = end("sender", &case.sender)?;
    sender.args(["--to", &here.lab.address("receiver")?.to_string()]);
    sender.args(["--congestion", case.congestion]);
    let receiver = end("receiver", &case.receiver)?;
    thread::scope(|scope| -> Result<()> {
        let receiving = scope.spawn(|| finish(receiver, "the receiving end"));
        let sending = finish(sender, "the sending end");
        let receiving = receiving
            .join()
            .unwrap_or_else(|_| bail!("the receiving end was lost"));
        sending.and(receiving)
    })
}

fn finish(command: Command, name: &str) -> Result<()> {
    succeed_within(command, name, FLOW_TIMEOUT).map(drop)
}

fn read(path: &Path) -> Result<Vec<Sample>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    drs::read_trace(BufReader::new(file)).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the verdicts on the intervals in the steady part.
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
            *counts.entry(verdict.limit.as_str().to_owned()).or_default() += 1;
        }
    }
    Ok(counts)
}
