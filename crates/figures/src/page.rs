//! Pages: text, tables and plots, as an experiment makes them.

use std::fmt::{Display, Write as _};

use anyhow::Result;
use serde::{Serialize, Serializer};

use crate::single::{Basis, SINGLE};
use crate::stats::Spread;

/// Report of an experiment on its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Markdown.
    pub text: String,
    /// Plots: file name and SVG.
    pub plots: Vec<(String, String)>,
}

impl Page {
    /// Makes a page that begins with this paragraph.
    pub fn new(text: &str) -> Self {
        Self::default().paragraph(text)
    }

    /// Adds a heading.
    #[must_use]
    pub fn heading(self, text: &str) -> Self {
        self.paragraph(&format!("## {text}"))
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn paragraph(mut self, text: &str) -> Self {
        let _ = write!(self.text, "{}\n\n", text.trim_end());
        self
    }

    /// Adds a table, unless it has no rows.
    #[must_use]
    pub fn table(self, table: &Table) -> Self {
        if table.is_empty() {
            return self;
        }
        self.paragraph(&table.markdown())
    }

    /// Adds the files of plots that the text shows already.
    #[must_use]
    pub fn with_plots<T: Display>(mut self, plots: impl IntoIterator<Item = (T, String)>) -> Self {
        let files = plots.into_iter();
        self.plots
            .extend(files.map(|(name, svg)| (format!("{name}.svg"), svg)));
        self
    }

    /// Adds a plot in its own file.
    #[must_use]
    pub fn plot(mut self, name: &str, svg: String) -> Self {
        self.plots.push((format!("{name}.svg"), svg));
        self.paragraph(&format!("![{name}]({name}.svg)"))
    }
}

/// A table, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these heads.
    pub fn new<T: ToString>(heads: impl IntoIterator<Item = T>) -> Self {
        Self {
            heads: heads.into_iter().map(|head| head.to_string()).collect(),
            rows: vec![],
        }
    }

    /// Adds a row.
    pub fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows
            .push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// Returns true if it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as Markdown. Characters that would end a cell are escaped.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = line(&self.heads);
        let _ = writeln!(text, "|{}", "---|".repeat(self.heads.len()));
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
}

/// In a template, a table is its Markdown.
impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.is_empty() {
            true => serializer.serialize_str(""),
            false => serializer.serialize_str(&self.markdown()),
        }
    }
}

/// A figure that documents quote by its key.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Key of the figure, unique in the experiment.
    pub key: String,
    /// Title, as the head of a row; empty if the figure is only quoted.
    pub title: String,
    /// The figure. One that rests on one run is marked as such.
    pub text: String,
    /// Runs on which the figure rests.
    pub basis: Basis,
}

impl Figure {
    /// Makes a figure for the index, which is also compared under noise.
    pub fn new(
        key: impl Into<String>,
        title: impl Into<String>,
        text: impl Into<String>,
        basis: Basis,
    ) -> Self {
        Self {
            key: key.into(),
            title: title.into(),
            text: basis.mark(text.into()),
            basis,
        }
    }

    /// Makes a figure for the index from the median of a spread, with `digits` digits after the
    /// point. `None` if there is no spread.
    pub fn median(
        key: impl Into<String>,
        title: impl Into<String>,
        value: Option<Spread>,
        digits: usize,
    ) -> Option<Self> {
        let value = value?;
        let text = format!("{:.digits$}", value.median);
        Some(Self::new(key, title, text, value.basis()))
    }

    /// Makes a text that only documents quote.
    pub fn quoted(key: impl Into<String>, text: impl Into<String>, basis: Basis) -> Self {
        Self::new(key, "", text, basis)
    }
}

/// Formats a spread in a cell: the median, the minimum and the maximum, with `digits` digits after
/// the point. A single run's value is marked as single; `-` means that there is none.
pub fn cell(spread: Option<Spread>, digits: usize) -> String {
    ranged(spread, |spread| spread.median, digits, "")
}

/// The same in percent, with one digit after the point.
pub fn percent(spread: Option<Spread>) -> String {
    ranged(spread, |spread| spread.median, 1, " %")
}

/// The same of means, because the papers print averages.
pub fn mean(spread: Option<Spread>, digits: usize) -> String {
    ranged(spread, |spread| spread.mean, digits, "")
}

/// Formats a median in a cell, without minimum and maximum. A single run's value is marked as
/// single.
pub fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| spread.basis().mark(format!("{:.digits$}", spread.median)),
    )
}

fn ranged(spread: Option<Spread>, middle: fn(&Spread) -> f64, digits: usize, unit: &str) -> String {
    let Some(spread) = spread else {
        return "-".to_owned();
    };
    let (value, Spread { min, max, .. }) = (middle(&spread), spread);
    match spread.is_single() {
        true => format!("{value:.digits$}{unit} ({SINGLE})"),
        false => format!("{value:.digits$}{unit} ({min:.digits$}..{max:.digits$})"),
    }
}

/// Formats a number in a cell, with `digits` digits after the point; `-` means that there is none.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_tables_vanish_and_cells_cannot_end_their_row() {
        let mut table = Table::new(["a", "b"]);
        assert_eq!(Page::default().table(&table).text, "");
        table.row(["1", "x|y"]);
        assert_eq!(table.markdown(), "| a | b |\n|---|---|\n| 1 | x\\|y |\n");
    }

    #[test]
    fn a_spread_shows_its_ends() {
        let spread = Spread::from_samples(&[0.1, 0.3, 0.2]);
        assert_eq!(cell(spread, 1), "0.2 (0.1..0.3)");
        assert_eq!(percent(spread), "0.2 % (0.1..0.3)");
        assert_eq!(median(spread, 1), "0.2");
        assert_eq!(cell(None, 1), "-");
    }

    #[test]
    fn one_run_is_no_median_and_has_no_spread() {
        let one = Spread::from_samples(&[0.2]);
        assert_eq!(cell(one, 1), "0.2 (single)");
        assert_eq!(mean(one, 1), "0.2 (single)");
        assert_eq!(median(one, 1), "0.2 (single)");
        assert_eq!(percent(one), "0.2 % (single)");
    }
}
