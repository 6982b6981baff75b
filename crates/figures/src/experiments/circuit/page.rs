//! The tables of circuits.

use super::{CROSS_FLOWS, Cell, Flow, MEASURED_SECONDS, Observation, Path, RESERVED, ROUTED};
use crate::page::{Figure, Page, Table, cell, number};
use crate::runs::Runs;

type CircuitRuns<'a> = Runs<'a, Cell, Observation>;

fn median(
    runs: &CircuitRuns<'_>,
    cell: Cell,
    value: fn(&Observation) -> Option<f64>,
) -> Option<f64> {
    let spread = runs.spread(&cell, |seen| value(seen).unwrap_or(f64::NAN))?;
    Some(spread.median).filter(|median| median.is_finite())
}

/// Returns the others' rate next to a circuit, relative to their rate without it minus the
/// reservation. More than 1 is more than their due.
fn of_due(runs: &CircuitRuns<'_>, path: Path, flow: Flow) -> Option<f64> {
    let of = |flow| {
        median(
            runs,
            Cell {
                path,
                flow,
                cross: true,
            },
            |seen| seen.cross_bps,
        )
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
    let mut table = Table::new([
        "over the depots",
        "others beside it",
        "Mbit/s of the flow",
        "of what is reserved, %",
        "deviation of 0.1 s, %",
        "least second, Mbit/s",
        "greatest second",
        "sent again by the depot",
        "by the sender",
        "others, Mbit/s",
        "of their due, %",
        "runs",
    ]);
    for flow in [
        Flow::None,
        Flow::Idle,
        Flow::Circuit,
        Flow::Granted,
        Flow::BestEffort,
    ] {
        for cross in [false, true] {
            let one = Cell { path, flow, cross };
            let all = runs.cell(&one);
            let Some(first) = all.first() else { continue };
            let of = |is: bool, value: fn(&Observation) -> f64, digits| match is {
                true => cell(runs.spread(&one, value), digits),
                false => "-".to_owned(),
            };
            let (is_flow, is_cross) = (
                first.seen.flow_bps.is_some(),
                first.seen.cross_bps.is_some(),
            );
            let is_measured = is_flow && first.seen.resent.is_some();
            let share = median(runs, one, |seen| {
                Some(100.0 * seen.flow_bps? / seen.reserved_bps?)
            });
            let alone = Cell {
                flow: Flow::None,
                ..one
            };
            let due =
                of_due(runs, path, flow).filter(|_| is_cross && first.seen.reserved_bps.is_some());
            table.row([
                flow.title().to_owned(),
                if cross {
                    format!("{CROSS_FLOWS} CUBIC")
                } else {
                    "none".to_owned()
                },
                of(is_flow, |seen| seen.flow_bps.unwrap_or(f64::NAN) / 1e6, 1),
                marked(runs, [&one], share),
                of(
                    is_flow,
                    |seen| seen.deviation_percent.unwrap_or(f64::NAN),
                    1,
                ),
                of(
                    is_flow,
                    |seen| seen.second_bps.unwrap_or_default()[0] / 1e6,
                    1,
                ),
                of(
                    is_flow,
                    |seen| seen.second_bps.unwrap_or_default()[1] / 1e6,
                    1,
                ),
                of(
                    is_measured,
                    |seen| seen.resent.unwrap_or_default()[0] as f64,
                    0,
                ),
                of(
                    is_measured,
                    |seen| seen.resent.unwrap_or_default()[1] as f64,
                    0,
                ),
                of(is_cross, |seen| seen.cross_bps.unwrap_or(f64::NAN) / 1e6, 1),
                marked(runs, [&one, &alone], due.map(|due| 100.0 * due)),
                all.len().to_string(),
            ]);
        }
    }
    table
}

/// Returns the page.
pub fn page(runs: &CircuitRuns<'_>) -> Page {
    let head = format!(
        "`longhaul perf` from a host through two depots to another one. The hop between the \
         depots goes over a link that it shares with {CROSS_FLOWS} CUBIC flows of others \
         (iperf3), which enter before it and leave behind it. {:.0} % of that link is reserved. \
         A *circuit* has both: the grant, to which the sender and each depot pace their hops from \
         the first byte on, and before the shared link a Linux router (HTB, by `longhaul router`) \
         that keeps the rate free for packets between the two depots. A *grant alone* is paced \
         and not isolated: on a link \
         with one queue for all, whoever fills the queue also takes packets from the paced hop, \
         which no end can prevent. *Best effort* is the same route without a grant. The router \
         gives out {:.0} % of what the link carries.\n\n\
         Rates are those of packets with their headers, counted at the receiving machines every \
         tenth of a second for {MEASURED_SECONDS:.0} s after slow start; what is reserved counts \
         the same. The others' *due* is what they have alone, less what is reserved. Reno at \
         hosts and depots, as in the papers; the paths are those of `scenarios/`, the \
         record's at a tenth in rate and queues, MNEMONIC's at a quarter.",
        100.0 * RESERVED,
        100.0 * ROUTED,
    );
    Path::ALL.into_iter().fold(Page::new(&head), |page, path| {
        let table = table(runs, path);
        if table.is_empty() {
            return page;
        }
        page.heading(path.title()).table(&table)
    })
}

/// Returns the figures that documents quote.
pub fn figures(runs: &CircuitRuns<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for path in Path::ALL {
        let beside = Cell {
            path,
            flow: Flow::Circuit,
            cross: true,
        };
        let alone = Cell {
            flow: Flow::None,
            ..beside
        };
        let share = median(runs, beside, |seen| {
            Some(100.0 * seen.flow_bps? / seen.reserved_bps?)
        });
        if let Some((share, due)) = share.zip(of_due(runs, path, Flow::Circuit)) {
            figures.push(Figure::new(
                format!("{path:?}"),
                format!(
                    "a circuit beside others: of what is reserved, and what others have of their \
                     due, {}",
                    path.title()
                ),
                format!("{share:.1} %, {:.1} %", 100.0 * due),
                runs.basis([&alone, &beside]),
            ));
        }
    }
    figures
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
