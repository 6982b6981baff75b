//! The tables of admission.

use anyhow::Result;
use longhaul_circuit_trials::load::LoadResult;
use longhaul_circuit_trials::networks::NAMES;

use super::{BOOKED, Cell, Granted, Observation, PATHS, REQUESTS, Rule, TIMED};
use crate::measured::Measured;
use crate::page::{Figure, Page, Table};
use crate::runs::Runs;
use crate::stats::Spread;
use crate::template::page;

type AdmissionRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns the result of a trial.
const fn granted(seen: &Observation) -> Option<&Granted> {
    match seen {
        Observation::Granted(seen) => Some(seen),
        Observation::Took(_) => None,
    }
}

/// Returns the times of answers.
const fn took(seen: &Observation) -> Option<&LoadResult> {
    match seen {
        Observation::Took(took) => Some(took),
        Observation::Granted(_) => None,
    }
}

fn by_oscars(runs: &AdmissionRuns<'_>, cell: &Cell) -> Option<Spread> {
    let oscars = Cell {
        rule: Rule::Oscars,
        ..cell.clone()
    };
    runs.ratio(cell, &oscars, |seen| Some(granted(seen)?.booked))
}

/// Returns the cells of some rules on each network.
fn cells(rules: &[Rule]) -> Vec<Cell> {
    let of = |network: &str| {
        let cell = |rule: &Rule| Cell {
            network: network.to_owned(),
            rule: *rule,
        };
        rules.iter().map(cell).collect::<Vec<_>>()
    };
    NAMES.into_iter().flat_map(of).collect()
}

fn title(rule: Rule) -> String {
    match rule {
        Rule::Oscars => "OSCARS' rule".to_owned(),
        Rule::Ours { paths, offers } => {
            let s = if paths == 1 { "" } else { "s" };
            let offers = if offers { ", offers taken" } else { "" };
            format!("{paths} path{s}{offers}")
        }
        Rule::Load { offers: false } => "no".to_owned(),
        Rule::Load { offers: true } => "yes".to_owned(),
    }
}

fn acceptance(runs: &AdmissionRuns<'_>) -> Table {
    let ours = |paths| [false, true].map(|offers| Rule::Ours { paths, offers });
    let rules: Vec<Rule> = [Rule::Oscars]
        .into_iter()
        .chain(PATHS.into_iter().flat_map(ours))
        .collect();
    // OSCARS' rule makes no offers, and its refusals are not checked.
    let checked = |row: &Measured<'_, Cell, Observation>, value: fn(&Granted) -> f64| {
        let spread = row.spread(|seen| Some(value(granted(seen)?)));
        spread.filter(|_| row.cell.rule != Rule::Oscars)
    };
    runs.table(cells(&rules))
        .measured()
        .text("network", |row| row.cell.network.clone())
        .text("rule", |row| title(row.cell.rule))
        .column("granted, %", 1, |seen| Some(100.0 * granted(seen)?.granted))
        .column("volume booked, %", 1, |seen| {
            Some(100.0 * granted(seen)?.booked)
        })
        .spread("volume / OSCARS' rule", 2, |row| by_oscars(runs, &row.cell))
        .spread("by an offer, %", 1, |row| {
            checked(row, |seen| 100.0 * seen.by_offer)
        })
        .spread("refusals proved right", 0, |row| {
            checked(row, |seen| seen.proved as f64)
        })
        .spread("refusals open", 0, |row| {
            checked(row, |seen| seen.open as f64)
        })
        .spread("offers, all good", 0, |row| {
            checked(row, |seen| seen.offers as f64)
        })
        .table()
}

fn load(runs: &AdmissionRuns<'_>) -> Table {
    runs.table(cells(&[false, true].map(|offers| Rule::Load { offers })))
        .measured()
        .text("network", |row| row.cell.network.clone())
        .text("counter-offers", |row| title(row.cell.rule))
        .column("on the books", 0, |seen| Some(took(seen)?.booked as f64))
        .column("requests/s", 0, |seen| Some(took(seen)?.per_second))
        .column("granted, %", 1, |seen| Some(100.0 * took(seen)?.granted))
        .column("median, ms", 3, |seen| Some(took(seen)?.p50_ms))
        .column("99th percentile, ms", 2, |seen| Some(took(seen)?.p99_ms))
        .column("longest, ms", 1, |seen| Some(took(seen)?.longest_ms))
        .table()
}

/// Returns the page.
///
/// # Errors
/// Its template is wrong.
pub fn page(runs: &AdmissionRuns<'_>) -> Result<Page> {
    let (acceptance, load) = (acceptance(runs), load(runs));
    page!("admission", acceptance, load, requests => REQUESTS, booked => BOOKED, timed => TIMED)
}

/// Returns the figures that documents quote.
pub fn figures(runs: &AdmissionRuns<'_>) -> Vec<Figure> {
    let ours = |paths, offers| Rule::Ours { paths, offers };
    let figure = |cell: Cell| {
        let spread = by_oscars(runs, &cell)?;
        let (network, title) = (&cell.network, title(cell.rule));
        Some(Figure::new(
            format!("{network}-{}", title.replace([' ', ','], "-")),
            format!("volume booked on {network}, {title}, by that of OSCARS' rule"),
            crate::page::cell(Some(spread), 2),
            spread.basis(),
        ))
    };
    cells(&[ours(1, false), ours(4, true)])
        .into_iter()
        .filter_map(figure)
        .collect()
}
