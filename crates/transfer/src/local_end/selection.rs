//! Entries of a tree at the other end that a copy takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_filter::{EntryKind, Filter, IGNORE_FILE_NAME, IgnoreRules};
use parking_lot::Mutex;

use super::listed_tree::{ListedTree, RemoteEntry};
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::store::TEMP_PREFIX;

/// Entries that are taken, and failures of names that cannot be used.
type TakenEntries<A> = (Vec<RemoteEntry<A>>, Vec<Failure>);

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

    /// Lists a directory, and returns the entries that are taken, in the order of their names. The
    /// ignore file in it applies.
    ///
    /// # Errors
    /// It cannot be listed, or its ignore file cannot be read.
    pub(super) async fn entries<T: ListedTree>(
        &self,
        tree: &T,
        directory: &RemoteEntry<T::Attributes>,
    ) -> Result<TakenEntries<T::Attributes>, Failure> {
        let source = directory.source;
        let listed = tree.list(directory).await?;
        if self.filter.rules().ignore_files
            && let Some(file) = listed.get(IGNORE_FILE_NAME.as_bytes())
            && matches!(T::kind(file), EntryKind::File { .. })
        {
            let text = tree.ignore_file(directory, file).await?;
            self.add_ignore_file(source, &directory.path, &text);
        }
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        for (name, attributes) in listed {
            if name.starts_with(TEMP_PREFIX.as_bytes()) {
                continue;
            }
            match directory.path.child(&name) {
                Ok(path) if self.takes(source, &path, T::kind(&attributes)) => {
                    entries.push(RemoteEntry {
                        source,
                        path,
                        attributes,
                    });
                }
                Ok(_) => {}
                // The other end must not choose where a name leads.
                Err(error) => refused.push(error.into()),
            }
        }
        Ok((entries, refused))
    }

    /// Applies the ignore file of a directory.
    fn add_ignore_file(&self, source: u32, directory: &RelPath, text: &[u8]) {
        if let Some(ignored) = self.ignored.get(source as usize) {
            ignored.lock().add(directory.as_bytes(), text);
        }
    }

    /// Returns true if an entry is taken.
    fn takes(&self, source: u32, path: &RelPath, kind: EntryKind) -> bool {
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

    /// Returns the failures of the listed paths that the walk has not found.
    pub(super) fn missing(&self) -> Vec<(RelPath, Failure)> {
        let found = std::mem::take(&mut *self.found.lock());
        let missing = self.filter.listed().filter(|path| !found.contains(*path));
        let failed = missing.map(|path| match RelPath::from_bytes(path) {
            Ok(path) => (path, Failure::new(FailureKind::NotFound)),
            Err(_) => (RelPath::root(), Failure::new(FailureKind::RefusedPath)),
        });
        failed.collect()
    }
}
