//! Links between pages: each leads to a file of the project and to a heading of that file, and the
//! book lists every page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::pages::root;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Lines of a page that are in no fence.
fn prose(page: &str) -> Vec<(usize, &str)> {
    let mut is_fence = false;
    let mut lines = Vec::new();
    for (at, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            is_fence = !is_fence;
        } else if !is_fence {
            lines.push((at + 1, line));
        }
    }
    lines
}

/// Targets of the links of a page, each with its line.
fn targets(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, line) in prose(page) {
        let links = line.split("](").skip(1);
        found.extend(links.filter_map(|rest| Some((at, rest.split_once(')')?.0))));
    }
    found
}

/// Anchor that a heading gets in the book and on code hosts.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| {
        if c == ' ' {
            '-'
        } else {
            c.to_ascii_lowercase()
        }
    })
    .collect()
}

/// Anchors of all headings of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page)
        .into_iter()
        .filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| anchor(line.trim_start_matches('#')))
        .collect()
}

/// Markdown files in a folder of the project, by their paths from its root.
fn pages_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = names
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    pages.sort();
    pages
}

/// Reason why a link of `page` leads nowhere.
fn fault(page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let file: PathBuf = match path {
        "" => root().join(page),
        path => root().join(folder).join(path),
    };
    if !file.exists() {
        return Some(format!("{target} does not exist"));
    }
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let is_found = heading.is_empty() || anchors(&text).contains(heading);
    (!is_found).then(|| format!("{target}: there is no such heading"))
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages = pages_in("docs");
    pages.extend(pages_in("docs/results"));
    pages.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    let mut faults = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        for (line, target) in targets(&text) {
            faults.extend(fault(&page, target).map(|why| format!("{page}:{line}: {why}")));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn book_lists_every_page() {
    let summary = std::fs::read_to_string(root().join(SUMMARY)).unwrap();
    let listed: Vec<String> = targets(&summary)
        .into_iter()
        .map(|(_, target)| format!("docs/{target}"))
        .collect();
    let mut pages = pages_in("docs");
    pages.extend(pages_in("docs/results"));
    pages.retain(|page| page != SUMMARY && !listed.contains(page));
    assert!(pages.is_empty(), "{SUMMARY} does not list {pages:?}");
}

#[test]
fn links_and_headings_are_found() {
    let page = "# A page: `cp`\n\n[a](b.md#c) and [d](#a-page-cp)\n\n```text\n[e](f)\n# g\n```\n";
    assert_eq!(targets(page), [(3, "b.md#c"), (3, "#a-page-cp")]);
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), ["a-page-cp"]);
}
