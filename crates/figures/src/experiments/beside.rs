//! The share that a copy without options takes of a path used by others, compared with that of one
//! more stock flow.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::copy::{SERVER_PORT, Source, first_copy, serve};
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page, Table, cell};
use crate::peers::Program;
use crate::peers::iperf3::{Interval, Iperf3};
use crate::peers::place::PeerNode;
use crate::runs::Runs;
use crate::tools::Tools;
use crate::watched_copy::WatchedCopy;

const CONGESTION: [&str; 3] = ["cubic", "reno", "bbr"];
/// Numbers of stock flows that have the path.
const FLOWS: [u32; 2] = [1, 4];
/// Time for which the others have had the path when the new flow comes, in seconds.
const BEFORE_SECONDS: u32 = 6;
/// Time for which both are watched, in seconds.
const BESIDE_SECONDS: u32 = 20;
/// Length of its beginning, in seconds.
const BEGINNING_SECONDS: u32 = 5;
/// Size of the file: more than the path carries meanwhile.
const FILE_BYTES: u64 = 3 << 29;
/// Port of the server for a stock flow that joins the others: an iperf3 server carries one test at
/// a time.
const NEWCOMER_PORT: u16 = 5202;
/// Time over which iperf3 averages its reported rates, in seconds.
const INTERVAL_SECONDS: f64 = 0.5;

/// The experiment.
pub struct SharedBottleneck;

/// Flow that joins the stock flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Newcomer {
    /// `longhaul cp` without options.
    Copy,
    /// One more stock flow.
    Flow,
}

/// Stock flows that have a path, and the flow that joins them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    congestion: String,
    flows: u32,
    newcomer: Newcomer,
}

/// Share of the new flow in the total, 0 to 1.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Observation {
    beginning: f64,
    later: f64,
}

impl Cell {
    /// Returns a share as a multiple of the fair one, which is one part for each flow including the
    /// new one.
    fn multiple(&self, share: f64) -> f64 {
        share * f64::from(self.flows + 1)
    }

    /// Returns the cell with another new flow.
    fn with(&self, newcomer: Newcomer) -> Self {
        Self {
            newcomer,
            ..self.clone()
        }
    }
}

impl Experiment for SharedBottleneck {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Source;

    fn name(&self) -> &'static str {
        "beside"
    }

    fn title(&self) -> &'static str {
        "What a copy takes of a path that others use"
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for congestion in CONGESTION {
            for flows in FLOWS {
                for newcomer in [Newcomer::Copy, Newcomer::Flow] {
                    cells.push(Cell {
                        congestion: congestion.into(),
                        flows,
                        newcomer,
                    });
                }
            }
        }
        cells
    }

    /// By default with one CUBIC flow; `--seeds` for all.
    fn seeds(&self, cell: &Cell) -> u64 {
        u64::from(cell.congestion == "cubic" && cell.flows == 1)
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost {
            share: 1.0,
            seconds: f64::from(BEFORE_SECONDS + BESIDE_SECONDS) + 5.0,
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<Source> {
        Iperf3.installed()?;
        Source::sized(tools, FILE_BYTES)
    }

    fn network(&self, tools: &Tools, _source: &Source, cell: &Cell, _seed: u64) -> Result<Network> {
        Ok(Network::load(tools, "copy.toml")?
            .set("links.path.delay", "\"20 ms\"")
            .set("links.path.rate", "\"500 Mbit/s\"")
            .set("nodes.*.congestion", format!("\"{}\"", cell.congestion)))
    }

    fn run(&self, here: &Here<'_, Source>, cell: &Cell) -> Result<Observation> {
        let place = |node| PeerNode {
            lab: here.lab,
            node,
            scratch: here.folder,
        };
        let (server, client) = (place("server"), place("client"));
        let serving = Iperf3.serve(&server)?;
        let stock = Iperf3.start(
            &client,
            &serving,
            BEFORE_SECONDS + BESIDE_SECONDS,
            cell.flows,
            INTERVAL_SECONDS,
        )?;
        std::thread::sleep(Duration::from_secs(BEFORE_SECONDS.into()));
        let (begun, newcomer) = match cell.newcomer {
            Newcomer::Flow => {
                let serving = Iperf3.serve_at(&server, NEWCOMER_PORT)?;
                let flow = Iperf3.start(&client, &serving, BESIDE_SECONDS, 1, INTERVAL_SECONDS)?;
                (flow.begun, flow.intervals()?)
            }
            Newcomer::Copy => copied(here)?,
        };
        let shift = begun.duration_since(stock.begun).as_secs_f64();
        let stock = stock.intervals()?;
        let share = |from: u32, until: u32| {
            let (from, until) = (f64::from(from), f64::from(until));
            let of_newcomer = bits(&newcomer, from, until);
            of_newcomer / (of_newcomer + bits(&stock, from + shift, until + shift))
        };
        Ok(Observation {
            beginning: share(0, BEGINNING_SECONDS),
            // Without the last second, because one of the two may have ended by then.
            later: share(BEGINNING_SECONDS, BESIDE_SECONDS - 1),
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!(
            "share {:.2} in the first {BEGINNING_SECONDS} s, then {:.2}",
            seen.beginning, seen.later
        )
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let mut table = Table::new([
            "congestion control",
            "stock flows",
            "newcomer",
            "its share at the beginning",
            "later",
            "by a fair share",
        ]);
        for of in self.cells() {
            let newcomer = match of.newcomer {
                Newcomer::Copy => "longhaul cp",
                Newcomer::Flow => "one more flow",
            };
            table.row([
                of.congestion.clone(),
                of.flows.to_string(),
                newcomer.to_owned(),
                cell(runs.spread(&of, |seen| seen.beginning), 2),
                cell(runs.spread(&of, |seen| seen.later), 2),
                cell(runs.spread(&of, |seen| of.multiple(seen.later)), 2),
            ]);
        }
        Ok(Page::new(&format!(
            "Stock flows (iperf3) have had 500 Mbit/s and 40 ms for {BEFORE_SECONDS} s when a \
             `longhaul cp` with nothing set comes to them, or one more of their kind, which shows \
             what the path's congestion control does by itself. The newcomer's share of what all \
             carry: in its first {BEGINNING_SECONDS} s, and then until {} s; and that as a \
             multiple of a \
             fair share, which is one part for each stock flow and one for the newcomer.",
            BESIDE_SECONDS - 1
        ))
        .table(&table))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let copies = self
            .cells()
            .into_iter()
            .filter(|of| of.newcomer == Newcomer::Copy);
        copies
            .filter_map(|of| {
                let multiple = |of: &Cell| runs.spread(of, |seen| of.multiple(seen.later));
                let copy = multiple(&of)?.median;
                let flow = multiple(&of.with(Newcomer::Flow))?.median;
                Some(Figure::new(
                    format!("{}-{}", of.congestion, of.flows),
                    format!(
                        "a copy's share beside {} stock flows, {}, by a fair one (one more flow's)",
                        of.flows, of.congestion
                    ),
                    format!("{copy:.2} ({flow:.2})"),
                    runs.basis([&of, &of.with(Newcomer::Flow)]),
                ))
            })
            .collect()
    }
}

/// Runs a copy until both have been watched for long enough. Returns the time of its beginning and
/// its intervals.
fn copied(here: &Here<'_, Source>) -> Result<(Instant, Vec<Interval>)> {
    let (tools, lab, source) = (here.tools, here.lab, here.setup);
    let _server = serve(tools, lab, "server", &source.root)?;
    let mut command = first_copy(here, "client")?;
    command
        .arg("--json")
        .arg(format!(
            "lh://{}:{SERVER_PORT}/{}",
            lab.address("server")?,
            source.name
        ))
        .arg(here.folder.join("arrived"));
    let begun = Instant::now();
    let mut copy = WatchedCopy::start(command)?;
    copy.until(Duration::from_secs(BESIDE_SECONDS.into()), |_| false);
    let carried = copy
        .events
        .iter()
        .filter(|(_, event)| event["event"] == "progress");
    let carried: Vec<(f64, f64)> = carried
        .map(|(seconds, event)| {
            let bytes = event["bytes"].as_f64().context("progress without bytes")?;
            Ok((*seconds, 8.0 * bytes))
        })
        .collect::<Result<_>>()?;
    let starts = [(0.0, 0.0)].into_iter().chain(carried.iter().copied());
    let intervals = starts.zip(&carried).map(|(before, now)| Interval {
        start: before.0,
        end: now.0,
        bits: now.1 - before.1,
    });
    Ok((begun, intervals.collect()))
}

/// Returns the bits carried between two times in seconds. An interval that is partly between them
/// counts in part.
fn bits(intervals: &[Interval], from: f64, until: f64) -> f64 {
    let within = |interval: &Interval| {
        let length = interval.end - interval.start;
        let common = interval.end.min(until) - interval.start.max(from);
        if length > 0.0 && common > 0.0 {
            interval.bits * common / length
        } else {
            0.0
        }
    };
    intervals.iter().map(within).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_by_its_part() {
        let intervals = [(0.0, 2.0, 20.0), (2.0, 3.0, 30.0)].map(|(start, end, bits)| Interval {
            start,
            end,
            bits,
        });
        assert_eq!(bits(&intervals, 1.0, 2.5), 25.0);
        assert_eq!(bits(&intervals, 4.0, 5.0), 0.0);
    }

    #[test]
    fn half_of_a_path_beside_one_flow_is_fair() {
        let cell = SharedBottleneck.cells().swap_remove(0);
        assert_eq!((cell.flows, cell.multiple(0.5)), (1, 1.0));
    }
}
