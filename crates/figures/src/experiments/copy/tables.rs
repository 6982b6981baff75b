//! The page: the rank of `longhaul cp` in every case, the protection of each program, and each case
//! with all its programs.

use crate::comparison::{self, Comparison};
use crate::page::{Figure, Page, Table, cell, percent};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;

use super::cases::{self, Bottleneck, Case, LIGHT_BPS, MAX_SIDE_BY_SIDE, SIDE_BY_SIDE_BPS};
use super::standing::{Rival, Standing, share};
use super::ways::{CopyContender, OWN_FIXED, WAYS};
use super::{Cell, Observation};

type CopyRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns the whole page. Cases without a run are left out.
pub fn page(runs: &CopyRuns<'_>) -> Page {
    let measured: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| {
            WAYS.iter()
                .any(|way| !runs.cell(&Cell::new(way, case)).is_empty())
        })
        .collect();
    let page = Page::new(&how_it_was_measured())
        .table(&summary(runs, &measured))
        .heading("The ways")
        .paragraph(WAYS_HEAD)
        .table(&ways());
    measured.iter().fold(page, |page, case| {
        page.heading(&case.title)
            .paragraph(&head(case))
            .table(&table(runs, case))
    })
}

/// Returns the table that compares `longhaul cp` in each case.
fn summary(runs: &CopyRuns<'_>, cases: &[Case]) -> Table {
    let mut table = Table::new([
        "case",
        "`longhaul cp`, Mbit/s",
        "share of the bottleneck",
        "by 16 streams",
        "first",
        "best of the others",
        "`longhaul cp` by it",
        "ahead of all in",
        "best that encrypts",
        "`longhaul cp` by it",
        "`longhaul cp --no-encrypt`",
        "best that verifies and does not encrypt",
        "`longhaul cp --no-encrypt` by it",
    ]);
    for case in cases {
        let Some(standing) = Standing::from_runs(runs, case) else {
            continue;
        };
        let name = |rival: &Option<Rival>| {
            rival.as_ref().map_or("-".to_owned(), |rival| {
                format!("{}: {}", rival.way.title(), cell(Some(rival.mbps), 1))
            })
        };
        let ratio = |rival: &Option<Rival>| cell(rival.as_ref().map(|rival| rival.ratio), 2);
        let (ahead, of) = standing.ahead;
        table.row([
            case.title.clone(),
            cell(Some(standing.own), 1),
            shown(standing.share),
            cell(standing.by_fixed, 2),
            standing.first().0.title(),
            name(&standing.best),
            ratio(&standing.best),
            format!("{ahead} of {of}"),
            name(&standing.best_encrypting),
            ratio(&standing.best_encrypting),
            cell(standing.clear, 1),
            name(&standing.best_verifying),
            ratio(&standing.best_verifying),
        ]);
    }
    table
}

/// Returns the table of the programs, and what they protect.
fn ways() -> Table {
    let mut table = Table::new(["way", "program", "options", "encrypts", "verifies"]);
    for way in &WAYS {
        let options = match (way.other(), way.streams) {
            (Ok(peer), _) => peer.options().to_owned(),
            (Err(_), None) if !way.encrypts => "--no-encrypt, and serve --allow-no-encrypt".into(),
            (Err(_), None) => "none".into(),
            (Err(_), Some(streams)) => format!("--streams {streams}"),
        };
        let encrypts = if way.encrypts { "yes" } else { "no" };
        table.row([way.name, &way.title(), &options, encrypts, verifies(way)]);
    }
    table
}

fn verifies(way: &CopyContender) -> &'static str {
    way.verifies.unwrap_or("no")
}

/// Returns the text above a case's table.
fn head(case: &Case) -> String {
    let (files, bytes) = case.data.extent();
    let what = match files {
        1 => format!("{bytes} bytes"),
        _ => format!("{files} files, {bytes} bytes"),
    };
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
    format!(
        "`{}`, over `scenarios/{}`: {what}. {share} A copy is stopped after {} s.",
        case.name,
        case.scenario,
        case.time_limit.as_secs()
    )
}

/// Returns the table of a case with all its programs.
fn table(runs: &CopyRuns<'_>, case: &Case) -> Table {
    let mut table = Table::new([
        "way", "encrypts", "verifies", "seconds", "Mbit/s", "share", "runs", "remarks",
    ]);
    for way in &WAYS {
        let one = Cell::new(way, case);
        let cannot = way.cannot(case.data);
        table.row([
            way.title(),
            if way.encrypts { "yes" } else { "no" }.to_owned(),
            verifies(way).to_owned(),
            bounded(runs, &one, "over", 1, |seen| seen.seconds),
            bounded(runs, &one, "under", 1, Observation::at_most_mbps),
            shown(share(runs, &one)),
            runs.cell(&one).len().to_string(),
            cannot.map_or_else(|| remarks(runs, &one, way), str::to_owned),
        ]);
    }
    table
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
    let streams: Vec<f64> = all
        .iter()
        .filter_map(|run| run.seen.streams)
        .map(f64::from)
        .collect();
    let mut remarks = vec![];
    if way.is_own() && way.name != OWN_FIXED.name {
        remarks.extend(
            Spread::from_samples(&streams).map(|streams| match streams.is_single() {
                true => format!("came to {:.0} streams", streams.median),
                false => format!("came to {} streams", cell(Some(streams), 0)),
            }),
        );
    }
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

/// Returns the text that explains the measurement and the tables.
fn how_it_was_measured() -> String {
    format!(
        "Each case is measured with every way in turn, seed by seed: the same data from the same \
         host to the same other host of an emulated network, in a network of its own for each \
         copy. The server runs already; the time is from the start of the client's command to its \
         end, for all alike, so starting, logging in and verifying count. What arrived was \
         compared with the source, file by file, by \
         BLAKE3. Hosts hold their files in memory. One copy is made at a time, but those that a \
         window, losses or waiting is expected to hold below {:.0} Mbit/s go up to \
         {MAX_SIDE_BY_SIDE} at a time, as many as are \
         expected to carry {:.0} Mbit/s together (half as many of those that encrypt), each in \
         its own network; a run in which the machine did not keep up does not count. Nothing is \
         told to `longhaul cp` but the server's key; options of the others are those that their \
         documentation recommends.\n\n\
         Goodput in Mbit/s: the median of the seeds, with the least and the greatest; of one run \
         its value. A ratio pairs runs of the same seed. The share is of the payload that the \
         narrowest link carries (1448 of 1500 bytes; 8948 of 9000 on the LSR \
         path). A copy that takes longer than its case's limit is stopped and counts as slower \
         than that: in ratios the others then at the rate that they did not reach, `longhaul cp` \
         at nothing.",
        LIGHT_BPS / 1e6,
        SIDE_BY_SIDE_BPS / 1e6,
    )
}

const WAYS_HEAD: &str = "What a way verifies is what the program itself compares between source \
    and copy, beyond TCP's checksum and its cipher's. `N` is the number of streams.";

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
        let text = page(&runs).text;
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
                .text
                .contains("is stopped after")
        );
    }
}
