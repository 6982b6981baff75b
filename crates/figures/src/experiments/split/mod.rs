//! One tree over the links of several nodes: a job split over their agents, compared with the same
//! job by one agent.

mod database;
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
pub struct Split;

/// Number of agents, and the splitting of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Number of agents, each at a node of its own.
    agents: usize,
    /// If true, the job is split.
    split: bool,
}

/// Result of the job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Time from the start of `longhaul submit` until the job is done.
    seconds: f64,
    /// Agents that executed a part, or the job.
    worked: usize,
    /// Files that are missing or differ from the source.
    wrong_files: u64,
}

impl Cell {
    const ALL: [Self; 4] = [
        Self {
            agents: 1,
            split: false,
        },
        Self {
            agents: 1,
            split: true,
        },
        Self {
            agents: 2,
            split: true,
        },
        Self {
            agents: 3,
            split: true,
        },
    ];

    fn words(self) -> String {
        match (self.agents, self.split) {
            (1, false) => "one agent, not split".to_owned(),
            (1, true) => format!("one agent, {} parts", run::PARTS),
            (agents, _) => format!("{agents} agents, {} parts", run::PARTS),
        }
    }
}

impl Experiment for Split {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Source;

    fn name(&self) -> &'static str {
        "split"
    }

    fn title(&self) -> &'static str {
        "One tree, several nodes: a job that is split over agents"
    }

    fn cells(&self) -> Vec<Cell> {
        Cell::ALL.to_vec()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        3
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let seconds = 6.0 + 34.0 / cell.agents as f64;
        Cost {
            share: 1.0,
            seconds,
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<Source> {
        run::tree(tools)
    }

    fn network(
        &self,
        _tools: &Tools,
        _setup: &Source,
        _cell: &Cell,
        _seed: u64,
    ) -> Result<Network> {
        Ok(Network::of_text("split", run::LAB))
    }

    fn run(&self, here: &Here<'_, Source>, cell: &Cell) -> Result<Observation> {
        run::run(here, cell.agents, cell.split)
    }

    fn outcome(&self, seen: &Observation) -> String {
        let Observation {
            seconds,
            worked,
            wrong_files,
        } = seen;
        format!("{seconds:.2} s by {worked} agents, {wrong_files} files wrong")
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let mut table = Table::new([
            "",
            "seconds",
            "Mbit/s",
            "by one agent, not split",
            "agents that worked",
            "wrong files",
            "runs",
        ]);
        for one in Cell::ALL {
            let of =
                |value: fn(&Observation) -> f64, decimals| cell(runs.spread(&one, value), decimals);
            let faster = match one == Cell::ALL[0] {
                true => "-".to_owned(),
                false => cell(
                    Spread::from_samples(&runs.ratios(&one, &Cell::ALL[0], rate)),
                    2,
                ),
            };
            table.row([
                one.words(),
                of(|seen| seen.seconds, 2),
                of(rate, 1),
                faster,
                of(|seen| seen.worked as f64, 0),
                of(|seen| seen.wrong_files as f64, 0),
                runs.cell(&one).len().to_string(),
            ]);
        }
        Ok(Page::new(HEAD).table(&table).paragraph(FOOT))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let [whole, .., three] = Cell::ALL;
        let ratio = Spread::from_samples(&runs.ratios(&three, &whole, rate));
        let figure = ratio.map(|ratio| {
            Figure::new(
                "three-agents",
                "the rate of a tree over three agents by that over one",
                format!("{:.2}", ratio.median),
                Basis::Runs(ratio.count),
            )
        });
        figure.into_iter().collect()
    }
}

/// Returns the rate of the tree, in Mbit/s.
fn rate(seen: &Observation) -> f64 {
    run::BYTES as f64 * 8.0 / seen.seconds / 1e6
}

const HEAD: &str = "A tree of 96 files of 4 MiB is pulled from a server at 1 Gbit/s by agents \
    with one PostgreSQL, each at a node that 100 Mbit/s and 20 ms join to it; all of them write \
    into one directory, as of a parallel file system. \
    By `longhaul submit` at one of them, as one job or with `--split`; the time is from its start \
    until the job is done, the last copy of the whole included. Then the trees are compared.";

const FOOT: &str = "Agents look once a second at what others have put into the queue: both the \
    first part of each and the last copy may begin that much later.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn several_agents_are_compared_with_one() {
        let seen = |seconds, worked| Observation {
            seconds,
            worked,
            wrong_files: 0,
        };
        let [one, .., three] = Cell::ALL;
        let records = [
            record(one, 1, seen(36.0, 1), true),
            record(three, 1, seen(12.0, 3), true),
        ];
        let runs = Runs::select_valid(&records);
        assert_eq!(Split.figures(&runs)[0].text, "3.00 (single)");
        let text = Split.page(&runs).unwrap().text;
        assert!(text.contains("3 agents, 12 parts"), "{text}");
    }
}
