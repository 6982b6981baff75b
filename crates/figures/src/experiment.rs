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
use wanbed::{Lab, Overrides, Scenario};

use crate::comparison::Comparison;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;

/// One thing that is measured, run by run.
pub trait Experiment: Send + Sync {
    /// Properties that distinguish its runs, besides the seed and the noise.
    type Cell: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync;
    /// Observation of one run.
    type Seen: Clone + Serialize + DeserializeOwned + Send + Sync;
    /// State that is created once, before the first run.
    type Setup: Send + Sync;

    /// The name on the command line, and of its files.
    fn name(&self) -> &'static str;

    /// Returns its subject in one line.
    fn title(&self) -> &'static str;

    /// Its cells, in the order of its tables.
    fn cells(&self) -> Vec<Self::Cell>;

    /// Seeds of a cell where nobody says how many: few, so that `copy` takes about 70 minutes and
    /// all others together some 70. None for a cell that is measured only when their number is
    /// given.
    fn seeds(&self, _cell: &Self::Cell) -> u64 {
        2
    }

    /// Returns the cost of one run of a cell.
    fn cost(&self, cell: &Self::Cell) -> Cost;

    /// Makes what all runs use: files, keys, programs.
    ///
    /// # Errors
    /// A program is missing, or a file cannot be made.
    fn prepare(&self, tools: &Tools) -> Result<Self::Setup>;

    /// The network of a cell. The runner adds seed and noise.
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

    /// One run, in a lab that has carried nothing yet.
    ///
    /// # Errors
    /// Whatever keeps the run from having a result.
    fn run(&self, here: &Here<'_, Self::Setup>, cell: &Self::Cell) -> Result<Self::Seen>;

    /// Returns the outcome of a run in a few words, for the line that reports its end.
    fn outcome(&self, seen: &Self::Seen) -> String;

    /// Tables and plots of the runs without noise.
    ///
    /// # Errors
    /// A plot cannot be drawn.
    fn page(&self, runs: &Runs<'_, Self::Cell, Self::Seen>) -> Result<Page>;

    /// The figures that documents quote and that are compared under noise.
    fn figures(&self, _runs: &Runs<'_, Self::Cell, Self::Seen>) -> Vec<Figure> {
        Vec::new()
    }

    /// `longhaul cp` beside other programs, in every case that was measured. Documents quote in how
    /// many of the cases of all experiments it is first.
    fn comparisons(&self, _runs: &Runs<'_, Self::Cell, Self::Seen>) -> Vec<Comparison> {
        Vec::new()
    }

    /// Returns true if the observation of a cell depends on time. A mere count is the same however
    /// late the lab is, so every such run counts.
    fn is_timed(&self, _cell: &Self::Cell) -> bool {
        true
    }

    /// Returns true if a cell is also measured under noise.
    fn under_noise(&self, _cell: &Self::Cell) -> bool {
        true
    }

    /// The links that jitter and reorder; `*` is all of them.
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
    /// About how long it lasts, in seconds.
    pub seconds: f64,
}

/// A network to bring up.
pub struct Network {
    /// The scenario.
    pub scenario: Scenario,
    /// Changes to the scenario.
    pub overrides: Overrides,
}

impl Network {
    /// A scenario file, as it is.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(tools: &Tools, file: &str) -> Result<Self> {
        Ok(Self {
            scenario: Scenario::read(tools.scenarios.join(file))?,
            overrides: Overrides::default(),
        })
    }

    /// For what needs no network: the lab is there because each run has one.
    pub fn none() -> Self {
        const TWO_SILENT_MACHINES: &str = r#"
title = "two machines that say nothing"
[nodes.one]
[nodes.other]
[links.between]
ends = ["one", "other"]
delay = "10 ms"
rate = "1 Gbit/s"
"#;
        Self::of_text("no-network", TWO_SILENT_MACHINES)
    }

    /// A scenario in text.
    pub fn of_text(name: &str, text: &str) -> Self {
        Self {
            scenario: Scenario::from_text(name, text),
            overrides: Overrides::default(),
        }
    }

    /// The same with these nodes, and no others, ending control loops: what relays in this run.
    #[must_use]
    pub fn relays(self, nodes: &[&str]) -> Self {
        Self {
            overrides: self.overrides.relays(nodes.iter().copied()),
            ..self
        }
    }

    /// The same with one value changed.
    #[must_use]
    pub fn set(self, path: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            overrides: self.overrides.set(path, value),
            ..self
        }
    }
}

/// Environment of a run.
pub struct Here<'a, S> {
    /// Programs, keys, and a folder.
    pub tools: &'a Tools,
    /// State that was created once.
    pub setup: &'a S,
    /// The network, which has carried nothing yet.
    pub lab: &'a Lab,
    /// The seed of this run.
    pub seed: u64,
    /// An empty folder of this run's own, removed after it.
    pub folder: &'a Path,
}
