//! Several paths at once: each alone, pairs, all three, shared out by hand, reserved by the copy
//! itself, and paths that fail and return during the copy.

mod by_hand;
mod page;
mod reserved;
mod run;
mod tables;

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::dataset::sized_file;
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;
use by_hand::{How, Scale, Split, Streams};
use reserved::{Reserve, ReservedSeen};

/// The experiment.
pub struct Multipath;

/// Path through the depot in the node of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Path {
    /// 57 ms, 400 Mbit/s.
    A,
    /// 75 ms, 100 Mbit/s.
    B,
    /// 48 ms, 400 Mbit/s.
    C,
}

/// Change of a path during the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The path does not change.
    None,
    /// The depot of A is killed after a third of the bytes.
    Dies,
    /// The same, and it is restarted [`AWAY_SECONDS`] later.
    ComesBack,
    /// The depot of A is started [`AWAY_SECONDS`] after the copy begins.
    Joins,
    /// A's far link has half its rate from [`CHANGED_AT`] until [`CHANGED_BACK_AT`].
    Halved,
    /// The same, but the link carries nothing.
    Cut,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Paths of the copy.
    paths: Vec<Path>,
    /// Change of path A.
    change: Change,
    /// Division of data and streams. `None` if the copy finds both by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    split: Option<Split>,
    /// Reservation of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserve: Option<Reserve>,
}

/// Result of one copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observation {
    /// Time from the start of the command to the verified end.
    seconds: f64,
    /// Bytes of the files divided by the time.
    goodput_bps: f64,
    /// Streams over all paths.
    streams: u32,
    /// Bytes of the files that each path carried, in the order of the cell's paths.
    carried: Vec<u64>,
    /// Rates of A in Mbit/s: before the change, during it, and from [`SETTLE_SECONDS`] after A's
    /// return.
    around_change: Option<[f64; 3]>,
    /// The same rates of all paths together.
    all_around_change: Option<[f64; 3]>,
    /// Durations of several simultaneous copies, in seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    took_s: Vec<f64>,
    /// Result of the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserved: Option<ReservedSeen>,
}

/// Buffers of both ends, as in the scenario.
const BUFFERS_KB: f64 = 2560.0;
/// Bytes of a file, which take 20 s at 100 Mbit/s.
const FILE_BYTES: u64 = 250_000_000;
/// Approximate time of a copy over paths that do not change. The number of files follows from the
/// rates of the paths, so that set-up and slow start have the same weight in all copies. (The paper
/// copied 100 GB each time, where both have no weight.)
const SECONDS: f64 = 20.0;
/// Files of a copy during which a path changes.
const FILES_OF_CHANGES: u64 = 5;
/// Time for which the depot of A is away.
const AWAY_SECONDS: f64 = 3.0;
/// Time after A's return from which its rate counts. A stream is reopened after pauses of up to 4
/// s, and then grows.
const SETTLE_SECONDS: f64 = 5.0;
/// Times at which A's link changes and changes back, in seconds after the start of the lab. A copy
/// begins some three seconds after that start, and lasts until some 25 s.
const CHANGED_AT: f64 = 11.0;
const CHANGED_BACK_AT: f64 = 18.0;

impl Path {
    const ALL: [Self; 3] = [Self::A, Self::B, Self::C];

    /// Returns the node of the path's depot.
    fn node(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
        }
    }

    /// Returns the rate of its links.
    fn mbps(self) -> f64 {
        match self {
            Self::A | Self::C => 400.0,
            Self::B => 100.0,
        }
    }
}

/// Returns the total rate of these paths' links.
fn total_mbps(paths: &[Path]) -> f64 {
    paths.iter().map(|path| path.mbps()).sum()
}

impl Observation {
    fn mbps(&self) -> f64 {
        self.goodput_bps / 1e6
    }
}

impl Cell {
    /// Returns the number of files that it copies.
    fn files(&self) -> u64 {
        match self.change {
            Change::None | Change::Halved | Change::Cut => {
                (SECONDS * self.mbps() * 1e6 / 8.0 / FILE_BYTES as f64).round() as u64
            }
            Change::Dies | Change::ComesBack | Change::Joins => FILES_OF_CHANGES,
        }
    }

    /// Returns the total rate of its paths' links.
    fn mbps(&self) -> f64 {
        total_mbps(&self.paths)
    }

    fn from_paths(paths: &[Path]) -> Self {
        Self {
            paths: paths.to_vec(),
            change: Change::None,
            split: None,
            reserve: None,
        }
    }

    fn split(paths: &[Path], split: Split) -> Self {
        Self {
            split: Some(split),
            ..Self::from_paths(paths)
        }
    }

    fn reserving(reserve: Reserve) -> Self {
        Self {
            reserve: Some(reserve),
            ..Self::from_paths(&Path::ALL)
        }
    }

    /// Returns its approximate duration without setup, in seconds.
    fn seconds(&self) -> f64 {
        let Some(split) = self.split else {
            return 9.0 * (self.files() * FILE_BYTES) as f64 / (1e6 * self.mbps());
        };
        let slowest = self
            .paths
            .iter()
            .map(|path| path.mbps())
            .fold(f64::INFINITY, f64::min);
        let share = match split.how {
            How::Pulled | How::InProportion => return by_hand::SECONDS as f64,
            How::Even => 1.0 / self.paths.len() as f64,
            How::ThirtySeventy => 0.3,
        };
        (by_hand::SECONDS as f64 * share * self.mbps() / slowest).max(by_hand::SECONDS as f64)
    }

    /// Returns the trace of A's far link, which carries the data, in the format of `wanbed`. `None`
    /// if the link does not change.
    fn trace(&self) -> Option<String> {
        let changed = match self.change {
            Change::Halved => "200 Mbit/s",
            Change::Cut => "0 bit/s",
            _ => return None,
        };
        Some(format!(
            "at, rate, delay, loss\n0 s, 400 Mbit/s, 14.25 ms,\n{CHANGED_AT} s, {changed},,\n\
             {CHANGED_BACK_AT} s, 400 Mbit/s,,\n"
        ))
    }

    fn changing(change: Change) -> Self {
        Self {
            change,
            ..Self::from_paths(&Path::ALL)
        }
    }

    /// Returns the demonstrated cell: all three paths, of which one goes away and comes back.
    pub fn demonstrated() -> Self {
        Self::changing(Change::ComesBack)
    }
}

/// All changes of A.
const CHANGES: [Change; 5] = [
    Change::Dies,
    Change::ComesBack,
    Change::Joins,
    Change::Halved,
    Change::Cut,
];

fn trace_file(root: &std::path::Path, change: Change) -> PathBuf {
    root.join(format!("{change:?}.csv"))
}

/// Combinations of the paper, in its order.
const COMBINATIONS: [&[Path]; 7] = [
    &[Path::A],
    &[Path::B],
    &[Path::C],
    &[Path::A, Path::B],
    &[Path::A, Path::C],
    &[Path::B, Path::C],
    &[Path::A, Path::B, Path::C],
];

/// Returns the combinations of several paths.
fn together() -> impl Iterator<Item = &'static [Path]> {
    COMBINATIONS.into_iter().filter(|paths| paths.len() > 1)
}

impl Experiment for Multipath {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = PathBuf;

    fn name(&self) -> &'static str {
        "multipath"
    }

    fn title(&self) -> &'static str {
        "Three paths at once through depots: the sum of each alone, and paths that go and come"
    }

    fn cells(&self) -> Vec<Cell> {
        let combinations = COMBINATIONS.iter().map(|paths| Cell::from_paths(paths));
        let changes = CHANGES.map(Cell::changing);
        let mut splits = Vec::new();
        for split in Split::pulled() {
            let one = |how| move |paths: &[Path]| Cell::split(paths, Split { how, ..split });
            splits.extend(COMBINATIONS.into_iter().map(one(How::Pulled)));
            if split.scale == Scale::Half {
                continue;
            }
            splits.extend(together().map(one(How::Even)));
            splits.push(one(How::InProportion)(&Path::ALL));
            if split.streams == Streams::Ten {
                let pairs = together().filter(|paths| paths.len() == 2);
                splits.extend(pairs.map(one(How::ThirtySeventy)));
            }
        }
        let reserving = Reserve::ALL.map(Cell::reserving);
        combinations
            .chain(changes)
            .chain(splits)
            .chain(reserving)
            .collect()
    }

    /// The default is each path alone, and all together. `--seeds 1` asks for every cell.
    fn seeds(&self, cell: &Cell) -> u64 {
        let is_plain = cell.split.is_none() && cell.reserve.is_none();
        u64::from(matches!(cell.change, Change::None) && cell.paths.len() != 2 && is_plain)
    }

    fn cost(&self, cell: &Cell) -> Cost {
        Cost {
            share: 1.0,
            seconds: 3.0 + cell.seconds(),
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<PathBuf> {
        let root = tools.scratch.path().join("multipath");
        let most = self.cells().iter().map(Cell::files).max().unwrap_or(0);
        for file in 0..most {
            sized_file(&root.join(file.to_string()), FILE_BYTES, file)?;
        }
        for file in 0..by_hand::files(&Path::ALL, Scale::Full) {
            // The seeds differ from those of the large files.
            sized_file(
                &root.join(by_hand::file_name(file)),
                by_hand::FILE_BYTES,
                most + file,
            )?;
        }
        for change in CHANGES {
            if let Some(trace) = Cell::changing(change).trace() {
                std::fs::write(trace_file(&root, change), trace).context("cannot write a trace")?;
            }
        }
        Ok(root)
    }

    fn network(&self, tools: &Tools, root: &PathBuf, cell: &Cell, _seed: u64) -> Result<Network> {
        let relays: Vec<&str> = cell.paths.iter().map(|path| path.node()).collect();
        let mut network = Network::load(tools, "multipath.toml")?.relays(&relays);
        if let Some(split) = cell.split.filter(|split| split.scale == Scale::Half) {
            for path in Path::ALL {
                let rate = format!("\"{} Mbit/s\"", path.mbps() / split.scale.divisor());
                for part in ["near", "far"] {
                    network =
                        network.set(format!("links.{}-{part}.rate", path.node()), rate.clone());
                }
            }
            for end in ["client", "server"] {
                let buffers = format!("\"{} KB\"", BUFFERS_KB / split.scale.divisor());
                network = network.set(format!("nodes.{end}.buffers"), buffers);
            }
        }
        Ok(match cell.trace() {
            Some(_) => {
                let file = trace_file(root, cell.change);
                network.set("links.a-far.trace", format!("{:?}", file.to_string_lossy()))
            }
            None => network,
        })
    }

    fn run(&self, here: &Here<'_, PathBuf>, cell: &Cell) -> Result<Observation> {
        match (cell.split, cell.reserve) {
            (Some(split), _) => by_hand::run(here, cell, split),
            (None, Some(reserve)) => reserved::run(here, cell, reserve),
            (None, None) => run::run(here, cell),
        }
    }

    fn outcome(&self, seen: &Observation) -> String {
        let carried: Vec<String> = seen
            .carried
            .iter()
            .map(|bytes| format!("{:.1}", 8e-6 * *bytes as f64 / seen.seconds))
            .collect();
        let reserved = seen.reserved.as_ref().map_or(String::new(), |reserved| {
            let mbps = |of: [f64; 3]| of.map(|bps| format!("{:.0}", bps / 1e6)).join(" + ");
            format!(
                ", of {} Mbit/s reserved {} were carried, beside {:.0}; met: {:?}, returned {:.0} \
                 of {:.0} MB",
                mbps(reserved.reserved_bps),
                mbps(reserved.carried_bps),
                reserved.best_effort_bps / 1e6,
                reserved.met,
                reserved.returned_bytes as f64 / 1e6,
                reserved.reserved_bytes as f64 / 1e6,
            )
        });
        format!(
            "{:.1} Mbit/s ({}), {:.1} s, {} streams{reserved}",
            seen.mbps(),
            carried.join(" + "),
            seen.seconds,
            seen.streams
        )
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        Ok(page::page(runs))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}
