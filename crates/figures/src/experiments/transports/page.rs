//! The tables of the three parts.

use anyhow::Result;

use super::Observation;
use super::cells::{
    Cell, Congestion, CopyWay, FASP_PATHS, FaspPath, GatewayCase, Loss, PERF_SECONDS, PerfWay,
    Windows,
};
use super::run::GATEWAYS;
use crate::columns::Columns;
use crate::page::{Figure, Page, Table, median};
use crate::runs::Runs;
use crate::stats::Spread;
use crate::template::page;

/// Goal of a copy under random loss, in Mbit/s: nine tenths of the payload rate of 1 Gbit/s.
const GOAL_MBPS: f64 = 868.0;

type TransportRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns the page.
///
/// # Errors
/// The template is not valid.
pub fn page(runs: &TransportRuns<'_>) -> Result<Page> {
    page!(
        "transports",
        goal => GOAL_MBPS,
        seconds => PERF_SECONDS,
        loss => loss_table(runs),
        fasp => fasp_table(runs),
        gateways => gateway_table(runs),
    )
}

/// Returns the figures that documents quote.
pub fn figures(runs: &TransportRuns<'_>) -> Vec<Figure> {
    let loss = CopyWay::ALL.into_iter().filter_map(|way| {
        let title = format!(
            "copy of 1 GiB over 60 ms, 0.1 % random loss, {}, Mbit/s",
            words(way)
        );
        Figure::median(
            format!("loss-{}", way.name()),
            title,
            rate(runs, Cell::RandomLoss { way }),
            0,
        )
    });
    let fasp = FASP_PATHS.into_iter().filter_map(|path| {
        let share = share(rate(runs, path.cell()), path.published_mbps)?;
        Figure::median(
            format!("fasp-{}", path.rtt_ms),
            format!("copy by FASP's published rate, {}", path_words(path)),
            Some(share),
            2,
        )
    });
    loss.chain(fasp).chain(gateway_figures(runs)).collect()
}

/// Returns what QUIC hops gain over the direct path, where the LANs lose 0.1 %.
fn gateway_figures(runs: &TransportRuns<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for windows in Windows::ALL {
        for congestion in Congestion::ALL {
            let case = GatewayCase {
                lan_loss: Loss::Tenth,
                windows,
                congestion,
            };
            let both = [PerfWay::Direct, PerfWay::Quic].map(|way| case.cell(way));
            let Some(gain) = runs.gain([&both[0], &both[1]], Observation::mbps) else {
                continue;
            };
            let (direct, quic) = (gain.before.median, gain.after.median);
            figures.push(Figure::new(
                format!("gateways-{windows:?}-{congestion:?}").to_lowercase(),
                format!("gain of QUIC hops, MNEMONIC 10/50/10 ms, {}", case.words()),
                format!("{:.1} ({quic:.0} by {direct:.0} Mbit/s)", gain.ratio()),
                gain.basis(),
            ));
        }
    }
    figures
}

fn loss_table(runs: &TransportRuns<'_>) -> Table {
    runs.table(CopyWay::ALL.map(|way| Cell::RandomLoss { way }))
        .measured()
        .text("longhaul cp", |row| match row.cell {
            Cell::RandomLoss { way } => words(way),
            _ => String::new(),
        })
        .column("Mbit/s", 0, Observation::mbps)
        .text("of the goal", |row| {
            median(share(row.spread(Observation::mbps), GOAL_MBPS), 2)
        })
        .runs()
        .table()
}

fn fasp_table(runs: &TransportRuns<'_>) -> Table {
    let row = |path: FaspPath| Some((path, rate(runs, path.cell())?));
    Columns::of(FASP_PATHS.into_iter().filter_map(row))
        .text("round trip, loss", |(path, _)| path_words(*path))
        .spread("longhaul cp, Mbit/s", 0, |(_, rate)| Some(*rate))
        .number("FASP, Mbit/s", 0, |(path, _)| path.published_mbps)
        .text("ratio", |(path, rate)| {
            median(share(Some(*rate), path.published_mbps), 2)
        })
        .text("runs", |(_, rate)| rate.count)
        .table()
}

fn gateway_table(runs: &TransportRuns<'_>) -> Table {
    let is_measured = |case: &GatewayCase| {
        let mut ways = PerfWay::ALL.into_iter();
        ways.any(|way| rate(runs, case.cell(way)).is_some())
    };
    let cases = GatewayCase::all().into_iter().filter(is_measured);
    let table = Columns::of(cases).text("loss, windows, control", |case| case.words());
    let table = PerfWay::ALL.into_iter().fold(table, |table, way| {
        table.text(way.head(), move |case| {
            median(rate(runs, case.cell(way)), 0)
        })
    });
    table.table()
}

fn rate(runs: &TransportRuns<'_>, cell: Cell) -> Option<Spread> {
    runs.spread(&cell, Observation::mbps)
}

/// Returns a rate relative to another one.
fn share(rate: Option<Spread>, whole_mbps: f64) -> Option<Spread> {
    Some(rate?.times(1.0 / whole_mbps))
}

/// Returns the options of a copy as code.
fn words(way: CopyWay) -> String {
    let options = way.options(&GATEWAYS.map(str::to_owned));
    match options.is_empty() {
        true => "nothing named".to_owned(),
        false => format!("`{}`", options.join(" ")),
    }
}

fn path_words(path: FaspPath) -> String {
    format!("{} ms, {}", path.rtt_ms, path.loss.words())
}
