//! The confusion matrix as a table, as JSON and as a picture.

use std::collections::BTreeMap;

use anyhow::Result;
use drs::Limit;
use plotters::prelude::*;

use super::{Cell, Observation, truth};
use crate::columns::Columns;
use crate::page::{Figure, Page, Table};
use crate::plot;
use crate::runs::Runs;
use crate::single::Basis;

/// Number of intervals for each verdict.
pub type Judgements = BTreeMap<String, u32>;

/// Returns the best possible verdict of the receiver on a flow that `class` limits.
pub fn seen_by_receiver(class: Limit) -> Limit {
    match class {
        Limit::SendingApplication | Limit::SendBuffer | Limit::Pacing | Limit::Growing => {
            Limit::Sender
        }
        other => other,
    }
}

/// One row: a class under one congestion control, or under all.
struct Row {
    class: Limit,
    congestion: Option<&'static str>,
    counts: Judgements,
}

impl Row {
    fn total(&self) -> u32 {
        self.counts.values().sum()
    }

    fn share(&self, limit: Limit) -> f64 {
        f64::from(self.counts.get(limit.as_str()).copied().unwrap_or(0))
            / f64::from(self.total().max(1))
    }
}

/// Returns the rows of a table: each class, followed by its congestion controls.
fn rows(runs: &Runs<'_, Cell, Observation>, of: impl Fn(&Observation) -> &Judgements) -> Vec<Row> {
    let mut rows = vec![];
    for class in truth::CLASSES {
        let congestions = truth::congestions(class).iter().copied().map(Some);
        for congestion in std::iter::once(None).chain(congestions) {
            let mut counts = Judgements::new();
            let fitting = runs.pick(|cell| {
                cell.limited_by == class.as_str()
                    && congestion.is_none_or(|name| name == cell.congestion)
            });
            for (word, count) in fitting.iter().flat_map(|record| of(&record.seen)) {
                *counts.entry(word.clone()).or_default() += count;
            }
            rows.push(Row {
                class,
                congestion,
                counts,
            });
        }
    }
    rows
}

fn table(rows: &[Row], verdicts: &[Limit], expected: impl Fn(Limit) -> Limit) -> Table {
    let mut table = Columns::of(rows.iter().filter(|row| row.total() > 0))
        .text("limited by", |row| match row.congestion {
            None => format!("**{}**", row.class),
            Some(_) => String::new(),
        })
        .text("congestion control", |row| row.congestion.unwrap_or("all"))
        .text("intervals", |row| row.total())
        .text("right", |row| {
            format!("**{:.1} %**", 100.0 * row.share(expected(row.class)))
        });
    for verdict in verdicts {
        table = table.text(verdict.to_string(), move |row| {
            let count = row.counts.get(verdict.as_str());
            count.map_or_else(String::new, u32::to_string)
        });
    }
    table.table()
}

/// Returns the page of results.
pub fn page(runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
    let without_sender: Vec<Limit> = Limit::ALL
        .into_iter()
        .filter(|limit| *limit != Limit::Sender)
        .collect();
    let (sending, receiving) = (
        rows(runs, |seen| &seen.sending),
        rows(runs, |seen| &seen.receiving),
    );
    Ok(Page::new(HEAD)
        .heading("From the sending side")
        .table(&table(&sending, &without_sender, |class| class))
        .plot(
            "classify",
            plot::drawn("verdicts", |svg| draw(svg, &sending))?,
        )
        .heading("From the receiving side")
        .paragraph(RECEIVING)
        .table(&table(&receiving, &Limit::ALL, seen_by_receiver)))
}

/// Returns the share of correct verdicts for each class.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let classes = |rows: Vec<Row>| {
        rows.into_iter()
            .filter(|row| row.congestion.is_none() && row.total() > 0)
    };
    let of_side = |side: &'static str, rows: Vec<Row>, expected: fn(Limit) -> Limit| {
        classes(rows).map(move |row| {
            let (key, title) = (
                format!("{side}-{}", row.class.as_str()),
                format!("verdict right, {side} side, limited by {}", row.class),
            );
            let share = format!("{:.1} %", 100.0 * row.share(expected(row.class)));
            Figure::new(key, title, share, Basis::Counted)
        })
    };
    let sending = || rows(runs, |seen| &seen.sending);
    let receiving = rows(runs, |seen| &seen.receiving);
    let right = |row: &Row| row.share(row.class);
    let least = classes(sending()).min_by(|a, b| right(a).total_cmp(&right(b)));
    let least = least.map(|row| {
        let text = format!("`{}`, with {:.1} %", row.class, 100.0 * right(&row));
        Figure::quoted("least", text, Basis::Counted)
    });
    let flows = runs.pick(|_| true).len().to_string();
    of_side("sending", sending(), |class| class)
        .chain(of_side("receiving", receiving, seen_by_receiver))
        .chain(least)
        .chain([Figure::quoted("flows", flows, Basis::Counted)])
        .collect()
}

const HEAD: &str = "Each flow was built so that one thing limits it
(`scenarios/classify.toml` and `crates/figures/src/experiments/classify/truth.rs` say how), its \
numbers drawn by its seed: round trip, rate, queue, and the rate, buffer or
loss that makes the limit. A row counts verdicts on the intervals of the flows' steady part: from \
3 s or ten round trips on,
whichever is later; for growing flows from the second round trip until doubling the window every \
round trip would have filled half of
the path.

";

const RECEIVING: &str = "The receiving side cannot tell the sending program, its send buffer, its \
    pacing and a growing window apart: `sender` is right for all four.
BBR keeps next to no queue, so a full path under BBR looks to the receiver like a sender that \
sends no faster.

";

/// Draws the matrix as shades: one row per class, one column per verdict.
fn draw(svg: &mut String, rows: &[Row]) -> plot::Drawing {
    const LEFT: i32 = 210;
    const TOP: i32 = 60;
    const CELL: (i32, i32) = (88, 34);
    let rows: Vec<&Row> = rows.iter().filter(|row| row.congestion.is_none()).collect();
    let size = (
        LEFT + CELL.0 * truth::CLASSES.len() as i32 + 12,
        TOP + CELL.1 * rows.len() as i32 + 12,
    );
    let canvas = SVGBackend::with_string(svg, (size.0.cast_unsigned(), size.1.cast_unsigned()))
        .into_drawing_area();
    canvas.fill(&WHITE)?;
    let label = ("sans-serif", 12);
    canvas.draw(&Text::new(
        "built limit (row), verdict (column), % of steady intervals",
        (12, 10),
        ("sans-serif", 15),
    ))?;
    for (column, verdict) in truth::CLASSES.into_iter().enumerate() {
        let x = LEFT + CELL.0 * column as i32;
        let (first, second) = verdict
            .as_str()
            .split_once('-')
            .unwrap_or((verdict.as_str(), ""));
        canvas.draw(&Text::new(first.to_owned(), (x + 4, TOP - 28), label))?;
        canvas.draw(&Text::new(second.to_owned(), (x + 4, TOP - 15), label))?;
        for (line, row) in rows.iter().enumerate() {
            let y = TOP + CELL.1 * line as i32;
            let share = row.share(verdict);
            let colour = if row.class == verdict { BLUE } else { RED };
            let corners = [(x, y), (x + CELL.0 - 2, y + CELL.1 - 2)];
            canvas.draw(&Rectangle::new(
                corners,
                colour.mix(0.04 + 0.6 * share).filled(),
            ))?;
            if share > 0.0 {
                canvas.draw(&Text::new(
                    format!("{:.1}", 100.0 * share),
                    (x + 28, y + 10),
                    label,
                ))?;
            }
        }
    }
    for (line, row) in rows.iter().enumerate() {
        let y = TOP + CELL.1 * line as i32 + 10;
        canvas.draw(&Text::new(
            format!("{} ({})", row.class, row.total()),
            (12, y),
            label,
        ))?;
    }
    canvas.present()?;
    Ok(())
}
