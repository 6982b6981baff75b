//! A bounded set of directories that a copy remembers.

use std::collections::HashSet;

use crate::path::RelPath;

/// Maximum bytes of the names of directories. Directories beyond it are known only by their state.
const MAX_MADE_BYTES: usize = 1 << 20;

/// Set of directories, bounded by the bytes of their names.
#[derive(Default, Clone)]
pub(super) struct Made {
    directories: HashSet<RelPath>,
    bytes: usize,
}

impl Made {
    pub(super) fn insert(&mut self, path: &RelPath) {
        if self.bytes < MAX_MADE_BYTES && self.directories.insert(path.clone()) {
            self.bytes += Self::cost(path);
        }
    }

    /// Removes a directory. Returns true if it was in the set.
    pub(super) fn remove(&mut self, path: &RelPath) -> bool {
        let was_there = self.directories.remove(path);
        if was_there {
            self.bytes = self.bytes.saturating_sub(Self::cost(path));
        }
        was_there
    }

    pub(super) fn contains(&self, path: &RelPath) -> bool {
        self.directories.contains(path)
    }

    fn cost(path: &RelPath) -> usize {
        path.as_bytes().len() + 64
    }
}
