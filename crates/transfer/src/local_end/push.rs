//! Copies to another end: the walk of the local sources, and one task for each entry.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::reporter::EntryReporter;
use super::source::{LocalEntry, LocalEntryKind};
use crate::error::Failure;
use crate::send::Sources;
use crate::wire::EntryOutcome;

/// Entries that were found and wait.
const MAX_FOUND: usize = 1024;

/// Destination of local entries at another end.
pub trait RemoteTarget: Send + Sync + 'static {
    /// Copies a file of `size` bytes, as the walk found it. Returns its size when it was read, too.
    fn file(
        &self,
        entry: &LocalEntry,
        size: u64,
    ) -> impl Future<Output = Result<(EntryOutcome, u64), Failure>> + Send;

    /// Creates a directory, which precedes its content.
    fn directory(
        &self,
        entry: &LocalEntry,
    ) -> impl Future<Output = Result<EntryOutcome, Failure>> + Send;

    /// Creates a symbolic link.
    fn link(
        &self,
        entry: &LocalEntry,
        target: &[u8],
    ) -> impl Future<Output = Result<EntryOutcome, Failure>> + Send;
}

/// Copies all that the sources hold, `max_entries` at a time, and reports the results.
pub async fn push_entries<T: RemoteTarget>(
    sources: Arc<Sources>,
    target: &Arc<T>,
    reporter: &Arc<EntryReporter>,
    max_entries: usize,
) {
    let (found, mut entries) = mpsc::channel(MAX_FOUND);
    let walking = reporter.clone();
    let walk = tokio::task::spawn_blocking(move || {
        sources.for_each(walking.progress(), &|entry| {
            let bytes = match entry.kind {
                LocalEntryKind::File { size } => size,
                _ => 0,
            };
            walking.found(bytes);
            found.blocking_send(entry).is_ok()
        });
    });
    let mut tasks = JoinSet::new();
    while let Some(entry) = entries.recv().await {
        while tasks.len() >= max_entries {
            tasks.join_next().await;
        }
        let (target, reporter) = (target.clone(), reporter.clone());
        tasks.spawn(async move { push_entry(&*target, &reporter, entry).await });
    }
    let _ = walk.await;
    reporter.walk_ended();
    while tasks.join_next().await.is_some() {}
}

/// Copies an entry, and reports the result.
async fn push_entry<T: RemoteTarget>(target: &T, reporter: &EntryReporter, entry: LocalEntry) {
    let (outcome, content) = match &entry.kind {
        LocalEntryKind::Failed(failure) => (Err(failure.clone()), None),
        LocalEntryKind::Directory => (target.directory(&entry).await, None),
        LocalEntryKind::Symlink { target: link } => (target.link(&entry, link).await, None),
        LocalEntryKind::File { size } => match target.file(&entry, *size).await {
            Ok((outcome, size)) => (Ok(outcome), Some((size, None))),
            Err(failure) => (Err(failure), None),
        },
    };
    reporter.ended(entry.source, &entry.path, outcome, content);
}
