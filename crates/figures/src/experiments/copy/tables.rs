//! The page: the rank of `longhaul cp` in every case, the protection of each program, and each case
//! with all its programs.

use anyhow::Result;
use minijinja::{Value, context};

use super::cases::{self, Bottleneck, Case, LIGHT_BPS, MAX_SIDE_BY_SIDE, SIDE_BY_SIDE_BPS};
use super::standing::{Rival, Standing, share};
use super::ways::{CopyContender, OWN_FIXED, WAYS};
use super::{Cell, Observation};
use crate::columns::Columns;
use crate::comparison::{self, Comparison};
use crate::page::{Figure, Page, Table, cell, percent};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;
use crate::template::page;

type CopyRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns the whole page. Cases without a run are left out.
///
/// # Errors
/// Its template is wrong.
pub fn page(runs: &CopyRuns<'_>) -> Result<Page> {
    let is_measured = |case: &Case| {
        WAYS.iter()
            .any(|way| !runs.cell(&Cell::new(way, case)).is_empty())
    };
    let measured: Vec<Case> = cases::all().into_iter().filter(is_measured).collect();
    page!(
        "copy", summary => summary(runs, &measured), ways => ways(),
        cases => measured.iter().map(|case| section(runs, case)).collect::<Vec<_>>(),
        light_mbps => LIGHT_BPS / 1e6, side_by_side_mbps => SIDE_BY_SIDE_BPS / 1e6,
        side_by_side => MAX_SIDE_BY_SIDE,
    )
}

/// Returns the table that compares `longhaul cp` in each case.
fn summary(runs: &CopyRuns<'_>, cases: &[Case]) -> Table {
    let name = |rival: &Option<Rival>| {
        rival.as_ref().map_or("-".to_owned(), |rival| {
            format!("{}: {}", rival.way.title(), cell(Some(rival.mbps), 1))
        })
    };
    let ratio = |rival: &Option<Rival>| rival.as_ref().map(|rival| rival.ratio);
    let compared = cases
        .iter()
        .filter_map(|case| Some((case, Standing::from_runs(runs, case)?)));
    Columns::of(compared)
        .text("case", |(case, _)| case.title.clone())
        .spread("`longhaul cp`, Mbit/s", 1, |(_, own)| Some(own.own))
        .text("share of the bottleneck", |(_, own)| shown(own.share))
        .spread("by 16 streams", 2, |(_, own)| own.by_fixed)
        .text("first", |(_, own)| own.first().0.title())
        .text("best of the others", |(_, own)| name(&own.best))
        .spread("`longhaul cp` by it", 2, |(_, own)| ratio(&own.best))
        .text("ahead of all in", |(_, own)| {
            format!("{} of {}", own.ahead.0, own.ahead.1)
        })
        .text("best that encrypts", |(_, own)| name(&own.best_encrypting))
        .spread("`longhaul cp` by it", 2, |(_, own)| {
            ratio(&own.best_encrypting)
        })
        .spread("`longhaul cp --no-encrypt`", 1, |(_, own)| own.clear)
        .text("best that verifies and does not encrypt", |(_, own)| {
            name(&own.best_verifying)
        })
        .spread("`longhaul cp --no-encrypt` by it", 2, |(_, own)| {
            ratio(&own.best_verifying)
        })
        .table()
}

/// Returns the table of the programs, and what they protect.
fn ways() -> Table {
    let options = |way: &&CopyContender| match (way.other(), way.streams) {
        (Ok(peer), _) => peer.options().to_owned(),
        (Err(_), None) if !way.encrypts => "--no-encrypt, and serve --allow-no-encrypt".into(),
        (Err(_), None) => "none".into(),
        (Err(_), Some(streams)) => format!("--streams {streams}"),
    };
    Columns::of(&WAYS)
        .text("way", |way| way.name)
        .text("program", |way| way.title())
        .text("options", options)
        .text("encrypts", |way| encrypts(way))
        .text("verifies", |way| verifies(way))
        .table()
}

fn encrypts(way: &CopyContender) -> &'static str {
    if way.encrypts { "yes" } else { "no" }
}

fn verifies(way: &CopyContender) -> &'static str {
    way.verifies.unwrap_or("no")
}

/// Returns the values of a case's section.
fn section(runs: &CopyRuns<'_>, case: &Case) -> Value {
    let (files, bytes) = case.data.extent();
    let share = match case.bottleneck {
        Bottleneck::Steady => format!(
            "The bottleneck carries {:.1} Mbit/s of payload.",
            case.hop.rate.bits_per_second() / 1e6
        ),
        Bottleneck::Changing(_) => {
            "The share is of the payload that the bottleneck carried while the copy lasted.".into()
        }
        Bottleneck::Hosts => "No link is a bottleneck.".into(),
    };
    context!(
        files, bytes, share, title => case.title, name => case.name, scenario => case.scenario,
        seconds => case.time_limit.as_secs(), table => table(runs, case),
    )
}

/// Returns the table of a case with all its programs.
fn table(runs: &CopyRuns<'_>, case: &Case) -> Table {
    let key = |way: &&CopyContender| Cell::new(way, case);
    Columns::of(&WAYS)
        .text("way", |way| way.title())
        .text("encrypts", |way| encrypts(way))
        .text("verifies", |way| verifies(way))
        .text("seconds", |way| {
            bounded(runs, &key(way), "over", 1, |seen| seen.seconds)
        })
        .text("Mbit/s", |way| {
            bounded(runs, &key(way), "under", 1, Observation::at_most_mbps)
        })
        .text("share", |way| shown(share(runs, &key(way))))
        .text("runs", |way| runs.cell(&key(way)).len())
        .text("remarks", |way| {
            let cannot = way.cannot(case.data);
            cannot.map_or_else(|| remarks(runs, &key(way), way), str::to_owned)
        })
        .table()
}

/// Formats a spread, or the bound of the time limit if runs were stopped by it.
fn bounded(
    runs: &CopyRuns<'_>,
    one: &Cell,
    word: &str,
    digits: usize,
    value: impl Fn(&Observation) -> f64,
) -> String {
    let all = runs.cell(one);
    let stopped = all.iter().filter(|run| run.seen.stopped).count();
    let spread = runs.spread(one, value);
    match (stopped, spread) {
        (0, spread) => cell(spread, digits),
        (some, Some(spread)) if some == all.len() => format!("{word} {:.digits$}", spread.median),
        (some, spread) => format!("{}, {some} of them {word} it", cell(spread, digits)),
    }
}

/// Returns further remarks on a program's runs.
fn remarks(runs: &CopyRuns<'_>, one: &Cell, way: &CopyContender) -> String {
    let all = runs.cell(one);
    let stopped = all.iter().filter(|run| run.seen.stopped).count();
    let streams = runs.spread(one, |seen| seen.streams.map(f64::from));
    let streams = streams.filter(|_| way.is_own() && way.name != OWN_FIXED.name);
    let mut remarks = vec![];
    remarks.extend(streams.map(|streams| match streams.is_single() {
        true => format!("came to {:.0} streams", streams.median),
        false => format!("came to {} streams", cell(Some(streams), 0)),
    }));
    if stopped > 0 {
        remarks.push(format!("{stopped} of {} stopped", all.len()));
    }
    remarks.join("; ")
}

/// Formats a share from 0 to 1 in a cell.
fn shown(share: Option<Spread>) -> String {
    percent(share.map(|share| share.times(100.0)))
}

/// Returns the figures that documents quote: the number of cases in which it is first, and the
/// ratio for each case.
pub fn figures(runs: &CopyRuns<'_>) -> Vec<Figure> {
    let standings: Vec<(Case, Standing)> = cases::all()
        .into_iter()
        .filter_map(|case| Standing::from_runs(runs, &case).map(|standing| (case, standing)))
        .filter(|(_, standing)| standing.best.is_some())
        .collect();
    if standings.is_empty() {
        return vec![];
    }
    let compared = comparisons(runs);
    let mut figures = vec![
        Figure::new(
            "first",
            "cases in which `longhaul cp` with nothing set is the fastest of all programs",
            comparison::first(&compared).unwrap_or_default(),
            Basis::Counted,
        ),
        Figure::new(
            "least",
            "`longhaul cp` by the best of the others, in the worst case for it and in the best",
            comparison::extremes(&compared).unwrap_or_default(),
            Basis::Counted,
        ),
    ];
    for (case, standing) in &standings {
        let mut quote = |suffix: &str, rival: &Option<Rival>, own: Option<Spread>| {
            let figure = rival.as_ref().zip(own).map(|(rival, own)| {
                let basis = Basis::Runs(rival.ratio.count);
                Figure::quoted(format!("{}{suffix}", case.name), beside(rival, own), basis)
            });
            figures.extend(figure);
        };
        quote("", &standing.best, Some(standing.own));
        if matches!(case.bottleneck, Bottleneck::Hosts) {
            // The cost of encrypting and verifying is decisive here, so the comparison is with
            // programs that do the same.
            quote("-encrypting", &standing.best_encrypting, Some(standing.own));
            quote("-verifying", &standing.best_verifying, standing.clear);
        }
    }
    figures
}

/// Returns the comparison for every case in which another program was measured.
pub fn comparisons(runs: &CopyRuns<'_>) -> Vec<Comparison> {
    let compared = |case: Case| {
        let standing = Standing::from_runs(runs, &case)?;
        let best = standing.best.as_ref()?;
        Some(Comparison {
            case: case.title.clone(),
            rival: best.way.title(),
            ratio: best.ratio.median,
            is_first: standing.first().1,
            basis: Basis::Runs(best.ratio.count),
        })
    };
    cases::all().into_iter().filter_map(compared).collect()
}

/// Formats a ratio and its rival.
fn beside(rival: &Rival, own: Spread) -> String {
    format!(
        "{:.2} ({:.0} by {:.0} Mbit/s, {})",
        rival.ratio.median,
        own.median,
        rival.mbps.median,
        rival.way.title()
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ran, stopped};
    use super::super::ways::OWN;
    use super::*;

    fn way(name: &str) -> CopyContender {
        *WAYS.iter().find(|way| way.name == name).unwrap()
    }

    #[test]
    fn a_case_shows_every_way_and_the_summary_says_who_is_first() {
        let case = cases::all().into_iter().next().unwrap();
        let records = [
            ran(&OWN, &case, 1, 800.0),
            ran(&OWN_FIXED, &case, 1, 820.0),
            ran(&way("gridftp-16"), &case, 1, 400.0),
            stopped(&way("scp"), &case, 1),
        ];
        let runs = Runs::select_valid(&records);
        let text = page(&runs).unwrap().text;
        let summary = text
            .lines()
            .find(|line| line.starts_with("| One file"))
            .unwrap();
        assert!(
            summary.contains(
                "| longhaul cp | globus-url-copy (GridFTP), 16 streams: 400.0 \
            (single) | 2.00 (single) | 1 of 1 |"
            ),
            "{summary}"
        );
        let row = |start: &str| text.lines().rfind(|line| line.starts_with(start)).unwrap();
        assert!(
            row("| scp").contains("| over 60.0 | under 143.2 | - | 1 | 1 of 1 stopped |"),
            "{}",
            row("| scp")
        );
        assert!(
            row("| longhaul cp |").contains("| 82.9 % (single) | 1 | came to 3 streams |"),
            "{}",
            row("| longhaul cp |")
        );
        assert!(
            row("| lftp").ends_with("| - | - | - | 0 |  |"),
            "{}",
            row("| lftp")
        );
        assert_eq!(text.matches("`clean-20ms-1gib`").count(), 1);
        assert!(
            !text.contains("`clean-100ms-1gib`"),
            "cases without runs are left out"
        );
        let figures = figures(&runs);
        assert_eq!(figures[0].text, "1 of 1 (single runs in 1)");
        assert_eq!(
            figures[2].text,
            "2.00 (800 by 400 Mbit/s, globus-url-copy (GridFTP), 16 streams; single)"
        );
    }

    #[test]
    fn a_page_of_no_runs_has_no_cases() {
        assert!(figures(&Runs::select_valid(&[])).is_empty());
        assert!(
            !page(&Runs::select_valid(&[]))
                .unwrap()
                .text
                .contains("is stopped after")
        );
    }
}
