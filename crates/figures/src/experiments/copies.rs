//! Copies as a plan in data: what is copied over what, and which way; the table follows.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::copy::{Copied, Source, copy};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::Page;
use crate::runs::Runs;
use crate::setting::{CopyRoute, Setting};
use crate::size::size;
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
    pub setting: &'static Setting,
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
        self.planned(cell).map_or(Cost::NONE, |planned| {
            planned.setting.cost(planned.way, planned.bytes)
        })
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
        copy(here, planned.setting, planned.way, &source, planned.streams)
    }

    fn outcome(&self, seen: &Copied) -> String {
        seen.words()
    }

    fn page(&self, runs: &Runs<'_, Cell, Copied>) -> Result<Page> {
        let table = Columns::of((self.copies)())
            .text("setting", |one| one.setting.title)
            .text("hosts", |one| {
                format!("{}, {}", one.setting.hosts, one.setting.congestion)
            })
            .text("size", |one| size(one.bytes))
            .text("way", |one| one.way.word())
            .text("streams", |one| {
                one.streams
                    .map_or("its own choice".to_owned(), |number| number.to_string())
            })
            .spread("seconds", 3, |one| {
                runs.spread(&one.cell(), |seen| seen.seconds)
            })
            .spread("Mbit/s", 2, |one| runs.spread(&one.cell(), Copied::mbps))
            .text("runs", |one| runs.cell(&one.cell()).len())
            .table();
        Ok(Page::new(self.head).table(&table))
    }
}
