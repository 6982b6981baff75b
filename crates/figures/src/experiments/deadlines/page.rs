//! The tables of deadlines.

use super::plan::least_seconds;
use super::{Cell, DeadlineCopy, Observation, ReservationMethod};
use crate::page::{Figure, Page, Table, cell};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;

type DeadlineRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns the copies of all runs of one kind, by seed and in their order.
fn copies<'a>(
    runs: &DeadlineRuns<'a>,
    way: ReservationMethod,
) -> Vec<(u64, usize, &'a DeadlineCopy)> {
    let records = runs.cell(&Cell { way });
    let numbered = records.into_iter().flat_map(|record| {
        let seed = record.cell.seed;
        let copies = record.seen.copies.iter().enumerate();
        copies.map(move |(number, copy)| (seed, number, copy))
    });
    numbered.collect()
}

/// Returns true if a copy could not meet its deadline: the whole link would take longer, or each
/// kind of reservation was tried and missed it.
fn is_out_of_reach(runs: &DeadlineRuns<'_>, of: (u64, usize, &DeadlineCopy)) -> bool {
    let (seed, number, copy) = of;
    least_seconds(copy.bytes) > copy.deadline_s
        || ReservationMethod::ALL.iter().all(|way| {
            let same = copies(runs, *way)
                .into_iter()
                .find(|(other, at, _)| (*other, *at) == (seed, number));
            same.is_some_and(|(.., made)| !made.met)
        })
}

fn share(part: usize, of: usize) -> String {
    match of {
        0 => "-".to_owned(),
        _ => format!("{part} of {of} ({:.0} %)", 100.0 * part as f64 / of as f64),
    }
}

fn table(runs: &DeadlineRuns<'_>) -> Table {
    let heads = [
        "",
        "copies",
        "met",
        "said to be met, and met",
        "said to be at risk, and met",
        "said not to be met",
        "of these shown to be out of reach",
        "reserved of the link, %",
        "others, Mbit/s",
    ];
    let mut table = Table::new(heads);
    for way in ReservationMethod::ALL {
        let all = copies(runs, way);
        if all.is_empty() {
            continue;
        }
        let count = |what: &dyn Fn(&DeadlineCopy) -> bool| {
            all.iter().filter(|(.., copy)| what(copy)).count()
        };
        let met_of = |said: &dyn Fn(&DeadlineCopy) -> bool| {
            share(count(&|copy| said(copy) && copy.met), count(said))
        };
        let refused: Vec<_> = all
            .iter()
            .filter(|(.., copy)| copy.said.is_missed())
            .collect();
        let out_of_reach = refused
            .iter()
            .filter(|of| is_out_of_reach(runs, ***of))
            .count();
        let seconds: f64 = all.iter().map(|(.., copy)| copy.seconds).sum();
        let reserved: u64 = all.iter().map(|(.., copy)| copy.reserved_bytes).sum();
        let busy = all.iter().filter(|(.., copy)| copy.others > 0);
        let others: Vec<f64> = busy
            .map(|(.., copy)| copy.others_bytes as f64 * 8.0 / copy.seconds / 1e6)
            .collect();
        table.row([
            way.title().to_owned(),
            all.len().to_string(),
            met_of(&|_| true),
            met_of(&|copy| copy.said.is_met()),
            met_of(&|copy| copy.said.is_at_risk()),
            refused.len().to_string(),
            share(out_of_reach, refused.len()),
            format!(
                "{:.1}",
                100.0 * reserved as f64 * 8.0 / (seconds * super::ROUTED_BPS)
            ),
            cell(Spread::from_samples(&others), 1),
        ]);
    }
    table
}

/// Returns the page.
pub fn page(runs: &DeadlineRuns<'_>) -> Page {
    Page::new(
        "Copies of 64 to 256 MiB, one after the other, over a link of 200 Mbit/s and 40 ms that \
         they share with none to sixteen flows of others (iperf3), with \
         deadlines of 0.7 to 7 times what the link takes for the copy alone, and 2 s: some cannot \
         be met. The same copies are made by best effort \
         alone (`cp --by T --reserve never`), with what the copy finds that it needs (`cp --by \
         T`), and with half of the link reserved for each, which is all \
         that may be. The router before the link keeps what is reserved free, and the copy's \
         streams are told from others by their ports. A copy is said to \
         be met if it reports no risk before its deadline; to be at risk if it reports that the \
         deadline may be missed; and not to be met if it reports that. Such a \
         copy is shown to be out of reach if the whole link would take longer, or if it was made \
         by all three ways and each missed it. What is reserved is counted as far as it was not \
         returned before its time.",
    )
    .table(&table(runs))
}

/// Returns the figures that documents quote.
pub fn figures(runs: &DeadlineRuns<'_>) -> Vec<Figure> {
    let met = |way: ReservationMethod| {
        let all = copies(runs, way);
        let met = all.iter().filter(|(.., copy)| copy.met).count();
        (!all.is_empty()).then(|| share(met, all.len()))
    };
    let of = |way: ReservationMethod| {
        let key = format!(
            "met-{}",
            way.title().replace(['`', '-'], "").replace(' ', "-")
        );
        Some(Figure::new(
            key,
            format!("deadlines met, {}", way.title()),
            met(way)?,
            Basis::Counted,
        ))
    };
    ReservationMethod::ALL.into_iter().filter_map(of).collect()
}
