//! Flows with fitted sending rates next to flows under plain TCP: their shares, their losses, and
//! the recovery of a flow whose program is slow at first.

pub mod program;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::children::{Server, output_within};
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page, Table, cell};
use crate::runs::Runs;
use crate::single::Basis;
use crate::tools::Tools;
use program::{Flow, PORT};

/// Duration of the flows in seconds; the part at the end that is counted follows.
const SECONDS: u32 = 30;
const COUNTED_SECONDS: u32 = 10;
/// Rate of a slow program in bytes per second, and its duration in seconds.
const SLOW_PROGRAM: (u32, u32) = (2_000_000, 8);
/// Numbers of flows of one process that sends without a limit. With `true`, the first flow's
/// program is slow at first.
const FLOWS: [(u32, bool); 5] = [(1, false), (2, false), (10, false), (1, true), (2, true)];
/// Payload rate of a path of 155 Mbit/s in segments of 1448 bytes, in Mbit/s.
const PAYLOAD_MBPS: f64 = 155.0 * 1448.0 / 1500.0;

/// The experiment.
pub struct RateFit;

/// Flows of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    flows: u32,
    /// If true, the first flow's program sends slowly at first.
    slow: bool,
    /// If true, rates are fitted; otherwise they are left to TCP.
    fitted: bool,
}

/// Result of each flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    flows: Vec<Flow>,
}

impl Observation {
    fn total(&self) -> f64 {
        self.flows.iter().map(|flow| flow.mbps).sum()
    }

    fn least(&self) -> f64 {
        self.flows
            .iter()
            .map(|flow| flow.mbps)
            .fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.flows.iter().map(|flow| flow.mbps).fold(0.0, f64::max)
    }

    fn retransmits(&self) -> f64 {
        self.flows
            .iter()
            .map(|flow| f64::from(flow.retransmits))
            .sum()
    }
}

impl Experiment for RateFit {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "rate-fit"
    }

    fn title(&self) -> &'static str {
        "Sending rates fitted to the path: one flow and several, fast and slow programs"
    }

    fn cells(&self) -> Vec<Cell> {
        let both = |(flows, slow)| {
            [true, false].map(|fitted| Cell {
                flows,
                slow,
                fitted,
            })
        };
        FLOWS.into_iter().flat_map(both).collect()
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost {
            share: 0.3,
            seconds: f64::from(SECONDS) + 3.0,
        }
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        Ok(())
    }

    fn network(&self, tools: &Tools, (): &(), _cell: &Cell, _seed: u64) -> Result<Network> {
        Network::load(tools, "clean-long.toml")
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        let own = std::env::current_exe()?;
        let mut receiver = here.lab.command("server", &own)?;
        receiver.arg("fitted-receive");
        let _receiver = Server::start(receiver, "the receiver", "listening")?;
        let mut sender = here.lab.command("client", &own)?;
        sender
            .args([
                "fitted-send",
                "--to",
                &format!("{}:{PORT}", here.lab.address("server")?),
            ])
            .args(["--flows", &cell.flows.to_string()])
            .args([
                "--seconds",
                &SECONDS.to_string(),
                "--counted",
                &COUNTED_SECONDS.to_string(),
            ]);
        if cell.fitted {
            sender.arg("--fitted");
        }
        if cell.slow {
            sender.args([
                "--slow-bytes",
                &SLOW_PROGRAM.0.to_string(),
                "--slow-seconds",
                &SLOW_PROGRAM.1.to_string(),
            ]);
        }
        let limit = Duration::from_secs(u64::from(SECONDS) + 30);
        let (status, out, err) = output_within(sender, "the sender", limit)?;
        if !status.success() {
            bail!("the sender ended with {status}: {}", err.trim());
        }
        let flows =
            serde_json::from_str(&out).with_context(|| format!("the sender reported {out:?}"))?;
        Ok(Observation { flows })
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!(
            "{:.1} Mbit/s in all, {:.1} to {:.1} each, {} retransmissions",
            seen.total(),
            seen.least(),
            seen.most(),
            seen.retransmits()
        )
    }

    fn noisy_links(&self, _cell: &Cell) -> &'static [&'static str] {
        &["west"]
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let mut table = Table::new([
            "flows",
            "program",
            "rate",
            "all, Mbit/s",
            "share of the path",
            "least flow",
            "most",
            "retransmissions",
            "runs",
        ]);
        for one in self.cells() {
            let of = |value: fn(&Observation) -> f64| runs.spread(&one, value);
            let share = of(Observation::total).map(|total| {
                let text = format!("{:.1} %", 100.0 * total.median / PAYLOAD_MBPS);
                Basis::Runs(total.count).mark(text)
            });
            table.row([
                one.flows.to_string(),
                if one.slow {
                    "the first slow at first"
                } else {
                    "fast"
                }
                .to_owned(),
                if one.fitted { "fitted" } else { "left to TCP" }.to_owned(),
                cell(of(Observation::total), 1),
                share.unwrap_or_else(|| "-".to_owned()),
                cell(of(Observation::least), 1),
                cell(of(Observation::most), 1),
                cell(of(Observation::retransmits), 0),
                runs.cell(&one).len().to_string(),
            ]);
        }
        Ok(Page::new(&head()).table(&table))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let figure = |one: Cell| {
            let (total, least) = (
                runs.spread(&one, Observation::total)?,
                runs.spread(&one, Observation::least)?,
            );
            let (most, lost) = (
                runs.spread(&one, Observation::most)?,
                runs.spread(&one, Observation::retransmits)?,
            );
            Some(Figure::new(
                format!("{}-{}-{}", one.flows, one.slow, one.fitted),
                format!(
                    "{} flows{}, {}: all of them, each, Mbit/s",
                    one.flows,
                    if one.slow {
                        " of which one has a slow program at first"
                    } else {
                        ""
                    },
                    if one.fitted { "fitted" } else { "left to TCP" }
                ),
                format!(
                    "{:.1}, {:.1} to {:.1}, {:.0} retransmissions",
                    total.median, least.median, most.median, lost.median
                ),
                Basis::Runs(total.count),
            ))
        };
        self.cells().into_iter().filter_map(figure).collect()
    }
}

fn head() -> String {
    format!(
        "Flows of one process over the clean path of `scenarios/clean-long.toml` (120 ms, 155 \
         Mbit/s, of which {PAYLOAD_MBPS:.1} are payload, Reno) for {SECONDS} s; rates are what was \
         acknowledged in the last {COUNTED_SECONDS}. *Fitted* flows are handed to \
         `drs::RateFitter`. A slow program gives {:.0} MB a second for {} s, and then as much as \
         the socket takes.",
        f64::from(SLOW_PROGRAM.0) / 1e6,
        SLOW_PROGRAM.1
    )
}
