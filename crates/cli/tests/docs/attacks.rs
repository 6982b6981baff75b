//! The table of attacks in docs/threat-model.md names every test of the attack suite, and no other.

use std::collections::BTreeSet;

use crate::pages::{root, text};

/// Heading of the section that holds the table.
const SECTION: &str = "## Attacks that are tested";

/// Returns the tests that the table names without a crate: `module::name`.
fn listed(page: &str) -> BTreeSet<String> {
    let section = page.split(SECTION).nth(1).unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.flat_map(|row| {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next();
        let tests = tests.unwrap_or_default().split(", ");
        tests.filter_map(|test| test.trim().strip_prefix('`')?.strip_suffix('`'))
    })
    .map(str::to_owned)
    .collect()
}

/// Returns the tests of a source, as `module::name`.
fn tests_of(module: &str, source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let marked = lines.iter().enumerate();
    marked
        .filter(|(_, line)| **line == "#[test]")
        .filter_map(|(at, _)| lines[at..].iter().find_map(|line| line.strip_prefix("fn ")))
        .map(|rest| format!("{module}::{}", rest.split('(').next().unwrap_or_default()))
        .collect()
}

#[test]
fn the_table_of_attacks_is_complete() {
    let mut tests = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("crates/cli/tests/attacks")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let module = path.file_stem().unwrap().to_string_lossy().into_owned();
            tests.extend(tests_of(&module, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    let listed = listed(&text("docs/threat-model.md"));
    let missing: Vec<_> = tests.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&tests).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/threat-model.md, {SECTION}: missing {missing:?}, unknown {unknown:?}"
    );
}

#[test]
fn rows_name_tests_of_the_suite_and_of_other_crates() {
    let page = format!(
        "{SECTION}\n| attack | result | tests |\n|---|---|---|\n\
         | a `b` | c | `m::one`, (`depot`) `n::two`, `m::three` |\n"
    );
    let expected = ["m::one", "m::three"].map(str::to_owned);
    assert_eq!(listed(&page), BTreeSet::from(expected));
    let source = "#[test]\nfn one() {\n}\n\n#[test]\n#[ignore]\nfn three() {}\nfn other() {}\n";
    assert_eq!(tests_of("m", source), ["m::one", "m::three"]);
}
