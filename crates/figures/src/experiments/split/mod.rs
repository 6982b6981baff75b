//! One tree over the links of several nodes: a job split over their agents, compared with the same
//! job by one agent.

mod database;
mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::copy::Source;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::template::page;
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
        Self::new(1, false),
        Self::new(1, true),
        Self::new(2, true),
        Self::new(3, true),
    ];

    const fn new(agents: usize, split: bool) -> Self {
        Self { agents, split }
    }

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
        Cost::new(1.0, 6.0 + 34.0 / cell.agents as f64)
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

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let whole = Cell::ALL[0];
        let others = |one: &Cell| (*one != whole).then(|| runs.ratio(one, &whole, rate));
        let table = runs
            .table(Cell::ALL)
            .text("", |row| row.cell.words())
            .column("seconds", 2, |seen| seen.seconds)
            .column("Mbit/s", 1, rate)
            .spread("by one agent, not split", 2, |row| others(&row.cell)?)
            .column("agents that worked", 0, |seen| seen.worked as f64)
            .column("wrong files", 0, |seen| seen.wrong_files as f64)
            .runs()
            .table();
        page!("split", table)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let [whole, .., three] = Cell::ALL;
        let title = "the rate of a tree over three agents by that over one";
        let ratio = runs.ratio(&three, &whole, rate);
        Figure::median("three-agents", title, ratio, 2)
            .into_iter()
            .collect()
    }
}

/// Returns the rate of the tree, in Mbit/s.
fn rate(seen: &Observation) -> f64 {
    run::BYTES as f64 * 8.0 / seen.seconds / 1e6
}

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
