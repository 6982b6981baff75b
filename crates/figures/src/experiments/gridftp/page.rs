//! Tables and plots of GridFTP, directly and through gateways.

use anyhow::Result;
use minijinja::context;

use super::{Cell, Hosts, Losses, Observation, SECONDS, STREAMS};
use crate::columns::Columns;
use crate::page::{Figure, Page, Table};
use crate::plot::{self, Line};
use crate::runs::Runs;
use crate::setting::{CopyRoute, Mnemonic};
use crate::single::Basis;
use crate::stats::{Gain, Spread};
use crate::template::page;

/// The paper's figures, and today's hosts beside them.
const FIGURES: [(Hosts, &str, &str); 4] = [
    (
        Hosts::Untuned,
        "gridftp-untuned",
        "Figure 3: hosts that nobody tuned",
    ),
    (
        Hosts::Reno,
        "gridftp-reno",
        "Figures 4 and 5: tuned hosts, Reno",
    ),
    (Hosts::Cubic, "gridftp-cubic", "Tuned hosts, CUBIC"),
    (Hosts::Bbr, "gridftp-bbr", "Tuned hosts, BBR"),
];

/// Duration to which the tables and the ratios refer, in seconds.
const SHOWN: u32 = 60;

const PATHS: [(Mnemonic, &str); 2] = [
    (Mnemonic::Short, "10, 50, 10 ms"),
    (Mnemonic::Long, "25, 100, 25 ms"),
];

/// Returns the page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
    let (mut sections, mut plots) = (vec![], vec![]);
    for (hosts, name, title) in FIGURES {
        let table = table(runs, hosts);
        if !table.is_empty() {
            let head = format!("{title}: rate by the length of the transfer");
            plots.push((name, plot::over_time(&head, "Mbit/s", &lines(runs, hosts))?));
            sections.push(context!(title, table, name));
        }
    }
    Ok(page!("gridftp", sections)?.with_plots(plots))
}

/// Returns the gains that documents quote: the medians of the greatest and the least, and the
/// demonstrated one.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (hosts, name, title) in FIGURES {
        let measured: Vec<_> = pairs(hosts).filter_map(|both| gain(runs, both)).collect();
        let gains: Vec<f64> = measured.iter().map(|(_, gain)| gain.ratio()).collect();
        let Some(spread) = Spread::from_samples(&gains) else {
            continue;
        };
        let runs = measured
            .iter()
            .map(|(_, gain)| gain.before.count.min(gain.after.count));
        let basis = Basis::Runs(runs.min().unwrap_or(0));
        let (greatest, least) = (format!("{:.1}", spread.max), format!("{:.1}", spread.min));
        let title = format!("greatest gain through gateways, {title}");
        figures.push(Figure::new(format!("{name}-gain"), title, greatest, basis));
        figures.push(Figure::quoted(format!("{name}-least"), least, basis));
    }
    figures
}

/// Returns the direct transfer and the one through gateways, for each case of `hosts`.
fn pairs(hosts: Hosts) -> impl Iterator<Item = [Cell; 2]> {
    PATHS.into_iter().flat_map(move |(path, _)| {
        Losses::ALL.into_iter().flat_map(move |losses| {
            STREAMS.into_iter().map(move |streams| {
                CopyRoute::BOTH.map(|way| Cell {
                    path,
                    hosts,
                    losses,
                    streams,
                    way,
                })
            })
        })
    })
}

/// Returns a case with its rates, directly and through gateways.
fn gain(runs: &Runs<'_, Cell, Observation>, both: [Cell; 2]) -> Option<(Cell, Gain)> {
    let gain = runs.gain([&both[0], &both[1]], |seen| seen.mbps(SHOWN))?;
    Some((both[0], gain))
}

fn path_words(path: Mnemonic) -> &'static str {
    let found = PATHS.iter().find(|(other, _)| *other == path);
    found.map_or("", |(_, words)| words)
}

fn table(runs: &Runs<'_, Cell, Observation>, hosts: Hosts) -> Table {
    Columns::of(pairs(hosts).filter_map(|both| gain(runs, both)))
        .text("path", |(cell, _)| path_words(cell.path))
        .text("losses", |(cell, _)| cell.losses.words())
        .text("streams", |(cell, _)| cell.streams)
        .spread("GridFTP, Mbit/s", 1, |(_, gain)| Some(gain.before))
        .spread("through gateways, Mbit/s", 1, |(_, gain)| Some(gain.after))
        .text("gain", |(_, gain)| gain.bold(1, ""))
        .text("runs", |(_, gain)| gain.counts())
        .table()
}

/// Returns the mean rate by the length of the transfer, as in the paper's figures: one stream,
/// independent losses.
fn lines(runs: &Runs<'_, Cell, Observation>, hosts: Hosts) -> Vec<Line> {
    let shown = pairs(hosts)
        .flatten()
        .filter(|one| one.losses == Losses::Independent && one.streams == 1);
    let line = |(index, one): (usize, Cell)| {
        let way = match one.way {
            CopyRoute::Direct => "GridFTP",
            CopyRoute::Depots => "through gateways",
        };
        let mean = |&seconds: &u32| {
            let mean = runs.spread(&one, |seen| seen.mbps(seconds))?.mean;
            Some((f64::from(seconds), mean))
        };
        Line {
            name: format!("{way}, {}", path_words(one.path)),
            points: SECONDS.iter().filter_map(mean).collect(),
            colour: plot::colour(index),
        }
    };
    let lines = shown.enumerate().map(line);
    lines.filter(|line| !line.points.is_empty()).collect()
}
