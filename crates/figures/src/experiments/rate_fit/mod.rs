//! Flows with fitted sending rates next to flows under plain TCP: their shares, their losses, and
//! the recovery of a flow whose program is slow at first.

pub mod program;

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::children::{Server, succeed_within};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::stats::Spread;
use crate::template::page;
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

impl Cell {
    fn rate(&self) -> &'static str {
        if self.fitted { "fitted" } else { "left to TCP" }
    }
}

impl Observation {
    fn rates(&self) -> impl Iterator<Item = f64> {
        self.flows.iter().map(|flow| flow.mbps)
    }

    fn total(&self) -> f64 {
        self.rates().sum()
    }

    fn least(&self) -> f64 {
        self.rates().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.rates().fold(0.0, f64::max)
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
        Cost::new(0.3, f64::from(SECONDS) + 3.0)
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
        let out = succeed_within(sender, "the sender", limit)?;
        let flows =
            serde_json::from_str(&out).with_context(|| format!("the sender reported {out:?}"))?;
        Ok(Observation { flows })
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        true
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
        let table = runs
            .table(self.cells())
            .text("flows", |row| row.cell.flows)
            .text("program", |row| match row.cell.slow {
                true => "the first slow at first",
                false => "fast",
            })
            .text("rate", |row| row.cell.rate())
            .column("all, Mbit/s", 1, Observation::total)
            .text("share of the path", |row| {
                let share = |total: Spread| {
                    let text = format!("{:.1} %", 100.0 * total.median / PAYLOAD_MBPS);
                    total.basis().mark(text)
                };
                row.spread(Observation::total).map_or("-".to_owned(), share)
            })
            .column("least flow", 1, Observation::least)
            .column("most", 1, Observation::most)
            .column("retransmissions", 0, Observation::retransmits)
            .runs()
            .table();
        let slow_mb = f64::from(SLOW_PROGRAM.0) / 1e6;
        page!("rate-fit", table, payload => PAYLOAD_MBPS, seconds => SECONDS,
            counted => COUNTED_SECONDS, slow_mb, slow_seconds => SLOW_PROGRAM.1)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let figure = |one: Cell| {
            let median = |value: fn(&Observation) -> f64| Some(runs.spread(&one, value)?.median);
            let slow = match one.slow {
                true => " of which one has a slow program at first",
                false => "",
            };
            let Cell {
                flows,
                slow: is_slow,
                fitted,
            } = one;
            Some(Figure::new(
                format!("{flows}-{is_slow}-{fitted}"),
                format!(
                    "{flows} flows{slow}, {}: all of them, each, Mbit/s",
                    one.rate()
                ),
                format!(
                    "{:.1}, {:.1} to {:.1}, {:.0} retransmissions",
                    median(Observation::total)?,
                    median(Observation::least)?,
                    median(Observation::most)?,
                    median(Observation::retransmits)?
                ),
                runs.basis([&one]),
            ))
        };
        self.cells().into_iter().filter_map(figure).collect()
    }
}
