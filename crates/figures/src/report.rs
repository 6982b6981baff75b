//! What is written: the list of runs as JSON, and `docs/results/` with its tables and plots.

use crate::plan::{self, TUNED_BYTES, TUNED_BYTES_10S, UNTUNED_BYTES};
use crate::plot::{self, Curve, Strip};
use crate::record::Run;
use crate::setting::{self, Mnemonic, Setting, Way};
use crate::{paper, table};
use anyhow::{Context, Result};
use plotters::style::RGBColor;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Writes the list of runs, one a line, so that a change of one run is one line of a diff.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, runs: &[impl serde::Serialize]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    let lines: Vec<String> = runs.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    // Beside it and renamed, so that whoever is cut short has lost nothing.
    let part = path.with_extension("json.part");
    fs::write(&part, format!("[\n{}\n]\n", lines.join(",\n")))
        .with_context(|| format!("cannot write {}", part.display()))?;
    fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a list of runs; a file that is not there is an empty list.
///
/// # Errors
/// The file is there and cannot be read, or does not parse.
pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    match fs::read(path) {
        Ok(text) => {
            serde_json::from_slice(&text).with_context(|| format!("{} does not parse", path.display()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Writes tables and plots of all runs in `runs.json` of `out`.
///
/// # Errors
/// A file cannot be read or written.
pub fn render(out: &Path) -> Result<()> {
    let runs: Vec<Run> = read(&out.join("runs.json"))?;
    let mut text = String::from(HEAD);
    text.push_str("## LSL: rate by size\n\n");
    for (setting, name) in [
        (setting::anl_utk(), "lsl-path1"),
        (setting::ucsd_utk(), "lsl-path2"),
        (setting::ucsd_utk_64k(), "lsl-path2-64k"),
    ] {
        if runs.iter().any(|run| run.scenario == setting.id) {
            text.push_str(&table::by_size(&setting, &runs, &paper::LSL_SIZES));
            let _ = writeln!(text, "![{name}]({name}.svg)\n");
            plot::rate_by_size(
                &out.join(format!("{name}.svg")),
                setting.title,
                &curves(&setting, &runs),
            )?;
        }
    }
    text.push_str("## MNEMONIC and the clean path: one stream, median of paired seeds, Mbit/s\n\n");
    text.push_str(table::RATIO_HEAD);
    let mut strips = vec![];
    for (setting, bytes) in ratio_settings() {
        if let Some(row) = table::ratio_row(&setting, &runs, bytes) {
            text.push_str(&row);
            strips.push(Strip {
                name: format!("{} {}", setting.id, table::size(bytes)),
                ratios: table::paired_ratios(&runs, setting.id, bytes),
            });
        }
    }
    if !strips.is_empty() {
        plot::ratio_strips(
            &out.join("ratios.svg"),
            "through depots against direct, paired by seed",
            &strips,
        )?;
        text.push_str("\n![ratios](ratios.svg)\n\n");
    }
    text.push_str("## Validity\n\n");
    text.push_str(&table::validity(&runs));
    fs::write(out.join("README.md"), text).with_context(|| format!("cannot write into {}", out.display()))
}

const BEGIN: &str = "<!-- figures: written by `make figures` -->\n";
const END: &str = "<!-- /figures -->";

/// Puts the short table between the marks of the project's README, where `path` has them.
///
/// # Errors
/// The file has no marks, or cannot be written.
pub fn put_into_readme(path: &Path, runs: &[Run]) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let marks = text
        .find(BEGIN)
        .zip(text.find(END))
        .map(|(begin, end)| (begin + BEGIN.len(), end));
    let (begin, end) = marks.with_context(|| format!("{} has no marks for the figures", path.display()))?;
    let (before, after) = (
        text.get(..begin).unwrap_or_default(),
        text.get(end..).unwrap_or_default(),
    );
    fs::write(
        path,
        format!("{before}{}{after}", table::short(&short_settings(), runs)),
    )
    .with_context(|| format!("cannot write {}", path.display()))
}

/// The rows of the README: the LSL paths at their largest size, then all ratios.
fn short_settings() -> Vec<(Setting, u64)> {
    let largest = paper::LSL_SIZES[paper::LSL_SIZES.len() - 1];
    let mut rows = vec![(setting::anl_utk(), largest), (setting::ucsd_utk(), largest)];
    rows.extend(ratio_settings());
    rows
}

const HEAD: &str = "# Results

Written by `make figures`; every run is in [runs.json](runs.json). Rates are goodput of `longhaul cp` with one stream, set-up,
TLS and verification included; direct and depot runs share their seeds. Losses and where they come from are in each scenario file.

";

/// The rows of the table of ratios, each with its size.
fn ratio_settings() -> Vec<(Setting, u64)> {
    let mut rows: Vec<_> = [Mnemonic::Short, Mnemonic::Long]
        .map(|path| (setting::mnemonic_untuned(path), UNTUNED_BYTES))
        .into();
    for path in [Mnemonic::Short, Mnemonic::Long] {
        for congestion in plan::CONGESTION {
            let setting = setting::mnemonic_tuned(path, congestion);
            rows.extend([TUNED_BYTES, TUNED_BYTES_10S].map(|bytes| (setting.clone(), bytes)));
        }
    }
    rows.push((setting::clean_long(), TUNED_BYTES));
    rows
}

fn curves(setting: &Setting, runs: &[Run]) -> Vec<Curve> {
    const COLOURS: [(Way, RGBColor); 2] = [
        (Way::Direct, RGBColor(200, 60, 40)),
        (Way::Depots, RGBColor(30, 90, 200)),
    ];
    let mut curves = vec![];
    for (way, colour) in COLOURS {
        let measured: Vec<(u64, f64)> = paper::LSL_SIZES
            .into_iter()
            .filter_map(|bytes| Some((bytes, table::rates(runs, setting.id, way, bytes)?.mean)))
            .collect();
        curves.push(Curve {
            name: format!("{}, measured", way.word()),
            points: measured,
            colour,
            from_paper: false,
        });
        if let Some(paper) = setting.paper {
            let points = paper
                .points
                .iter()
                .map(|(bytes, direct, depots)| (*bytes, if way == Way::Direct { *direct } else { *depots }));
            curves.push(Curve {
                name: format!("{}, paper", way.word()),
                points: points.collect(),
                colour,
                from_paper: true,
            });
        }
    }
    curves
}
