//! Attacks on the built programs: what an honest copy loses by them, and the resources that they
//! make a server or a depot hold.

mod attack;
pub mod attacker;
mod bed;
mod page;
mod place;
mod run;

use anyhow::Result;
pub use attack::Attack;
use bed::Bed;
use clap::ValueEnum;
use place::LAB;
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;

/// The experiment.
pub struct Attacks;

/// One honest copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The attack.
    pub attack: Attack,
    /// If true, the attack is in progress during the copy.
    pub under_attack: bool,
}

/// Result of the copy, and the resources of the attacked process. A copy that fails is a result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Seconds from the start of the command until data arrived.
    begins_s: Option<f64>,
    /// Rate from then to the end of the copy, in bit/s.
    rate_bps: Option<f64>,
    /// Error of a failed copy.
    error: Option<String>,
    /// Maximum resident memory of the attacked process, in bytes.
    peak_memory: u64,
    /// Maximum number of descriptors of the attacked process.
    peak_descriptors: u64,
    /// Log output of the attacked process, in bytes per second.
    log_bytes_per_s: f64,
}

impl Experiment for Attacks {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Bed;

    fn name(&self) -> &'static str {
        "attacks"
    }

    fn title(&self) -> &'static str {
        "Honest copies under attack"
    }

    fn cells(&self) -> Vec<Cell> {
        let both = |attack: &Attack| {
            [false, true].map(|under_attack| Cell {
                attack: *attack,
                under_attack,
            })
        };
        Attack::value_variants().iter().flat_map(both).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost::new(1.0, 6.0)
    }

    fn prepare(&self, tools: &Tools) -> Result<Bed> {
        Bed::make(tools)
    }

    fn network(&self, _tools: &Tools, _bed: &Bed, _cell: &Cell, _seed: u64) -> Result<Network> {
        Ok(Network::of_text("attacks", LAB))
    }

    fn run(&self, here: &Here<'_, Bed>, cell: &Cell) -> Result<Observation> {
        here.setup.run(here, cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        match (seen.begins_s, seen.rate_bps, &seen.error) {
            (Some(begins), Some(rate), None) => {
                format!("after {begins:.2} s at {:.1} Mbit/s", rate / 1e6)
            }
            (.., error) => format!("FAILED {}", error.as_deref().unwrap_or_default()),
        }
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::render_page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}
