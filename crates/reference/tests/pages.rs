//! The pages of the book, and the dashboards, agree with the sources: messages and metrics that
//! they name exist, and the generated references explain everything they list.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on has failed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use longhaul_reference::{errors, metrics, sources};

/// Page that quotes messages in the first column of its tables.
const TROUBLESHOOTING: &str = "docs/troubleshooting.md";
/// Beginnings of the names of metrics.
const METRIC_PREFIXES: [&str; 7] = [
    "longhaul_serve_",
    "longhaul_depot_",
    "longhaul_offramp_",
    "longhaul_control_",
    "longhaul_onramp_",
    "longhaul_agent_",
    "longhaul_accounts_",
];
/// Folders with pages, dashboards and rules that name metrics.
const METRIC_FOLDERS: [&str; 3] = [
    "docs",
    "packaging/monitoring",
    "packaging/monitoring/grafana",
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the texts between backticks in the first column of a page's tables, with their lines.
fn first_column(page: &str) -> Vec<(usize, &str)> {
    let rows = page.lines().enumerate();
    rows.filter_map(|(at, line)| Some((at + 1, line.strip_prefix("| `")?.split_once("` |")?.0)))
        .collect()
}

/// Returns the names of metrics in a page, each with its line.
fn named_metrics(page: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let is_metric = |word: &&str| {
            METRIC_PREFIXES
                .iter()
                .any(|prefix| word.len() > prefix.len() && word.starts_with(prefix))
        };
        names.extend(words.filter(is_metric).map(|word| (at + 1, word)));
    }
    names
}

#[test]
fn troubleshooting_quotes_messages_of_the_sources() {
    let templates = sources::templates(&sources::read(&project()).unwrap());
    let page = text(&project().join(TROUBLESHOOTING));
    let quoted = first_column(&page);
    assert!(!quoted.is_empty(), "{TROUBLESHOOTING} quotes no message");
    let faults: Vec<String> = quoted
        .into_iter()
        .filter(|(_, message)| !templates.contains(*message))
        .map(|(line, message)| format!("{TROUBLESHOOTING}:{line}: in no source: {message}"))
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_error_message_is_documented_and_has_a_chapter() {
    let messages = errors::collect(&sources::read(&project()).unwrap());
    let faults: Vec<String> = messages
        .iter()
        .filter(|message| message.doc.is_empty())
        .map(|message| {
            format!(
                "{} {}: {}",
                message.crate_name, message.variant, message.template
            )
        })
        .collect();
    assert!(faults.is_empty(), "no doc comment:\n{}", faults.join("\n"));
    let missing = errors::crates_without_chapter(&messages);
    assert!(
        missing.is_empty(),
        "the error reference leaves out {missing:?}"
    );
    // One of each form of definition: an attribute, a match arm, a row of a table of codes.
    for variant in [
        "ResourceExhausted::All",
        "FailureKind::Vanished",
        "Unauthorised",
    ] {
        let is_found = messages.iter().any(|message| message.variant == variant);
        assert!(is_found, "{variant} is not found");
    }
}

#[test]
fn every_registered_metric_has_a_help_text() {
    let metrics = metrics::collect(&sources::read_metrics(&project()).unwrap()).unwrap();
    for prefix in METRIC_PREFIXES {
        let mut of_service = metrics
            .iter()
            .filter(|metric| metric.name.starts_with(prefix));
        assert!(
            of_service.next().is_some(),
            "no metric begins with {prefix}"
        );
    }
    let bare: Vec<&str> = metrics
        .iter()
        .filter(|metric| metric.help.trim().is_empty())
        .map(|metric| metric.name.as_str())
        .collect();
    assert!(bare.is_empty(), "no help text: {bare:?}");
}

#[test]
fn metrics_of_pages_and_dashboards_are_registered() {
    let metrics = metrics::collect(&sources::read_metrics(&project()).unwrap()).unwrap();
    let registered: BTreeSet<String> = metrics.iter().flat_map(metrics::Metric::samples).collect();
    let mut faults = Vec::new();
    for folder in METRIC_FOLDERS {
        for entry in fs::read_dir(project().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if !path.extension().is_some_and(|extension| {
                ["md", "json", "yml"]
                    .iter()
                    .any(|known| extension == *known)
            }) {
                continue;
            }
            for (line, name) in named_metrics(&text(&path)) {
                if !registered.contains(name) {
                    faults.push(format!("{}:{line}: no metric {name}", path.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn messages_and_metrics_of_pages_are_found() {
    assert_eq!(first_column("| `a` | b |\n| c | `d` |"), [(1, "a")]);
    assert_eq!(
        named_metrics("a\n`longhaul_depot_x{y=\"z\"}` longhaul_depot_\n"),
        [(2, "longhaul_depot_x")]
    );
}
