//! `longhaul accounts`: totals of the records that servers, depots and off-ramps keep.

mod options;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use jiff::{SignedDuration, Timestamp, Zoned};
use longhaul_accounts::read::read_records;
use longhaul_accounts::totals::{Grouping, Total, Totals};
use longhaul_output::message;
use quantities::{ByteCount, Time};

use crate::exit::Exit;
use crate::{answer, logging, moment};
pub use options::{AccountsOptions, flush, metrics};

/// Columns after those of the groupings.
const TOTAL_COLUMNS: [&str; 5] = ["copies", "sessions", "incomplete", "files", "bytes"];

/// Show totals of copies and sessions, by key and month.
///
/// The records are those of `--accounts` of longhaul serve, depot and offramp, in the file and in
/// its rotated ones. Months and days are in UTC.
#[derive(Args)]
pub struct AccountsCommand {
    /// The file of the service's --accounts.
    #[arg(
        value_name = "FILE",
        default_value = "/var/log/longhaul/accounts.jsonl"
    )]
    file: PathBuf,
    /// What to group by, in this order: key, month, day, service, direction, result, from, rule or
    /// destination.
    #[arg(
        long,
        value_name = "WHAT[,WHAT...]",
        value_delimiter = ',',
        default_values_t = [Grouping::Key, Grouping::Month]
    )]
    by: Vec<Grouping>,
    /// Only what ended at this time or later: 2026-11-01, 2026-11-01T12:00:00Z, or an age such as
    /// '30 d'.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only what ended before this time.
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Only the records of this key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print the records themselves, as lines of JSON.
    #[arg(long, conflicts_with_all = ["by", "json"])]
    records: bool,
    /// Print each group as one JSON object.
    #[arg(long)]
    json: bool,
}

impl AccountsCommand {
    /// Reads the records, and prints their totals.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        let now = Zoned::now();
        let read = |when: &Option<String>| when.as_ref().map(|when| past(when, &now)).transpose();
        let (since, until) = (read(&self.since)?, read(&self.until)?);
        let mut totals = Totals::by(&self.by);
        let damaged = read_records(&self.file, |record| {
            let ended = record.time().ended;
            let is_wanted = since.is_none_or(|since| ended >= since)
                && until.is_none_or(|until| ended < until)
                && self.key.as_ref().is_none_or(|key| key == record.key());
            if !is_wanted {
                return;
            }
            match self.records {
                true => {
                    let line = record.line();
                    answer::write_line(String::from_utf8_lossy(&line).trim_end());
                }
                false => totals.add(&record),
            }
        })?;
        match (self.records, self.json) {
            (true, _) => {}
            (false, true) => print_json(&totals)?,
            (false, false) => print_table(&totals),
        }
        if damaged > 0 {
            message!("longhaul: {damaged} damaged lines were left out; a crash may cut a line off");
        }
        Ok(Exit::Success)
    }
}

/// Parses a moment in the past: an age, or a moment as elsewhere.
fn past(text: &str, now: &Zoned) -> Result<Timestamp> {
    let age = Time::with_unit(text.trim()).ok();
    let age = age.and_then(|age| SignedDuration::try_from(age.0).ok());
    if let Some(moment) = age.and_then(|age| now.timestamp().checked_sub(age).ok()) {
        return Ok(moment);
    }
    let moment = moment::read(text, now).map_err(|error| anyhow!("{text:?}: {error}"))?;
    Ok(moment.timestamp())
}

fn print_json(totals: &Totals) -> Result<()> {
    for (values, total) in totals.groups() {
        let mut group = serde_json::Map::new();
        for (grouping, value) in totals.groupings().iter().zip(values) {
            group.insert(grouping.word().to_owned(), value.as_str().into());
        }
        if let serde_json::Value::Object(total) = serde_json::to_value(total)? {
            group.extend(total);
        }
        answer::write_line(serde_json::Value::Object(group));
    }
    Ok(())
}

/// Prints a line for each group, and one for all of them together.
fn print_table(totals: &Totals) {
    let words = totals.groupings().iter().map(|grouping| grouping.word());
    let mut rows: Vec<Vec<String>> = vec![words.chain(TOTAL_COLUMNS).map(str::to_owned).collect()];
    rows.extend(totals.groups().map(|(values, total)| row(values, total)));
    let mut all = vec![String::new(); totals.groupings().len()];
    if let Some(first) = all.first_mut() {
        *first = "all".to_owned();
    }
    rows.push(row(&all, totals.all()));
    for line in aligned(&rows, totals.groupings().len()) {
        answer::write_line(line);
    }
}

fn row(values: &[String], total: &Total) -> Vec<String> {
    let counts = [total.copies, total.sessions, total.incomplete, total.files];
    let counts = counts.iter().map(u64::to_string);
    let bytes = ByteCount(total.bytes).to_string();
    values
        .iter()
        .cloned()
        .chain(counts)
        .chain([bytes])
        .collect()
}

/// Formats rows with columns of equal width: the first ones left-aligned, the others right-aligned.
fn aligned(rows: &[Vec<String>], left_columns: usize) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let cell = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().map(|row| cell(row, at)).max().unwrap_or(0))
        .collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(at, (cell, width))| match at < left_columns {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_equal_width() {
        let rows = [["key", "bytes"], ["lhk1:A", "7 B"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows, 1), ["key     bytes", "lhk1:A    7 B"]);
    }

    #[test]
    fn times_in_the_past_are_dates_or_ages() {
        let now: Zoned = "2026-11-25T12:30:00+01:00[Europe/Zurich]".parse().unwrap();
        for (text, expected) in [
            ("30 d", "2026-10-26T11:30:00Z"),
            ("90min", "2026-11-25T10:00:00Z"),
            ("2026-11-01", "2026-10-31T23:00:00Z"),
            ("2026-11-01T12:00:00Z", "2026-11-01T12:00:00Z"),
        ] {
            let found = past(text, &now).unwrap().to_string();
            assert_eq!(found, expected, "{text}");
        }
        assert!(past("long ago", &now).is_err());
    }
}
