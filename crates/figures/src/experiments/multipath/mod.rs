//! Several paths at once: each alone, pairs, all three, and paths that go and come in mid-copy.

mod page;
mod run;

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::dataset::sized_file;
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
    /// Bytes of the files, by seconds.
    goodput_bps: f64,
    /// Streams over all paths.
    streams: u32,
    /// Bytes of the files that each path carried, in the order of the cell's paths.
    carried: Vec<u64>,
    /// What A carried, in Mbit/s, before the change, while it was away, and from [`SETTLE_SECONDS`] after its return on.
    around_change: Option<[f64; 3]>,
    /// The same of all paths together.
    all_around_change: Option<[f64; 3]>,
}

/// Bytes of a file: what 100 Mbit/s carry in 20 s.
const FILE_BYTES: u64 = 250_000_000;
/// About how long a copy over paths that nothing befalls lasts: each is given as many files as its paths carry in this time, so that
/// set-up and slow start weigh the same in all. (The paper copied 100 GB each time, beside which they weigh nothing.)
const SECONDS: f64 = 20.0;
/// Files of a copy in which something befalls a path.
const FILES_OF_CHANGES: u64 = 5;
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
    /// How many files it copies.
    fn files(&self) -> u64 {
        match self.change {
            Change::None => (SECONDS * self.mbps() * 1e6 / 8.0 / FILE_BYTES as f64).round() as u64,
            _ => FILES_OF_CHANGES,
        }
    }

    /// What the links of its paths carry together.
    fn mbps(&self) -> f64 {
        self.paths.iter().map(|path| path.mbps()).sum()
    }

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
    type Setup = PathBuf;

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

    /// By default each path alone, and all; `--seeds 1` is all of it.
    fn seeds(&self, cell: &Cell) -> u64 {
        u64::from(matches!(cell.change, Change::None) && cell.paths.len() != 2)
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let bytes = (cell.files() * FILE_BYTES) as f64;
        Cost {
            share: 1.0,
            seconds: 3.0 + 9.0 * bytes / (1e6 * cell.mbps()),
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<PathBuf> {
        let root = tools.scratch.path().join("multipath");
        let most = self.cells().iter().map(Cell::files).max().unwrap_or(0);
        for file in 0..most {
            sized_file(&root.join(file.to_string()), FILE_BYTES, file)?;
        }
        Ok(root)
    }

    fn network(&self, tools: &Tools, _root: &PathBuf, cell: &Cell, _seed: u64) -> Result<Network> {
        let relays: Vec<&str> = cell.paths.iter().map(|path| path.node()).collect();
        Ok(Network::of(tools, "multipath.toml")?.relays(&relays))
    }

    fn run(&self, here: &Here<'_, PathBuf>, cell: &Cell) -> Result<Seen> {
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
