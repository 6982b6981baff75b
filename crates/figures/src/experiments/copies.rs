//! Copies as a plan in data: what is copied over what, and which way; the table follows.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::depots::size;
use crate::copy::{Copied, Source, copy};
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Page, Table, cell};
use crate::runs::Runs;
use crate::setting::{CopyRoute, Setting};
use crate::tools::Tools;

/// An experiment that is a list of copies.
pub struct Copies {
    /// Name on the command line and of its files.
    pub name: &'static str,
    /// Subject in one line.
    pub title: &'static str,
    /// Beginning of the page.
    pub head: &'static str,
    /// Default number of seeds of each copy.
    pub seeds: u64,
    /// Copies, in the order of the table.
    pub copies: fn() -> Vec<Planned>,
}

/// One planned copy.
pub struct Planned {
    /// Setting of the copy.
    pub setting: Setting,
    /// Bytes of the file.
    pub bytes: u64,
    /// Route of the copies.
    pub way: CopyRoute,
    /// Number of streams, if it is set.
    pub streams: Option<u32>,
}

/// Properties that distinguish copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    setting: String,
    bytes: u64,
    way: CopyRoute,
    fixed: Option<u32>,
}

impl Planned {
    fn cell(&self) -> Cell {
        Cell {
            setting: self.setting.id.into(),
            bytes: self.bytes,
            way: self.way,
            fixed: self.streams,
        }
    }
}

impl Copies {
    fn planned(&self, cell: &Cell) -> Result<Planned> {
        let found = (self.copies)()
            .into_iter()
            .find(|planned| planned.cell() == *cell);
        found.with_context(|| format!("{} plans no copy {cell:?}", self.name))
    }
}

impl Experiment for Copies {
    type Cell = Cell;
    type Observation = Copied;
    type Setup = ();

    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn cells(&self) -> Vec<Cell> {
        (self.copies)().iter().map(Planned::cell).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        self.seeds
    }

    fn cost(&self, cell: &Cell) -> Cost {
        self.planned(cell).map_or(
            Cost {
                share: 1.0,
                seconds: 0.0,
            },
            |planned| planned.setting.cost(planned.way, planned.bytes),
        )
    }

    fn prepare(&self, tools: &Tools) -> Result<()> {
        // Before the first lab is up, because making a file loads the processor for a while.
        (self.copies)()
            .iter()
            .map(|planned| planned.bytes)
            .try_for_each(|bytes| Source::sized(tools, bytes).map(drop))
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        self.planned(cell)?.setting.network(tools, cell.way)
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Copied> {
        let planned = self.planned(cell)?;
        let source = Source::sized(here.tools, planned.bytes)?;
        copy(
            here,
            &planned.setting,
            planned.way,
            &source,
            planned.streams,
        )
    }

    fn outcome(&self, seen: &Copied) -> String {
        seen.words()
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Copied>) -> Result<Page> {
        let mut table = Table::new([
            "setting", "hosts", "size", "way", "streams", "seconds", "Mbit/s", "runs",
        ]);
        for planned in (self.copies)() {
            let one = planned.cell();
            let setting = &planned.setting;
            table.row([
                setting.title.to_owned(),
                format!("{}, {}", setting.hosts, setting.congestion),
                size(planned.bytes),
                planned.way.word().to_owned(),
                planned
                    .streams
                    .map_or("its own choice".to_owned(), |number| number.to_string()),
                cell(runs.spread(&one, |seen| seen.seconds), 3),
                cell(runs.spread(&one, Copied::mbps), 2),
                runs.cell(&one).len().to_string(),
            ]);
        }
        Ok(Page::new(self.head).table(&table))
    }
}
