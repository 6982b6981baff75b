//! The table and its text.

use super::{Cell, CopiedData, Observation, Scale, ScaleMethod};
use crate::comparison::Comparison;
use crate::experiment::Experiment;
use crate::page::{Figure, Page, Table, cell, number};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;

/// Bytes of the file of which the sparse one is a sample.
const TERABYTES: f64 = (4u64 << 40) as f64;

/// Returns the page.
pub fn page(runs: &Runs<'_, Cell, Observation>) -> Page {
    let mut table = Table::new([
        "what",
        "by",
        "seconds",
        "files a second",
        "client: peak MiB",
        "CPU s",
        "server: peak MiB",
        "CPU s",
        "runs",
    ]);
    for one in Scale.cells() {
        let mut row = vec![
            one.what.words().to_owned(),
            one.way.words().to_owned(),
            cell(runs.spread(&one, |seen| seen.seconds), 1),
            match one.what {
                CopiedData::Sparse | CopiedData::ManyStreams => "-".to_owned(),
                _ => cell(runs.spread(&one, Observation::files_per_second), 0),
            },
        ];
        let of = |end: fn(&Observation) -> Option<super::Usage>,
                  value: fn(&super::Usage) -> f64| {
            let values: Vec<f64> = runs
                .cell(&one)
                .iter()
                .filter_map(|record| end(&record.seen).as_ref().map(value))
                .collect();
            cell(Spread::from_samples(&values), 1)
        };
        for end in [
            |seen: &Observation| seen.client,
            |seen: &Observation| seen.server,
        ] {
            row.push(of(end, |usage| usage.peak_mib));
            row.push(of(end, |usage| usage.cpu_seconds));
        }
        row.push(runs.cell(&one).len().to_string());
        table.row(row);
    }
    let page = Page::new(HEAD).table(&table);
    match hours_of_terabytes(runs) {
        Some(hours) => page.paragraph(&format!(
            "Holes do not travel, but both ends hash them, because the hash of a file is that of \
             all its bytes, the zeros of its holes included. At the rate of the file of 64 GiB, \
             one of 4 TiB that is all a hole takes {hours:.1} hours: \
             extrapolated, not measured."
        )),
        None => page,
    }
}

/// Returns the figures that documents quote.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let peaks: Vec<f64> = runs
        .pick(|_| true)
        .iter()
        .flat_map(|record| record.seen.peaks())
        .collect();
    let peak = Spread::from_samples(&peaks).map(|peaks| {
        Figure::new(
            "peak",
            "the most memory of a client or server, over all cases, MiB",
            number(Some(peaks.max), 0),
            Basis::Counted,
        )
    });
    let rate = |way| Some(small_files(runs, way)?.median);
    let rates = rate(ScaleMethod::Pull)
        .zip(rate(ScaleMethod::Push))
        .zip(rate(ScaleMethod::Rsync));
    let rates = rates.map(|((pull, push), rsync)| {
        Figure::new(
            "small-files",
            "small files a second on loopback: pull, push, rsync's daemon",
            format!("{pull:.0}, {push:.0}, {rsync:.0}"),
            runs.basis(&[ScaleMethod::Pull, ScaleMethod::Push, ScaleMethod::Rsync].map(small)),
        )
    });
    let sparse = [ScaleMethod::Push, ScaleMethod::Pull].map(|way| Cell {
        what: CopiedData::Sparse,
        way,
    });
    let hours = hours_of_terabytes(runs).map(|hours| {
        Figure::quoted(
            "sparse-4tib",
            format!("{hours:.1} hours"),
            runs.basis(&sparse),
        )
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

/// Returns the rate of small files, in files a second.
fn small_files(runs: &Runs<'_, Cell, Observation>, way: ScaleMethod) -> Option<Spread> {
    runs.spread(&small(way), Observation::files_per_second)
}

/// Compares `longhaul cp` with rsync, which fetches the same files from its daemon.
pub fn comparisons(runs: &Runs<'_, Cell, Observation>) -> Vec<Comparison> {
    let both = small_files(runs, ScaleMethod::Pull).zip(small_files(runs, ScaleMethod::Rsync));
    let compared = both.map(|(own, other)| Comparison {
        case: format!("{} over loopback", CopiedData::SmallFiles.words()),
        rival: ScaleMethod::Rsync.words().to_owned(),
        ratio: own.median / other.median,
        is_first: own.median >= other.median,
        basis: runs.basis(&[ScaleMethod::Pull, ScaleMethod::Rsync].map(small)),
    });
    compared.into_iter().collect()
}

/// Returns the time of a hole of 4 TiB at the slower of the measured rates, in hours.
fn hours_of_terabytes(runs: &Runs<'_, Cell, Observation>) -> Option<f64> {
    let rates = [ScaleMethod::Push, ScaleMethod::Pull].map(|way| {
        let one = Cell {
            what: CopiedData::Sparse,
            way,
        };
        Some(
            runs.spread(&one, |seen| seen.bytes as f64 / seen.seconds)?
                .median,
        )
    });
    let slower = rates.into_iter().flatten().reduce(f64::min)?;
    Some(TERABYTES / slower / 3600.0)
}

const HEAD: &str = "Copies within one machine, over its loopback interface, with nothing set but \
    what the table names; sources in memory, and what arrives too where the memory file system \
    has inodes for it, otherwise on disk. Peaks are the kernel's (`VmHWM`) of the \
     client's and the server's process over the whole copy. rsync (`-rtW --inplace`, not \
     encrypted) copies the same files from its daemon in the same node.";

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
                .text
                .contains("one of 4 TiB that is all a hole takes 1.3 hours")
        );
    }
}
