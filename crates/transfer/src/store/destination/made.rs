//! Which directories are a copy's own.

use std::collections::HashSet;

use crate::path::RelPath;

/// Directories that this copy has made and that have not been described yet. What else is there was there before, and its
/// permissions and time are not ours to set.
#[derive(Default, Clone)]
pub(super) struct Made {
    directories: HashSet<RelPath>,
    /// Bytes that their names take.
    pub bytes: usize,
}

impl Made {
    pub(super) fn insert(&mut self, path: &RelPath) {
        if self.directories.insert(path.clone()) {
            self.bytes += Self::cost(path);
        }
    }

    /// Whether it was among them.
    pub(super) fn remove(&mut self, path: &RelPath) -> bool {
        let was_there = self.directories.remove(path);
        if was_there {
            self.bytes = self.bytes.saturating_sub(Self::cost(path));
        }
        was_there
    }

    fn cost(path: &RelPath) -> usize {
        path.as_bytes().len() + 64
    }
}
