//! Tables and plots of GridFTP, directly and through gateways.

use anyhow::Result;

use super::{Cell, Hosts, Losses, Observation, SECONDS, STREAMS};
use crate::page::{Figure, Page, Table, cell};
use crate::plot::{self, Line};
use crate::runs::Runs;
use crate::setting::{CopyRoute, Mnemonic};
use crate::stats::Spread;

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
    let mut page = Page::new(HEAD);
    for (hosts, name, title) in FIGURES {
        let table = table(runs, hosts);
        if table.is_empty() {
            continue;
        }
        page = page.heading(title).table(&table);
        let lines = lines(runs, hosts);
        let drawn = plot::over_time(
            &format!("{title}: rate by the length of the transfer"),
            "Mbit/s",
            &lines,
        )?;
        page = page.plot(name, drawn);
    }
    Ok(page.paragraph(FOOT))
}

/// Returns the gains that documents quote: the medians of the greatest and the least, and the
/// demonstrated one.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (hosts, name, title) in FIGURES {
        let gains: Vec<f64> = pairs(hosts).filter_map(|both| gain(runs, both)).collect();
        let Some(spread) = Spread::from_samples(&gains) else {
            continue;
        };
        let cells: Vec<Cell> = pairs(hosts)
            .filter(|both| gain(runs, *both).is_some())
            .flatten()
            .collect();
        let basis = runs.basis(&cells);
        figures.push(Figure::new(
            format!("{name}-gain"),
            format!("greatest gain through gateways, {title}"),
            format!("{:.1}", spread.max),
            basis,
        ));
        figures.push(Figure::quoted(
            format!("{name}-least"),
            format!("{:.1}", spread.min),
            basis,
        ));
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

/// Returns the ratio of the medians.
fn gain(runs: &Runs<'_, Cell, Observation>, [direct, through]: [Cell; 2]) -> Option<f64> {
    let median = |one| Some(runs.spread(&one, |seen| seen.mbps(SHOWN))?.median);
    Some(median(through)? / median(direct)?)
}

fn table(runs: &Runs<'_, Cell, Observation>, hosts: Hosts) -> Table {
    let mut table = Table::new([
        "path",
        "losses",
        "streams",
        "GridFTP, Mbit/s",
        "through gateways, Mbit/s",
        "gain",
        "runs",
    ]);
    for both in pairs(hosts) {
        let [direct, through] = both.map(|one| runs.spread(&one, |seen| seen.mbps(SHOWN)));
        let basis = runs.basis(&both);
        let Some(gain) = gain(runs, both) else {
            continue;
        };
        let path = PATHS.iter().find(|(path, _)| *path == both[0].path);
        table.row([
            path.map_or("", |(_, words)| words).to_owned(),
            both[0].losses.words().to_owned(),
            both[0].streams.to_string(),
            cell(direct, 1),
            cell(through, 1),
            basis.mark(format!("**{gain:.1}**")),
            format!(
                "{}+{}",
                direct.map_or(0, |spread| spread.count),
                through.map_or(0, |spread| spread.count)
            ),
        ]);
    }
    table
}

/// Returns the mean rate by the length of the transfer, as in the paper's figures: one stream,
/// independent losses.
fn lines(runs: &Runs<'_, Cell, Observation>, hosts: Hosts) -> Vec<Line> {
    let shown = pairs(hosts)
        .flatten()
        .filter(|one| one.losses == Losses::Independent && one.streams == 1);
    shown
        .enumerate()
        .map(|(index, one)| Line {
            name: format!(
                "{}, {}",
                match one.way {
                    CopyRoute::Direct => "GridFTP",
                    CopyRoute::Depots => "through gateways",
                },
                PATHS
                    .iter()
                    .find(|(path, _)| *path == one.path)
                    .map_or("", |(_, words)| words)
            ),
            points: SECONDS
                .iter()
                .filter_map(|&seconds| {
                    Some((
                        f64::from(seconds),
                        runs.spread(&one, |seen| seen.mbps(seconds))?.mean,
                    ))
                })
                .collect(),
            colour: plot::colour(index),
        })
        .filter(|line| !line.points.is_empty())
        .collect()
}

const HEAD: &str = "`globus-url-copy` sends `/dev/zero` to a GridFTP server over `host - LAN - \
    gateway - WAN - gateway - LAN - host` at 1 Gbit/s; each LAN loses 0.001 % of the segments in \
    each direction, the WAN none. Once as it is; once started by \
    `longhaul run`, which neither changes it nor tells it anything: its control and data \
    connections go by the first gateway (a depot) to the second (an off-ramp), and from there to \
    the server as ordinary TCP; the server's host has nothing of \
    Longhaul. With four streams it uses extended block mode (`-fast -p 4`), with one stream mode. \
    Rates are of the payload that the last link delivered, set-up included, over the first 60 s.";

const FOOT: &str = "The paper timed transfers of 10, 20, 30, 45 and 60 s; here one transfer of 60 \
    s is looked at after each of these times, since the first 10 s of a long transfer are a \
    transfer of 10 s. Losses of a seed are the same both ways on the links \
    that both cross. The tuned hosts have buffers of 16 MB by the number of streams, as the \
    paper's; the gateways have 64 MB.";
