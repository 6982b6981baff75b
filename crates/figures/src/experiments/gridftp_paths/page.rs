//! The tables and plots beside the paper's.

use anyhow::Result;

use super::plan::{
    BESIDE, Beside, CONNECTIONS, Cell, HOST_LIMIT, Hosts, Path, RATE_DIVISOR, RESERVED,
    RESERVED_BESIDE_BPS, SPREADS, Scale, Shares,
};
use super::run::{OTHERS, SETTLE_SECONDS};
use super::{BesideRates, Observation};
use crate::page::{Figure, Page, Table, cell, number};
use crate::plot::{self, Line};
use crate::runs::Runs;

type PathRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns the page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(runs: &PathRuns<'_>) -> Result<Page> {
    let mut page = Page::new(&head());
    for scale in Scale::ALL {
        let table = table(runs, scale);
        if table.is_empty() {
            continue;
        }
        page = page
            .heading(&format!("Table 4, {}", words(scale)))
            .table(&table)
            .paragraph(TABLE_NOTE);
    }
    page = page.heading("Bytes of each path over time");
    let plots = [
        (
            "even",
            &[Path::B, Path::C][..],
            Shares::Even,
            "Figure 6: B and C, split evenly",
        ),
        (
            "rate",
            &Path::ALL[..],
            Shares::Rate,
            "A, B and C, in proportion to their rates",
        ),
    ];
    for (name, paths, shares, title) in plots {
        let lines = lines(runs, paths, shares);
        if !lines.is_empty() {
            let drawn = plot::over_time(title, "MB", &lines)?;
            page = page.plot(&format!("gridftp-paths-{name}"), drawn);
        }
    }
    page = page.heading("Beside others").paragraph(&beside_head());
    for scale in Scale::ALL {
        let table = beside_table(runs, scale);
        if !table.is_empty() {
            page = page
                .paragraph(&format!("**{}**", capitalised(words(scale))))
                .table(&table);
        }
    }
    Ok(page)
}

/// Returns the figures that documents quote.
pub fn figures(runs: &PathRuns<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for scale in Scale::ALL {
        let name = match scale {
            Scale::Full => "full",
            Scale::Short => "short",
        };
        let quoted = [
            (
                "bc-even",
                &[Path::B, Path::C][..],
                Shares::Even,
                "B+C split evenly",
            ),
            (
                "all-rate",
                &Path::ALL[..],
                Shares::Rate,
                "A+B+C in proportion",
            ),
        ];
        for (key, paths, shares, title) in quoted {
            let one = Cell::alone(scale, paths, shares, Hosts::Unlimited);
            let Some((share, basis)) = of_sum(runs, &one) else {
                continue;
            };
            figures.push(Figure::new(
                format!("{key}-{name}"),
                format!("GridFTP over {title}, share of the sum of each path alone, {name}"),
                format!("{share:.1} %"),
                basis,
            ));
        }
    }
    figures
}

/// Returns the transfer's rate in percent of the sum of its paths alone.
fn of_sum(runs: &PathRuns<'_>, one: &Cell) -> Option<(f64, crate::single::Basis)> {
    let alone = |path: &Path| Cell::alone(one.scale, &[*path], Shares::Rate, one.hosts);
    let cells: Vec<Cell> = one.paths.iter().map(alone).chain([one.clone()]).collect();
    let median = |cell: &Cell| Some(runs.spread(cell, Observation::mbps)?.median);
    let sum: f64 = one
        .paths
        .iter()
        .map(|path| median(&alone(path)))
        .sum::<Option<f64>>()?;
    Some((100.0 * median(one)? / sum, runs.basis(&cells)))
}

fn table(runs: &PathRuns<'_>, scale: Scale) -> Table {
    let mut table = Table::new([
        "paths",
        "connections",
        "paper, MB/s",
        "hosts limited, MB/s",
        "not limited, MB/s",
        "of the sum alone, %",
        "bytes of each, %",
        "runs",
    ]);
    for (paths, shares) in SPREADS {
        let [limited, unlimited] = [Hosts::Limited, Hosts::Unlimited]
            .map(|hosts| Cell::alone(scale, paths, shares, hosts));
        let counts = [&limited, &unlimited].map(|one| runs.cell(one).len());
        let Some(first) = runs.cell(&unlimited).first().copied() else {
            continue;
        };
        let rate = |one: &Cell| cell(runs.spread(one, of_paper), 0);
        let of_sum = of_sum(runs, &unlimited).filter(|_| paths.len() > 1);
        table.row([
            name(paths),
            of_used(paths, first.seen.connections.map(f64::from)),
            paper(paths, shares).to_owned(),
            rate(&limited),
            rate(&unlimited),
            of_sum.map_or_else(
                || number(None, 1),
                |(share, basis)| basis.mark(number(Some(share), 1)),
            ),
            of_used(paths, percent(first.seen.carried())),
            format!("{}+{}", counts[0], counts[1]),
        ]);
    }
    table
}

/// Returns the rate at the paper's scale, in MB/s.
fn of_paper(seen: &Observation) -> f64 {
    seen.goodput_bps / 8e6 * RATE_DIVISOR
}

/// Returns the paper's rate in MB/s: Table 4, and in words what Figure 7 shows.
fn paper(paths: &[Path], shares: Shares) -> &'static str {
    use Path::{A, B, C};
    match (paths, shares) {
        ([A], _) => "654",
        ([B], _) => "238",
        ([C], _) => "682",
        ([A, B], Shares::Even) => "510",
        ([A, C], Shares::Even) => "669",
        ([B, C], Shares::Even) => "517",
        ([A, B], Shares::ThirtySeventy) => "about that of A",
        ([B, C], Shares::ThirtySeventy) => "about that of C",
        _ => "-",
    }
}

fn name(paths: &[Path]) -> String {
    let names: Vec<String> = paths.iter().map(|path| format!("{path:?}")).collect();
    names.join("+")
}

/// Formats the values of the used paths.
fn of_used(paths: &[Path], values: [f64; 3]) -> String {
    let of = paths
        .iter()
        .map(|path| format!("{:.0}", values[*path as usize]));
    of.collect::<Vec<_>>().join(" + ")
}

fn percent(bytes: [u64; 3]) -> [f64; 3] {
    let all = bytes.iter().sum::<u64>().max(1) as f64;
    bytes.map(|bytes| 100.0 * bytes as f64 / all)
}

/// Returns the bytes of each path over time, in MB, of the largest transfer that was made.
fn lines(runs: &PathRuns<'_>, paths: &[Path], shares: Shares) -> Vec<Line> {
    let of_scale = |scale| {
        let one = Cell::alone(scale, paths, shares, Hosts::Unlimited);
        runs.cell(&one).first().copied()
    };
    let Some(record) = Scale::ALL.into_iter().find_map(of_scale) else {
        return Vec::new();
    };
    let samples = &record.seen.over_time;
    let lines = paths.iter().enumerate().map(|(index, path)| Line {
        name: format!("{path:?}"),
        points: samples
            .iter()
            .map(|(at, bytes)| (*at, bytes[*path as usize] as f64 / 1e6))
            .collect(),
        colour: plot::colour(index),
    });
    lines.collect()
}

fn beside_table(runs: &PathRuns<'_>, scale: Scale) -> Table {
    let mut table = Table::new([
        "transfer",
        "its Mbit/s",
        "load of A + B + C, %",
        "others over A, Mbit/s",
        "others over C, Mbit/s",
        "fairness of others",
        "runs",
    ]);
    for (paths, how) in BESIDE {
        let one = Cell::beside(scale, paths, how);
        let all = runs.cell(&one);
        let rates = all.iter().filter_map(|record| record.seen.beside);
        let rates: Vec<BesideRates> = rates.collect();
        let Some(first) = rates.first().filter(|_| rates.len() == all.len()) else {
            continue;
        };
        let of = |value: fn(&BesideRates) -> f64, digits| {
            let of_run = |seen: &Observation| seen.beside.map_or(f64::NAN, |rates| value(&rates));
            cell(runs.spread(&one, of_run), digits)
        };
        let loads = first.loads().map(|load| format!("{:.0}", 100.0 * load));
        let reserved = match how {
            Beside::BestEffort => "nothing reserved".to_owned(),
            _ => format!("reserved on {}", name(paths)),
        };
        table.row([
            reserved,
            of(|rates| rates.transfer_bps() / 1e6, 0),
            loads.join(" + "),
            of(|rates| rates.others_bps[0] / 1e6, 0),
            of(|rates| rates.others_bps[1] / 1e6, 0),
            of(BesideRates::fairness, 2),
            all.len().to_string(),
        ]);
    }
    table
}

fn words(scale: Scale) -> &'static str {
    match scale {
        Scale::Full => "4 GB a transfer, as long as the paper's",
        Scale::Short => "300 MB a transfer, in which set-up and slow start weigh more",
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

fn head() -> String {
    format!(
        "`globus-url-copy -fast -p {CONNECTIONS}` sends `/dev/zero` to a GridFTP server, started \
         by `longhaul run --reservation ID`, which changes nothing of it but the source ports of \
         its connections. One reservation covers the paths of a transfer; the controller sets up \
         the router in front of them. The paths are those of the multi-path paper at 1:{RATE_DIVISOR} \
         in rate and buffers: A 57 ms and 400 Mbit/s, B 75 ms and 100 Mbit/s, C 48 ms and 400 \
         Mbit/s; {:.0} % of each is reserved, and everything comes back over C. Block size and \
         buffers are the paper's (Table 3, buffers at scale). Rates are of whole commands, set-up \
         included, multiplied by {RATE_DIVISOR}. The paper's hosts could send about {:.0} % of A or \
         C, so one variant limits the sender's link to that; the other one does not. The hosts \
         have CUBIC, the successor of the paper's BIC.",
        100.0 * RESERVED,
        100.0 * HOST_LIMIT,
    )
}

const TABLE_NOTE: &str = "Connections and bytes are those of the first run without a limit. \
    GridFTP gives each connection about the same amount of data, so the path whose connections \
    are slowest decides: that is what an even split costs, and what shares in proportion avoid. \
    The number of connections limits how exact the shares can be.";

fn beside_head() -> String {
    format!(
        "{OTHERS} CUBIC flows of others (iperf3) go over A, and {OTHERS} over C. The transfer \
         reserves {:.0} Mbit/s in all: on C alone, on A and C, or on all three in proportion to \
         their links. Without a reservation it takes the shortest path, which is C. Rates are \
         means from {SETTLE_SECONDS:.0} s after its start to its end, with packet headers; the \
         others' are those of their own links. *Load* is the rate on a link relative to what it \
         carries. *Fairness* is Jain's index of the others' two rates: 1 if those who share with \
         the transfer have as much as those who do not, 0.5 if one group has nothing.",
        RESERVED_BESIDE_BPS / 1e6,
    )
}
