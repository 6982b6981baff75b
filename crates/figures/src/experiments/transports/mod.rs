//! Transports: copies under random loss, FASP's published settings, and gateways.

mod cells;
mod network;
mod page;
mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::copy::Source;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;
use cells::{Cell, FILE_BYTES};

/// The experiment.
pub struct Transports;

/// Result of a copy or of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Duration in seconds: of a copy's whole command, or of a measurement at the receiver.
    seconds: f64,
    /// Received payload divided by that, in bit/s.
    goodput_bps: f64,
}

impl Observation {
    /// Returns the goodput in Mbit/s.
    fn mbps(&self) -> f64 {
        self.goodput_bps / 1e6
    }
}

impl Experiment for Transports {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Source;

    fn name(&self) -> &'static str {
        "transports"
    }

    fn title(&self) -> &'static str {
        "Transports: copies under random loss, FASP's settings, and gateways"
    }

    fn cells(&self) -> Vec<Cell> {
        Cell::all()
    }

    fn seeds(&self, cell: &Cell) -> u64 {
        cell.seeds()
    }

    fn cost(&self, cell: &Cell) -> Cost {
        cell.cost()
    }

    fn prepare(&self, tools: &Tools) -> Result<Source> {
        Source::sized(tools, FILE_BYTES)
    }

    fn network(&self, tools: &Tools, _source: &Source, cell: &Cell, _seed: u64) -> Result<Network> {
        network::network(tools, cell)
    }

    fn run(&self, here: &Here<'_, Source>, cell: &Cell) -> Result<Observation> {
        run::run(here, cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!("{:.1} Mbit/s, {:.1} s", seen.mbps(), seen.seconds)
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}

#[cfg(test)]
mod tests;
