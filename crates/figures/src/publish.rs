//! Writes the documents of all runs: a page for each experiment, the index, and the quoted figures.
//! Alternatively reports the differences.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::comparison::{self, Comparison};
use crate::experiments;
use crate::history::LostCommits;
use crate::listed::Rendered;
use crate::marks;
use crate::page::{Page, Table};
use crate::single::unmarked;
use crate::store::replace;

/// Name under which documents quote totals over all experiments.
const ALL: &str = "all";

/// Expected contents of files.
#[derive(Default)]
struct Wanted {
    files: Vec<(PathBuf, String)>,
    /// Quoted figures that do not exist.
    missing: Vec<String>,
    /// Places that present a single run as a median.
    unmarked: Vec<String>,
}

/// Writes pages, index and quoted figures. Quoted figures without runs stay unchanged.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(out: &Path, documents: &[PathBuf]) -> Result<()> {
    let wanted = all(out, documents)?;
    for (path, text) in &wanted.files {
        replace(path, text)?;
    }
    if !wanted.missing.is_empty() {
        eprintln!(
            "quoted, and not measured yet: {}",
            wanted.missing.join(", ")
        );
    }
    Ok(())
}

/// Compares the expected contents with the files.
///
/// # Errors
/// A file differs, quotes a figure that does not exist, or presents one run as a median. The error
/// names it.
pub fn check(out: &Path, documents: &[PathBuf]) -> Result<()> {
    let wanted = all(out, documents)?;
    if !wanted.missing.is_empty() {
        bail!(
            "there are no figures for {}: measure them, or correct their names",
            wanted.missing.join(", ")
        );
    }
    if !wanted.unmarked.is_empty() {
        bail!(
            "one run passes for a median: {}; mark it as single, or measure more seeds",
            wanted.unmarked.join("; ")
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
    let experiments = experiments::all();
    let lost = LostCommits::find(out, experiments.iter().map(|one| one.name()))?;
    for experiment in experiments {
        rendered.extend(
            experiment
                .render(out, &lost)
                .with_context(|| experiment.name())?,
        );
    }
    let mut wanted = Wanted {
        unmarked: rendered.iter().flat_map(unmarked_figures).collect(),
        ..Wanted::default()
    };
    let totals = Totals::from_rendered(&rendered);
    let files = &mut wanted.files;
    files.push(lost.list(out)?);
    files.push((out.join("README.md"), index(&rendered, &totals)));
    for one in &rendered {
        files.push((out.join(format!("{}.md", one.name)), ended(&one.page.text)));
        let plots = one.page.plots.iter();
        files.extend(plots.map(|(name, svg)| (out.join(name), svg.clone())));
    }
    for document in documents {
        let text = fs::read_to_string(document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        let figure =
            |name: &str, key: &str| rendered.iter().find(|one| one.name == name)?.figure(key);
        let quote = |name: &str, key: &str| match name {
            ALL => totals.quote(key),
            _ => figure(name, key).map(|figure| figure.text.clone()),
        };
        let called = marks::called_medians(&text).into_iter().filter(|mark| {
            let figure = mark
                .trim()
                .split_once(' ')
                .and_then(|(name, key)| figure(name, key.trim()));
            figure.is_some_and(|figure| figure.basis.is_single())
        });
        let called = called.map(|mark| format!("{} calls {mark} a median", document.display()));
        wanted.unmarked.extend(called);
        let (text, missing) =
            marks::fill(&text, quote).with_context(|| document.display().to_string())?;
        files.push((document.clone(), text));
        wanted.missing.extend(missing);
    }
    for (path, text) in &wanted.files {
        let found = unmarked(text).into_iter();
        wanted
            .unmarked
            .extend(found.map(|cell| format!("{}: {cell}", path.display())));
    }
    Ok(wanted)
}

/// Returns the figures of an experiment that name a median and rest on one run.
fn unmarked_figures(one: &Rendered) -> Vec<String> {
    let noisy = one.noisy.iter().flat_map(|(_, figures)| figures);
    let figures = one.figures.iter().chain(noisy);
    let wrong = figures.filter(|figure| {
        let claims = format!("{} {}", figure.title, figure.text);
        figure.basis.is_single() && claims.contains("median")
    });
    wrong
        .map(|figure| format!("figure {} {}", one.name, figure.key))
        .collect()
}

/// Totals over all experiments.
struct Totals {
    first: Option<String>,
    extremes: Option<String>,
    behind: String,
    /// Summarises the totals of each experiment.
    parts: String,
}

impl Totals {
    fn from_rendered(rendered: &[Rendered]) -> Self {
        let all: Vec<Comparison> = rendered
            .iter()
            .flat_map(|one| one.comparisons.clone())
            .collect();
        let part = |one: &Rendered| {
            Some(format!(
                "{} in {}",
                comparison::first(&one.comparisons)?,
                one.name
            ))
        };
        Self {
            first: comparison::first(&all),
            extremes: comparison::extremes(&all),
            behind: comparison::behind(&all),
            parts: rendered
                .iter()
                .filter_map(part)
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    fn quote(&self, key: &str) -> Option<String> {
        match key {
            "first" => self.first.clone(),
            "least" => self.extremes.clone(),
            "behind" => self.first.is_some().then(|| self.behind.clone()),
            _ => None,
        }
    }
}

/// Returns the text with exactly one newline at its end.
fn ended(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

fn index(rendered: &[Rendered], totals: &Totals) -> String {
    let mut table = Table::new(["experiment", "shows", "runs that count", "made"]);
    for one in rendered {
        table.row([
            format!("[{}]({}.md)", one.name, one.name),
            one.title.to_owned(),
            format!("{} of {}", one.runs.0, one.runs.1),
            one.made.clone(),
        ]);
    }
    let mut figures = Table::new(["experiment", "figure", "value"]);
    for (title, text) in [
        (
            FIRST,
            totals
                .first
                .as_ref()
                .map(|first| format!("{first}: {}", totals.parts)),
        ),
        (LEAST, totals.extremes.clone()),
        (BEHIND, totals.quote("behind")),
    ] {
        text.into_iter()
            .for_each(|text| figures.row([ALL, title, &text]));
    }
    for one in rendered {
        for figure in one.figures.iter().filter(|figure| !figure.title.is_empty()) {
            figures.row([one.name, &figure.title, &figure.text]);
        }
    }
    ended(
        &Page::new(INDEX_HEAD)
            .table(&table)
            .heading("Figures")
            .paragraph(FIGURES_HEAD)
            .table(&figures)
            .text,
    )
}

const FIRST: &str = "cases beside other programs in which `longhaul cp` is the fastest";

const LEAST: &str =
    "`longhaul cp` by the best of the other programs, in the worst case for it and in the best";

const BEHIND: &str = "cases in which another program is faster, `longhaul cp` by it";

const FIGURES_HEAD: &str = "Medians, with the least and the greatest run. *Single* marks a value \
     that rests on one run: it is no median. The pages have the tables.";

const INDEX_HEAD: &str = "# Results

Written by `longhaul-figures figures`. `longhaul-figures figures all` measures every cell of the \
plan,
`longhaul-figures figures NAME` one experiment, and `--render` writes these pages again from the \
runs
that are there. Runs that a call does not make again stay; each page says which runs are of which
commit. A commit that the history does not have is called unknown: nobody can look up what it
measured (`unknown-commits.json` lists them). [engine](engine.md) is written by `make bench`.";
