//! Transfers of up to 128 MB over the paper's two paths, one for each sizing method and each seed.
//!
//! A transfer of N MB equals the first N MB of a longer one, because neither TCP nor the sizing
//! knows how much will follow. So one transfer yields every point of a curve: the time from before
//! the connection is made until the receiver had read that much.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};

use super::column::Column;
use super::program::{EndObservation, PORT};
use super::{ends, payload, word};
use crate::children::{Server, succeed_within};
use crate::columns::Columns;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page, Table, cell, median};
use crate::plot;
use crate::record::name;
use crate::runner::FIRST_PUBLISHED_SEED;
use crate::runs::Runs;
use crate::single::SINGLE;
use crate::stats::Spread;
use crate::template::page;
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
        Cost::new(SHARE, cell.about())
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
        let out = succeed_within(command, "the sender", limit)?;
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
        let (mut paths, mut all_plots) = (vec![], vec![]);
        for path in DrsPath::ALL {
            let table = table(path, runs);
            if table.is_empty() {
                continue;
            }
            let plots = plots(path, runs)?;
            paths.push(context!(
                table, title => path.title(), key => name(path), buffers => plots.len() > 1,
                against_the_best => against_the_best(path, runs),
            ));
            all_plots.extend(plots);
        }
        let titles = Column::ALL.map(|column| (word(column), column.title()));
        let titles: Value = titles.into_iter().collect();
        Ok(page!("figure4", paths, titles)?.with_plots(all_plots))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let mut figures = vec![];
        for path in DrsPath::ALL {
            for column in COMPARED {
                let rate = runs.spread(&Cell { path, column }, Observation::last);
                let key = format!("{}-{}", name(path), word(column));
                let (column, path) = (column.title(), path.title());
                let title = format!("{column}, Mbit/s at the largest size, {path}");
                figures.extend(
                    rate.map(|rate| Figure::new(key, title, cell(Some(rate), 1), rate.basis())),
                );
            }
            figures.extend(quoted(path, runs));
        }
        figures
    }
}

/// Returns the figures of a path that documents quote.
fn quoted(path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let key = |column| Cell { path, column };
    let last = |column| Some(runs.spread(&key(column), Observation::last)?.median);
    let by = |column, other| Some(format!("{:.1}", last(column)? / last(other)?));
    let rate = |column: Column| Some(format!("{} {:.1}", column.title(), last(column)?));
    let rates: Vec<String> = Column::ALL.into_iter().filter_map(rate).collect();
    let share = |size| {
        let [classic, over] = [Column::Classic, Column::Over].map(key);
        Some(
            runs.gain([&over, &classic], |seen| seen.goodput_at(size))?
                .ratio(),
        )
    };
    let shares: Vec<f64> = SIZES.into_iter().filter_map(share).collect();
    let average = Spread::from_samples(&shares);
    let basis = runs.basis(&measured(path, runs));
    let texts = [
        ("rates", Some(rates.join("; "))),
        ("classic-by-stock", by(Column::Classic, Column::Stock)),
        ("classic-by-2004", by(Column::Classic, Column::Unlucky2004)),
        ("classic-by-static", by(Column::Classic, Column::Unlucky)),
        (
            "classic-average",
            average.map(|average| format!("{:.0} %", 100.0 * average.mean)),
        ),
        ("auto-by-best", Some(against_the_best(path, runs))),
    ];
    let figure = |(key, text): (&str, Option<String>)| {
        Some(Figure::quoted(
            format!("{}-{key}", name(path)),
            text?,
            basis,
        ))
    };
    texts.into_iter().filter_map(figure).collect()
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
type SeenValue = fn(&Observation) -> f64;

/// Returns the transfers over a path that have runs.
fn measured(path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> Vec<Cell> {
    let cells = Column::ALL.map(|column| Cell { path, column });
    cells
        .into_iter()
        .filter(|cell| !runs.cell(cell).is_empty())
        .collect()
}

/// Returns the table, with a column for each sizing method that has runs.
fn table(path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> Table {
    type Row<'a> = (String, Box<dyn Fn(&Cell) -> String + 'a>);
    let measured = measured(path, runs);
    if measured.is_empty() {
        return Table::default();
    }
    let at = |size: u64| -> Row<'_> {
        let rate = move |cell: &Cell| runs.spread(cell, |seen| seen.goodput_at(size));
        (
            size.to_string(),
            Box::new(move |cell| median(rate(cell), 2)),
        )
    };
    let mut rows: Vec<Row<'_>> = SIZES.into_iter().map(at).collect();
    let spread = |cell: &Cell| {
        let largest = runs.spread(cell, Observation::last);
        largest.map_or("-".into(), |spread| match spread.is_single() {
            true => format!("none ({SINGLE})"),
            false => format!("{:.1}..{:.1}", spread.min, spread.max),
        })
    };
    rows.push(("spread at the largest".to_owned(), Box::new(spread)));
    let values: [(&str, SeenValue); 6] = [
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
    for (head, value) in values {
        let value = move |cell: &Cell| median(runs.spread(cell, value), 0);
        rows.push((head.to_owned(), Box::new(value)));
    }
    let count = |cell: &Cell| runs.cell(cell).len().to_string();
    rows.push(("runs".to_owned(), Box::new(count)));
    let columns = Columns::of(rows).text("MB", |(head, _)| head.clone());
    let shown = measured.into_iter().fold(columns, |columns, cell| {
        columns.text(cell.column.title(), move |(_, text)| text(&cell))
    });
    shown.table()
}

/// Compares `auto` at each size with the best other column, at the same seeds.
fn against_the_best(path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> String {
    let auto = Cell {
        path,
        column: Column::Auto,
    };
    let worst = |size: u64| {
        let others = Column::ALL
            .into_iter()
            .filter(|column| *column != Column::Auto);
        let ratio = |column| {
            let ratio = runs.ratio(&auto, &Cell { path, column }, |seen| seen.goodput_at(size));
            Some((ratio?, column))
        };
        let worst = others
            .filter_map(ratio)
            .min_by(|a, b| a.0.median.total_cmp(&b.0.median));
        worst.map(|(ratio, column)| {
            let text = format!("{size} MB {:.3} ({})", ratio.median, column.title());
            (text, ratio.count)
        })
    };
    let (list, counts): (Vec<String>, Vec<usize>) = SIZES.into_iter().filter_map(worst).unzip();
    let ratios = match counts.iter().all(|runs| *runs == 1) {
        true => format!("the ratio of two {SINGLE} runs of the same seed"),
        false => "the median of the ratios at the same seed".to_owned(),
    };
    match list.join(", ") {
        list if list.is_empty() => list,
        list => format!("`auto` against the column that did best beside it, {ratios}: {list}."),
    }
}

/// Returns the plots of a path with their names: goodput by size, and buffers over time if a run
/// has them.
fn plots(path: DrsPath, runs: &Runs<'_, Cell, Observation>) -> Result<Vec<(String, String)>> {
    let curve = |(index, column): (usize, Column)| {
        let cell = Cell { path, column };
        let rate = |size| Some(runs.spread(&cell, |seen| seen.goodput_at(size))?.median);
        let point = |size| Some((size << 20, rate(size)?));
        let points: Vec<(u64, f64)> = SIZES.into_iter().filter_map(point).collect();
        (!points.is_empty()).then(|| plot::Curve {
            name: column.title().to_owned(),
            points,
            colour: plot::colour(index),
            from_paper: false,
        })
    };
    let curves: Vec<_> = Column::ALL
        .into_iter()
        .enumerate()
        .filter_map(curve)
        .collect();
    let line = |(index, column): (usize, Column)| {
        let runs = runs.cell(&Cell { path, column });
        let seen = runs.iter().map(|record| &record.seen);
        let run = seen
            .into_iter()
            .find(|seen| !seen.receiver.series.is_empty())?;
        let point = |&(at, buffer, ..): &(f64, u64, u64, u64)| {
            (at - run.sender.start, buffer as f64 / 1024.0)
        };
        Some(plot::Line {
            name: column.title().to_owned(),
            points: run.receiver.series.iter().map(point).collect(),
            colour: plot::colour(index),
        })
    };
    let drawn = [
        Column::Classic,
        Column::PaperPlus,
        Column::Kernel,
        Column::Auto,
    ];
    let lines: Vec<_> = drawn.into_iter().enumerate().filter_map(line).collect();
    let (key, title) = (name(path), format!("DRS Figure 4: {}", path.title()));
    let by_size = plot::rate_by_size(&title, &curves)?;
    let mut plots = vec![(format!("drs-figure4-{key}"), by_size)];
    if !lines.is_empty() {
        let title = format!("receive buffer, 128 MB over the {key} path");
        plots.push((
            format!("drs-buffers-{key}"),
            plot::over_time(&title, "KB", &lines)?,
        ));
    }
    Ok(plots)
}
