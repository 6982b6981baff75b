//! Tests of the Grafana dashboards: their form, and that each panel queries metrics. A test of the
//! metrics reference checks that they exist.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// Metrics of paths, each of which some panel shows.
const OF_PATHS: [&str; 4] = [
    "longhaul_control_path_rate_bits_per_second",
    "longhaul_control_path_rtt_seconds",
    "longhaul_control_path_delay_seconds",
    "longhaul_control_path_loss_ratio",
];

/// Number of columns of a dashboard.
const COLUMNS: u64 = 24;

fn root(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Dashboards of this project.
const DASHBOARDS: [&str; 2] = ["paths", "services"];

fn dashboard(name: &str) -> Value {
    let file = format!("packaging/monitoring/grafana/{name}.json");
    serde_json::from_str(&root(&file)).unwrap()
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name]
        .as_array()
        .unwrap_or_else(|| panic!("{name} is no list"))
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} is no text in {of}"))
}

/// Returns the names of metrics in an expression.
fn metrics(expression: &str) -> Vec<&str> {
    expression
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("longhaul_"))
        .collect()
}

/// Returns all Prometheus expressions of a dashboard.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = list(dashboard, "panels").iter();
    let targets = panels
        .filter(|panel| text(panel, "type") != "row")
        .flat_map(|panel| list(panel, "targets"));
    let variables = list(&dashboard["templating"], "list").iter();
    let queries = variables.filter(|variable| text(variable, "type") == "query");
    targets
        .map(|target| text(target, "expr").to_owned())
        .chain(queries.map(|variable| text(&variable["query"], "query").to_owned()))
        .collect()
}

#[test]
fn dashboard_queries_metrics() {
    let mut asked = BTreeSet::new();
    let dashboards = DASHBOARDS.iter().map(|name| dashboard(name));
    for expression in dashboards.flat_map(|dashboard| expressions(&dashboard)) {
        let found = metrics(&expression);
        assert!(!found.is_empty(), "{expression} names no metric");
        asked.extend(found.into_iter().map(str::to_owned));
    }
    for name in OF_PATHS {
        assert!(asked.contains(name), "nothing shows {name}");
    }
}

#[test]
fn dashboards_have_grafanas_form() {
    for name in DASHBOARDS {
        check_form(&dashboard(name));
    }
}

fn check_form(dashboard: &Value) {
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    for field in ["title", "uid", "refresh"] {
        assert!(!text(dashboard, field).is_empty());
    }
    assert!(text(dashboard, "uid").len() <= 40);
    assert!(
        dashboard.get("id").is_none(),
        "an id is Grafana's own to give"
    );
    let variables: BTreeSet<&str> = list(&dashboard["templating"], "list")
        .iter()
        .map(|of| text(of, "name"))
        .collect();
    assert_eq!(variables, BTreeSet::from(["datasource"]));

    let mut ids = BTreeSet::new();
    let mut taken: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for panel in list(dashboard, "panels") {
        let id = panel["id"].as_u64().unwrap();
        assert!(ids.insert(id), "panel {id} is there twice");
        assert!(!text(panel, "title").is_empty());
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(
            place("x") + place("w") <= COLUMNS && place("h") > 0,
            "panel {id} lies outside"
        );
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                let other = taken.insert((x, y), id);
                assert_eq!(other, None, "panel {id} lies on another one");
            }
        }
        if text(panel, "type") == "row" {
            continue;
        }
        assert!(["timeseries", "table"].contains(&text(panel, "type")));
        assert!(
            !text(panel, "description").is_empty()
                && panel["fieldConfig"]["defaults"]["unit"].is_string()
        );
        let refs: BTreeSet<&str> = list(panel, "targets")
            .iter()
            .map(|target| text(target, "refId"))
            .collect();
        assert_eq!(refs.len(), list(panel, "targets").len());
        for target in list(panel, "targets") {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
            assert_eq!(target["datasource"]["type"], "prometheus");
            let expression = text(target, "expr");
            for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
                assert_eq!(
                    expression.matches(open).count(),
                    expression.matches(close).count(),
                    "{expression}"
                );
            }
        }
    }
}
