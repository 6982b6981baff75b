//! Commits of the runs on a page.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::history::LostCommits;
use crate::page::Table;
use crate::record::Record;

/// Set of runs as a product: the values of each factor.
type Product = Vec<BTreeSet<String>>;

/// Returns a table of the runs of each commit. It is empty if one commit made all of them.
pub fn table<C: Serialize, S>(records: &[Record<C, S>], lost: &LostCommits) -> Table {
    let mut table = Table::new(["commit", "made", "runs", "which"]);
    let keys: Vec<BTreeMap<String, String>> =
        records.iter().map(|record| factors(&record.cell)).collect();
    let mut names: Vec<&str> = keys
        .iter()
        .flat_map(BTreeMap::keys)
        .map(String::as_str)
        .collect();
    // Factors that all experiments have come last.
    names.sort_by_key(|name| (["noise", "seed"].contains(name), *name));
    names.dedup();
    let point = |key: &BTreeMap<String, String>| -> Product {
        let value = |name: &&str| key.get(*name).map_or(ABSENT, String::as_str).to_owned();
        names
            .iter()
            .map(|name| BTreeSet::from([value(name)]))
            .collect()
    };
    let points: Vec<Product> = keys.iter().map(point).collect();
    let mut commits = BTreeMap::<(&str, &str), Vec<Product>>::new();
    for (record, point) in records.iter().zip(&points) {
        let made = (record.made.date.as_str(), record.made.commit.as_str());
        commits.entry(made).or_default().push(point.clone());
    }
    let distinct: BTreeSet<&str> = commits.keys().map(|(_, commit)| *commit).collect();
    if distinct.len() < 2 {
        return table;
    }
    let all = points.iter().fold(
        vec![BTreeSet::new(); names.len()],
        |mut all: Product, point| {
            all.iter_mut()
                .zip(point)
                .for_each(|(all, value)| all.extend(value.iter().cloned()));
            all
        },
    );
    for ((date, commit), points) in commits {
        for product in products(points) {
            table.row([
                lost.describe(commit),
                date.to_owned(),
                product
                    .iter()
                    .map(BTreeSet::len)
                    .product::<usize>()
                    .to_string(),
                describe(&names, &product, &all),
            ]);
        }
    }
    table
}

/// Returns the first and the last day of the runs.
pub fn days<C, S>(records: &[Record<C, S>]) -> String {
    let days: BTreeSet<&str> = records
        .iter()
        .map(|record| record.made.date.as_str())
        .collect();
    match (days.first(), days.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (first, _) => first.copied().unwrap_or_default().to_owned(),
    }
}

/// Describes the code of the runs. Several commits are counted.
pub fn commits<C, S>(records: &[Record<C, S>], lost: &LostCommits) -> String {
    let commits: BTreeSet<&str> = records
        .iter()
        .map(|record| record.made.commit.as_str())
        .collect();
    match (commits.len(), commits.first()) {
        (1, Some(commit)) => lost.describe(commit),
        (all, _) => format!("{all} commits, listed below"),
    }
}

/// Summarises the days and the code of the runs.
pub fn summary<C, S>(records: &[Record<C, S>], lost: &LostCommits) -> String {
    let commits: BTreeSet<&str> = records
        .iter()
        .map(|record| record.made.commit.as_str())
        .collect();
    let unknown = commits.iter().filter(|commit| lost.has(commit)).count();
    let code = match (commits.len(), unknown) {
        (1, 0) => commits.first().copied().unwrap_or_default().to_owned(),
        (1, _) => "an unknown commit".to_owned(),
        (all, 0) => format!("{all} commits"),
        (all, unknown) => format!("{all} commits, {unknown} of them unknown"),
    };
    format!("{} from {code}", days(records))
}

/// Value of a factor that a run does not have.
const ABSENT: &str = "-";

/// Flattens a run's key into names and values. A value `a@b` is two factors.
fn factors(key: &impl Serialize) -> BTreeMap<String, String> {
    let mut factors = BTreeMap::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(key) {
        fields
            .into_iter()
            .for_each(|(name, value)| flatten(name, value, &mut factors));
    }
    factors
}

fn flatten(name: String, value: Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .for_each(|(name, value)| flatten(name, value, into)),
        Value::String(text) => match text.split_once('@') {
            Some((value, of)) => {
                into.insert("of".to_owned(), of.to_owned());
                into.insert(name, value.to_owned());
            }
            None => drop(into.insert(name, text)),
        },
        Value::Array(values) => {
            let text = |value: &Value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            };
            into.insert(name, values.iter().map(text).collect::<Vec<_>>().join("+"));
        }
        Value::Null => drop(into.insert(name, ABSENT.to_owned())),
        other => drop(into.insert(name, other.to_string())),
    }
}

/// Joins products that differ in one factor until no two do. The result is few products that hold
/// the same runs.
fn products(mut products: Vec<Product>) -> Vec<Product> {
    loop {
        let before = products.len();
        let factors = products.first().map_or(0, Vec::len);
        for factor in (0..factors).rev() {
            let mut joined = BTreeMap::<Product, BTreeSet<String>>::new();
            for mut product in products {
                let values = product.remove(factor);
                joined.entry(product).or_default().extend(values);
            }
            products = joined
                .into_iter()
                .map(|(mut product, values)| {
                    product.insert(factor, values);
                    product
                })
                .collect();
        }
        if products.len() == before {
            products.sort();
            return products;
        }
    }
}

/// Describes a product by the factors that lack some of all values.
fn describe(names: &[&str], product: &Product, all: &Product) -> String {
    let restricted = names
        .iter()
        .zip(product)
        .zip(all)
        .filter(|((_, values), all)| values != all);
    let words: Vec<String> = restricted
        .map(|((name, values), _)| format!("{name} {}", listed(values)))
        .collect();
    if words.is_empty() {
        "all".to_owned()
    } else {
        words.join("; ")
    }
}

/// Lists values. Consecutive numbers become a range.
fn listed(values: &BTreeSet<String>) -> String {
    let numbers: Option<BTreeSet<u64>> = values.iter().map(|value| value.parse().ok()).collect();
    match numbers.map(|numbers| {
        (
            numbers.first().copied(),
            numbers.last().copied(),
            numbers.len(),
        )
    }) {
        Some((Some(first), Some(last), count)) if count > 2 && last - first + 1 == count as u64 => {
            format!("{first} to {last}")
        }
        _ => values
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[derive(Clone, Serialize)]
    struct Cell {
        copy: String,
        paths: Vec<&'static str>,
    }

    fn run(copy: &str, seed: u64, commit: &str) -> Record<Cell, ()> {
        let cell = Cell {
            copy: copy.into(),
            paths: vec!["A", "B"],
        };
        let mut run = record(cell, seed, (), true);
        run.made.commit = commit.into();
        run
    }

    #[test]
    fn runs_of_each_commit_are_listed_in_few_rows() {
        let mut records: Vec<_> = (1..=3)
            .flat_map(|seed| {
                ["scp@near", "scp@far", "rsync@near"].map(|copy| run(copy, seed, "aaa"))
            })
            .collect();
        records.push(run("rsync@far", 1, "bbb"));
        let text = table(&records, &LostCommits::from(["bbb"])).markdown();
        let rows: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "| aaa | 2026-01-01 | 3 | copy rsync; of near |",
            "| aaa | 2026-01-01 | 6 | copy scp |",
            "| an unknown commit (recorded as bbb, which the history does not have) | 2026-01-01 \
             | 1 \
             | copy rsync; of far; seed 1 |",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn code_of_runs_is_summed_up() {
        let mut records = vec![run("scp@near", 1, "aaa")];
        let lost = LostCommits::from(["bbb"]);
        assert_eq!(summary(&records, &lost), "2026-01-01 from aaa");
        assert_eq!(commits(&records, &lost), "aaa");
        records.push(run("scp@near", 2, "bbb"));
        records[1].made.date = "2026-01-03".into();
        let expected = "2026-01-01 to 2026-01-03 from 2 commits, 1 of them unknown";
        assert_eq!(summary(&records, &lost), expected);
        assert_eq!(commits(&records, &lost), "2 commits, listed below");
        assert_eq!(
            summary(&records[1..], &lost),
            "2026-01-03 from an unknown commit"
        );
    }

    #[test]
    fn one_commit_needs_no_table() {
        let records = [run("scp@near", 1, "aaa"), run("scp@near", 2, "aaa")];
        assert!(table(&records, &LostCommits::default()).is_empty());
        assert!(table::<Cell, ()>(&[], &LostCommits::default()).is_empty());
    }

    #[test]
    fn numbers_in_a_row_are_named_by_their_ends() {
        let of =
            |values: &[&str]| listed(&values.iter().map(|value| (*value).to_owned()).collect());
        assert_eq!(of(&["2003", "2001", "2002"]), "2001 to 2003");
        assert_eq!(of(&["1", "2", "4"]), "1, 2, 4");
        assert_eq!(of(&["1", "2"]), "1, 2");
        assert_eq!(of(&["-", "8"]), "-, 8");
    }
}
