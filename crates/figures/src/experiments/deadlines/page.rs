//! The tables of deadlines.

use anyhow::Result;

use super::plan::least_seconds;
use super::{Cell, DeadlineCopy, Observation, ReservationMethod};
use crate::columns::Columns;
use crate::page::{Figure, Page, Table};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;
use crate::template::page;

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
    type Copies<'a> = Vec<(u64, usize, &'a DeadlineCopy)>;
    let count = |all: &Copies<'_>, what: &dyn Fn(&DeadlineCopy) -> bool| {
        all.iter().filter(|(.., copy)| what(copy)).count()
    };
    let met_of = |all: &Copies<'_>, said: &dyn Fn(&DeadlineCopy) -> bool| {
        share(count(all, &|copy| said(copy) && copy.met), count(all, said))
    };
    let ways = ReservationMethod::ALL.map(|way| (way, copies(runs, way)));
    Columns::of(ways.into_iter().filter(|(_, all)| !all.is_empty()))
        .text("", |(way, _)| way.title())
        .text("copies", |(_, all)| all.len())
        .text("met", |(_, all)| met_of(all, &|_| true))
        .text("said to be met, and met", |(_, all)| {
            met_of(all, &|copy| copy.said.is_met())
        })
        .text("said to be at risk, and met", |(_, all)| {
            met_of(all, &|copy| copy.said.is_at_risk())
        })
        .text("said not to be met", |(_, all)| {
            count(all, &|copy| copy.said.is_missed())
        })
        .text("of these shown to be out of reach", |(_, all)| {
            let refused: Vec<_> = all
                .iter()
                .filter(|(.., copy)| copy.said.is_missed())
                .collect();
            let out_of_reach = refused.iter().filter(|of| is_out_of_reach(runs, ***of));
            share(out_of_reach.count(), refused.len())
        })
        .number("reserved of the link, %", 1, |(_, all)| {
            let seconds: f64 = all.iter().map(|(.., copy)| copy.seconds).sum();
            let reserved: u64 = all.iter().map(|(.., copy)| copy.reserved_bytes).sum();
            100.0 * reserved as f64 * 8.0 / (seconds * super::ROUTED_BPS)
        })
        .spread("others, Mbit/s", 1, |(_, all)| {
            let busy = all.iter().filter(|(.., copy)| copy.others > 0);
            let rate = |copy: &DeadlineCopy| copy.others_bytes as f64 * 8.0 / copy.seconds / 1e6;
            Spread::from_samples(&busy.map(|(.., copy)| rate(copy)).collect::<Vec<_>>())
        })
        .table()
}

/// Returns the page.
///
/// # Errors
/// Its template is wrong.
pub fn page(runs: &DeadlineRuns<'_>) -> Result<Page> {
    page!("deadlines", table => table(runs))
}

/// Returns the figures that documents quote.
pub fn figures(runs: &DeadlineRuns<'_>) -> Vec<Figure> {
    let figure = |way: ReservationMethod| {
        let (all, title) = (copies(runs, way), way.title());
        let met = all.iter().filter(|(.., copy)| copy.met).count();
        let key = format!("met-{}", title.replace(['`', '-'], "").replace(' ', "-"));
        let head = format!("deadlines met, {title}");
        let text = share(met, all.len());
        (!all.is_empty()).then(|| Figure::new(key, head, text, Basis::Counted))
    };
    ReservationMethod::ALL
        .into_iter()
        .filter_map(figure)
        .collect()
}
