//! Sources at another end whose content passes through this machine. They are walked and read as
//! local sources are, so they can be sent wherever local ones can.

mod file;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use longhaul_filter::{EntryKind, Filter};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::listed_tree::{ListedTree, RemoteEntry};
use super::selection::Selection;
use super::source::LocalEntryKind;
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::send::{FoundEntry, Source, SourceFile, Sources, WalkSink};
use crate::wire::{EntryHead, Meta};

use file::{MAX_RANGES_AHEAD, RelayedFile, SharedFile};
pub use file::{RELAY_RANGE_BYTES, RelayFile};

/// Entries that are described at the same time.
const MAX_DESCRIBED: usize = 64;
/// Files of batches that are opened at the same time.
const MAX_PREPARING: usize = 32;

/// Trees at another end whose files are read in ranges.
pub trait RelayTree: ListedTree {
    /// An open file.
    type File: RelayFile;

    /// Describes an entry as it is copied.
    fn describe(
        &self,
        entry: &RemoteEntry<Self::Attributes>,
    ) -> impl Future<Output = Result<(Meta, LocalEntryKind), Failure>> + Send;

    /// Opens a file.
    fn open(
        &self,
        source: u32,
        path: &RelPath,
    ) -> impl Future<Output = Result<Self::File, Failure>> + Send;
}

impl Sources {
    /// Creates sources in trees at another end. `roots` are the sources themselves: each is an
    /// entry, or the reason why there is nothing to copy. Must be called in a runtime, which reads
    /// the files.
    pub fn relayed<T: RelayTree>(
        tree: Arc<T>,
        roots: Vec<Result<RemoteEntry<T::Attributes>, Failure>>,
        filter: Arc<Filter>,
    ) -> Self {
        Self::from_source(RelaySource {
            tree,
            roots,
            filter,
            runtime: Handle::current(),
            ahead: Arc::new(Semaphore::new(MAX_RANGES_AHEAD)),
            prepared: Mutex::default(),
            preparing: Arc::new(Semaphore::new(MAX_PREPARING)),
        })
    }
}

/// Task that opens a file, and reads it if it is small.
type Preparation<F> = JoinHandle<Result<Arc<SharedFile<F>>, Failure>>;
/// Those tasks by source and path.
type Preparations<F> = HashMap<(u32, RelPath), Preparation<F>>;

/// A [`RelayTree`] as a source of files.
struct RelaySource<T: RelayTree> {
    tree: Arc<T>,
    roots: Vec<Result<RemoteEntry<T::Attributes>, Failure>>,
    filter: Arc<Filter>,
    runtime: Handle,
    /// Permits of ranges that are read ahead.
    ahead: Arc<Semaphore>,
    /// Files of batches, until they are opened. Their content fits the buffers of streams.
    prepared: Mutex<Preparations<T::File>>,
    preparing: Arc<Semaphore>,
}

impl<T: RelayTree> Source for RelaySource<T> {
    fn walk(&self, sink: &dyn WalkSink) -> bool {
        let walk = RelayWalk {
            source: self,
            selection: Selection::new(self.filter.clone(), self.roots.len()),
            sink,
        };
        (0..).zip(&self.roots).all(|(number, root)| match root {
            Ok(root) => walk.root(root),
            Err(failure) => walk.failed(number, RelPath::root(), failure.clone()),
        }) && walk.report_missing()
    }

    fn open(&self, head: &EntryHead) -> Result<Box<dyn SourceFile>, Failure> {
        let key = (head.source, head.path.clone());
        let prepared = self.prepared.lock().remove(&key);
        let file = match prepared {
            Some(task) => self.runtime.block_on(task).unwrap_or_else(|error| {
                Err(Failure::with_detail(FailureKind::Io, error.to_string()))
            }),
            None => {
                let opening = self.tree.open(head.source, &head.path);
                self.runtime.block_on(opening).map(SharedFile::new)
            }
        }?;
        let (runtime, ahead) = (self.runtime.clone(), self.ahead.clone());
        Ok(Box::new(RelayedFile::new(file, runtime, ahead)))
    }

    fn prepare(&self, heads: &mut dyn Iterator<Item = &EntryHead>) {
        let mut prepared = self.prepared.lock();
        for head in heads {
            let (source, path) = (head.source, head.path.clone());
            let (tree, preparing) = (self.tree.clone(), self.preparing.clone());
            prepared.entry((source, path.clone())).or_insert_with(|| {
                self.runtime.spawn(async move {
                    // The semaphore is never closed.
                    let _permit = preparing.acquire().await;
                    let file = SharedFile::new(tree.open(source, &path).await?);
                    file.read_small().await;
                    Ok(file)
                })
            });
        }
    }

    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> bool {
        if let Some(filter) = filter {
            self.filter = filter.clone();
        }
        true
    }
}

/// One walk.
struct RelayWalk<'a, T: RelayTree> {
    source: &'a RelaySource<T>,
    selection: Selection,
    sink: &'a dyn WalkSink,
}

impl<T: RelayTree> RelayWalk<'_, T> {
    /// Walks one source. Returns false if the sink stopped it.
    fn root(&self, root: &RemoteEntry<T::Attributes>) -> bool {
        if T::kind(&root.attributes) != EntryKind::Directory {
            let described = self
                .source
                .runtime
                .block_on(self.source.tree.describe(root));
            return self.found(root.source, &root.path, described);
        }
        let Some(mut ahead) = self.directory(root) else {
            return false;
        };
        while let Some(directory) = ahead.pop() {
            match self.directory(&directory) {
                Some(below) => ahead.extend(below),
                None => return false,
            }
        }
        true
    }

    /// Passes a directory and the entries in it to the sink. Returns the directories in it, the
    /// last one first, or `None` if the sink stopped it.
    fn directory(
        &self,
        directory: &RemoteEntry<T::Attributes>,
    ) -> Option<Vec<RemoteEntry<T::Attributes>>> {
        let (number, path) = (directory.source, &directory.path);
        let RelaySource { tree, runtime, .. } = self.source;
        let listed = runtime.block_on(async {
            let described = tree.describe(directory).await?;
            let entries = self.selection.entries(&**tree, directory).await?;
            Ok::<_, Failure>((described, entries))
        });
        let (described, (entries, refused)) = match listed {
            Ok(listed) => listed,
            Err(failure) => return self.failed(number, path.clone(), failure).then(Vec::new),
        };
        let goes_on = self.found(number, path, Ok(described))
            && refused
                .into_iter()
                .all(|failure| self.failed(number, path.clone(), failure));
        if !goes_on {
            return None;
        }
        let is_directory =
            |entry: &RemoteEntry<_>| T::kind(&entry.attributes) == EntryKind::Directory;
        let (mut below, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_directory);
        if !self.describe_all(others) {
            return None;
        }
        below.reverse();
        Some(below)
    }

    /// Describes entries, many at a time, and passes them to the sink in their order.
    fn describe_all(&self, entries: Vec<RemoteEntry<T::Attributes>>) -> bool {
        let runtime = &self.source.runtime;
        let mut entries = entries.into_iter();
        loop {
            let tasks: Vec<_> = entries
                .by_ref()
                .take(MAX_DESCRIBED)
                .map(|entry| {
                    let tree = self.source.tree.clone();
                    let (number, path) = (entry.source, entry.path.clone());
                    let task = runtime.spawn(async move { tree.describe(&entry).await });
                    (number, path, task)
                })
                .collect();
            if tasks.is_empty() {
                return true;
            }
            for (number, path, task) in tasks {
                let described = runtime.block_on(task).unwrap_or_else(|error| {
                    Err(Failure::with_detail(FailureKind::Io, error.to_string()))
                });
                if !self.found(number, &path, described) {
                    return false;
                }
            }
        }
    }

    /// Passes an entry to the sink.
    fn found(
        &self,
        source: u32,
        path: &RelPath,
        described: Result<(Meta, LocalEntryKind), Failure>,
    ) -> bool {
        let (meta, found) = match described {
            Ok((meta, kind)) => match kind {
                LocalEntryKind::File { size } => (meta, FoundEntry::File { size }),
                LocalEntryKind::Directory => (meta, FoundEntry::Directory),
                LocalEntryKind::Symlink { target } => (meta, FoundEntry::Symlink { target }),
                LocalEntryKind::Failed(failure) => (meta, FoundEntry::Failed(failure)),
            },
            Err(failure) => return self.failed(source, path.clone(), failure),
        };
        self.sink.found(source, path.clone(), meta, found)
    }

    fn failed(&self, source: u32, path: RelPath, failure: Failure) -> bool {
        let found = FoundEntry::Failed(failure);
        self.sink.found(source, path, Meta::default(), found)
    }

    /// Reports the listed paths that the walk has not found.
    fn report_missing(&self) -> bool {
        let missing = self.selection.missing();
        missing
            .into_iter()
            .all(|(path, failure)| self.failed(0, path, failure))
    }
}

#[cfg(test)]
mod tests;
