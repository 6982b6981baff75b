//! Bytes that compression and delta save, and the processor time that they cost, beside rsync.

mod data;
mod page;
mod program;
mod run;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::comparison::Comparison;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;
use data::SavedData;
use program::SavingProgram;

/// Time for setting up a lab and a server, and for comparing the result, in seconds.
const SET_UP_SECONDS: f64 = 1.5;
/// Approximate rate of rsync over the long path, whose losses and window hold SSH's single
/// connection back, in bytes per second.
const LONG_SSH_RATE: f64 = 9e6;
/// Approximate rate of `longhaul cp` there, with its start.
const LONG_OWN_RATE: f64 = 45e6;
/// Rate of the slow path, in bytes of files per second.
const SLOW_RATE: f64 = 11.9e6;
/// Approximate rate at which two processors copy.
const HOSTS_RATE: f64 = 200e6;

/// The experiment.
pub struct Savings;

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    path: SavingsPath,
    data: SavedData,
    /// Name of a [`SavingProgram`].
    program: String,
}

/// Path of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SavingsPath {
    /// 1 Gbit/s, 100 ms, 0.01 % loss.
    Long,
    /// 100 Mbit/s, 20 ms, no loss.
    Slow,
    /// Links without a limit, so that the processors are the limit.
    Hosts,
}

/// Result of a copy whose files all arrived unchanged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Bytes of the source.
    bytes: u64,
    /// Seconds from the start of the client's command to its end.
    seconds: f64,
    /// IP bytes that the path delivered, in both directions.
    wire_bytes: u64,
    /// Processor time of the receiving end, in seconds.
    receiver_cpu_seconds: f64,
    /// Processor time of the sending end, in seconds.
    sender_cpu_seconds: f64,
}

impl Observation {
    /// Returns the bytes of files per second, in Mbit/s.
    fn mbps(&self) -> f64 {
        8.0 * self.bytes as f64 / self.seconds / 1e6
    }

    fn wire_megabytes(&self) -> f64 {
        self.wire_bytes as f64 / 1e6
    }
}

impl SavingsPath {
    const ALL: [Self; 3] = [Self::Long, Self::Slow, Self::Hosts];

    fn words(self) -> &'static str {
        match self {
            Self::Long => "1 Gbit/s, 100 ms, 0.01 % loss",
            Self::Slow => "100 Mbit/s, 20 ms",
            Self::Hosts => "no limit of rate",
        }
    }

    /// Returns the bytes of a large file, so that a copy takes some seconds.
    fn file_bytes(self) -> u64 {
        match self {
            Self::Long => 128 << 20,
            Self::Slow => 32 << 20,
            Self::Hosts => 512 << 20,
        }
    }

    /// Returns the data that is copied over it. Delta is for paths slower than the hosts.
    fn data(self) -> Vec<SavedData> {
        let all = SavedData::ALL.into_iter();
        all.filter(|data| self != Self::Hosts || !data.has_older())
            .collect()
    }

    fn network(self, tools: &Tools) -> Result<Network> {
        Ok(match self {
            Self::Long => Network::load(tools, "copy.toml")?.set("links.path.loss", "\"0.01%\""),
            Self::Slow => Network::load(tools, "copy.toml")?
                .set("links.path.rate", "\"100 Mbit/s\"")
                .set("links.path.delay", "\"10 ms\""),
            Self::Hosts => Network::load(tools, "copy-unlimited.toml")?,
        })
    }
}

/// Returns the cell of a program.
fn cell(path: SavingsPath, data: SavedData, program: &SavingProgram) -> Cell {
    Cell {
        path,
        data,
        program: program.name.to_owned(),
    }
}

/// Returns all paths, each with its data.
fn cases() -> Vec<(SavingsPath, SavedData)> {
    let case = |path: SavingsPath| path.data().into_iter().map(move |data| (path, data));
    SavingsPath::ALL.into_iter().flat_map(case).collect()
}

/// Returns the program of a cell.
fn program_of(cell: &Cell) -> Result<&'static SavingProgram> {
    program::find(&cell.program).with_context(|| format!("there is no program {}", cell.program))
}

impl Experiment for Savings {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "savings"
    }

    fn title(&self) -> &'static str {
        "What compression and delta save, and what they cost, beside rsync"
    }

    fn cells(&self) -> Vec<Cell> {
        let cells = |(path, data)| {
            let programs = program::programs(path, data).into_iter();
            programs.map(move |program| cell(path, data, program))
        };
        cases().into_iter().flat_map(cells).collect()
    }

    /// The ratio of `auto` and `none` is a claim, so it takes one more.
    fn seeds(&self, cell: &Cell) -> u64 {
        let is_claim = [program::AUTO, program::NONE]
            .iter()
            .any(|program| program.name == cell.program);
        2 + u64::from(is_claim)
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let is_own = program_of(cell).is_ok_and(SavingProgram::is_own);
        let rate = match (cell.path, is_own) {
            (SavingsPath::Long, true) => LONG_OWN_RATE,
            (SavingsPath::Long, false) => LONG_SSH_RATE,
            (SavingsPath::Slow, _) => SLOW_RATE,
            (SavingsPath::Hosts, _) => HOSTS_RATE,
        };
        let travels = cell.data.bytes(cell.path) as f64 * cell.data.travelling_share();
        Cost::new(1.0, SET_UP_SECONDS + travels / rate)
    }

    fn prepare(&self, tools: &Tools) -> Result<()> {
        let mut programs = program::ALL.iter();
        programs.try_for_each(|program| program.peer(tools)?.installed())
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        // Before there is a lab, because making it loads the processor for a while.
        cell.data.prepare(tools, cell.path)?;
        cell.path.network(tools)
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        run::run(here, cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!(
            "{:.2} s, {:.1} MB on the wire, {:.2} + {:.2} s of processors",
            seen.seconds,
            seen.wire_megabytes(),
            seen.receiver_cpu_seconds,
            seen.sender_cpu_seconds
        )
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }

    fn comparisons(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Comparison> {
        page::comparisons(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Peer;

    #[test]
    fn every_cell_has_a_program_that_copies_its_data() {
        let cells = Savings.cells();
        for cell in &cells {
            let program = program_of(cell).unwrap();
            if let Some(other) = program.other() {
                assert!(other.unwrap().abilities().trees, "{cell:?}");
            }
        }
        let claims = cells.iter().filter(|cell| Savings.seeds(cell) == 3);
        assert_eq!(claims.count(), 2 * 3 * 3);
    }

    #[test]
    fn all_seeds_take_about_ten_minutes() {
        let cells = Savings.cells();
        let seconds = cells
            .iter()
            .map(|cell| Savings.seeds(cell) as f64 * Savings.cost(cell).seconds);
        let minutes = seconds.sum::<f64>() / 60.0;
        assert!((5.0..12.0).contains(&minutes), "{minutes}");
    }
}
