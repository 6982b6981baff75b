//! The messages in docs/troubleshooting.md and the metrics in docs/operating.md are those of the
//! sources, and none is missing.
//!
//! On the page a message is in the first column of a table, between backticks, with `...` for its
//! variable parts. In the sources these are placeholders of a format string.

use std::collections::BTreeSet;
use std::path::Path;

use crate::layers::dependencies;
use crate::pages::{root, text};

/// Code before the text of an error in the sources.
const BEFORE_AN_ERROR: [&str; 3] = ["#[error(", "bail!(", "anyhow!("];
/// Files whose other texts are shown as errors, and the code before these.
const TEXTS_OF_ERRORS: [(&str, &str); 4] = [
    ("crates/transfer/src/error.rs", "=>"),
    ("crates/transfer/src/files/failure.rs", "=>"),
    ("crates/proto/src/status.rs", ","),
    ("crates/proto/src/chain.rs", "f.write_str("),
];
/// Minimum words of a text. A shorter text says nothing without its variable parts; nor does one
/// that ends in a space.
const LEAST_WORDS: usize = 2;

/// A string literal of a source.
#[derive(Debug, PartialEq)]
struct Literal {
    /// The code before it, on any line.
    before: String,
    /// The text, with `...` for placeholders.
    template: String,
}

/// Returns the string literals of Rust source, up to its tests.
fn literals(source: &str) -> Vec<Literal> {
    let source = source
        .split("\n#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let mut found = Vec::new();
    let mut before = String::new();
    let mut rest = source.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => drop(rest.by_ref().find(|c| *c == '\n')),
            '\'' if rest.peek() == Some(&'"') => drop(rest.next()),
            '"' => {
                let mut content = String::new();
                while let Some(c) = rest.next().filter(|c| *c != '"') {
                    match (c, rest.peek()) {
                        ('\\', Some('\n')) => {
                            while rest.next_if(|c| c.is_whitespace()).is_some() {}
                        }
                        ('\\', _) => content.extend(rest.next()),
                        _ => content.push(c),
                    }
                }
                found.push(Literal {
                    before: before.trim_end().to_owned(),
                    template: template(&content),
                });
                before.clear();
            }
            c => before.push(c),
        }
    }
    found
}

/// Replaces the placeholders of a format string by `...`.
fn template(format: &str) -> String {
    let mut template = String::new();
    let mut rest = format;
    while let Some((text, more)) = rest.split_once('{') {
        template.push_str(text);
        let Some((_, after)) = more.split_once('}') else {
            break;
        };
        if !template.ends_with("...") {
            template.push_str("...");
        }
        rest = after;
    }
    template.push_str(rest);
    template
}

fn words(template: &str) -> usize {
    let mut words = 0;
    for word in template.split_whitespace() {
        words += usize::from(word.chars().any(char::is_alphabetic));
    }
    words
}

/// Returns all texts and all error texts of the crates that the command depends on.
fn sources() -> (BTreeSet<String>, BTreeSet<String>) {
    let below = dependencies();
    let mut crates = vec!["cli".to_owned()];
    let mut at = 0;
    while let Some(name) = crates.get(at) {
        let new: Vec<String> = below[name]
            .iter()
            .filter(|name| !crates.contains(name))
            .cloned()
            .collect();
        crates.extend(new);
        at += 1;
    }
    let (mut all, mut errors) = (BTreeSet::new(), BTreeSet::new());
    for name in crates {
        for file in files(&root().join("crates").join(name).join("src")) {
            let relative = file
                .strip_prefix(root())
                .unwrap()
                .to_string_lossy()
                .into_owned();
            for literal in literals(&text(&relative)) {
                if is_error(&relative, &literal) {
                    errors.insert(literal.template.clone());
                }
                all.insert(literal.template);
            }
        }
    }
    (all, errors)
}

/// Returns the sources in a folder, except those with tests alone.
pub fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") && !path.ends_with("fuzzing") {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            found.push(path);
        }
    }
    found
}

fn is_error(file: &str, literal: &Literal) -> bool {
    let before = literal.before.trim_end_matches(['{', ' ', '\n']);
    let marked = BEFORE_AN_ERROR.iter().any(|mark| before.ends_with(mark));
    let listed = TEXTS_OF_ERRORS
        .iter()
        .any(|(name, mark)| *name == file && before.ends_with(mark));
    (marked || listed)
        && words(&literal.template) >= LEAST_WORDS
        && !literal.template.ends_with(' ')
}

/// Returns the texts between backticks in the first column of a page's tables.
fn first_column(page: &str) -> Vec<(usize, &str)> {
    let rows = page.lines().enumerate();
    rows.filter_map(|(at, line)| Some((at + 1, line.strip_prefix("| `")?.split_once("` |")?.0)))
        .collect()
}

#[test]
fn troubleshooting_lists_exactly_the_messages_of_the_sources() {
    let page = text("docs/troubleshooting.md");
    let (all, errors) = sources();
    let shown = first_column(&page);
    let mut faults: Vec<String> = shown
        .iter()
        .filter(|(_, message)| !all.contains(*message))
        .map(|(line, message)| format!("line {line} is in no source: {message}"))
        .collect();
    let missing = errors
        .iter()
        .filter(|error| shown.iter().all(|(_, message)| message != error));
    faults.extend(missing.map(|error| format!("not on the page: {error}")));
    assert!(
        faults.is_empty(),
        "docs/troubleshooting.md:\n{}",
        faults.join("\n")
    );
}

#[test]
fn every_metric_is_explained() {
    let page = text("docs/operating.md");
    let shown = first_column(&page);
    for (service, sources) in [
        ("longhaul_depot_", vec!["crates/depot/src/metrics.rs"]),
        ("longhaul_offramp_", vec!["crates/offramp/src/metrics.rs"]),
        (
            "longhaul_control_",
            vec![
                "crates/control/src/metrics/counters.rs",
                "crates/control/src/metrics.rs",
            ],
        ),
        ("longhaul_onramp_", vec!["crates/onramp/src/metrics.rs"]),
    ] {
        let metrics: String = sources.into_iter().map(text).collect();
        let registered = literals(&metrics).into_iter().filter(|literal| {
            let before = literal.before.as_str();
            before.ends_with(".register(") || before.ends_with(".register_with_unit(")
        });
        for literal in registered {
            let name = format!("{service}{}", literal.template);
            assert!(
                shown.iter().any(|(_, metric)| metric.starts_with(&name)),
                "docs/operating.md: {name}"
            );
        }
        for (line, metric) in shown
            .iter()
            .filter(|(_, metric)| metric.starts_with(service))
        {
            let known = literals(&metrics).iter().any(|literal| {
                let name = metric.strip_prefix(service).unwrap_or_default();
                !literal.template.is_empty() && name.starts_with(&literal.template)
            });
            assert!(known, "docs/operating.md:{line}: no metric {metric}");
        }
    }
}

#[test]
fn texts_are_found_with_the_code_before_them() {
    let source = "// \"no\"\n#[error(\"a {b:?}{c} \\\n   d\")] x('\"') => \"e \\\"f\\\"\"\n\
        #[cfg(test)]\nmod tests { \"g\" }";
    let literal = |before: &str, template: &str| Literal {
        before: before.to_owned(),
        template: template.to_owned(),
    };
    assert_eq!(literals(source)[..1], [literal("#[error(", "a ... d")]);
    assert_eq!(literals(source)[1].template, "e \"f\"");
    assert_eq!(literals(source).len(), 2);
    assert_eq!(first_column("| `a` | b |\n| c | `d` |"), [(1, "a")]);
}
