//! Copies that are killed at either end or both, at the states of the protocol and at random
//! moments. The same command resumes until the copy is complete.

mod mix;
mod page;
mod run;
mod state;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;
use mix::Mix;
use state::State;

/// The experiment.
pub struct Kills;

/// Direction of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KillDirection {
    /// To the server.
    Push,
    /// From the server.
    Pull,
}

/// Killed side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The client's command.
    Client,
    /// The server, which is restarted at once.
    Server,
    /// Both at the same moment.
    Both,
}

/// One copy and its kill. The copies of reference have no kill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    direction: KillDirection,
    kill: Option<Kill>,
}

/// Killed side and the time of the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    side: Side,
    state: State,
}

/// Result of a copy, from its first command to the end of its last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Number of kills of a running process.
    kills: u32,
    /// Commands until one reported that everything was copied.
    commands: u32,
    /// IP bytes that the path delivered in the direction of the files, over all commands.
    carried: u64,
    /// Seconds from the start of the first command to the end of the last.
    seconds: f64,
    /// Bytes of files that arrived with another value than in the source.
    wrong_bytes: u64,
    /// Files that are missing, or too short or too long.
    lost_files: u64,
    /// Names of unfinished files that remain at the end.
    leftovers: u64,
}

impl KillDirection {
    const BOTH: [Self; 2] = [Self::Push, Self::Pull];
}

impl Side {
    const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Both];
}

impl Cell {
    /// Returns the demonstrated cells: an undisturbed copy, and one whose two ends are killed
    /// during the large file.
    pub fn demonstrated() -> [Self; 2] {
        let kill = Kill {
            side: Side::Both,
            state: State::LateBlocks,
        };
        [None, Some(kill)].map(|kill| Self {
            direction: KillDirection::Push,
            kill,
        })
    }
}

impl Experiment for Kills {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Mix;

    fn name(&self) -> &'static str {
        "kills"
    }

    fn title(&self) -> &'static str {
        "Copies killed at every state: what is wrong, lost, or done again"
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for direction in KillDirection::BOTH {
            cells.push(Cell {
                direction,
                kill: None,
            });
            for side in Side::ALL {
                cells.extend(State::ALL.map(|state| Cell {
                    direction,
                    kill: Some(Kill { side, state }),
                }));
            }
        }
        cells
    }

    /// Each seed kills at another moment. The default is one random moment for each side;
    /// `--seeds 5` makes three hundred kills, at every state.
    fn seeds(&self, cell: &Cell) -> u64 {
        match cell.kill {
            None
            | Some(Kill {
                state: State::Random,
                ..
            }) => 1,
            Some(_) => 0,
        }
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let kills = cell.kill.map_or(0.0, |kill| f64::from(kill.state.kills()));
        Cost::new(0.25, 5.0 + 1.5 * kills)
    }

    fn prepare(&self, tools: &Tools) -> Result<Mix> {
        Mix::make(tools)
    }

    fn network(&self, _tools: &Tools, _setup: &Mix, _cell: &Cell, _seed: u64) -> Result<Network> {
        Ok(Network::of_text("kills", run::LAB))
    }

    fn run(&self, here: &Here<'_, Mix>, cell: &Cell) -> Result<Observation> {
        run::run(here, cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!(
            "{} kills, {} commands, {:.1} s, {:.1} MB carried, {} bytes wrong, {} files lost, {} \
             left over",
            seen.kills,
            seen.commands,
            seen.seconds,
            seen.carried as f64 / 1e6,
            seen.wrong_bytes,
            seen.lost_files,
            seen.leftovers
        )
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}
