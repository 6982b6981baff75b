//! `longhaul du`: sums of sizes below directories.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::Result;
use clap::{ArgAction, Args};
use longhaul_filter::{Filter, FilterRules, IgnoreRules};
use longhaul_proto::text::printable;
use longhaul_sync::{Node, NodeKind, Tree};
use longhaul_transfer::files::message::{FilesFailure, FilesFailureKind, PathBytes};
use quantities::ByteCount;
use serde_json::json;

use super::Failures;
use super::show::join;
use crate::exit::Exit;
use crate::place::{OpenPlaces, PlaceOptions};
use crate::{answer, logging, tree};

/// Sum the sizes of files below directories, here, at user@host:path or lh://host/path.
///
/// Paths in stores, such as s3://bucket/key, are summed, too.
///
/// Sizes are those that the files have, in bytes; du counts blocks on the disk. A file with several
/// names counts for each.
#[derive(Args)]
// -h is for sizes, as in du.
#[command(disable_help_flag = true)]
pub struct Du {
    /// Directory or file: a local path, user@host:path or lh://host[:port]/path.
    #[arg(default_value = ".")]
    path: Vec<OsString>,
    /// Print only one line for each PATH.
    #[arg(short, long, conflicts_with = "all")]
    summarize: bool,
    /// Print sizes with a unit, such as 1.5G.
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print files as well as directories.
    #[arg(short, long)]
    all: bool,
    /// Print the sum of all as the last line.
    #[arg(short = 'c', long)]
    total: bool,
    /// Print only what is at most this number of levels below PATH.
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    max_depth: Option<usize>,
    /// Print one JSON object per line for each.
    #[arg(long)]
    json: bool,
    /// Print help.
    #[arg(id = "help", long = "help", action = ArgAction::Help)]
    _help: Option<bool>,
    #[command(flatten)]
    place: PlaceOptions,
}

impl Du {
    /// Prints the sums.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        let max_depth = if self.summarize {
            Some(0)
        } else {
            self.max_depth
        };
        let runtime = crate::runtime::start()?;
        runtime.block_on(async {
            let mut places = OpenPlaces::new(&self.place);
            let mut failures = Failures::new(self.json);
            let filter = Filter::new(FilterRules::default())?;
            let mut total = Usage::default();
            for typed in &self.path {
                let root = tree::parse_listed(typed)?;
                let place = places.get(&root.location).await?;
                let listing =
                    tree::list(place, &root.path, &filter, &IgnoreRules::default()).await?;
                for failure in &listing.failures {
                    failures.report(&root.location, failure);
                }
                if listing.tree.is_empty() && listing.failures.is_empty() {
                    let kind = FilesFailureKind::NotFound;
                    failures.report(&root.location, &FilesFailure::new(kind, &root.path));
                }
                let typed = PathBytes(typed.as_encoded_bytes().to_vec());
                let found = usage(&listing.tree, max_depth, self.all);
                let lines = found.iter().map(|(path, usage)| {
                    let path = if path.is_empty() {
                        typed.clone()
                    } else {
                        join(&typed, path)
                    };
                    self.line(&path.0, *usage)
                });
                if !answer::write_lines(lines) {
                    return Ok(failures.exit());
                }
                // The root is the last one.
                total.add(found.last().map(|(_, usage)| *usage).unwrap_or_default());
            }
            if self.total {
                answer::write_line(self.line(b"total", total));
            }
            places.end().await;
            Ok(failures.exit())
        })
    }

    fn line(&self, path: &[u8], usage: Usage) -> String {
        let path = printable(path);
        if self.json {
            return json!({
                "event": "usage", "path": path, "bytes": usage.bytes, "files": usage.files,
                "entries": usage.entries,
            })
            .to_string();
        }
        match self.human_readable {
            true => format!("{}\t{path}", ByteCount(usage.bytes).short()),
            false => format!("{}\t{path}", usage.bytes),
        }
    }
}

/// What an entry and all below it hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    files: u64,
    /// Files, directories and others, with the entry itself.
    entries: u64,
}

impl Usage {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.files = self.files.saturating_add(other.files);
        self.entries = self.entries.saturating_add(other.entries);
    }
}

/// Returns the usage of each directory, and with `all` of each entry, down to `max_depth` levels
/// below the root. A directory follows all that is below it, so the root is last.
fn usage(tree: &Tree, max_depth: Option<usize>, all: bool) -> Vec<(Vec<u8>, Usage)> {
    let mut sums: BTreeMap<&[u8], Usage> = BTreeMap::new();
    for (path, node) in tree {
        let own = Usage {
            bytes: node.bytes,
            files: u64::from(node.kind == NodeKind::File),
            entries: 1,
        };
        for above in with_parents(path) {
            sums.entry(above).or_default().add(own);
        }
    }
    let is_shown = |path: &[u8]| {
        let is_directory = |node: &Node| node.kind == NodeKind::Directory;
        let is_listed = path.is_empty() || all || tree.get(path).is_some_and(is_directory);
        is_listed && max_depth.is_none_or(|most| names(path).count() <= most)
    };
    let mut shown: Vec<(Vec<u8>, Usage)> = sums
        .into_iter()
        .filter(|(path, _)| is_shown(path))
        .map(|(path, usage)| (path.to_vec(), usage))
        .collect();
    shown.sort_by(|(one, _), (other, _)| compare(one, other));
    shown
}

/// Returns a path, the paths above it, and the root.
fn with_parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let above = ends.filter_map(|(end, _)| path.get(..end));
    let root = (!path.is_empty()).then_some(&b""[..]);
    above.chain([path]).chain(root)
}

/// Orders paths by their names, and directories behind what is below them.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let (mut one, mut other) = (names(one), names(other));
    loop {
        match (one.next(), other.next()) {
            (Some(name), Some(of_other)) if name == of_other => {}
            (Some(name), Some(of_other)) => return name.cmp(of_other),
            (Some(_), None) => return Ordering::Less,
            (None, Some(_)) => return Ordering::Greater,
            (None, None) => return Ordering::Equal,
        }
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let names = path.split(|byte| *byte == b'/');
    names.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use longhaul_sync::Modified;

    use super::*;

    fn tree(entries: &[(&str, Option<u64>)]) -> Tree {
        let node = |bytes: Option<u64>| Node {
            kind: bytes.map_or(NodeKind::Directory, |_| NodeKind::File),
            bytes: bytes.unwrap_or(0),
            mode: 0o644,
            modified: Modified {
                seconds: 0,
                nanoseconds: None,
            },
            target: None,
            is_taken: true,
            holds_excluded: false,
        };
        let entries = entries.iter();
        entries
            .map(|(path, bytes)| (path.as_bytes().to_vec(), node(*bytes)))
            .collect()
    }

    fn shown(tree: &Tree, max_depth: Option<usize>, all: bool) -> Vec<(String, u64)> {
        let found = usage(tree, max_depth, all).into_iter();
        found
            .map(|(path, usage)| (String::from_utf8(path).unwrap(), usage.bytes))
            .collect()
    }

    #[test]
    fn directories_hold_all_that_is_below_them() {
        let tree = tree(&[
            ("", None),
            ("a", None),
            ("a-b", None),
            ("a-b/f", Some(4)),
            ("a/c", None),
            ("a/c/f", Some(1)),
            ("a/f", Some(2)),
            ("f", Some(8)),
        ]);
        let expected = [("a/c", 1), ("a", 3), ("a-b", 4), ("", 15)];
        let expected = expected.map(|(path, bytes)| (path.to_owned(), bytes));
        assert_eq!(shown(&tree, None, false), expected);
        assert_eq!(shown(&tree, Some(1), false), expected[1..]);
        assert_eq!(shown(&tree, Some(0), false), expected[3..]);
        assert_eq!(shown(&tree, None, true).len(), 8);
        assert_eq!(usage(&tree, Some(0), false)[0].1.files, 4);
    }

    #[test]
    fn a_file_is_its_own_sum() {
        assert_eq!(
            shown(&tree(&[("", Some(7))]), None, false),
            [(String::new(), 7)]
        );
        assert_eq!(shown(&Tree::new(), None, false), []);
    }
}
