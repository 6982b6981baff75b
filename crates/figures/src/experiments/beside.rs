//! The share that a copy without options takes of a path used by others, compared with that of one
//! more stock flow.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::copy::{Source, first_copy, serve, served};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page, Table};
use crate::peers::Program;
use crate::peers::iperf3::{Interval, Iperf3};
use crate::peers::place::PeerNode;
use crate::runs::Runs;
use crate::template::page;
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
/// Goal of the share of a copy over QUIC beside one CUBIC flow, after the beginning.
const GOAL: [f64; 2] = [0.2, 0.6];
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
    /// `longhaul cp` over QUIC.
    Quic,
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

impl Newcomer {
    /// Returns the words for a page.
    const fn words(self) -> &'static str {
        match self {
            Self::Copy => "longhaul cp",
            Self::Quic => "longhaul cp --transport quic",
            Self::Flow => "one more flow",
        }
    }

    /// Returns the options of the copy. `None` for a stock flow.
    const fn options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Copy => Some(&[]),
            Self::Quic => Some(&["--transport", "quic"]),
            Self::Flow => None,
        }
    }
}

impl Cell {
    /// Returns true if one CUBIC flow has the path: the case of most interest.
    fn is_one_cubic_flow(&self) -> bool {
        self.congestion == "cubic" && self.flows == 1
    }

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
                for newcomer in [Newcomer::Copy, Newcomer::Quic, Newcomer::Flow] {
                    let cell = Cell {
                        congestion: congestion.into(),
                        flows,
                        newcomer,
                    };
                    if newcomer != Newcomer::Quic || cell.is_one_cubic_flow() {
                        cells.push(cell);
                    }
                }
            }
        }
        cells
    }

    /// By default with one CUBIC flow; `--seeds` for all.
    fn seeds(&self, cell: &Cell) -> u64 {
        u64::from(cell.is_one_cubic_flow())
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost::new(1.0, f64::from(BEFORE_SECONDS + BESIDE_SECONDS) + 5.0)
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
        let (begun, newcomer) = match cell.newcomer.options() {
            None => {
                let serving = Iperf3.serve_at(&server, NEWCOMER_PORT)?;
                let flow = Iperf3.start(&client, &serving, BESIDE_SECONDS, 1, INTERVAL_SECONDS)?;
                (flow.begun, flow.intervals()?)
            }
            Some(options) => copied(here, options)?,
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

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let table = runs
            .table(self.cells())
            .measured()
            .text("congestion control", |row| row.cell.congestion.clone())
            .text("stock flows", |row| row.cell.flows)
            .text("newcomer", |row| row.cell.newcomer.words())
            .column("its share at the beginning", 2, |seen| seen.beginning)
            .column("later", 2, |seen| seen.later)
            .spread("by a fair share", 2, |row| {
                row.spread(|seen| row.cell.multiple(seen.later))
            })
            .table();
        let (before, beginning) = (BEFORE_SECONDS, BEGINNING_SECONDS);
        let transports = transports(runs);
        let [least, most] = GOAL;
        page!(
            "beside", table, transports, before, beginning, least, most,
            until => BESIDE_SECONDS - 1
        )
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let figure = |of: Cell| {
            let Cell {
                congestion, flows, ..
            } = &of;
            let multiple = |seen: &Observation| of.multiple(seen.later);
            let gain = runs.gain([&of.with(Newcomer::Flow), &of], multiple)?;
            let (key, copy) = match of.newcomer {
                Newcomer::Quic => ("-quic", "a copy's over QUIC"),
                Newcomer::Copy | Newcomer::Flow => ("", "a copy's"),
            };
            Some(Figure::new(
                format!("{congestion}-{flows}{key}"),
                format!(
                    "{copy} share beside {flows} stock flows, {congestion}, by a fair one (one \
                     more flow's)"
                ),
                format!("{:.2} ({:.2})", gain.after.median, gain.before.median),
                gain.basis(),
            ))
        };
        let copies = self.cells().into_iter();
        copies
            .filter(|of| of.newcomer != Newcomer::Flow)
            .filter_map(figure)
            .collect()
    }
}

/// Returns the table of both transports beside one CUBIC flow.
fn transports(runs: &Runs<'_, Cell, Observation>) -> Table {
    let cells = SharedBottleneck.cells().into_iter();
    let copies = cells
        .filter(|cell| cell.is_one_cubic_flow())
        .filter(|cell| cell.newcomer != Newcomer::Flow);
    runs.table(copies)
        .measured()
        .text("copy", |row| row.cell.newcomer.words())
        .column("its share", 2, |seen| seen.later)
        .column("share of the TCP flow", 2, |seen| 1.0 - seen.later)
        .runs()
        .table()
}

/// Runs a copy with these options until both have been watched for long enough. Returns the time of
/// its beginning and its intervals.
fn copied(here: &Here<'_, Source>, options: &[&str]) -> Result<(Instant, Vec<Interval>)> {
    let (tools, lab, source) = (here.tools, here.lab, here.setup);
    let _server = serve(tools, lab, "server", &source.root)?;
    let mut command = first_copy(here, "client")?;
    command
        .arg("--json")
        .args(options)
        .arg(served(lab, "server", &source.name)?)
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
    use crate::record::Record;
    use crate::runs::tests::record;

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
    fn page_has_the_share_over_quic_once_it_is_measured() {
        let all = SharedBottleneck.cells().into_iter();
        let cells: Vec<Cell> = all.filter(Cell::is_one_cubic_flow).collect();
        assert_eq!(cells.len(), 3);
        let run = |cell: &Cell, later| {
            let seen = Observation {
                beginning: 0.3,
                later,
            };
            record(cell.clone(), 2001, seen, true)
        };
        let [copy, quic, flow] =
            [(0, 0.5), (1, 0.4), (2, 0.1)].map(|(at, later)| run(&cells[at], later));
        let page = |records: &[Record<Cell, Observation>]| {
            let runs = Runs::select_valid(records);
            let figures = SharedBottleneck.figures(&runs);
            (SharedBottleneck.page(&runs).unwrap().text, figures)
        };
        let (text, figures) = page(&[copy.clone(), flow.clone()]);
        assert!(!text.contains("--transport quic |"), "{text}");
        assert_eq!(figures.len(), 1);
        let (text, figures) = page(&[copy, quic, flow]);
        let row = "| longhaul cp --transport quic | 0.40 (single) | 0.60 (single) | 1 |";
        assert!(text.contains(row), "{text}");
        assert_eq!(figures[1].key, "cubic-1-quic");
        assert_eq!(figures[1].text, "0.80 (0.20; single)");
    }

    #[test]
    fn half_of_a_path_beside_one_flow_is_fair() {
        let cell = SharedBottleneck.cells().swap_remove(0);
        assert_eq!((cell.flows, cell.multiple(0.5)), (1, 1.0));
    }
}
