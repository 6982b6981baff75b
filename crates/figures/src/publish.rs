//! Writes what is made of all runs: a page for each experiment, the index, and the figures that documents quote. Or says what differs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::experiments;
use crate::listed::Rendered;
use crate::marks;
use crate::page::{Page, Table};
use crate::store::replace;

/// What files should hold.
#[derive(Default)]
struct Wanted {
    files: Vec<(PathBuf, String)>,
    /// Figures that documents quote and that there are not.
    missing: Vec<String>,
}

/// Writes pages, index and quoted figures. What a document quotes and no run shows stays as it is.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(out: &Path, documents: &[PathBuf]) -> Result<()> {
    let wanted = all(out, documents)?;
    for (path, text) in &wanted.files {
        replace(path, text)?;
    }
    if !wanted.missing.is_empty() {
        eprintln!("quoted, and not measured yet: {}", wanted.missing.join(", "));
    }
    Ok(())
}

/// Compares what would be written with what is there.
///
/// # Errors
/// A file differs, or quotes a figure that there is not: it is named.
pub fn check(out: &Path, documents: &[PathBuf]) -> Result<()> {
    let wanted = all(out, documents)?;
    if !wanted.missing.is_empty() {
        bail!(
            "there are no figures for {}: measure them, or mend their names",
            wanted.missing.join(", ")
        );
    }
    let differing: Vec<String> = wanted
        .files
        .iter()
        .filter(|(path, text)| fs::read(path).ok().as_deref() != Some(text.as_bytes()))
        .map(|(path, _)| path.display().to_string())
        .collect();
    if !differing.is_empty() {
        bail!(
            "not what the runs say: {}; write them with `longhaul-figures figures all --render`",
            differing.join(", ")
        );
    }
    println!("{} files say what the runs say", wanted.files.len());
    Ok(())
}

fn all(out: &Path, documents: &[PathBuf]) -> Result<Wanted> {
    let mut rendered = Vec::new();
    for experiment in experiments::all() {
        rendered.extend(experiment.render(out).with_context(|| experiment.name())?);
    }
    let mut wanted = Wanted::default();
    let files = &mut wanted.files;
    files.push((out.join("README.md"), index(&rendered)));
    for one in &rendered {
        files.push((out.join(format!("{}.md", one.name)), ended(&one.page.text)));
        let plots = one.page.plots.iter();
        files.extend(plots.map(|(name, svg)| (out.join(name), svg.clone())));
    }
    for document in documents {
        let text =
            fs::read_to_string(document).with_context(|| format!("cannot read {}", document.display()))?;
        let quote = |name: &str, key: &str| {
            let one = rendered.iter().find(|one| one.name == name)?;
            one.quote(key).map(str::to_owned)
        };
        let (text, missing) = marks::fill(&text, quote).with_context(|| document.display().to_string())?;
        files.push((document.clone(), text));
        wanted.missing.extend(missing);
    }
    Ok(wanted)
}

/// With one line end at its end.
fn ended(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

fn index(rendered: &[Rendered]) -> String {
    let mut table = Table::new(["experiment", "shows", "runs that count", "made"]);
    for one in rendered {
        table.row([
            format!("[{}]({}.md)", one.name, one.name),
            one.title.to_owned(),
            format!("{} of {}", one.runs.0, one.runs.1),
            format!("{} from {}", one.made.1, one.made.0),
        ]);
    }
    let mut figures = Table::new(["experiment", "figure", "value"]);
    for one in rendered {
        for figure in one.figures.iter().filter(|figure| !figure.title.is_empty()) {
            figures.row([one.name, &figure.title, &figure.text]);
        }
    }
    ended(
        &Page::new(INDEX_HEAD)
            .table(&table)
            .heading("Figures")
            .paragraph("Medians, with the least and the greatest run; the pages have the tables.")
            .table(&figures)
            .text,
    )
}

const INDEX_HEAD: &str = "# Results

Written by `longhaul-figures figures`. `longhaul-figures figures all` measures everything anew, `longhaul-figures figures NAME` one experiment,
and `--render` writes these pages again from the runs that are there.";
