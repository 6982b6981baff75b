//! Entries at the destination whose names the source spells in another way.
//!
//! A file system that ignores case takes both spellings for one entry, and keeps the one that it
//! has. To remove that one would remove what was copied.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use longhaul_sync::{Step, Tree};
use longhaul_transfer::store::confine::folded;

/// Paths of the source that some file system may take for one that is to be removed, by their
/// folded spelling.
pub struct OtherSpellings<'a>(HashMap<String, Vec<&'a [u8]>>);

impl<'a> OtherSpellings<'a> {
    /// Finds the paths of `source` that differ from those of `removals` in spelling only.
    pub fn new(source: &'a Tree, removals: &[Step]) -> Self {
        let mut alike: HashMap<String, Vec<&[u8]>> = removals
            .iter()
            .map(|step| (folded_path(&step.path), Vec::new()))
            .collect();
        if !alike.is_empty() {
            for path in source.keys() {
                if let Some(found) = alike.get_mut(&folded_path(path)) {
                    found.push(path);
                }
            }
        }
        alike.retain(|_, found| !found.is_empty());
        Self(alike)
    }

    /// Returns true if every path has one spelling.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the source does not have the entry of `step`: `target` has both spellings.
    pub fn is_distinct(&self, step: &Step, target: &Tree) -> bool {
        let Some(others) = self.0.get(&folded_path(&step.path)) else {
            return true;
        };
        target.contains_key(&step.path) && others.iter().all(|path| target.contains_key(*path))
    }
}

fn folded_path(path: &[u8]) -> String {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<String> = names.map(|name| folded(OsStr::from_bytes(name))).collect();
    names.join("/")
}

#[cfg(test)]
mod tests {
    use longhaul_sync::{Change, Modified, Node, NodeKind};

    use super::*;

    fn tree(paths: &[&str]) -> Tree {
        let node = Node {
            kind: NodeKind::File,
            bytes: 1,
            mode: 0o644,
            modified: Modified {
                seconds: 1,
                nanoseconds: None,
            },
            target: None,
            is_taken: true,
            holds_excluded: false,
        };
        let entries = paths
            .iter()
            .map(|path| (path.as_bytes().to_vec(), node.clone()));
        entries.collect()
    }

    fn removal(path: &str) -> Step {
        Step {
            path: path.as_bytes().to_vec(),
            change: Change::Remove,
            kind: NodeKind::File,
            bytes: 1,
            entries: 1,
        }
    }

    #[test]
    fn entry_in_another_spelling_is_distinct_only_beside_the_first() {
        let source = tree(&["A.jpg", "Sub/x", "b"]);
        for (removed, one, both) in [
            (
                "a.jpg",
                &["a.jpg", "Sub/x", "b"][..],
                &["A.jpg", "a.jpg"][..],
            ),
            ("sub/X", &["sub/X"], &["Sub/x", "sub/X"]),
            ("b.", &["b."], &["b", "b."]),
            // The file system took the new spelling.
            ("a.jpg", &["A.jpg"], &["A.jpg", "a.jpg"]),
        ] {
            let step = removal(removed);
            let others = OtherSpellings::new(&source, std::slice::from_ref(&step));
            assert!(!others.is_empty());
            assert!(!others.is_distinct(&step, &tree(one)), "{removed}");
            assert!(others.is_distinct(&step, &tree(both)), "{removed}");
        }
    }

    #[test]
    fn other_names_are_distinct() {
        let source = tree(&["A.jpg", "sub/x"]);
        let steps = [removal("c"), removal("x")];
        let others = OtherSpellings::new(&source, &steps);
        assert!(others.is_empty());
        assert!(others.is_distinct(&steps[0], &tree(&["c"])));
    }
}
