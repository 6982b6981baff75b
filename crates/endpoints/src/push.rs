//! Copies of local files to a store: the walk of the sources, and one task for each entry.

use std::sync::Arc;

use longhaul_transfer::local_end::{EntryOutcome, EntryReporter, LocalEntry, LocalEntryKind};
use longhaul_transfer::{Failure, FailureKind, Sources};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::content::ContentSource;
use crate::upload::{NewFile, Uploader};

/// Entries that were found and wait.
const MAX_FOUND: usize = 1024;

/// A copy to a store, shared by the tasks of its entries.
pub(crate) struct Push {
    pub sources: Arc<Sources>,
    pub reporter: Arc<EntryReporter>,
    pub uploader: Arc<Uploader>,
    /// Entries that are copied at the same time.
    pub max_entries: usize,
}

impl Push {
    /// Copies all that the sources hold.
    pub(crate) async fn copy(self: &Arc<Self>) {
        let (found, mut entries) = mpsc::channel(MAX_FOUND);
        let (sources, reporter) = (self.sources.clone(), self.reporter.clone());
        let walk = tokio::task::spawn_blocking(move || {
            sources.for_each(reporter.progress(), &|entry| {
                let bytes = match entry.kind {
                    LocalEntryKind::File { size } => size,
                    _ => 0,
                };
                reporter.found(bytes);
                found.blocking_send(entry).is_ok()
            });
        });
        let mut tasks = JoinSet::new();
        while let Some(entry) = entries.recv().await {
            while tasks.len() >= self.max_entries {
                tasks.join_next().await;
            }
            let push = self.clone();
            tasks.spawn(async move { push.entry(entry).await });
        }
        let _ = walk.await;
        self.reporter.walk_ended();
        while tasks.join_next().await.is_some() {}
        self.uploader.remove_unfinished().await;
    }

    /// Copies an entry, and reports the result.
    async fn entry(&self, entry: LocalEntry) {
        let (outcome, content) = match &entry.kind {
            LocalEntryKind::Failed(failure) => (Err(failure.clone()), None),
            LocalEntryKind::Directory => {
                let made = self.uploader.directory(entry.source, &entry.path).await;
                (made, None)
            }
            LocalEntryKind::Symlink { .. } => {
                let why = "a symbolic link: stores have none; leave it out, or name its target";
                let failure = Failure::with_detail(FailureKind::NotRegular, why);
                (Err(failure), None)
            }
            LocalEntryKind::File { size } => match self.file(&entry, *size).await {
                Ok((outcome, size)) => (Ok(outcome), Some((size, None))),
                Err(failure) => (Err(failure), None),
            },
        };
        self.reporter
            .ended(entry.source, &entry.path, outcome, content);
    }

    async fn file(&self, entry: &LocalEntry, size: u64) -> Result<(EntryOutcome, u64), Failure> {
        let file = NewFile {
            source: entry.source,
            path: &entry.path,
            size,
            modified: entry.meta.mtime.0,
        };
        let content = ContentSource::Local {
            sources: self.sources.clone(),
            source: entry.source,
            path: entry.path.clone(),
            progress: self.reporter.progress().clone(),
        };
        self.uploader.file(file, content).await
    }
}
