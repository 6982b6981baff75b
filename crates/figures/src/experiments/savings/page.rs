//! The page: a table for each kind of data, and the ratio of `auto` and `none`.

use anyhow::Result;
use minijinja::{Value, context};

use super::data::SavedData;
use super::program::{self, AUTO, NONE, SavingProgram};
use super::{Cell, Observation, SavingsPath, cases, cell, program_of};
use crate::columns::Columns;
use crate::comparison::Comparison;
use crate::page::{Figure, Page, Table};
use crate::peers::Program;
use crate::peers::table::TablePeer;
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::{Gain, Spread};
use crate::template::page;

/// Runs of the experiment.
type SavingsRuns<'a> = Runs<'a, Cell, Observation>;

/// Maximum of the seconds of `auto` by those of `none`: what automatic compression promises.
const CLAIM: f64 = 1.03;

/// Returns the page.
///
/// # Errors
/// The template is wrong.
pub fn page(runs: &SavingsRuns<'_>) -> Result<Page> {
    let section = |data| section(runs, data);
    let (delta, compression): (Vec<SavedData>, Vec<SavedData>) = SavedData::ALL
        .into_iter()
        .partition(|data| data.has_older());
    let compression: Vec<Value> = compression.into_iter().filter_map(section).collect();
    let delta: Vec<Value> = delta.into_iter().filter_map(section).collect();
    page!("savings", compression, delta, ratios => ratios(runs), options => options())
}

/// Returns the table of the other programs' options.
fn options() -> Table {
    let others = program::ALL.iter().filter_map(SavingProgram::other);
    Columns::of(others.flatten())
        .text("program", TablePeer::title)
        .text("options", |peer| peer.options().to_owned())
        .table()
}

/// Returns the values of a kind of data. `None` if it has no runs.
fn section(runs: &SavingsRuns<'_>, data: SavedData) -> Option<Value> {
    let table = table(runs, data);
    let key = serde_json::to_value(data).ok()?;
    (!table.is_empty()).then(|| context!(title => data.title(), key, table))
}

/// Returns the table of a kind of data, over all paths.
fn table(runs: &SavingsRuns<'_>, data: SavedData) -> Table {
    let cells = cases().into_iter().filter(|(_, other)| *other == data);
    let cells = cells.flat_map(|(path, data)| {
        let programs = program::programs(path, data).into_iter();
        programs.map(move |program| cell(path, data, program))
    });
    runs.table(cells)
        .measured()
        .text("path", |row| path_words(&row.cell))
        .text("program", |row| {
            program_of(&row.cell).map_or("", SavingProgram::title)
        })
        .column("seconds", 2, |seen| seen.seconds)
        .column("MB on the wire", 1, Observation::wire_megabytes)
        .column("CPU s, receiver", 2, |seen| seen.receiver_cpu_seconds)
        .column("CPU s, sender", 2, |seen| seen.sender_cpu_seconds)
        .runs()
        .table()
}

/// Returns the path of a copy, with the size of a large file over it.
fn path_words(cell: &Cell) -> String {
    let path = cell.path.words();
    match cell.data {
        SavedData::SmallTexts => path.to_owned(),
        _ => format!("{path}; {} MiB", cell.path.file_bytes() >> 20),
    }
}

/// Ratio of `auto` by `none` over a path.
struct AutoRatio {
    path: SavingsPath,
    data: SavedData,
    seconds: Vec<f64>,
    wire: Option<Spread>,
}

impl AutoRatio {
    /// Returns the ratio of every path and kind of data that has runs of both.
    fn all(runs: &SavingsRuns<'_>) -> Vec<Self> {
        let ratio = |(path, data)| {
            let [auto, none] = [AUTO, NONE].map(|program| cell(path, data, &program));
            let seconds = runs.ratios(&auto, &none, |seen| seen.seconds);
            (!seconds.is_empty()).then(|| Self {
                path,
                data,
                seconds,
                wire: runs.ratio(&auto, &none, Observation::wire_megabytes),
            })
        };
        cases().into_iter().filter_map(ratio).collect()
    }

    fn spread(&self) -> Option<Spread> {
        Spread::from_samples(&self.seconds)
    }
}

fn ratios(runs: &SavingsRuns<'_>) -> Table {
    Columns::of(AutoRatio::all(runs))
        .text("data", |row| row.data.title())
        .text("path", |row| row.path.words())
        .spread("seconds, auto by none", 3, AutoRatio::spread)
        .spread("bytes, auto by none", 3, |row| row.wire)
        .text(format!("runs of at most {CLAIM}"), |row| {
            row.seconds.iter().filter(|ratio| **ratio <= CLAIM).count()
        })
        .text("runs", |row| row.seconds.len())
        .table()
}

/// Returns the figures that documents quote.
pub fn figures(runs: &SavingsRuns<'_>) -> Vec<Figure> {
    let medians: Vec<f64> = AutoRatio::all(runs)
        .iter()
        .filter_map(|ratio| Some(ratio.spread()?.median))
        .collect();
    let Some(all) = Spread::from_samples(&medians) else {
        return vec![];
    };
    let title = "`longhaul cp`, seconds with `--compress auto` by those with `none`, least and \
                 greatest of all cases";
    let text = format!("{:.2} to {:.2}", all.min, all.max);
    vec![Figure::new("auto", title, text, Basis::Counted)]
}

/// Returns the comparisons with rsync: by default over data that has no older version at the
/// target, otherwise with `--delta`.
pub fn comparisons(runs: &SavingsRuns<'_>) -> Vec<Comparison> {
    let compared = |(path, data)| {
        let spread =
            |program: &SavingProgram| runs.spread(&cell(path, data, program), Observation::mbps);
        let after = spread(&program::compared(data))?;
        let others = program::programs(path, data).into_iter();
        let others = others.filter(|program| !program.is_own());
        let rates = others.filter_map(|program| Some((spread(program)?, program)));
        let (before, best) = rates.max_by(|a, b| a.0.median.total_cmp(&b.0.median))?;
        let case = format!("{}, {}", data.title(), path.words());
        Some(Gain { before, after }.compare(case, best.title().to_owned()))
    };
    cases().into_iter().filter_map(compared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::runs::tests::record;

    fn run(data: SavedData, name: &str, seed: u64, seconds: f64) -> Record<Cell, Observation> {
        let program = program::find(name).unwrap();
        let seen = Observation {
            bytes: 100_000_000,
            seconds,
            wire_bytes: 50_000_000,
            receiver_cpu_seconds: 0.5,
            sender_cpu_seconds: 0.25,
        };
        record(cell(SavingsPath::Slow, data, program), seed, seen, true)
    }

    #[test]
    fn ratio_counts_the_runs_that_keep_the_promise() {
        let records = [
            run(SavedData::Text, "longhaul", 1, 5.0),
            run(SavedData::Text, "longhaul-none", 1, 10.0),
            run(SavedData::Text, "longhaul", 2, 11.0),
            run(SavedData::Text, "longhaul-none", 2, 10.0),
            run(SavedData::Text, "rsync-ssh-z", 1, 16.0),
        ];
        let runs = Runs::select_valid(&records);
        let text = page(&runs).unwrap().text;
        let expected = "| A file of text | 100 Mbit/s, 20 ms | 0.800 (0.500..1.100) | \
                        1.000 (1.000..1.000) | 1 | 2 |";
        assert!(text.contains(expected), "{text}");
        let row = "| 100 Mbit/s, 20 ms; 32 MiB | rsync -z over SSH | 16.00 (single) | \
                   50.0 (single) | 0.50 (single) | 0.25 (single) | 1 |";
        assert!(text.contains(row), "{text}");
        let other = format!("### {}", SavedData::Random.title());
        assert!(
            !text.contains(&other),
            "data without runs is left out: {text}"
        );
        assert_eq!(figures(&runs)[0].text, "0.80 to 0.80");
    }

    #[test]
    fn rsync_is_compared_with_delta_where_there_is_an_older_version() {
        let records = [
            run(SavedData::Inserted, "longhaul-whole", 1, 1.0),
            run(SavedData::Inserted, "longhaul-delta", 1, 4.0),
            run(SavedData::Inserted, "rsync-ssh-delta", 1, 2.0),
        ];
        let compared = comparisons(&Runs::select_valid(&records));
        assert_eq!(compared.len(), 1);
        assert!(!compared[0].is_first && compared[0].ratio == 0.5);
    }
}
