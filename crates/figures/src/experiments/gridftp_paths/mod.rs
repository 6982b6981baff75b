//! GridFTP over several reserved paths: the multi-path paper's own experiment, with its program.
//!
//! One reservation covers the paths of a transfer. `longhaul run` spreads the connections of
//! `globus-url-copy` over them by source port, as the paper's router did. The transfers of Table 4
//! and of Figures 4 to 7 come first, then transfers beside flows of others.

mod network;
mod page;
mod plan;
mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::experiments::gridftp;
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::peers::{self, Program};
use crate::runs::Runs;
use crate::tools::{Tools, installed};
use plan::{Cell, Path};

/// The experiment.
pub struct GridFtpPaths;

/// Observation of one transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Time from the start of the command to its end.
    seconds: f64,
    /// Bytes of the transfer divided by that time, in bit/s.
    goodput_bps: f64,
    /// Reserved rates of A, B and C, in bit/s; 0 if nothing is reserved.
    reserved_bps: [f64; 3],
    /// Number of connections with bulk data on A, B and C, at most.
    connections: [u32; 3],
    /// Seconds since the start, and the transfer's bytes that A, B and C have delivered by then,
    /// with packet headers.
    over_time: Vec<(f64, [u64; 3])>,
    /// Rates beside others; `None` without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beside: Option<BesideRates>,
}

/// Mean rates while a transfer and the flows of others share the network, in bit/s with packet
/// headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BesideRates {
    /// Rates of all packets on A, B and C.
    links_bps: [f64; 3],
    /// Rates of the others' flows over A and over C.
    others_bps: [f64; 2],
}

impl Observation {
    /// Returns the rate of the transfer, in Mbit/s.
    fn mbps(&self) -> f64 {
        self.goodput_bps / 1e6
    }

    /// Returns the bytes that A, B and C carried.
    fn carried(&self) -> [u64; 3] {
        self.over_time.last().map_or([0; 3], |(_, bytes)| *bytes)
    }
}

impl BesideRates {
    /// Returns the rate of the transfer's packets over all links.
    fn transfer_bps(&self) -> f64 {
        let all: f64 = self.links_bps.iter().sum();
        (all - self.others_bps.iter().sum::<f64>()).max(0.0)
    }

    /// Returns the loads of A, B and C, each relative to its link's rate.
    fn loads(&self) -> [f64; 3] {
        Path::ALL.map(|path| self.links_bps[path as usize] / path.link_bps())
    }

    /// Returns Jain's index of the others' rates: 1 if both groups have the same, 1/2 if one has
    /// everything.
    fn fairness(&self) -> f64 {
        let sum: f64 = self.others_bps.iter().sum();
        let squares: f64 = self.others_bps.iter().map(|bps| bps * bps).sum();
        sum * sum / (self.others_bps.len() as f64 * squares)
    }
}

impl Experiment for GridFtpPaths {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "gridftp-paths"
    }

    fn title(&self) -> &'static str {
        "GridFTP over several reserved paths: the multi-path paper's table with its own program"
    }

    fn cells(&self) -> Vec<Cell> {
        Cell::all()
    }

    /// The default is the short scale. `--only full --seeds N` asks for the other one.
    fn seeds(&self, cell: &Cell) -> u64 {
        u64::from(cell.scale == plan::Scale::Short)
    }

    fn cost(&self, cell: &Cell) -> Cost {
        Cost {
            share: 1.0,
            seconds: cell.seconds(),
        }
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        peers::find(gridftp::PROGRAM)?.installed()?;
        installed("iperf3", "iperf3").map(drop)
    }

    fn network(&self, _tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        Ok(Network::of_text("gridftp-paths", &network::text(cell)).relays(&[]))
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        run::run(here, cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        let carried = seen
            .carried()
            .map(|bytes| format!("{:.0}", bytes as f64 / 1e6));
        let connections = seen.connections.map(|count| count.to_string());
        let beside = seen.beside.map_or(String::new(), |beside| {
            let percent = |load: f64| format!("{:.0}", 100.0 * load);
            format!(
                ", loads {} %, others {:.1} + {:.1} Mbit/s",
                beside.loads().map(percent).join(" + "),
                beside.others_bps[0] / 1e6,
                beside.others_bps[1] / 1e6
            )
        });
        format!(
            "{:.1} Mbit/s in {:.1} s, {} MB over {} connections{beside}",
            seen.mbps(),
            seen.seconds,
            carried.join(" + "),
            connections.join(" + ")
        )
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
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
