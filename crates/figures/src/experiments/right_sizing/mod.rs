//! Measurements of right-sizing: Figure 4 of the DRS paper, and its open questions.

pub mod column;
pub mod fairness;
pub mod figure4;
pub mod friendly;
pub mod program;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::dataset;
use crate::record::name;
use crate::tools::Tools;
use column::Column;
use program::EndObservation;

/// Writes the file whose bytes are sent repeatedly.
///
/// # Errors
/// It cannot be written.
fn payload(tools: &Tools) -> Result<PathBuf> {
    let payload = tools.scratch.path().join("payload");
    dataset::sized_file(&payload, 16 << 20, 4)?;
    Ok(payload)
}

/// Returns the command-line word for a column.
fn word(column: Column) -> String {
    name(column)
}

/// Parses the [`End`]s in the last line of a program's output.
fn ends(text: &str) -> Result<Vec<EndObservation>> {
    let line = text
        .lines()
        .rfind(|line| line.starts_with('['))
        .with_context(|| format!("no report came: {text}"))?;
    serde_json::from_str(line).context("a program's report does not parse")
}

/// Returns the goodput of each connection over `seconds`, in Mbit/s.
fn rates(ends: &[EndObservation], seconds: u32) -> Vec<f64> {
    ends.iter()
        .map(|end| end.bytes as f64 * 8.0 / f64::from(seconds) / 1e6)
        .collect()
}
