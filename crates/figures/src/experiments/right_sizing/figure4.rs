//! Transfers of up to 128 MB over the paper's two paths, one for each sizing method and each seed.
//!
//! A transfer of N MB equals the first N MB of a longer one, because neither TCP nor the sizing
//! knows how much will follow. So one transfer yields every point of a curve: the time from before
//! the connection is made until the receiver had read that much.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::column::Column;
use super::program::{EndObservation, PORT};
use super::{ends, payload, word};
use crate::children::{Server, output_within};
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page, Table, median};
use crate::plot;
use crate::runner::FIRST_PUBLISHED_SEED;
use crate::runs::Runs;
use crate::single::{Basis, SINGLE};
use crate::stats::Spread;
use crate::tools::Tools;

/// Sizes of the figure's points, in megabytes.
const SIZES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Share of the machine that one transfer takes: 36 Mbit/s are little.
const SHARE: f64 = 1.0 / 14.0;
/// Length of a synthetic path's series, in minutes.
const TRACE_MINUTES: usize = 180;

/// Modes of right-sizing and their baselines, which are also compared under noise.
const COMPARED: [Column; 5] = [
    Column::Kernel,
    Column::Auto,
    Column::Classic,
    Column::PaperPlus,
    Column::AutoFixed,
];

/// The experiment.
pub struct Figure4;

/// One path of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DrsPath {
    /// 102.1 ms and 36 Mbit/s.
    Constant,
    /// A synthetic series with the statistics of the measured path. Each seed yields another one.
    Varying,
}

impl DrsPath {
    const ALL: [Self; 2] = [Self::Constant, Self::Varying];

    fn title(self) -> &'static str {
        match self {
            Self::Constant => "constant path, 102.1 ms and 36 Mbit/s",
            Self::Varying => "varying path, mean 157 ms and 17.2 Mbit/s",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Varying => "varying",
        }
    }

    /// Returns the figures that the paper printed.
    fn in_the_paper(self) -> &'static str {
        match self {
            Self::Constant => {
                "The paper printed beside it: stock 64 KB about 5 Mbit/s from 8 MB up; drsFTP 30 \
                 beyond 64 MB, 78.7 % of the over-provisioned rate on average; over-provisioned \
                 34.5 at best; drsFTP 2.4 times the static 212.5 KB."
            }
            Self::Varying => "The paper printed no transfers over its varying path.",
        }
    }
}

/// One transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    path: DrsPath,
    column: Column,
}

impl Cell {
    /// Returns the size of the transfer in megabytes. A window of 64 KB would need five minutes for
    /// 128 MB over the varying path, so it stops at half.
    fn megabytes(&self) -> u64 {
        match (self.path, self.column) {
            (DrsPath::Varying, Column::Stock | Column::Fixed) => 64,
            _ => 128,
        }
    }

    /// Returns the approximate time of the transfer, in seconds.
    fn about(&self) -> f64 {
        let window_bps = match self.column {
            Column::Stock | Column::Fixed => 64e3 * 8.0,
            Column::Unlucky2004 => 160e3 * 8.0,
            Column::Unlucky => 212e3 * 8.0,
            _ => f64::INFINITY,
        };
        let (rtt, rate) = match self.path {
            DrsPath::Constant => (0.1021, 33e6),
            DrsPath::Varying => (0.157, 12e6),
        };
        self.megabytes() as f64 * 8.4e6 / f64::min(window_bps / rtt, rate) + 5.0
    }
}

/// Result of a transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Sizes in megabytes, and the goodput of a transfer of that size in Mbit/s.
    goodput: Vec<(u64, f64)>,
    receiver: EndObservation,
    sender: EndObservation,
}

impl Observation {
    fn goodput_at(&self, megabytes: u64) -> Option<f64> {
        self.goodput
            .iter()
            .find(|point| point.0 == megabytes)
            .map(|point| point.1)
    }

    /// Returns the goodput at the largest size.
    fn last(&self) -> f64 {
        self.goodput.last().map_or(0.0, |point| point.1)
    }
}

impl Experiment for Figure4 {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = PathBuf;

    fn name(&self) -> &'static str {
        "figure4"
    }

    fn title(&self) -> &'static str {
        "Right-sizing: Figure 4 of the DRS paper, with today's ways of sizing beside it"
    }

    fn cells(&self) -> Vec<Cell> {
        let all = |path| Column::ALL.map(|column| Cell { path, column });
        DrsPath::ALL.into_iter().flat_map(all).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, cell: &Cell) -> Cost {
        Cost {
            share: SHARE,
            seconds: cell.about(),
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<PathBuf> {
        payload(tools)
    }

    fn network(
        &self,
        tools: &Tools,
        _payload: &PathBuf,
        cell: &Cell,
        seed: u64,
    ) -> Result<Network> {
        let network = match cell.path {
            DrsPath::Constant => Network::load(tools, "drs.toml")?,
            DrsPath::Varying => {
                let trace = trace(tools.scratch.path(), seed)?;
                let trace = format!(
                    "{{ file = \"{}\", repeat_after = \"3600 s\" }}",
                    trace.display()
                );
                Network::load(tools, "drs-trace.toml")?.set("links.wan.trace", trace)
            }
        };
        Ok(network.set("nodes.*.buffers", format!("\"{}\"", cell.column.hosts())))
    }

    fn run(&self, here: &Here<'_, PathBuf>, cell: &Cell) -> Result<Observation> {
        let limit = Duration::from_secs_f64(cell.about() * 4.0 + 60.0);
        let own = std::env::current_exe()?;
        let column = word(cell.column);
        let mut command = here.lab.command("receiver", &own)?;
        command.args(["drs-receive", "--series", "--column", &column]);
        let receiver = Server::start(command, "the receiver", "listening")?;
        let mut command = here.lab.command("sender", &own)?;
        command
            .args(["drs-send", "--series", "--column", &column])
            .args(["--to", &format!("{}:{PORT}", here.lab.address("receiver")?)])
            .args(["--bytes", &(cell.megabytes() << 20).to_string(), "--file"])
            .arg(here.setup);
        let (status, out, err) = output_within(command, "the sender", limit)?;
        if !status.success() {
            bail!("the sender ended with {status}: {}", err.trim());
        }
        let sender = ends(&out)?.into_iter().next();
        let receiver = ends(&receiver.rest(Duration::from_secs(20))?.join("\n"))?
            .into_iter()
            .next();
        let (Some(mut sender), Some(mut receiver)) = (sender, receiver) else {
            bail!("an end reported nothing");
        };
        // The page plots one run of each kind over time.
        if here.seed != FIRST_PUBLISHED_SEED {
            sender.series.clear();
            receiver.series.clear();
        }
        let point = |(bytes, at): &(u64, f64)| {
            (bytes >> 20, *bytes as f64 * 8.0 / (at - sender.start) / 1e6)
        };
        Ok(Observation {
            goodput: receiver.marks.iter().map(point).collect(),
            receiver,
            sender,
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!("{:.1} Mbit/s", seen.last())
    }

    fn under_noise(&self, cell: &Cell) -> bool {
        COMPARED.contains(&cell.column)
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let mut page = Page::new(
            "What the ways of sizing are stands in `docs/right-sizing.md`, and below the tables.",
        );
        for path in DrsPath::ALL {
            let table = table(path, runs);
            if table.is_empty() {
                continue;
            }
            page = page
                .heading(&format!("Figure 4: {}", path.title()))
                .paragraph(
                    "Goodput, Mbit/s: the median of the runs, and of one run its value. \
                    Buffers are as the kernel accounts them: payload and bookkeeping.",
                )
                .table(&table)
                .paragraph(&format!(
                    "{}{}",
                    against_the_best(path, runs),
                    path.in_the_paper()
                ));
            page = plots(page, path, runs)?;
        }
        let how: Vec<String> = Column::ALL
            .iter()
            .map(|column| format!("- **{}**: {}.", column.title(), column.how()))
            .collect();
        Ok(page.heading("How each is set").paragraph(&how.join("\n")))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let mut figures = vec![];
        for path in DrsPath::ALL {
            for column in COMPARED {
                let Some(rate) = runs.spread(&Cell { path, column }, Observation::last) else {
                    continue;
                };
                figures.push(Figure::new(
                    format!("{}-{}", path.key(), word(column)),
                    format!(
                        "{}, Mbit/s at the largest size, {}",
                        column.title(),
                        path.title()
                    ),
                    crate::page::cell(Some(rate), 1),
                    Basis::Runs(rate.count),
                ));
            }
            figures.extend(quoted(path, runs));
        }
        figures
    }
}

/// Returns the figures of a path that documents quote.
fn quoted(path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let median = |column, size| Some(rate(runs, &Cell { path, column }, size)?.median);
    let last = |column| {
        Some(
            runs.spread(&Cell { path, column }, Observation::last)?
                .median,
        )
    };
    let medians: Vec<String> = Column::ALL
        .into_iter()
        .filter_map(|column| Some(format!("{} {:.1}", column.title(), last(column)?)))
        .collect();
    let by = |column, other| Some(format!("{:.1}", last(column)? / last(other)?));
    let shares: Vec<f64> = SIZES
        .into_iter()
        .filter_map(|size| Some(median(Column::Classic, size)? / median(Column::Over, size)?))
        .collect();
    let average = (!shares.is_empty()).then(|| {
        let average = shares.iter().sum::<f64>() / shares.len() as f64;
        format!("{:.0} %", 100.0 * average)
    });
    let cells: Vec<Cell> = Column::ALL
        .map(|column| Cell { path, column })
        .into_iter()
        .filter(|cell| !runs.cell(cell).is_empty())
        .collect();
    let basis = runs.basis(&cells);
    let texts = [
        ("rates", Some(medians.join("; "))),
        ("classic-by-stock", by(Column::Classic, Column::Stock)),
        ("classic-by-2004", by(Column::Classic, Column::Unlucky2004)),
        ("classic-by-static", by(Column::Classic, Column::Unlucky)),
        ("classic-average", average),
        (
            "auto-by-best",
            Some(against_the_best(path, runs).trim_end().to_owned()),
        ),
    ];
    texts
        .into_iter()
        .filter_map(|(key, text)| {
            Some(Figure::quoted(
                format!("{}-{key}", path.key()),
                text?,
                basis,
            ))
        })
        .collect()
}

/// Returns the file of a seed's synthetic series.
fn trace(scratch: &Path, seed: u64) -> Result<PathBuf> {
    let path = scratch.join(format!("trace-{seed}.csv"));
    if !path.exists() {
        // Several transfers of a seed may do this at the same time. All write the same content.
        crate::store::replace(&path, &wanbed::drs_trace::write(seed, TRACE_MINUTES))?;
    }
    Ok(path)
}

/// A value of a transfer.
type Value = fn(&Observation) -> f64;

/// Returns the table, with a column for each sizing method that has runs.
fn table(path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> Table {
    let measured: Vec<Cell> = Column::ALL
        .map(|column| Cell { path, column })
        .into_iter()
        .filter(|cell| !runs.cell(cell).is_empty())
        .collect();
    if measured.is_empty() {
        return Table::default();
    }
    let mut table = Table::new(
        ["MB"]
            .into_iter()
            .chain(measured.iter().map(|cell| cell.column.title())),
    );
    let mut row = |head: &str, text: &dyn Fn(&Cell) -> String| {
        table.row(
            [head.to_owned()]
                .into_iter()
                .chain(measured.iter().map(text)),
        );
    };
    for size in SIZES {
        row(&size.to_string(), &|cell| median(rate(runs, cell, size), 2));
    }
    row("spread at the largest", &|cell| {
        let largest = runs.spread(cell, Observation::last);
        largest.map_or("-".into(), |spread| match spread.is_single() {
            true => format!("none ({SINGLE})"),
            false => format!("{:.1}..{:.1}", spread.min, spread.max),
        })
    });
    let rows: [(&str, Value); 6] = [
        ("receive buffer mean, KB", |seen| {
            seen.receiver.buffer_mean / 1024.0
        }),
        ("receive buffer most, KB", |seen| {
            seen.receiver.buffer_max as f64 / 1024.0
        }),
        ("send buffer mean, KB", |seen| {
            seen.sender.buffer_mean / 1024.0
        }),
        ("send buffer most, KB", |seen| {
            seen.sender.buffer_max as f64 / 1024.0
        }),
        ("memory in use mean, KB", |seen| {
            (seen.receiver.used_mean + seen.sender.used_mean) / 1024.0
        }),
        ("segments sent again", |seen| {
            f64::from(seen.sender.retransmits)
        }),
    ];
    for (head, value) in rows {
        row(head, &|cell| median(runs.spread(cell, value), 0));
    }
    row("runs", &|cell| runs.cell(cell).len().to_string());
    table
}

/// Returns the spread of goodput at a size.
fn rate(runs: &Runs<'_, Cell, Observation>, cell: &Cell, megabytes: u64) -> Option<Spread> {
    let records = runs.cell(cell);
    let all: Vec<f64> = records
        .iter()
        .filter_map(|record| record.seen.goodput_at(megabytes))
        .collect();
    Spread::from_samples(&all)
}

/// Compares `auto` at each size with the best other column, at the same seeds.
fn against_the_best(path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> String {
    let auto = Cell {
        path,
        column: Column::Auto,
    };
    let against = |column, size| {
        let ratios = runs.ratios(&auto, &Cell { path, column }, |seen| {
            seen.goodput_at(size).unwrap_or(f64::NAN)
        });
        let known: Vec<f64> = ratios
            .into_iter()
            .filter(|ratio| ratio.is_finite())
            .collect();
        Spread::from_samples(&known)
    };
    let worst = |size: u64| {
        let others = Column::ALL
            .into_iter()
            .filter(|column| *column != Column::Auto);
        others
            .filter_map(|column| Some((against(column, size)?, column)))
            .min_by(|a, b| a.0.median.total_cmp(&b.0.median))
            .map(|(ratio, column)| {
                let text = format!("{size} MB {:.3} ({})", ratio.median, column.title());
                (text, ratio.count)
            })
    };
    let worst: Vec<(String, usize)> = SIZES.into_iter().filter_map(worst).collect();
    let list: Vec<&str> = worst.iter().map(|(text, _)| text.as_str()).collect();
    let ratios = match worst.iter().all(|(_, runs)| *runs == 1) {
        true => format!("the ratio of two {SINGLE} runs of the same seed"),
        false => "the median of the ratios at the same seed".to_owned(),
    };
    match list.is_empty() {
        true => String::new(),
        false => format!(
            "`auto` against the column that did best beside it, {ratios}: {}.\n\n",
            list.join(", ")
        ),
    }
}

fn plots(page: Page, path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
    let curves: Vec<plot::Curve> = Column::ALL
        .into_iter()
        .enumerate()
        .filter_map(|(index, column)| {
            let cell = Cell { path, column };
            let point = |size| Some((size << 20, rate(runs, &cell, size)?.median));
            let points: Vec<(u64, f64)> = SIZES.into_iter().filter_map(point).collect();
            (!points.is_empty()).then(|| plot::Curve {
                name: column.title().to_owned(),
                points,
                colour: plot::colour(index),
                from_paper: false,
            })
        })
        .collect();
    let drawn = [
        Column::Classic,
        Column::PaperPlus,
        Column::Kernel,
        Column::Auto,
    ];
    let lines: Vec<plot::Line> = drawn
        .into_iter()
        .enumerate()
        .filter_map(|(index, column)| {
            let runs = runs.cell(&Cell { path, column });
            let run = &runs
                .iter()
                .find(|run| !run.seen.receiver.series.is_empty())?
                .seen;
            let point = |point: &(f64, u64, u64, u64)| {
                (point.0 - run.sender.start, point.1 as f64 / 1024.0)
            };
            Some(plot::Line {
                name: column.title().to_owned(),
                points: run.receiver.series.iter().map(point).collect(),
                colour: plot::colour(index),
            })
        })
        .collect();
    let page = page.plot(
        &format!("drs-figure4-{}", path.key()),
        plot::rate_by_size(&format!("DRS Figure 4: {}", path.title()), &curves)?,
    );
    if lines.is_empty() {
        return Ok(page);
    }
    let title = format!("receive buffer, 128 MB over the {} path", path.key());
    Ok(page.plot(
        &format!("drs-buffers-{}", path.key()),
        plot::over_time(&title, "KB", &lines)?,
    ))
}
