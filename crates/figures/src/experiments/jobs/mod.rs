//! Copies submitted as jobs: compared with the same copy by command, with the agent killed halfway,
//! and the cost of an idle agent.

mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::copy::Source;
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page, Table, cell};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;
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
        Cost {
            share: 1.0,
            seconds,
        }
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

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let mut table = Table::new([
            "",
            "seconds",
            "by `longhaul cp`",
            "wrong bytes",
            "resident MiB",
            "wake-ups a second",
            "runs",
        ]);
        for one in Cell::ALL {
            let of = |value: fn(&Observation) -> Option<f64>| {
                let values = runs
                    .cell(&one)
                    .iter()
                    .filter_map(|record| value(&record.seen))
                    .collect::<Vec<_>>();
                cell(Spread::from_samples(&values), 2)
            };
            let by_command = match one {
                Cell::Job | Cell::Killed => cell(Spread::from_samples(&ratios(runs, one)), 3),
                Cell::Command | Cell::Idle => "-".to_owned(),
            };
            table.row([
                one.words().to_owned(),
                of(|seen| seen.seconds),
                by_command,
                of(|seen| seen.wrong_bytes.map(|bytes| bytes as f64)),
                of(|seen| seen.resident_mib),
                of(|seen| seen.wakeups_per_second),
                runs.cell(&one).len().to_string(),
            ]);
        }
        Ok(Page::new(HEAD).table(&table).paragraph(FOOT))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let ratio = Spread::from_samples(&ratios(runs, Cell::Job));
        let figure = ratio.map(|ratio| {
            Figure::new(
                "job-by-command",
                "the time of a copy as a job by that of the same copy by hand",
                format!("{:.3}", ratio.median),
                Basis::Runs(ratio.count),
            )
        });
        figure.into_iter().collect()
    }
}

/// Returns the time of `cell` divided by that of the copy by command.
fn ratios(runs: &Runs<'_, Cell, Observation>, cell: Cell) -> Vec<f64> {
    let ratios = runs.ratios(&cell, &Cell::Command, |seen| {
        seen.seconds.unwrap_or(f64::NAN)
    });
    ratios
        .into_iter()
        .filter(|ratio| ratio.is_finite())
        .collect()
}

const HEAD: &str = "A file of 512 MiB from a server over 100 ms and 1 Gbit/s, with nothing set: \
    by `longhaul cp`; by `longhaul submit` to an agent that runs, and `longhaul job --follow` \
    until it says that the job is done; \
    and with the agent killed (SIGKILL) when half of the bytes are there, and started again at \
    once. Then the file is compared with its source. The time is from the start of the first \
    command to the end of the last.";

const FOOT: &str = "An idle agent is one that was started and asked nothing. *Resident* is what \
    the kernel counts for its process (`VmRSS`), the pages of its program included; *wake-ups* \
    are the voluntary context switches of all of \
    its threads over 20 s.";

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
