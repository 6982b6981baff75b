//! Mark of values that rest on one run, and the check that documents present no such value as a
//! median.

/// Mark of a value that rests on one run. It is no median and has no spread.
pub const SINGLE: &str = "single";

/// Sentence that explains the mark on a page.
pub const LEGEND: &str =
    "*Single* marks a value that rests on one run: it is no median, and its spread is unknown.";

/// Number of runs behind a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A count, a sum or an extreme over all runs, which is no median.
    Counted,
    /// A median, or a value computed from medians, with the least number of runs of any of them.
    Runs(usize),
}

impl Basis {
    /// Returns true if a median of this basis would rest on one run.
    pub const fn is_single(self) -> bool {
        matches!(self, Self::Runs(1))
    }

    /// Adds the mark to a text with this basis, unless the text has one or needs none.
    pub fn mark(self, text: String) -> String {
        if !self.is_single() || text.contains(SINGLE) {
            return text;
        }
        match text.strip_suffix(')') {
            Some(open) => format!("{open}; {SINGLE})"),
            None => format!("{text} ({SINGLE})"),
        }
    }
}

/// Returns the cells of all Markdown tables in `text` that present one run as a median or as a
/// spread, each with its row and its head.
///
/// A table counts its runs in a column or in a row named `runs`. Tables without one are not
/// checked.
pub fn unmarked(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .split(|line| !line.starts_with('|'))
        .filter(|table| table.len() > 2)
        .flat_map(unmarked_in_table)
        .collect()
}

fn unmarked_in_table(lines: &[&str]) -> Vec<String> {
    let heads = cells(lines[0]);
    let rows: Vec<Vec<&str>> = lines[2..].iter().map(|line| cells(line)).collect();
    let column = heads.iter().position(|head| *head == RUNS);
    let row = rows.iter().position(|row| row.first() == Some(&RUNS));
    let mut found = vec![];
    for (y, cells) in rows.iter().enumerate() {
        for (x, cell) in cells.iter().enumerate() {
            let head = heads.get(x).copied().unwrap_or_default();
            let counts = match (column, row) {
                (Some(column), _) if column != x => cells.get(column),
                (None, Some(row)) if row != y && x > 0 => rows[row].get(x),
                _ => None,
            };
            let is_single = counts.is_some_and(|count| count.split('+').all(|one| one == "1"));
            // In a table with a column for each route, the text above states that all values are
            // medians.
            let is_median = is_number(cell) && (column.is_none() || head.contains("median"));
            if is_single && !cell.contains(SINGLE) && (is_median || has_spread(cell)) {
                let name = cells.first().copied().unwrap_or_default();
                found.push(format!("{name}, {head}: {cell}"));
            }
        }
    }
    found
}

/// Name of the column or row that counts the runs.
const RUNS: &str = "runs";

fn cells(line: &str) -> Vec<&str> {
    line.trim()
        .trim_matches('|')
        .split('|')
        .map(str::trim)
        .collect()
}

/// Returns true for `12.3` and `**12.3**`.
fn is_number(cell: &str) -> bool {
    cell.trim_matches('*').parse::<f64>().is_ok()
}

/// Returns true if the cell holds a range in brackets: `(1.0..2.0)`.
fn has_spread(cell: &str) -> bool {
    let mut brackets = cell
        .split('(')
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    brackets.any(|(inner, _)| {
        inner
            .split_once("..")
            .is_some_and(|(low, high)| is_number(low) && is_number(high))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_is_marked_once_and_more_are_not() {
        let mark = |text: &str, runs| Basis::Runs(runs).mark(text.to_owned());
        assert_eq!(mark("96.9 %", 1), "96.9 % (single)");
        assert_eq!(mark("0.94 (122 by 130)", 1), "0.94 (122 by 130; single)");
        assert_eq!(mark("1.0 (single)", 1), "1.0 (single)");
        assert_eq!(mark("96.9 %", 2), "96.9 %");
        assert_eq!(Basis::Counted.mark("7".into()), "7");
    }

    #[test]
    fn median_over_one_run_is_found() {
        let table = "| way | median | Mbit/s | runs |\n|---|---|---|---|\n\
                     | a | 9.0 | 1.0 (1.0..1.0) | 1 |\n\
                     | b | **9.0** | 7 | 1+1 |\n\
                     | c | 9.0 | 1.0 (0.9..1.1) | 1+2 |\n";
        let found = unmarked(table);
        let expected = [
            "a, median: 9.0",
            "a, Mbit/s: 1.0 (1.0..1.0)",
            "b, median: **9.0**",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn columns_that_count_their_runs_in_a_row_are_judged() {
        let table = "| MB | a | b | c |\n|---|---|---|---|\n\
                     | 8 | 3.1 | 3.2 | 3.3 (single) |\n\
                     | runs | 1 | 3 | 1 |\n";
        assert_eq!(unmarked(table), ["8, a: 3.1"]);
    }

    #[test]
    fn marked_cells_and_tables_without_runs_pass() {
        let marked = "| way | median | runs |\n|---|---|---|\n| a | 9.0 (single) | 1 |\n";
        assert!(unmarked(marked).is_empty());
        let uncounted = "| way | median |\n|---|---|\n| a | 9.0 |\n";
        assert!(unmarked(uncounted).is_empty());
    }
}
