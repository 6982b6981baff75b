//! Tables of the combinations, compared with the sum of their single paths, and of changes during a
//! copy.

use super::{
    AWAY_SECONDS, CHANGED_AT, CHANGED_BACK_AT, CHANGES, COMBINATIONS, Cell, Change, Observation,
    Path, tables, together,
};
use crate::page::{Figure, Page, Table, cell, number};
use crate::runs::Runs;
use crate::single::Basis;

/// Time for which a link is slower or stopped.
const CHANGED_SECONDS: f64 = CHANGED_BACK_AT - CHANGED_AT;

/// Returns the page.
pub fn page(runs: &Runs<'_, Cell, Observation>) -> Page {
    let mut table = Table::new([
        "paths",
        "Mbit/s",
        "sum of each alone",
        "share of it, %",
        "carried by each, %",
        "streams",
        "runs",
    ]);
    for paths in COMBINATIONS {
        let one = Cell::from_paths(paths);
        let carried = runs
            .cell(&one)
            .first()
            .map_or_else(Vec::new, |record| record.seen.carried.clone());
        let all = carried.iter().sum::<u64>().max(1) as f64;
        let parts: Vec<String> = carried
            .iter()
            .map(|bytes| format!("{:.0}", 100.0 * *bytes as f64 / all))
            .collect();
        let beside = paths.len() > 1;
        let basis = basis(runs, paths);
        let marked = |value: Option<f64>| match value.filter(|_| beside) {
            Some(value) => basis.mark(number(Some(value), 1)),
            None => number(None, 1),
        };
        table.row([
            name(paths),
            cell(runs.spread(&one, Observation::mbps), 1),
            marked(sum_alone(runs, paths)),
            marked(share(runs, paths).map(|share| 100.0 * share)),
            parts.join(" + "),
            cell(runs.spread(&one, |seen| f64::from(seen.streams)), 0),
            runs.cell(&one).len().to_string(),
        ]);
    }
    let mut changes = Table::new([
        "of A, B and C",
        "Mbit/s over the whole copy",
        "A before",
        "A while away",
        "A after",
        "all before",
        "all while away",
        "all after",
    ]);
    for change in CHANGES {
        let one = Cell::changing(change);
        let Some(record) = runs.cell(&one).first().copied() else {
            continue;
        };
        let mut row = vec![words(change), cell(runs.spread(&one, Observation::mbps), 1)];
        for around in [record.seen.around_change, record.seen.all_around_change] {
            let there = match change {
                Change::Dies => [true, true, false],
                Change::Joins => [false, true, true],
                Change::None | Change::ComesBack | Change::Halved | Change::Cut => [true; 3],
            };
            let around = around.unwrap_or_default().into_iter().zip(there);
            row.extend(around.map(|(mbps, is)| number(Some(mbps).filter(|_| is), 0)));
        }
        changes.row(row);
    }
    Page::new(HEAD)
        .table(&table)
        .heading("Shared out by hand")
        .paragraph(tables::BY_HAND)
        .table(&tables::by_hand(runs))
        .heading("Paths that go and come")
        .paragraph(CHANGED)
        .table(&changes)
        .heading("Paths that the copy reserves")
        .paragraph(&tables::reserved_text())
        .table(&tables::reserved(runs))
}

/// Returns the figures that documents quote.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let figures = together().filter_map(|paths| {
        let share = share(runs, paths)?;
        let mbps = runs
            .spread(&Cell::from_paths(paths), Observation::mbps)?
            .median;
        Some(Figure::new(
            name(paths),
            format!("{}, share of the sum of each path alone", name(paths)),
            format!("{:.1} % ({mbps:.0} Mbit/s)", 100.0 * share),
            basis(runs, paths),
        ))
    });
    figures.chain(tables::figures(runs)).collect()
}

/// Returns the runs of the paths together and of each alone.
fn basis(runs: &Runs<'_, Cell, Observation>, paths: &[Path]) -> Basis {
    let alone = paths.iter().map(|path| Cell::from_paths(&[*path]));
    let cells: Vec<Cell> = alone.chain([Cell::from_paths(paths)]).collect();
    runs.basis(&cells)
}

/// Returns the names of the paths, joined by plus signs.
pub fn name(paths: &[Path]) -> String {
    let names: Vec<String> = paths.iter().map(|path| format!("{path:?}")).collect();
    names.join("+")
}

fn words(change: Change) -> String {
    match change {
        Change::None => "nothing changes".to_owned(),
        Change::Dies => "A dies after a third of the bytes".to_owned(),
        Change::ComesBack => format!("A dies after a third, and is back {AWAY_SECONDS:.0} s later"),
        Change::Joins => format!("A's depot is started {AWAY_SECONDS:.0} s after the copy"),
        Change::Halved => format!("A's link carries half for {CHANGED_SECONDS:.0} s"),
        Change::Cut => format!("A's link carries nothing for {CHANGED_SECONDS:.0} s"),
    }
}

/// Returns the sum of the paths' individual rates, in Mbit/s.
fn sum_alone(runs: &Runs<'_, Cell, Observation>, paths: &[Path]) -> Option<f64> {
    paths
        .iter()
        .map(|path| {
            Some(
                runs.spread(&Cell::from_paths(&[*path]), Observation::mbps)?
                    .median,
            )
        })
        .sum()
}

/// Returns their joint rate as a share of that sum.
fn share(runs: &Runs<'_, Cell, Observation>, paths: &[Path]) -> Option<f64> {
    Some(
        runs.spread(&Cell::from_paths(paths), Observation::mbps)?
            .median
            / sum_alone(runs, paths)?,
    )
}

const HEAD: &str = "Files of 250 MB, as many as the paths carry in 20 s, pulled by `longhaul cp` \
    with nothing set but `--route`, once for each path through the depot in its middle. The paths \
    are the three of the multi-path paper at 1:25 in rate: \
     A 57 ms and 400 Mbit/s, B 75 ms and 100 Mbit/s, C 48 ms and 400 Mbit/s. Goodput of whole \
     copies in Mbit/s, from the start of the command to the verified end, set-up and slow start \
     included. In the paper, two paths together, \
     each given half of the streams and of the data, came to less than their faster one alone (A \
     with B 78 %, B with C 76 %).";

const CHANGED: &str = "Depots are killed with SIGKILL. The rates are means of those in the \
    progress events (`bps` and `routes_bps`, Mbit/s). A lost stream's work goes over the other \
    paths at once; the path is tried again with pauses of up to \
     4 s, so *after* begins 5 s after its depot is back, and the first two seconds of each part \
     are left out because the events' rates are smoothed over them. A link that is halved or cut \
     is A's far one, by a trace; its depot stays.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn paths_together_stand_beside_the_sum_of_each_alone() {
        let run = |paths: &[Path], mbps: f64| {
            let seen = Observation {
                seconds: 1.0,
                goodput_bps: mbps * 1e6,
                streams: 4,
                carried: vec![1; paths.len()],
                ..Observation::default()
            };
            record(Cell::from_paths(paths), 1, seen, true)
        };
        let records = [
            run(&[Path::A], 380.0),
            run(&[Path::B], 95.0),
            run(&[Path::C], 385.0),
            run(&Path::ALL, 817.0),
        ];
        let figures = figures(&Runs::select_valid(&records));
        assert_eq!(figures.len(), 1);
        assert_eq!(figures[0].text, "95.0 % (817 Mbit/s; single)");
        let text = page(&Runs::select_valid(&records)).text;
        assert!(
            text.contains(
                "| A+B+C | 817.0 (single) | 860.0 (single) | 95.0 (single) | 33 + 33 + 33 | 4 \
                 (single) | 1 |"
            ),
            "{text}"
        );
    }
}
