//! The tables of admission.

use longhaul_circuit_trials::load::LoadResult;
use longhaul_circuit_trials::networks::NAMES;

use super::{BOOKED, Cell, Granted, Observation, PATHS, REQUESTS, Rule, TIMED};
use crate::page::{Figure, Page, Table, cell};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;

type AdmissionRuns<'a> = Runs<'a, Cell, Observation>;

fn granted(seen: &Observation) -> Granted {
    match seen {
        Observation::Granted(seen) => *seen,
        Observation::Took(_) => Granted::default(),
    }
}

/// Returns a value of a rule's runs on a network.
fn rule_value(
    runs: &AdmissionRuns<'_>,
    network: &str,
    rule: Rule,
    value: impl Fn(&Granted) -> f64,
) -> Option<Spread> {
    let wanted = Cell {
        network: network.to_owned(),
        rule,
    };
    runs.spread(&wanted, |seen| value(&granted(seen)))
}

/// Returns the booked share relative to that of OSCARS' rule, for each seed.
fn by_oscars(runs: &AdmissionRuns<'_>, network: &str, rule: Rule) -> Option<Spread> {
    let cell = |rule| Cell {
        network: network.to_owned(),
        rule,
    };
    Spread::from_samples(&runs.ratios(&cell(rule), &cell(Rule::Oscars), |seen| {
        granted(seen).booked
    }))
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

fn ours() -> impl Iterator<Item = Rule> {
    PATHS
        .into_iter()
        .flat_map(|paths| [false, true].map(|offers| Rule::Ours { paths, offers }))
}

fn acceptance(runs: &AdmissionRuns<'_>) -> Table {
    let mut table = Table::new([
        "network",
        "rule",
        "granted, %",
        "volume booked, %",
        "volume / OSCARS' rule",
        "by an offer, %",
        "refusals proved right",
        "refusals open",
        "offers, all good",
    ]);
    for network in NAMES {
        for rule in [Rule::Oscars].into_iter().chain(ours()) {
            let value = |value: fn(&Granted) -> f64, digits| {
                cell(rule_value(runs, network, rule, value), digits)
            };
            if rule_value(runs, network, rule, |seen| seen.granted).is_none() {
                continue;
            }
            let is_ours = rule != Rule::Oscars;
            let checked = |text: String| if is_ours { text } else { "-".to_owned() };
            table.row([
                network.to_owned(),
                title(rule),
                value(|seen| 100.0 * seen.granted, 1),
                value(|seen| 100.0 * seen.booked, 1),
                cell(by_oscars(runs, network, rule), 2),
                checked(value(|seen| 100.0 * seen.by_offer, 1)),
                checked(value(|seen| seen.proved as f64, 0)),
                checked(value(|seen| seen.open as f64, 0)),
                checked(value(|seen| seen.offers as f64, 0)),
            ]);
        }
    }
    table
}

fn load(runs: &AdmissionRuns<'_>) -> Table {
    let mut table = Table::new([
        "network",
        "counter-offers",
        "on the books",
        "requests/s",
        "granted, %",
        "median, ms",
        "99th percentile, ms",
        "longest, ms",
    ]);
    for network in NAMES {
        for offers in [false, true] {
            let rule = Rule::Load { offers };
            let wanted = Cell {
                network: network.to_owned(),
                rule,
            };
            let value = |value: fn(&LoadResult) -> f64, digits| {
                let spread = runs.spread(&wanted, |seen| match seen {
                    Observation::Took(took) => value(took),
                    Observation::Granted(_) => f64::NAN,
                });
                cell(spread, digits)
            };
            if runs.cell(&wanted).is_empty() {
                continue;
            }
            table.row([
                network.to_owned(),
                title(rule),
                value(|took| took.booked as f64, 0),
                value(|took| took.per_second, 0),
                value(|took| 100.0 * took.granted, 1),
                value(|took| took.p50_ms, 3),
                value(|took| took.p99_ms, 2),
                value(|took| took.longest_ms, 1),
            ]);
        }
    }
    table
}

/// Returns the page.
pub fn page(runs: &AdmissionRuns<'_>) -> Page {
    Page::new(&format!(
        "{REQUESTS} random requests on each network: rates and volumes, ahead by up to a day and \
         a half, some larger than any one link has room for. OSCARS' published \
         rule looks at one path, the one of the fewest hops, books the whole of it, and adds up \
         all that overlaps a request at any time. The same requests go to \
         Longhaul's admission, over up to so many paths at once; an asker who is refused takes, \
         where the table says so, an offer of the same within a window's \
         length, or of half the rate or more. Every answer goes to an independent checker: what \
         is granted must fit beside all that was promised, at any \
         instant; what is refused must be impossible, by the greatest flow, by cuts that let too \
         few paths through, or because all sets of paths were tried; \
         and an offer must be granted when it is taken at once. A wrong answer ends the run, so \
         the table has none. A refusal is open where neither \
         is shown."
    ))
    .heading("What is granted")
    .table(&acceptance(runs))
    .heading("How long an answer takes")
    .paragraph(&format!(
        "With {BOOKED} reservations of a year on the books, {TIMED} requests one after the other, \
         decided and kept in memory; the journal's disk is not in it."
    ))
    .table(&load(runs))
}

/// Returns the figures that documents quote.
pub fn figures(runs: &AdmissionRuns<'_>) -> Vec<Figure> {
    let mut all = Vec::new();
    for network in NAMES {
        for rule in [
            Rule::Ours {
                paths: 1,
                offers: false,
            },
            Rule::Ours {
                paths: 4,
                offers: true,
            },
        ] {
            let Some(spread) = by_oscars(runs, network, rule) else {
                continue;
            };
            let key = format!("{network}-{}", title(rule).replace([' ', ','], "-"));
            let head = format!(
                "volume booked on {network}, {}, by that of OSCARS' rule",
                title(rule)
            );
            let basis = Basis::Runs(spread.count);
            all.push(Figure::new(key, head, cell(Some(spread), 2), basis));
        }
    }
    all
}
