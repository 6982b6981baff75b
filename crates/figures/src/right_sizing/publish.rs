//! Tables and plots of the right-sizing runs.

use super::column::Column;
use super::crowd::{self, Beside, Crowd, Sharing, jain};
use super::figure4::{self, Path4, Transfer};
use super::program::End;
use crate::stats::Spread;
use crate::{plot, report};
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::fmt::Write;
use std::path::Path;

/// Megabytes of the figure's points.
const SIZES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

pub fn word(column: Column) -> String {
    column
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// The [`End`]s in the last line that a program wrote.
pub fn ends(text: &str) -> Result<Vec<End>> {
    let line = text
        .lines()
        .rfind(|line| line.starts_with('['))
        .with_context(|| format!("no report came: {text}"))?;
    serde_json::from_str(line).context("a program's report does not parse")
}

/// Writes `drs.md` and the plots of what was measured.
pub fn all(out: &Path) -> Result<()> {
    let transfers = figure4::read(out)?;
    let crowds: Vec<Crowd> = report::read(&crowd::fairness_file(out))?;
    let besides: Vec<Beside> = report::read(&crowd::friendly_file(out))?;
    let mut text = String::from(
        "# Right-sizing, measured\n\nWritten by `longhaul-figures drs`. What the ways of sizing are stands in `docs/right-sizing.md`.\n\n",
    );
    for path in [Path4::Constant, Path4::Varying] {
        figure4_table(&mut text, path, &transfers);
        figure4_plots(out, path, &transfers)?;
    }
    if !transfers.is_empty() {
        text.push_str("How each is set:\n\n");
        for column in Column::ALL {
            let _ = writeln!(text, "- **{}**: {}.", column.title(), column.how());
        }
        text.push('\n');
    }
    fairness_table(&mut text, &crowds);
    friendly_table(&mut text, &besides);
    std::fs::write(out.join("drs.md"), text).context("cannot write drs.md")
}

fn of(transfers: &[Transfer], path: Path4, column: Column) -> impl Iterator<Item = &Transfer> {
    transfers
        .iter()
        .filter(move |run| run.path == path && run.column == column && run.valid)
}

/// The spread of goodput at a size.
fn rate(transfers: &[Transfer], path: Path4, column: Column, size: u64) -> Option<Spread> {
    let all: Vec<f64> = of(transfers, path, column)
        .filter_map(|run| {
            run.goodput
                .iter()
                .find(|point| point.0 == size)
                .map(|point| point.1)
        })
        .collect();
    Spread::of(&all)
}

fn figure4_table(text: &mut String, path: Path4, transfers: &[Transfer]) {
    let columns: Vec<Column> = Column::ALL
        .into_iter()
        .filter(|column| of(transfers, path, *column).next().is_some())
        .collect();
    if columns.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "## Figure 4: {}\n\nGoodput, Mbit/s; the median of the runs.\n",
        title(path)
    );
    let heads: Vec<&str> = columns.iter().map(|column| column.title()).collect();
    let _ = writeln!(
        text,
        "| MB | {} |\n|---|{}",
        heads.join(" | "),
        "---|".repeat(columns.len())
    );
    let mut row = |head: &str, cell: &dyn Fn(Column) -> String| {
        let cells: Vec<String> = columns.iter().map(|column| cell(*column)).collect();
        let _ = writeln!(text, "| {head} | {} |", cells.join(" | "));
    };
    for size in SIZES {
        row(&size.to_string(), &|column| {
            rate(transfers, path, column, size).map_or("-".into(), |spread| format!("{:.2}", spread.median))
        });
    }
    let largest = |column| {
        SIZES
            .into_iter()
            .rev()
            .find_map(|size| rate(transfers, path, column, size))
    };
    row("spread at the largest", &|column| {
        largest(column).map_or("-".into(), |spread| {
            format!("{:.1}..{:.1}", spread.min, spread.max)
        })
    });
    let mean = |column, value: &dyn Fn(&Transfer) -> f64| {
        let all: Vec<f64> = of(transfers, path, column).map(value).collect();
        Spread::of(&all).map_or("-".into(), |spread| format!("{:.0}", spread.median / 1024.0))
    };
    row("receive buffer mean, KB", &|column| {
        mean(column, &|run| run.receiver.buffer_mean)
    });
    row("receive buffer most, KB", &|column| {
        mean(column, &|run| run.receiver.buffer_max as f64)
    });
    row("send buffer mean, KB", &|column| {
        mean(column, &|run| run.sender.buffer_mean)
    });
    row("send buffer most, KB", &|column| {
        mean(column, &|run| run.sender.buffer_max as f64)
    });
    row("both buffers mean, KB", &|column| {
        mean(column, &|run| run.receiver.buffer_mean + run.sender.buffer_mean)
    });
    row("memory in use mean, KB", &|column| {
        mean(column, &|run| run.receiver.used_mean + run.sender.used_mean)
    });
    row("segments sent again", &|column| {
        let all: Vec<f64> = of(transfers, path, column)
            .map(|run| f64::from(run.sender.retransmits))
            .collect();
        Spread::of(&all).map_or("-".into(), |spread| format!("{:.0}", spread.median))
    });
    row("runs", &|column| of(transfers, path, column).count().to_string());
    let _ = writeln!(
        text,
        "\n{}Buffers are as the kernel accounts them: payload and bookkeeping. Only runs with which the lab kept up count. {}\n",
        against_the_best(transfers, path),
        match path {
            Path4::Constant =>
                "The paper printed beside it: stock 64 KB about 5 Mbit/s from 8 MB up; drsFTP 30 beyond 64 MB, 78.7 % of the over-provisioned rate on average; over-provisioned 34.5 at best; drsFTP 2.4 times the static 212.5 KB.",
            Path4::Varying => "The paper printed no transfers over its varying path.",
        }
    );
}

/// At each size: `auto` over the column that did best beside it, the median of the ratios at the same seed.
fn against_the_best(transfers: &[Transfer], path: Path4) -> String {
    let goodput = |run: &Transfer, size| {
        run.goodput
            .iter()
            .find(|point| point.0 == size)
            .map(|point| point.1)
    };
    let against = |column, size| {
        let ratios: Vec<f64> = of(transfers, path, Column::Auto)
            .filter_map(|auto| {
                let other = of(transfers, path, column).find(|other| other.seed == auto.seed)?;
                Some(goodput(auto, size)? / goodput(other, size)?)
            })
            .collect();
        Spread::of(&ratios).map(|spread| spread.median)
    };
    let worst = |size: u64| {
        Column::ALL
            .into_iter()
            .filter(|column| *column != Column::Auto)
            .filter_map(|column| Some((against(column, size)?, column)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(ratio, column)| format!("{size} MB {ratio:.3} ({})", column.title()))
    };
    let list: Vec<String> = SIZES.into_iter().filter_map(worst).collect();
    if list.is_empty() {
        return String::new();
    }
    format!(
        "`auto` against the column that did best beside it, the median of the ratios at the same seed: {}.\n\n",
        list.join(", ")
    )
}

fn title(path: Path4) -> &'static str {
    match path {
        Path4::Constant => "constant path, 102.1 ms and 36 Mbit/s",
        Path4::Varying => "varying path, mean 157 ms and 17.2 Mbit/s",
    }
}

fn figure4_plots(out: &Path, path: Path4, transfers: &[Transfer]) -> Result<()> {
    let curves: Vec<plot::Curve> = Column::ALL
        .into_iter()
        .enumerate()
        .filter_map(|(index, column)| {
            let points: Vec<(u64, f64)> = SIZES
                .into_iter()
                .filter_map(|size| Some((size << 20, rate(transfers, path, column, size)?.median)))
                .collect();
            (!points.is_empty()).then(|| plot::Curve {
                name: column.title().to_owned(),
                points,
                colour: plot::colour(index),
                from_paper: false,
            })
        })
        .collect();
    if curves.is_empty() {
        return Ok(());
    }
    let name = match path {
        Path4::Constant => "constant",
        Path4::Varying => "varying",
    };
    plot::rate_by_size(
        &out.join(format!("drs-figure4-{name}.svg")),
        &format!("DRS Figure 4: {}", title(path)),
        &curves,
    )?;
    let lines: Vec<plot::Line> = [Column::Classic, Column::PaperPlus, Column::Kernel, Column::Auto]
        .into_iter()
        .enumerate()
        .filter_map(|(index, column)| {
            let run = of(transfers, path, column).next()?;
            let start = run.sender.start;
            Some(plot::Line {
                name: column.title().to_owned(),
                points: run
                    .receiver
                    .series
                    .iter()
                    .map(|point| (point.0 - start, point.1 as f64 / 1024.0))
                    .collect(),
                colour: plot::colour(index),
            })
        })
        .collect();
    plot::over_time(
        &out.join(format!("drs-buffers-{name}.svg")),
        &format!("receive buffer, 128 MB over the {name} path"),
        "KB",
        &lines,
    )
}

fn fairness_table(text: &mut String, crowds: &[Crowd]) {
    if crowds.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "## 200 connections under one budget\n\n50 connections each at 10, 50, 150 and 300 ms over one bottleneck of 500 Mbit/s, CUBIC, 25 s after 15 s to settle. The receiver has so much for all buffers, as the kernel accounts them.\n\n| budget, MB | sharing | seed | total, Mbit/s | at 10 ms | 50 ms | 150 ms | 300 ms | Jain's index of goodput | buffers mean, MB | valid |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for run in crowds {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {} | {:.3} | {:.1} | {} |",
            run.budget_mb,
            match run.sharing {
                Sharing::Equal => "equal fixed shares",
                Sharing::Budget => "paper+ under a budget",
            },
            run.seed,
            run.rates.iter().sum::<f64>(),
            by_distance(&run.rates, &run.round_trips_ms),
            jain(&run.rates),
            run.buffers_mean / 1048576.0,
            if run.valid {
                "yes".to_owned()
            } else {
                run.invalid_because.join("; ")
            },
        );
    }
    text.push('\n');
}

/// The total of each distance, Mbit/s, as cells.
fn by_distance(rates: &[f64], round_trips: &[u32]) -> String {
    let cells = crowd::SENDERS.map(|(_, distance)| {
        let of = rates.iter().zip(round_trips).filter(|(_, rtt)| **rtt == distance);
        format!("{:.1}", of.map(|(rate, _)| rate).sum::<f64>())
    });
    cells.join(" | ")
}

fn friendly_table(text: &mut String, besides: &[Beside]) {
    if besides.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "## Beside stock flows\n\nFour flows of each kind, 60 s over 36 Mbit/s and 102.1 ms. The share of the first kind in what all carried (0.5 is even); the stock flows are autotuned by the kernel. \"kernel\" beside stock is the same twice, and shows the noise.\n\n| flows | reno | cubic | bbr |\n|---|---|---|---|"
    );
    for column in [Column::Kernel, Column::Auto, Column::Classic, Column::PaperPlus] {
        let cell = |congestion: &str| {
            let shares: Vec<f64> = besides
                .iter()
                .filter(|run| run.column == column && run.congestion == congestion)
                .map(Beside::share)
                .collect();
            Spread::of(&shares).map_or("-".into(), |spread| {
                format!(
                    "{:.3} ({:.3}..{:.3}, {} runs)",
                    spread.median, spread.min, spread.max, spread.count
                )
            })
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            column.title(),
            cell("reno"),
            cell("cubic"),
            cell("bbr")
        );
    }
    text.push('\n');
}
