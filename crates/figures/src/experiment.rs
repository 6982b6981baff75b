//! An experiment: its cells, the network that they need, one run, and its page.
//!
//! An experiment says what it measures. The [runner](crate::runner) does the rest for all of them
//! in the same way: labs, the gate of validity, repeats, deadlines, parallel runs, the store, and
//! the common parts of every page.

use std::fmt::Debug;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wanbed::Lab;

use crate::comparison::Comparison;
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;

/// A subject of measurement, made of runs.
pub trait Experiment: Send + Sync {
    /// Properties that distinguish its runs, besides the seed and the noise.
    type Cell: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync;
    /// Observation of one run.
    type Observation: Clone + Serialize + DeserializeOwned + Send + Sync;
    /// State that is created once, before the first run.
    type Setup: Send + Sync;

    /// Returns the name on the command line and of its files.
    fn name(&self) -> &'static str;

    /// Returns its subject in one line.
    fn title(&self) -> &'static str;

    /// Returns its cells, in the order of its tables.
    fn cells(&self) -> Vec<Self::Cell>;

    /// Returns the default number of seeds of a cell: few, so that `copy` takes about 70 minutes
    /// and all others together about 70. It is zero for a cell that is measured only if a number is
    /// given.
    fn seeds(&self, _cell: &Self::Cell) -> u64 {
        2
    }

    /// Returns the cost of one run of a cell.
    fn cost(&self, cell: &Self::Cell) -> Cost;

    /// Creates what all runs use: files, keys, programs.
    ///
    /// # Errors
    /// A program is missing, or a file cannot be created.
    fn prepare(&self, tools: &Tools) -> Result<Self::Setup>;

    /// Returns the network of a cell. The runner adds seed and noise.
    ///
    /// # Errors
    /// The scenario cannot be read.
    fn network(
        &self,
        tools: &Tools,
        setup: &Self::Setup,
        cell: &Self::Cell,
        seed: u64,
    ) -> Result<Network>;

    /// Makes one run, in a lab that has not carried anything yet.
    ///
    /// # Errors
    /// The run has no result.
    fn run(&self, here: &Here<'_, Self::Setup>, cell: &Self::Cell) -> Result<Self::Observation>;

    /// Returns the outcome of a run in a few words, for the line that reports its end.
    fn outcome(&self, seen: &Self::Observation) -> String;

    /// Returns tables and plots of the runs without noise.
    ///
    /// # Errors
    /// A plot cannot be drawn.
    fn page(&self, runs: &Runs<'_, Self::Cell, Self::Observation>) -> Result<Page>;

    /// Returns the figures that documents quote and that are compared under noise.
    fn figures(&self, _runs: &Runs<'_, Self::Cell, Self::Observation>) -> Vec<Figure> {
        Vec::new()
    }

    /// Returns the comparisons of `longhaul cp` with other programs, in every measured case.
    /// Documents quote in how many of the cases of all experiments it is first.
    fn comparisons(&self, _runs: &Runs<'_, Self::Cell, Self::Observation>) -> Vec<Comparison> {
        Vec::new()
    }

    /// Returns true if the observation of a cell depends on time. A mere count is the same however
    /// late the lab is, so every such run counts.
    fn is_timed(&self, _cell: &Self::Cell) -> bool {
        true
    }

    /// Returns true if a cell is also measured under noise.
    fn under_noise(&self, _cell: &Self::Cell) -> bool {
        false
    }

    /// Returns true if a cell can also be measured over IPv6. Its programs then meet at
    /// [`Lab::endpoint`].
    fn over_ipv6(&self, _cell: &Self::Cell) -> bool {
        false
    }

    /// Returns the links that jitter and reorder; `*` means all of them.
    fn noisy_links(&self, _cell: &Self::Cell) -> &'static [&'static str] {
        &["*"]
    }
}

/// Cost of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Share of the machine, above 0 and up to 1: runs go side by side while their shares sum to at
    /// most 1.
    pub share: f64,
    /// Approximate duration, in seconds.
    pub seconds: f64,
}

impl Cost {
    /// Cost of a run that is not planned.
    pub const NONE: Self = Self::new(1.0, 0.0);

    /// Returns the cost of a run with this share of the machine and this duration in seconds.
    pub const fn new(share: f64, seconds: f64) -> Self {
        Self { share, seconds }
    }
}

/// Environment of a run.
pub struct Here<'a, S> {
    /// Programs, keys, and a folder.
    pub tools: &'a Tools,
    /// State that was created once.
    pub setup: &'a S,
    /// Network, which has not carried anything yet.
    pub lab: &'a Lab,
    /// The seed of this run.
    pub seed: u64,
    /// Empty folder of this run, removed after it.
    pub folder: &'a Path,
}
