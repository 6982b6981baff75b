//! The number of streams that a copy chooses by itself, compared with fixed numbers.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::copy::{Copied, Source, copy};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page, number};
use crate::runs::Runs;
use crate::setting::{self, CopyRoute, Setting};
use crate::single::Basis;
use crate::stats::Spread;
use crate::template::page;
use crate::tools::Tools;

const MIB: u64 = 1 << 20;
/// Numbers that a user might set. `None` lets the copy choose.
const NUMBERS: [Option<u32>; 6] = [Some(1), Some(2), Some(4), Some(8), Some(16), None];

/// The experiment.
pub struct Streams;

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Short name of the setting.
    setting: String,
    /// Number of streams that is set, if any.
    fixed: Option<u32>,
}

/// Returns the paths and data of the copies: each with a limit of another kind.
fn settings() -> Vec<(&'static Setting, u64)> {
    let copies = [
        ("mnemonic-25-100-25-64k", 24 * MIB),
        ("lsl-ucsd-utk", 48 * MIB),
        ("mnemonic-25-100-25-reno", 512 * MIB),
        ("clean-long", 256 * MIB),
    ];
    let planned = |(id, bytes)| Some((setting::named(id).ok()?, bytes));
    copies.into_iter().filter_map(planned).collect()
}

fn setting_of(cell: &Cell) -> Result<(&'static Setting, u64)> {
    let found = settings()
        .into_iter()
        .find(|(setting, _)| setting.id == cell.setting);
    found.ok_or_else(|| anyhow::anyhow!("there is no setting {}", cell.setting))
}

impl Experiment for Streams {
    type Cell = Cell;
    type Observation = Copied;
    type Setup = ();

    fn name(&self) -> &'static str {
        "streams"
    }

    fn title(&self) -> &'static str {
        "How many streams a copy takes by itself, beside fixed numbers of them"
    }

    fn cells(&self) -> Vec<Cell> {
        let numbers = |(setting, _): (&Setting, u64)| {
            NUMBERS.map(|fixed| Cell {
                setting: setting.id.into(),
                fixed,
            })
        };
        settings().into_iter().flat_map(numbers).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, cell: &Cell) -> Cost {
        // Two or more streams are at least about twice as fast. Fast copies run without neighbours,
        // because the comparison is about the streams of one copy.
        let part = if cell.fixed == Some(1) { 1 } else { 2 };
        setting_of(cell).map_or(Cost::NONE, |(setting, all)| {
            let cost = setting.cost(CopyRoute::Direct, all / part);
            Cost {
                share: if all > 48 * MIB { 1.0 } else { cost.share },
                ..cost
            }
        })
    }

    fn prepare(&self, tools: &Tools) -> Result<()> {
        // Done before the first lab starts, because making a file uses the processor for a while.
        settings()
            .into_iter()
            .map(|(_, bytes)| bytes)
            .try_for_each(|bytes| Source::sized(tools, bytes).map(drop))
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        setting_of(cell)?.0.network(tools, CopyRoute::Direct)
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Copied> {
        let (setting, bytes) = setting_of(cell)?;
        let source = Source::sized(here.tools, bytes)?;
        copy(here, setting, CopyRoute::Direct, &source, cell.fixed)
    }

    fn outcome(&self, seen: &Copied) -> String {
        format!("{}, {} streams", seen.words(), seen.streams)
    }

    fn page(&self, runs: &Runs<'_, Cell, Copied>) -> Result<Page> {
        let head =
            |fixed: Option<u32>| fixed.map_or("not told".to_owned(), |number| number.to_string());
        let table = Columns::of(settings())
            .text("setting", |(setting, _)| setting.title)
            .text("size", |(_, bytes)| format!("{} MiB", bytes / MIB));
        let table = NUMBERS.into_iter().fold(table, |table, fixed| {
            table.spread(head(fixed), 1, move |(setting, _)| {
                rate(runs, setting, fixed)
            })
        });
        let table = table
            .spread("streams it came to", 0, |(setting, _)| {
                streams(runs, setting)
            })
            .text("share of the best", |(setting, _)| {
                let share = share(runs, setting).map(|share| 100.0 * share);
                basis(runs, setting).mark(number(share, 0) + " %")
            })
            .text("by one stream", |(setting, _)| {
                basis(runs, setting).mark(number(gain(runs, setting), 1) + "x")
            })
            .text("one stream is limited by", |(setting, _)| {
                limits(runs, setting)
            })
            .table();
        page!("streams", table)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Copied>) -> Vec<Figure> {
        let mut figures = vec![];
        for (setting, _) in settings() {
            let title = format!(
                "copy that finds its streams, share of the best number, {}",
                setting.title
            );
            figures.extend(share(runs, setting).map(|share| {
                let text = format!("{:.0} %", 100.0 * share);
                Figure::new(setting.id, title, text, basis(runs, setting))
            }));
        }
        for (setting, _) in settings() {
            let key = format!("{}-streams", setting.id);
            figures.extend(Figure::median(key, "", streams(runs, setting), 0));
        }
        let of = |value: fn(&Runs<'_, Cell, Copied>, &Setting) -> Option<f64>| {
            let values = settings()
                .into_iter()
                .map(|(setting, _)| value(runs, setting));
            Spread::from_samples(&values.into_iter().flatten().collect::<Vec<_>>())
        };
        if let (Some(shares), Some(gains)) = (of(share), of(gain)) {
            let measured = settings().into_iter().map(|(setting, _)| setting);
            let measured = measured.filter(|setting| share(runs, setting).is_some());
            let cells: Vec<Cell> = measured
                .flat_map(|setting| cells_of(runs, setting))
                .collect();
            let all = runs.basis(&cells);
            let shares = format!("{:.0} to {:.0} %", 100.0 * shares.min, 100.0 * shares.max);
            let gains = format!("{:.1} to {:.1} times", gains.min, gains.max);
            figures.push(Figure::quoted("shares", shares, all));
            figures.push(Figure::quoted("gains", gains, all));
        }
        figures
    }
}

fn key(setting: &Setting, fixed: Option<u32>) -> Cell {
    Cell {
        setting: setting.id.into(),
        fixed,
    }
}

fn rate(runs: &Runs<'_, Cell, Copied>, setting: &Setting, fixed: Option<u32>) -> Option<Spread> {
    runs.spread(&key(setting, fixed), Copied::mbps)
}

/// Returns the number of streams to which a copy comes that chooses.
fn streams(runs: &Runs<'_, Cell, Copied>, setting: &Setting) -> Option<Spread> {
    runs.spread(&key(setting, None), |seen| f64::from(seen.streams))
}

/// Returns the cells of a setting that have runs.
fn cells_of(runs: &Runs<'_, Cell, Copied>, setting: &Setting) -> Vec<Cell> {
    let cells = NUMBERS.into_iter().map(|fixed| key(setting, fixed));
    cells.filter(|cell| !runs.cell(cell).is_empty()).collect()
}

/// Returns the runs on which a setting's figures rest.
fn basis(runs: &Runs<'_, Cell, Copied>, setting: &Setting) -> Basis {
    runs.basis(&cells_of(runs, setting))
}

/// Returns the rate of a copy that chooses, as a share of the best fixed number.
fn share(runs: &Runs<'_, Cell, Copied>, setting: &Setting) -> Option<f64> {
    let fixed = NUMBERS.into_iter().flatten();
    let best = fixed
        .filter_map(|number| rate(runs, setting, Some(number)))
        .map(|spread| spread.median)
        .reduce(f64::max)?;
    Some(rate(runs, setting, None)?.median / best)
}

/// Returns the rate divided by that of one stream.
fn gain(runs: &Runs<'_, Cell, Copied>, setting: &Setting) -> Option<f64> {
    Some(rate(runs, setting, None)?.median / rate(runs, setting, Some(1))?.median)
}

/// Returns the limits that the copies with one stream report.
fn limits(runs: &Runs<'_, Cell, Copied>, setting: &Setting) -> String {
    let of_one = runs.cell(&key(setting, Some(1)));
    let mut words: Vec<&str> = of_one
        .iter()
        .filter_map(|record| record.seen.limited_by.as_deref())
        .collect();
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn the_table_holds_what_counts_and_what_it_is_compared_with() {
        let (setting, bytes) = &settings()[0];
        let run = |fixed, mbps: f64, streams, valid| {
            let seen = Copied {
                bytes: *bytes,
                files: 1,
                seconds: 1.0,
                goodput_bps: mbps * 1e6,
                streams,
                retransmits: 0,
                limited_by: Some("receive-window".into()),
            };
            record(key(setting, fixed), 1, seen, valid)
        };
        let records = [
            run(Some(1), 3.0, 1, true),
            run(Some(8), 20.0, 8, true),
            run(Some(16), 90.0, 16, false),
            run(None, 15.0, 4, true),
        ];
        let text = Streams.page(&Runs::select_valid(&records)).unwrap().text;
        let line = text
            .lines()
            .find(|line| line.contains(setting.title))
            .unwrap();
        assert!(
            line.ends_with(
                "| 15.0 (single) | 4 (single) | 75 % (single) | 5.0x (single) | receive-window |"
            ),
            "{line}"
        );
        assert!(
            line.contains("| - |"),
            "a run that does not count is not there: {line}"
        );
    }
}
