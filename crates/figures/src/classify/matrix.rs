//! The confusion matrix: as a table, as JSON, as a picture.

use super::truth;
use anyhow::{Context, Result, anyhow};
use drs::Limit;
use plotters::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// How many intervals got which verdict.
pub type Judgements = BTreeMap<&'static str, u32>;

/// One flow and what was said of it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// What limits it.
    pub class: &'static str,
    /// The sender's congestion control.
    pub congestion: &'static str,
    /// Its seed.
    pub seed: u64,
    /// The path's round trip, in ms.
    pub rtt_ms: f64,
    /// The bottleneck, in Mbit/s.
    pub rate_mbps: f64,
    /// Whether the lab kept up.
    pub valid: bool,
    /// Why not.
    pub invalid_because: Vec<String>,
    /// How often it was made again because the lab did not.
    pub discarded: u32,
    /// Verdicts from the sending side.
    pub sending: Judgements,
    /// Verdicts from the receiving side.
    pub receiving: Judgements,
}

impl Judged {
    /// Whether it is counted: the lab kept up, or other guests of the host took processor time and nothing was late for it.
    fn counts(&self) -> bool {
        self.invalid_because
            .iter()
            .all(|reason| reason.contains("stolen"))
    }
}

/// What the receiving side can say at best of a flow that `class` limits.
pub fn seen_by_receiver(class: Limit) -> Limit {
    match class {
        Limit::SendingApplication | Limit::SendBuffer | Limit::Pacing | Limit::Growing => Limit::Sender,
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
        f64::from(self.counts.get(limit.word()).copied().unwrap_or(0)) / f64::from(self.total().max(1))
    }
}

/// The rows of a table, each class followed by its congestion controls.
fn rows(flows: &[Judged], of: impl Fn(&Judged) -> &Judgements) -> Vec<Row> {
    let mut rows = vec![];
    for class in truth::CLASSES {
        let congestions = truth::congestions(class).iter().copied().map(Some);
        for congestion in std::iter::once(None).chain(congestions) {
            let mut counts = Judgements::new();
            let fitting = flows.iter().filter(|flow| {
                flow.counts()
                    && flow.class == class.word()
                    && congestion.is_none_or(|name| name == flow.congestion)
            });
            for (word, count) in fitting.flat_map(&of) {
                *counts.entry(*word).or_default() += count;
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

fn table(rows: &[Row], verdicts: &[Limit], expected: impl Fn(Limit) -> Limit) -> String {
    let mut text = String::from("| limited by | congestion control | intervals | right |");
    for verdict in verdicts {
        let _ = write!(text, " {verdict} |");
    }
    let _ = writeln!(text, "\n|{}", "---|".repeat(4 + verdicts.len()));
    for row in rows {
        let right = 100.0 * row.share(expected(row.class));
        let (name, congestion) = match row.congestion {
            None => (format!("**{}**", row.class), "all"),
            Some(congestion) => (String::new(), congestion),
        };
        let _ = write!(
            text,
            "| {name} | {congestion} | {} | **{right:.1} %** |",
            row.total()
        );
        for verdict in verdicts {
            match row.counts.get(verdict.word()) {
                Some(count) => _ = write!(text, " {count} |"),
                None => text.push_str("  |"),
            }
        }
        text.push('\n');
    }
    text
}

/// The page of results.
pub fn markdown(flows: &[Judged]) -> String {
    let without_sender: Vec<Limit> = Limit::ALL
        .into_iter()
        .filter(|limit| *limit != Limit::Sender)
        .collect();
    let counted = flows.iter().filter(|flow| flow.counts()).count();
    let stolen = flows.iter().filter(|flow| flow.counts() && !flow.valid).count();
    let discarded: u32 = flows.iter().map(|flow| flow.discarded).sum();
    format!(
        "{HEAD}## From the sending side\n\n{}\n![verdicts from the sending side](classify.svg)\n\n\
         ## From the receiving side\n\n{RECEIVING}{}\n## Validity\n\n\
         {counted} flows of {} count; in {stolen} of them other guests of the host took over 1 % of the processor's time while the lab's own lag and \
         drops stayed within its gate. {discarded} were thrown away and repeated.\n",
        table(&rows(flows, |flow| &flow.sending), &without_sender, |class| class),
        table(
            &rows(flows, |flow| &flow.receiving),
            &Limit::ALL,
            seen_by_receiver
        ),
        flows.len(),
    )
}

const HEAD: &str = "# What limits a flow: how often the verdict is right

Written by `longhaul-figures classify`; every flow is in [classify.json](classify.json). Each flow was built so that one thing limits it
(`scenarios/classify.toml` and `crates/figures/src/classify/truth.rs` say how), its numbers drawn by its seed: round trip, rate, queue, and the rate, buffer or
loss that makes the limit. A row counts verdicts on the intervals of the flows' steady part: from 3 s or ten round trips on,
whichever is later; for growing flows from the second round trip until doubling the window every round trip would have filled half of
the path.

";

const RECEIVING: &str = "The receiving side cannot tell the sending program, its send buffer, its pacing and a growing window apart: `sender` is right for all four.
BBR keeps next to no queue, so a full path under BBR looks to the receiver like a sender that sends no faster.

";

/// Writes the page, the JSON and the plot.
///
/// # Errors
/// A file cannot be written.
pub fn write(out: &Path, flows: &[Judged], text: &str) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let lines: Vec<String> = flows
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<_, _>>()?;
    let put = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    put("classify.md", text)?;
    put("classify.json", &format!("[\n{}\n]\n", lines.join(",\n")))?;
    let plot = out.join("classify.svg");
    draw(&plot, &rows(flows, |flow| &flow.sending))
        .map_err(|error| anyhow!("cannot draw {}: {error}", plot.display()))
}

/// The matrix as shades: a row a class, a column a verdict.
fn draw(path: &Path, rows: &[Row]) -> Result<(), Box<dyn std::error::Error>> {
    const LEFT: i32 = 210;
    const TOP: i32 = 60;
    const CELL: (i32, i32) = (88, 34);
    let rows: Vec<&Row> = rows.iter().filter(|row| row.congestion.is_none()).collect();
    let size = (
        LEFT + CELL.0 * truth::CLASSES.len() as i32 + 12,
        TOP + CELL.1 * rows.len() as i32 + 12,
    );
    let canvas = SVGBackend::new(path, (size.0.cast_unsigned(), size.1.cast_unsigned())).into_drawing_area();
    canvas.fill(&WHITE)?;
    let label = ("sans-serif", 12);
    canvas.draw(&Text::new(
        "built limit (row), verdict (column), % of steady intervals",
        (12, 10),
        ("sans-serif", 15),
    ))?;
    for (column, verdict) in truth::CLASSES.into_iter().enumerate() {
        let x = LEFT + CELL.0 * column as i32;
        let (first, second) = verdict.word().split_once('-').unwrap_or((verdict.word(), ""));
        canvas.draw(&Text::new(first.to_owned(), (x + 4, TOP - 28), label))?;
        canvas.draw(&Text::new(second.to_owned(), (x + 4, TOP - 15), label))?;
        for (line, row) in rows.iter().enumerate() {
            let y = TOP + CELL.1 * line as i32;
            let share = row.share(verdict);
            let colour = if row.class == verdict { BLUE } else { RED };
            let corners = [(x, y), (x + CELL.0 - 2, y + CELL.1 - 2)];
            canvas.draw(&Rectangle::new(corners, colour.mix(0.04 + 0.6 * share).filled()))?;
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
