//! Copies submitted as jobs: compared with the same copy by command, with the agent killed halfway,
//! and the cost of an idle agent.

mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::copy::Source;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::stats::Spread;
use crate::template::page;
use crate::tools::Tools;

/// The experiment.
pub struct Jobs;

/// Measured action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// `longhaul cp`.
    Command,
    /// `longhaul submit`, and `longhaul job --follow` until it has ended.
    Job,
    /// The same, but the agent is killed when half of the bytes have arrived, and restarted at
    /// once.
    Killed,
    /// An idle agent.
    Idle,
}

/// Result of the action.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observation {
    /// Time from the start of the first command to the end of the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// Bytes that are missing or differ from the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrong_bytes: Option<u64>,
    /// Resident memory of the idle agent, including its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resident_mib: Option<f64>,
    /// Wake-ups per second of the idle agent's threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wakeups_per_second: Option<f64>,
}

impl Cell {
    const ALL: [Self; 4] = [Self::Command, Self::Job, Self::Killed, Self::Idle];

    /// Demonstrated cells.
    pub const DEMONSTRATED: [Self; 2] = [Self::Job, Self::Killed];

    fn words(self) -> &'static str {
        match self {
            Self::Command => "`longhaul cp`",
            Self::Job => "`longhaul submit`, followed to its end",
            Self::Killed => "the same, the agent killed at half of it and started again",
            Self::Idle => "an agent with nothing to do",
        }
    }
}

impl Experiment for Jobs {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Source;

    fn name(&self) -> &'static str {
        "jobs"
    }

    fn title(&self) -> &'static str {
        "Copies as jobs: beside the same copy by hand, and with the agent killed"
    }

    fn cells(&self) -> Vec<Cell> {
        Cell::ALL.to_vec()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        3
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let seconds = match cell {
            Cell::Command | Cell::Job => 7.0,
            Cell::Killed => 11.0,
            Cell::Idle => run::IDLE_SECONDS + 3.0,
        };
        Cost::new(1.0, seconds)
    }

    fn prepare(&self, tools: &Tools) -> Result<Source> {
        Source::sized(tools, run::BYTES)
    }

    fn network(
        &self,
        _tools: &Tools,
        _setup: &Source,
        _cell: &Cell,
        _seed: u64,
    ) -> Result<Network> {
        Ok(Network::of_text("jobs", run::LAB))
    }

    fn run(&self, here: &Here<'_, Source>, cell: &Cell) -> Result<Observation> {
        run::run(here, *cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        match (
            seen.seconds,
            seen.wrong_bytes,
            seen.resident_mib,
            seen.wakeups_per_second,
        ) {
            (Some(seconds), Some(wrong), ..) => format!("{seconds:.2} s, {wrong} bytes wrong"),
            (_, _, Some(resident), Some(wakeups)) => {
                format!("{resident:.1} MiB, {wakeups:.2} wake-ups a second")
            }
            _ => "nothing".to_owned(),
        }
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let table = runs
            .table(Cell::ALL)
            .text("", |row| row.cell.words())
            .column("seconds", 2, |seen| seen.seconds)
            .spread("by `longhaul cp`", 3, |row| by_command(runs, row.cell))
            .column("wrong bytes", 2, |seen| {
                seen.wrong_bytes.map(|bytes| bytes as f64)
            })
            .column("resident MiB", 2, |seen| seen.resident_mib)
            .column("wake-ups a second", 2, |seen| seen.wakeups_per_second)
            .runs()
            .table();
        page!("jobs", table)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let title = "the time of a copy as a job by that of the same copy by hand";
        let ratio = by_command(runs, Cell::Job);
        Figure::median("job-by-command", title, ratio, 3)
            .into_iter()
            .collect()
    }
}

/// Returns the time of a job divided by that of the copy by command.
fn by_command(runs: &Runs<'_, Cell, Observation>, cell: Cell) -> Option<Spread> {
    let is_job = matches!(cell, Cell::Job | Cell::Killed);
    let ratio = || runs.ratio(&cell, &Cell::Command, |seen| seen.seconds);
    is_job.then(ratio)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn a_job_is_compared_with_the_command_of_the_same_seed() {
        let seen = |seconds| Observation {
            seconds: Some(seconds),
            wrong_bytes: Some(0),
            ..Observation::default()
        };
        let records = [
            record(Cell::Command, 1, seen(10.0), true),
            record(Cell::Job, 1, seen(10.1), true),
            record(Cell::Command, 2, seen(8.0), true),
            record(Cell::Job, 2, seen(8.0), true),
        ];
        let runs = Runs::select_valid(&records);
        assert_eq!(Jobs.figures(&runs)[0].text, "1.005");
        let text = Jobs.page(&runs).unwrap().text;
        assert!(
            text.contains("| 1.005 (1.000..1.010) | 0.00 (0.00..0.00) |"),
            "{text}"
        );
    }
}
