//! Entries of a tree at the other end that a copy takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_filter::{EntryKind, Filter, IgnoreRules};
use parking_lot::Mutex;

use super::reporter::EntryReporter;
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;

/// Filter of a copy, with the ignore files that its walk has read.
#[derive(Debug)]
pub(super) struct Selection {
    filter: Arc<Filter>,
    /// Rules of the ignore files of each source.
    ignored: Vec<Mutex<IgnoreRules>>,
    /// Listed paths that have been found.
    found: Mutex<BTreeSet<Vec<u8>>>,
}

impl Selection {
    /// Creates the selection from this number of sources.
    pub(super) fn new(filter: Arc<Filter>, sources: usize) -> Self {
        Self {
            filter,
            ignored: (0..sources).map(|_| Mutex::default()).collect(),
            found: Mutex::default(),
        }
    }

    /// Returns true if the ignore files of the tree apply.
    pub(super) fn has_ignore_files(&self) -> bool {
        self.filter.rules().ignore_files
    }

    /// Applies the ignore file of a directory.
    pub(super) fn add_ignore_file(&self, source: u32, directory: &RelPath, text: &[u8]) {
        if let Some(ignored) = self.ignored.get(source as usize) {
            ignored.lock().add(directory.as_bytes(), text);
        }
    }

    /// Returns true if an entry is taken.
    pub(super) fn takes(&self, source: u32, path: &RelPath, kind: EntryKind) -> bool {
        let path = path.as_bytes();
        if self.filter.lists(path) {
            self.found.lock().insert(path.to_vec());
        }
        let is_directory = kind == EntryKind::Directory;
        let is_ignored = || {
            let ignored = self.ignored.get(source as usize);
            ignored.is_some_and(|ignored| ignored.lock().leaves_out(path, is_directory))
        };
        self.filter.takes(path, kind) && !is_ignored()
    }

    /// Reports the listed paths that the walk has not found.
    pub(super) fn report_missing(&self, reporter: &EntryReporter) {
        let found = std::mem::take(&mut *self.found.lock());
        for path in self.filter.listed().filter(|path| !found.contains(*path)) {
            let (path, kind) = match RelPath::from_bytes(path) {
                Ok(path) => (path, FailureKind::NotFound),
                Err(_) => (RelPath::root(), FailureKind::RefusedPath),
            };
            reporter.not_copied(0, &path, Failure::new(kind));
        }
    }
}
