//! Several paths at once: each alone, pairs, all three, and paths that go and come in mid-copy.

mod page;
mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::copy::Source;
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;

/// The experiment.
pub struct Multipath;

/// A path, through the depot in the node of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Path {
    /// 57 ms, 400 Mbit/s.
    A,
    /// 75 ms, 100 Mbit/s.
    B,
    /// 48 ms, 400 Mbit/s.
    C,
}

/// What befalls a path in mid-copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Nothing.
    None,
    /// The depot of A is killed after a third of the bytes.
    Dies,
    /// The same, and it is started again [`AWAY_SECONDS`] later.
    ComesBack,
    /// The depot of A is started [`AWAY_SECONDS`] after the copy.
    Joins,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The paths that it is given.
    paths: Vec<Path>,
    /// What befalls A.
    change: Change,
}

/// What one copy came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// From the start of the command to the verified end.
    seconds: f64,
    /// Bytes of the file, by seconds.
    goodput_bps: f64,
    /// Streams over all paths.
    streams: u32,
    /// Bytes of the file that each path carried, in the order of the cell's paths.
    carried: Vec<u64>,
    /// What A carried, in Mbit/s, before the change, while it was away, and from [`SETTLE_SECONDS`] after its return on.
    around_change: Option<[f64; 3]>,
    /// The same of all paths together.
    all_around_change: Option<[f64; 3]>,
}

/// What is copied: as much in each cell, as in the paper, so that those of one path last longer.
const BYTES: u64 = 768 << 20;
/// How long the depot of A is away.
const AWAY_SECONDS: f64 = 3.0;
/// How long after A's return its rate counts: a stream is opened again after pauses of up to 4 s, and then grows.
const SETTLE_SECONDS: f64 = 5.0;

impl Path {
    const ALL: [Self; 3] = [Self::A, Self::B, Self::C];

    /// The node that its depot runs in.
    fn node(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
        }
    }

    /// What its links carry.
    fn mbps(self) -> f64 {
        match self {
            Self::A | Self::C => 400.0,
            Self::B => 100.0,
        }
    }
}

impl Seen {
    fn mbps(&self) -> f64 {
        self.goodput_bps / 1e6
    }
}

impl Cell {
    fn of(paths: &[Path]) -> Self {
        Self {
            paths: paths.to_vec(),
            change: Change::None,
        }
    }

    fn changing(change: Change) -> Self {
        Self {
            change,
            ..Self::of(&Path::ALL)
        }
    }

    /// What is demonstrated: all three paths, of which one goes and comes back.
    pub fn demonstrated() -> Self {
        Self::changing(Change::ComesBack)
    }
}

/// The combinations of the paper, in its order.
const COMBINATIONS: [&[Path]; 7] = [
    &[Path::A],
    &[Path::B],
    &[Path::C],
    &[Path::A, Path::B],
    &[Path::A, Path::C],
    &[Path::B, Path::C],
    &[Path::A, Path::B, Path::C],
];

impl Experiment for Multipath {
    type Cell = Cell;
    type Seen = Seen;
    type Setup = ();

    fn name(&self) -> &'static str {
        "multipath"
    }

    fn title(&self) -> &'static str {
        "Three paths at once through depots: the sum of each alone, and paths that go and come"
    }

    fn cells(&self) -> Vec<Cell> {
        let combinations = COMBINATIONS.iter().map(|paths| Cell::of(paths));
        let changes = [Change::Dies, Change::ComesBack, Change::Joins].map(Cell::changing);
        combinations.chain(changes).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let mbps: f64 = cell.paths.iter().map(|path| path.mbps()).sum();
        Cost {
            share: 1.0,
            seconds: 3.0 + 8.5 * BYTES as f64 / (1e6 * mbps),
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<()> {
        Source::sized(tools, BYTES).map(drop)
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        let relays: Vec<&str> = cell.paths.iter().map(|path| path.node()).collect();
        Ok(Network::of(tools, "multipath.toml")?.relays(&relays))
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Seen> {
        run::run(here, cell)
    }

    fn outcome(&self, seen: &Seen) -> String {
        let carried: Vec<String> = seen
            .carried
            .iter()
            .map(|bytes| format!("{:.1}", 8e-6 * *bytes as f64 / seen.seconds))
            .collect();
        format!(
            "{:.1} Mbit/s ({}), {:.1} s, {} streams",
            seen.mbps(),
            carried.join(" + "),
            seen.seconds,
            seen.streams
        )
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Seen>) -> Result<Page> {
        Ok(page::page(runs))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Seen>) -> Vec<Figure> {
        page::figures(runs)
    }
}
