//! Calls that panic when the system refuses something: product code uses functions that return an
//! error.

use std::path::{Path, PathBuf};

use crate::pages::root;

/// Calls that are forbidden, and their replacements.
const PANICKING: [(&str, &str); 10] = [
    (
        "println!(",
        "longhaul_output::print_line!: standard output may be full",
    ),
    (
        "print!(",
        "longhaul_output::print: standard output may be full",
    ),
    (
        "eprintln!(",
        "longhaul_output::message!: standard error may be full",
    ),
    (
        "eprint!(",
        "longhaul_output::prompt: standard error may be full",
    ),
    (
        "io::stdout().lock()",
        "longhaul_output: what it buffers is lost without an error",
    ),
    (
        "io::stderr)",
        "longhaul_output::Messages: a log may be full",
    ),
    (".join_all()", "join_next: a task may have been aborted"),
    ("thread::spawn(", "thread::Builder: there may be no thread"),
    (
        "Runtime::new()",
        "cli/src/runtime.rs: there may be no threads",
    ),
    (
        "scope.spawn(",
        "thread::Builder::spawn_scoped: there may be no thread",
    ),
];
/// Crates for labs, measurements and tests, which a person supervises.
const NO_PRODUCT: [&str; 4] = ["figures", "hostile", "circuit-trials", "wanbed"];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "fuzzing.rs" {
            found.push(path);
        }
    }
}

/// Returns the lines of `text` with a call that panics, without comments and tests.
fn panicking(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let product = text.split("mod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    for (number, line) in product.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        let called = |call: &str| {
            line.match_indices(call).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                call.starts_with('.') || !before.is_some_and(is_word)
            })
        };
        let calls = PANICKING.iter().filter(|(call, _)| called(call));
        found.extend(calls.map(|(call, instead)| (number + 1, *call, *instead)));
    }
    found
}

#[test]
fn product_code_calls_nothing_that_panics_if_refused() {
    let mut faults = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if NO_PRODUCT.contains(&name.as_str()) || !path.join("src").is_dir() {
            continue;
        }
        let mut files = Vec::new();
        sources(&path.join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let shown = file.strip_prefix(root()).unwrap().display().to_string();
            let calls = panicking(&text).into_iter();
            faults.extend(calls.map(|(line, call, instead)| {
                format!("{shown}:{line}: {call} panics; use {instead}")
            }));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn calls_that_panic_are_found() {
    let text = "fn f() {\n    println!(\"x\");\n    // eprintln!(\"x\");\n    message!(\"x\");\n}\n\
                #[cfg(test)]\nmod tests {\n    println!(\"x\");\n}\n";
    let found = panicking(text);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].0, found[0].1), (2, "println!("));
    assert_eq!(panicking("    eprint!(\"x\");").len(), 1);
    assert_eq!(panicking("    set.join_all().await;").len(), 1);
}
