//! The table and its text.

use anyhow::Result;

use super::{Cell, CopiedData, Observation, Scale, ScaleMethod};
use crate::comparison::Comparison;
use crate::experiment::Experiment;
use crate::page::{Figure, Page, number};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;
use crate::template::page;

/// Bytes of the file of which the sparse one is a sample.
const TERABYTES: f64 = (4u64 << 40) as f64;

/// Copies of the sparse file.
const SPARSE: [Cell; 2] = [
    Cell {
        what: CopiedData::Sparse,
        way: ScaleMethod::Push,
    },
    Cell {
        what: CopiedData::Sparse,
        way: ScaleMethod::Pull,
    },
];

/// Returns the page.
///
/// # Errors
/// Its template is wrong.
pub fn page(runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
    let is_one = |cell: &Cell| matches!(cell.what, CopiedData::Sparse | CopiedData::ManyStreams);
    let table = runs
        .table(Scale.cells())
        .text("what", |row| row.cell.what.words())
        .text("by", |row| row.cell.way.words())
        .column("seconds", 1, |seen| seen.seconds)
        .spread("files a second", 0, |row| {
            let rate = row.spread(Observation::files_per_second);
            rate.filter(|_| !is_one(&row.cell))
        })
        .column("client: peak MiB", 1, |seen| {
            seen.client.map(|usage| usage.peak_mib)
        })
        .column("CPU s", 1, |seen| {
            seen.client.map(|usage| usage.cpu_seconds)
        })
        .column("server: peak MiB", 1, |seen| {
            seen.server.map(|usage| usage.peak_mib)
        })
        .column("CPU s", 1, |seen| {
            seen.server.map(|usage| usage.cpu_seconds)
        })
        .runs()
        .table();
    page!("scale", table, hours => hours_of_terabytes(runs))
}

/// Returns the figures that documents quote.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let all = runs.pick(|_| true);
    let peaks: Vec<f64> = all.iter().flat_map(|record| record.seen.peaks()).collect();
    let peak = Spread::from_samples(&peaks).map(|peaks| {
        let title = "the most memory of a client or server, over all cases, MiB";
        Figure::new("peak", title, number(Some(peaks.max), 0), Basis::Counted)
    });
    let cells = [ScaleMethod::Pull, ScaleMethod::Push, ScaleMethod::Rsync].map(small);
    let rates = cells.each_ref().map(|cell| {
        Some(format!(
            "{:.0}",
            runs.spread(cell, Observation::files_per_second)?.median
        ))
    });
    let rates: Option<Vec<String>> = rates.into_iter().collect();
    let rates = rates.map(|rates| {
        let title = "small files a second on loopback: pull, push, rsync's daemon";
        Figure::new("small-files", title, rates.join(", "), runs.basis(&cells))
    });
    let hours = hours_of_terabytes(runs).map(|hours| {
        let basis = runs.basis(&SPARSE);
        Figure::quoted("sparse-4tib", format!("{hours:.1} hours"), basis)
    });
    peak.into_iter().chain(rates).chain(hours).collect()
}

/// Returns the cell of small files.
const fn small(way: ScaleMethod) -> Cell {
    Cell {
        what: CopiedData::SmallFiles,
        way,
    }
}

/// Compares `longhaul cp` with rsync, which fetches the same files from its daemon.
pub fn comparisons(runs: &Runs<'_, Cell, Observation>) -> Vec<Comparison> {
    let both = [ScaleMethod::Rsync, ScaleMethod::Pull].map(small);
    let case = format!("{} over loopback", CopiedData::SmallFiles.words());
    let rival = ScaleMethod::Rsync.words().to_owned();
    let gain = runs.gain([&both[0], &both[1]], Observation::files_per_second);
    gain.map(|gain| gain.compare(case, rival))
        .into_iter()
        .collect()
}

/// Returns the time of a hole of 4 TiB at the slower of the measured rates, in hours.
fn hours_of_terabytes(runs: &Runs<'_, Cell, Observation>) -> Option<f64> {
    let rate = |seen: &Observation| seen.bytes as f64 / seen.seconds;
    let rates = SPARSE
        .iter()
        .filter_map(|cell| Some(runs.spread(cell, rate)?.median));
    Some(TERABYTES / rates.reduce(f64::min)? / 3600.0)
}

#[cfg(test)]
mod tests {
    use super::super::Usage;
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn greatest_peak_and_hours_of_a_hole_are_reported() {
        let run = |what, way, seconds, peak_mib| {
            let usage = Some(Usage {
                peak_mib,
                cpu_seconds: 1.0,
            });
            let seen = Observation {
                files: 10,
                bytes: 64 << 30,
                seconds,
                client: usage,
                server: usage,
            };
            record(Cell { what, way }, 1, seen, true)
        };
        let records = [
            run(CopiedData::Sparse, ScaleMethod::Push, 36.0, 20.0),
            run(CopiedData::Sparse, ScaleMethod::Pull, 72.0, 40.0),
        ];
        let runs = Runs::select_valid(&records);
        let figures = figures(&runs);
        assert_eq!(figures[0].text, "40");
        assert_eq!(figures[1].text, "1.3 hours (single)");
        assert!(
            page(&runs)
                .unwrap()
                .text
                .contains("one of 4 TiB that is all a hole takes 1.3 hours")
        );
    }
}
