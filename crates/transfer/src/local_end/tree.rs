//! Copies from another end: the walk of its trees, and one task for each entry.
//!
//! Directories are listed many at a time, and files are copied meanwhile. The walk pauses while
//! many entries wait.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use longhaul_filter::{EntryKind, Filter};
use tokio::task::JoinSet;

use super::listed_tree::{ListedTree, RemoteEntry};
use super::reporter::EntryReporter;
use super::selection::Selection;
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::tree_hash::Hash;
use crate::wire::EntryOutcome;

/// Entries that wait, from which on no further directory is listed.
const MAX_WAITING: usize = 4096;

/// Trees at another end, and the destination of their entries.
pub trait RemoteTree: ListedTree {
    /// Copies a directory without its content, which follows.
    fn directory(
        &self,
        entry: &RemoteEntry<Self::Attributes>,
    ) -> impl Future<Output = Result<EntryOutcome, Failure>> + Send;

    /// Copies an entry that is no directory. Returns the hash of a file that was read.
    fn entry(
        &self,
        entry: &RemoteEntry<Self::Attributes>,
    ) -> impl Future<Output = Result<(EntryOutcome, Option<Hash>), Failure>> + Send;
}

/// Bounds of a walk.
#[derive(Debug, Clone, Copy)]
pub struct WalkLimits {
    /// Entries that are copied at the same time.
    pub entries: usize,
    /// Directories of these that are listed at the same time.
    pub listings: usize,
}

/// Walk of the trees of a copy, shared by the tasks of its entries.
struct TreeWalk<T> {
    tree: Arc<T>,
    reporter: Arc<EntryReporter>,
    selection: Selection,
}

/// Copies trees, and reports the results. `sources` are the sources that were found, and
/// `source_count` is the number of all.
pub async fn pull_trees<T: RemoteTree>(
    tree: &Arc<T>,
    sources: Vec<RemoteEntry<T::Attributes>>,
    source_count: usize,
    filter: Arc<Filter>,
    reporter: &Arc<EntryReporter>,
    limits: WalkLimits,
) {
    let walk = TreeWalk {
        tree: tree.clone(),
        reporter: reporter.clone(),
        selection: Selection::new(filter, source_count),
    };
    Arc::new(walk).copy(sources, limits).await;
}

/// Entries that wait for a task.
struct Backlog<A> {
    directories: Vec<RemoteEntry<A>>,
    others: VecDeque<RemoteEntry<A>>,
}

/// Result of a task.
enum TaskResult<A> {
    /// The entries of a directory.
    Listed(Vec<RemoteEntry<A>>),
    /// An entry is done.
    Done,
}

impl<T: RemoteTree> TreeWalk<T> {
    async fn copy(self: &Arc<Self>, sources: Vec<RemoteEntry<T::Attributes>>, limits: WalkLimits) {
        let mut backlog = Backlog {
            directories: Vec::new(),
            others: VecDeque::new(),
        };
        let add = |backlog: &mut Backlog<T::Attributes>, entry: RemoteEntry<T::Attributes>| {
            match T::kind(&entry.attributes) == EntryKind::Directory {
                true => backlog.directories.push(entry),
                false => backlog.others.push_back(entry),
            }
        };
        for source in sources {
            add(&mut backlog, source);
        }
        let mut tasks = JoinSet::new();
        let (mut listings, mut is_walking) = (0, true);
        loop {
            while tasks.len() < limits.entries
                && let Some(entry) = backlog.next(listings < limits.listings)
            {
                let walk = self.clone();
                let is_directory = T::kind(&entry.attributes) == EntryKind::Directory;
                listings += usize::from(is_directory);
                tasks.spawn(async move {
                    match is_directory {
                        true => TaskResult::Listed(walk.directory(entry).await),
                        false => {
                            walk.entry(entry).await;
                            TaskResult::Done
                        }
                    }
                });
            }
            if is_walking && listings == 0 && backlog.directories.is_empty() {
                is_walking = false;
                self.report_missing();
                self.reporter.walk_ended();
            }
            match tasks.join_next().await {
                Some(Ok(TaskResult::Listed(entries))) => {
                    listings -= 1;
                    entries
                        .into_iter()
                        .for_each(|entry| add(&mut backlog, entry));
                }
                Some(Ok(TaskResult::Done)) => {}
                Some(Err(error)) => self.task_failed(&error.to_string()),
                None if backlog.is_empty() => break,
                // A listing that panicked is not counted any more.
                None => listings = 0,
            }
        }
    }

    /// Reports the listed paths that the walk has not found.
    fn report_missing(&self) {
        for (path, failure) in self.selection.missing() {
            self.reporter.not_copied(0, &path, failure);
        }
    }

    /// Reports a task that ended by a panic. The result of its entry is missing.
    fn task_failed(&self, why: &str) {
        let failure = Failure::with_detail(FailureKind::Io, why);
        self.reporter.failed(0, &RelPath::root(), failure);
    }

    /// Copies an entry that is no directory, and reports the result.
    async fn entry(&self, entry: RemoteEntry<T::Attributes>) {
        let bytes = match T::kind(&entry.attributes) {
            EntryKind::File { bytes, .. } => Some(bytes),
            EntryKind::Directory | EntryKind::Other => None,
        };
        self.reporter.found(bytes.unwrap_or(0));
        let (outcome, content) = match self.tree.entry(&entry).await {
            Ok((outcome, hash)) => (Ok(outcome), bytes.map(|bytes| (bytes, hash))),
            Err(failure) => (Err(failure), None),
        };
        let RemoteEntry { source, path, .. } = entry;
        self.reporter.ended(source, &path, outcome, content);
    }

    /// Copies a directory, and lists what is in it. Failures are reported.
    async fn directory(
        &self,
        entry: RemoteEntry<T::Attributes>,
    ) -> Vec<RemoteEntry<T::Attributes>> {
        self.reporter.found(0);
        let (outcome, entries) = match self.tree.directory(&entry).await {
            Err(failure) => (Err(failure), Vec::new()),
            Ok(outcome) => match self.list(&entry).await {
                Ok(entries) => (Ok(outcome), entries),
                Err(failure) => (Err(failure), Vec::new()),
            },
        };
        self.reporter
            .ended(entry.source, &entry.path, outcome, None);
        entries
    }

    async fn list(
        &self,
        directory: &RemoteEntry<T::Attributes>,
    ) -> Result<Vec<RemoteEntry<T::Attributes>>, Failure> {
        let (entries, refused) = self.selection.entries(&*self.tree, directory).await?;
        for failure in refused {
            self.reporter
                .failed(directory.source, &directory.path, failure);
        }
        Ok(entries)
    }
}

impl<A> Backlog<A> {
    fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.others.is_empty()
    }

    /// Takes the next entry. Directories come first, deepest first, unless much waits.
    fn next(&mut self, may_list: bool) -> Option<RemoteEntry<A>> {
        let may_list = may_list && self.others.len() < MAX_WAITING;
        let directory = may_list.then(|| self.directories.pop()).flatten();
        directory.or_else(|| self.others.pop_front())
    }
}
