//! Right-sizing, measured: Figure 4 of the DRS paper, and what it left open.

mod column;
mod crowd;
mod figure4;
pub mod program;
mod publish;

use anyhow::Result;
use clap::ValueEnum;
use std::path::{Path, PathBuf};

/// What to measure.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder for runs, tables and plots.
    #[arg(long, default_value = "docs/results")]
    out: PathBuf,
    /// Which parts; all of them when not given.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Runs of each cell.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Start nothing that would not end within this many seconds; the next call takes up what is missing.
    #[arg(long)]
    within: Option<u64>,
    /// Write tables and plots from the runs that are there, and measure nothing.
    #[arg(long)]
    render: bool,
    /// Measure again what has valid runs.
    #[arg(long)]
    again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Transfers of 1 to 128 MB, by way of sizing.
    Figure4,
    /// 200 connections under one budget.
    Fairness,
    /// Right-sized flows against stock ones on one bottleneck.
    Friendly,
}

/// Measures what has no valid run yet, and publishes.
pub fn run(scenarios: &Path, what: &Arguments) -> Result<()> {
    let parts: &[Part] = if what.only.is_empty() {
        Part::value_variants()
    } else {
        &what.only
    };
    std::fs::create_dir_all(&what.out)?;
    for part in parts.iter().filter(|_| !what.render) {
        match part {
            Part::Figure4 => figure4::measure(scenarios, what)?,
            Part::Fairness => crowd::measure_fairness(what)?,
            Part::Friendly => crowd::measure_friendly(what)?,
        }
    }
    publish::all(&what.out)
}
