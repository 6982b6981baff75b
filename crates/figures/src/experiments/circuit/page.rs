//! The tables of circuits.

use anyhow::Result;
use minijinja::context;

use super::{CROSS_FLOWS, Cell, Flow, MEASURED_SECONDS, Observation, Path, RESERVED, ROUTED};
use crate::page::{Figure, Page, Table, number};
use crate::runs::Runs;
use crate::template::page;

type CircuitRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns the median of a value in a cell. `None` if its runs have no such value.
fn median(
    runs: &CircuitRuns<'_>,
    cell: &Cell,
    value: fn(&Observation) -> Option<f64>,
) -> Option<f64> {
    Some(runs.spread(cell, value)?.median)
}

/// Returns the share of what is reserved that the flow carries, in percent.
fn share(seen: &Observation) -> Option<f64> {
    Some(100.0 * seen.flow_bps? / seen.reserved_bps?)
}

/// Returns the others' rate next to a circuit, relative to their rate without it minus the
/// reservation. More than 1 is more than their due.
fn of_due(runs: &CircuitRuns<'_>, path: Path, flow: Flow) -> Option<f64> {
    let of = |flow| {
        let cell = Cell {
            path,
            flow,
            cross: true,
        };
        median(runs, &cell, |seen| seen.cross_bps)
    };
    let due = of(Flow::None)? - path.reserved_bps();
    Some(of(flow)? / due)
}

/// Formats a value that is computed from medians of these cells.
fn marked<const N: usize>(runs: &CircuitRuns<'_>, cells: [&Cell; N], value: Option<f64>) -> String {
    match value {
        Some(value) => runs.basis(cells).mark(number(Some(value), 1)),
        None => number(None, 1),
    }
}

fn table(runs: &CircuitRuns<'_>, path: Path) -> Table {
    let both = |flow| [false, true].map(|cross| Cell { path, flow, cross });
    let mbps = |bps: Option<f64>| Some(bps? / 1e6);
    runs.table(Flow::ALL.into_iter().flat_map(both))
        .measured()
        .text("over the depots", |row| row.cell.flow.title())
        .text("others beside it", |row| match row.cell.cross {
            true => format!("{CROSS_FLOWS} CUBIC"),
            false => "none".to_owned(),
        })
        .column("Mbit/s of the flow", 1, move |seen| mbps(seen.flow_bps))
        .text("of what is reserved, %", |row| {
            marked(runs, [&row.cell], median(runs, &row.cell, share))
        })
        .column("deviation of 0.1 s, %", 1, |seen| seen.deviation_percent)
        .column("least second, Mbit/s", 1, move |seen| {
            mbps(seen.second_bps.map(|both| both[0]))
        })
        .column("greatest second", 1, move |seen| {
            mbps(seen.second_bps.map(|both| both[1]))
        })
        .column("sent again by the depot", 0, |seen| {
            seen.resent.map(|both| both[0] as f64)
        })
        .column("by the sender", 0, |seen| {
            seen.resent.map(|both| both[1] as f64)
        })
        .column("others, Mbit/s", 1, move |seen| mbps(seen.cross_bps))
        .text("of their due, %", |row| {
            let alone = Cell {
                flow: Flow::None,
                ..row.cell
            };
            let is_due =
                |seen: &Observation| seen.cross_bps.is_some() && seen.reserved_bps.is_some();
            let due = of_due(runs, path, row.cell.flow).filter(|_| row.first().is_some_and(is_due));
            marked(runs, [&row.cell, &alone], due.map(|due| 100.0 * due))
        })
        .runs()
        .table()
}

/// Returns the page.
///
/// # Errors
/// Its template is wrong.
pub fn page(runs: &CircuitRuns<'_>) -> Result<Page> {
    let paths = Path::ALL.map(|path| (path.title(), table(runs, path)));
    let paths = paths.into_iter().filter(|(_, table)| !table.is_empty());
    let paths: Vec<_> = paths.map(|(title, table)| context!(title, table)).collect();
    page!("circuit", paths, cross_flows => CROSS_FLOWS, seconds => MEASURED_SECONDS,
        reserved => 100.0 * RESERVED, routed => 100.0 * ROUTED)
}

/// Returns the figures that documents quote.
pub fn figures(runs: &CircuitRuns<'_>) -> Vec<Figure> {
    let figure = |path: Path| {
        let beside = Cell {
            path,
            flow: Flow::Circuit,
            cross: true,
        };
        let alone = Cell {
            flow: Flow::None,
            ..beside
        };
        let (share, due) = (
            median(runs, &beside, share)?,
            of_due(runs, path, Flow::Circuit)?,
        );
        let title = format!(
            "a circuit beside others: of what is reserved, and what others have of their due, {}",
            path.title()
        );
        let text = format!("{share:.1} %, {:.1} %", 100.0 * due);
        Some(Figure::new(
            format!("{path:?}"),
            title,
            text,
            runs.basis([&alone, &beside]),
        ))
    };
    Path::ALL.into_iter().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn others_are_compared_with_their_rate_minus_reservation() {
        let path = Path::Lsr;
        let run = |flow, flow_bps: Option<f64>, cross_bps: f64| {
            let seen = Observation {
                flow_bps,
                reserved_bps: flow_bps.map(|_| path.reserved_bps()),
                cross_bps: Some(cross_bps),
                ..Observation::default()
            };
            record(
                Cell {
                    path,
                    flow,
                    cross: true,
                },
                1,
                seen,
                true,
            )
        };
        let records = [
            run(Flow::None, None, 226e6),
            run(Flow::Circuit, Some(96e6), 130e6),
        ];
        let runs = Runs::select_valid(&records);
        assert!((of_due(&runs, path, Flow::Circuit).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(figures(&runs)[0].text, "100.0 %, 100.0 % (single)");
    }
}
