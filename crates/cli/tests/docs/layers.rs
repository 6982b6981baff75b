//! The list of crates in docs/architecture.md: it contains every crate, above its dependencies.

use std::collections::BTreeMap;

use crate::pages::{root, text};

/// Returns the folders of each crate's dependencies, by its own folder. Dependencies of tests are
/// left out.
pub fn dependencies() -> BTreeMap<String, Vec<String>> {
    let workspace: toml::Table = text("Cargo.toml").parse().unwrap();
    let folders: BTreeMap<&str, &str> = workspace["workspace"]["dependencies"]
        .as_table()
        .unwrap()
        .iter()
        .filter_map(|(name, value)| {
            Some((
                name.as_str(),
                value.get("path")?.as_str()?.strip_prefix("crates/")?,
            ))
        })
        .collect();
    let entries = std::fs::read_dir(root().join("crates")).unwrap();
    let crates = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    crates
        .map(|name| {
            let manifest: toml::Table = text(&format!("crates/{name}/Cargo.toml")).parse().unwrap();
            let targets = manifest.get("target").and_then(toml::Value::as_table);
            let platforms = targets.into_iter().flat_map(toml::Table::values);
            let tables = platforms.filter_map(|target| target.get("dependencies"));
            let below = tables
                .chain(manifest.get("dependencies"))
                .filter_map(toml::Value::as_table)
                .flatten()
                .filter_map(|(name, _)| folders.get(name.as_str()));
            (name, below.map(|folder| (*folder).to_owned()).collect())
        })
        .collect()
}

/// Returns the crates of the list, from the top down, each with its line number.
fn listed(page: &str) -> Vec<(String, usize)> {
    let list = page.split("## The layers").nth(1).unwrap_or_default();
    let fence = list.split("```").nth(1).unwrap_or_default();
    let lines = fence
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("crates/"))
        .enumerate();
    lines
        .flat_map(|(at, line)| {
            let names = line.split("  ").next().unwrap_or_default();
            names
                .split(", ")
                .map(move |name| (name.trim().to_owned(), at))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the errors in the list.
fn faults(listed: &[(String, usize)], dependencies: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let place = |name: &str| {
        listed
            .iter()
            .find(|(listed, _)| listed == name)
            .map(|(_, at)| *at)
    };
    let mut faults = Vec::new();
    for (name, below) in dependencies {
        let Some(at) = place(name) else {
            faults.push(format!("crates/{name} is not on the list"));
            continue;
        };
        let wrong = below
            .iter()
            .filter(|needed| place(needed).is_some_and(|needed| needed <= at));
        faults.extend(
            wrong.map(|needed| format!("crates/{name} stands on {needed}, which is not below it")),
        );
    }
    let gone = listed
        .iter()
        .filter(|(name, _)| !dependencies.contains_key(name));
    faults.extend(gone.map(|(name, _)| format!("there is no crates/{name}")));
    faults
}

#[test]
fn every_crate_is_listed_above_its_dependencies() {
    let faults = faults(&listed(&text("docs/architecture.md")), &dependencies());
    assert!(
        faults.is_empty(),
        "docs/architecture.md, The layers:\n{}",
        faults.join("\n")
    );
}

#[test]
fn wrong_lists_of_crates_are_found() {
    let page =
        "## The layers\n\n```text\n crates/a   top\n crates/b, c   two\n crates/e   gone\n```\n";
    let needs = |name: &str, below: &[&str]| {
        (
            name.to_owned(),
            below.iter().map(|b| (*b).to_owned()).collect(),
        )
    };
    let dependencies = BTreeMap::from([
        needs("a", &["b"]),
        needs("b", &["c"]),
        needs("c", &["a"]),
        needs("d", &[]),
    ]);
    let faults = faults(&listed(page), &dependencies);
    assert_eq!(
        faults,
        [
            "crates/b stands on c, which is not below it",
            "crates/c stands on a, which is not below it",
            "crates/d is not on the list",
            "there is no crates/e"
        ]
    );
}
