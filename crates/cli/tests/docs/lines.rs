//! Width of lines: comments of Rust sources and prose of Markdown pages have at most 100 columns.
//! rustfmt keeps code within the same width, except for strings.

use std::path::{Path, PathBuf};

use crate::pages::root;

/// Maximum width of a line, in characters.
const MAX_COLUMNS: usize = 100;
/// Folders whose files are generated, or are not the project's.
const LEFT_OUT: [&str; 4] = ["target", "node_modules", "dist", "results"];

/// Collects the files below `folder` with one of these extensions.
fn find(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !LEFT_OUT.contains(&&*name) && !name.starts_with('.') {
                find(&path, extensions, found);
            }
        } else if path
            .extension()
            .is_some_and(|extension| extensions.iter().any(|known| extension == *known))
        {
            found.push(path);
        }
    }
}

fn is_long(line: &str) -> bool {
    line.chars().count() > MAX_COLUMNS
}

/// Returns the numbers of the comment lines of a Rust source that are too long.
fn long_comments(text: &str) -> Vec<usize> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| line.trim_start().starts_with("//") && is_long(line))
        .filter(|(_, line)| !line.trim_start_matches([' ', '/', '!']).starts_with('|'))
        .map(|(at, _)| at + 1)
        .collect()
}

/// Returns the numbers of the lines of prose on a page that are too long. Fences, tables, links and
/// lines with the mark of a figure cannot be broken.
fn long_prose(text: &str) -> Vec<usize> {
    let mut in_fence = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        let is_breakable = !in_fence
            && !line.starts_with(['|', '<', '!', '[', ' '])
            && !line.contains("](")
            && !line.contains("<!--");
        if is_breakable && is_long(line) {
            found.push(at + 1);
        }
    }
    found
}

#[test]
fn comments_and_prose_have_at_most_100_columns() {
    let mut files = Vec::new();
    find(&root(), &["rs", "md"], &mut files);
    let mut faults = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = match file.extension().is_some_and(|extension| extension == "rs") {
            true => long_comments(&text),
            false if file.ends_with("CHANGELOG.md") => Vec::new(),
            false => long_prose(&text),
        };
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        faults.extend(lines.into_iter().map(|line| format!("{name}:{line}")));
    }
    assert!(
        faults.is_empty(),
        "lines of over {MAX_COLUMNS} columns:\n{}",
        faults.join("\n")
    );
}

#[test]
fn long_lines_are_found_outside_fences_and_tables() {
    let long = "word ".repeat(21);
    assert_eq!(
        long_prose(&format!("{long}\n```\n{long}\n```\n| {long}\n{long}")),
        [1, 6]
    );
    assert_eq!(
        long_comments(&format!("    // {long}\nlet x = \"{long}\";\n//! | {long}")),
        [1]
    );
}
