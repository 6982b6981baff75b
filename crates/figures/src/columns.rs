//! Tables as declared columns: each names its head, and the value of a row.

use std::fmt::Display;

use crate::measured::Measured;
use crate::page::{Table, cell, number};
use crate::stats::Spread;

/// Text of a row in a column.
type CellText<'a, R> = Box<dyn Fn(&R) -> String + 'a>;

/// Rows, and the columns that show them.
pub struct Columns<'a, R> {
    rows: Vec<R>,
    columns: Vec<(String, CellText<'a, R>)>,
}

impl<'a, R> Columns<'a, R> {
    /// Makes a table with these rows and no columns.
    pub fn of(rows: impl IntoIterator<Item = R>) -> Self {
        Self {
            rows: rows.into_iter().collect(),
            columns: Vec::new(),
        }
    }

    /// Adds a column of texts.
    #[must_use]
    pub fn text<T: Display>(
        mut self,
        head: impl Into<String>,
        text: impl Fn(&R) -> T + 'a,
    ) -> Self {
        let text = Box::new(move |row: &R| text(row).to_string());
        self.columns.push((head.into(), text));
        self
    }

    /// Adds a column of spreads with `digits` digits after the point.
    #[must_use]
    pub fn spread(
        self,
        head: impl Into<String>,
        digits: usize,
        value: impl Fn(&R) -> Option<Spread> + 'a,
    ) -> Self {
        self.text(head, move |row| cell(value(row), digits))
    }

    /// Adds a column of numbers with `digits` digits after the point.
    #[must_use]
    pub fn number<V: Into<Option<f64>>>(
        self,
        head: impl Into<String>,
        digits: usize,
        value: impl Fn(&R) -> V + 'a,
    ) -> Self {
        self.text(head, move |row| number(value(row).into(), digits))
    }

    /// Returns the table.
    pub fn table(self) -> Table {
        let mut table = Table::new(self.columns.iter().map(|(head, _)| head));
        for row in &self.rows {
            table.row(self.columns.iter().map(|(_, text)| text(row)));
        }
        table
    }
}

impl<'a, C, S> Columns<'a, Measured<'_, C, S>> {
    /// Leaves out the rows without runs.
    #[must_use]
    pub fn measured(mut self) -> Self {
        self.rows.retain(|row| row.count() > 0);
        self
    }

    /// Adds a column of the spread of an observation's value over the runs of each row. A run
    /// whose value is `None` does not count.
    #[must_use]
    pub fn column<V: Into<Option<f64>>>(
        self,
        head: impl Into<String>,
        digits: usize,
        value: impl Fn(&S) -> V + 'a,
    ) -> Self {
        self.spread(head, digits, move |row| row.spread(&value))
    }

    /// Adds the column that counts the runs.
    #[must_use]
    pub fn runs(self) -> Self {
        self.text("runs", |row| row.count())
    }
}

#[cfg(test)]
mod tests {
    use crate::runs::Runs;
    use crate::runs::tests::record;

    #[test]
    fn columns_show_the_runs_of_each_row() {
        let records = [
            record("a", 1, Some(2.0), true),
            record("a", 2, Some(4.0), true),
            record("b", 1, None, true),
        ];
        let runs = Runs::select_valid(&records);
        let table = runs
            .table(["a", "b", "c"])
            .measured()
            .text("cell", |row| row.cell)
            .column("value", 1, |seen: &Option<f64>| *seen)
            .runs()
            .table();
        let expected = "| cell | value | runs |\n|---|---|---|\n\
                        | a | 3.0 (2.0..4.0) | 2 |\n| b | - | 1 |\n";
        assert_eq!(table.markdown(), expected);
    }
}
