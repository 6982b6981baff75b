//! Writing to a local destination from asynchronous tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::blocking::blocking;
use super::reporter::EntryReporter;
use super::target::{LocalDirectory, LocalTarget, NewEntry, PartialFile};
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::tree_hash::Hash;
use crate::wire::{EntryOutcome, Meta, SourceIdentity};

/// Result of a file, with the hash of its content if it was read.
pub type WriteOutcome = Result<(EntryOutcome, Option<Hash>), Failure>;

/// A local destination, shared by the tasks of a copy. Failures name the destination.
#[derive(Debug)]
pub struct LocalWriter {
    target: Arc<LocalTarget>,
    next_id: AtomicU64,
    /// Directories to be finished.
    directories: Mutex<Vec<LocalDirectory>>,
}

impl LocalWriter {
    /// Creates a writer.
    pub fn new(target: LocalTarget) -> Self {
        Self {
            target: Arc::new(target),
            next_id: AtomicU64::new(0),
            directories: Mutex::default(),
        }
    }

    /// Returns an entry of the copy, with a number of its own.
    pub fn entry(&self, source: u32, path: &RelPath, meta: Meta) -> NewEntry {
        NewEntry {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            source,
            path: path.clone(),
            meta,
        }
    }

    /// Runs blocking work of the destination.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalTarget) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let target = self.target.clone();
        blocking(move || work(&target).map_err(Failure::at_destination)).await
    }

    /// Returns true if something exists where the entry goes.
    ///
    /// # Errors
    /// The work panicked.
    pub async fn has_entry(&self, entry: &NewEntry) -> Result<bool, Failure> {
        let entry = entry.clone();
        self.run(move |target| Ok(target.has_entry(&entry))).await
    }

    /// Returns true if a file of this size and time is in place; see [`LocalTarget::is_in_place`].
    ///
    /// # Errors
    /// The existing file cannot be replaced.
    pub async fn is_in_place(&self, entry: &NewEntry, size: u64) -> Result<bool, Failure> {
        let entry = entry.clone();
        self.run(move |target| target.is_in_place(&entry, size))
            .await
    }

    /// Creates a directory, or takes an existing one. [`Self::finish`] gives it its time.
    ///
    /// # Errors
    /// It cannot be created.
    pub async fn directory(&self, entry: NewEntry) -> Result<EntryOutcome, Failure> {
        let directory = self.run(move |target| target.make_dir(entry)).await?;
        let outcome = match directory.is_new() {
            true => EntryOutcome::New,
            false => EntryOutcome::Same,
        };
        self.directories.lock().push(directory);
        Ok(outcome)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// It cannot be created, or something else exists.
    pub async fn symlink(&self, entry: NewEntry, link: Vec<u8>) -> Result<EntryOutcome, Failure> {
        self.run(move |target| target.write_symlink(&entry, &link))
            .await
    }

    /// Writes a whole file, and commits it.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn small(
        &self,
        entry: NewEntry,
        data: impl AsRef<[u8]> + Send + 'static,
    ) -> WriteOutcome {
        let (done, committed) = oneshot::channel();
        self.run(move |target| {
            target.write_small(&entry, data.as_ref(), |outcome, hash| {
                let _ = done.send((outcome, Some(hash)));
            });
            Ok(())
        })
        .await?;
        committed_by(committed).await
    }

    /// Begins a file; see [`LocalTarget::begin`].
    ///
    /// # Errors
    /// The file cannot be created.
    pub async fn begin(
        &self,
        entry: NewEntry,
        size: u64,
        identity: Option<SourceIdentity>,
    ) -> Result<Arc<PartialFile>, Failure> {
        let begun = self.run(move |target| target.begin(entry, size, identity));
        begun.await.map(Arc::new)
    }

    /// Writes one of the [`PartialFile::missing_blocks`].
    ///
    /// # Errors
    /// It cannot be written, or has not the length of the block.
    pub async fn block(
        &self,
        file: &Arc<PartialFile>,
        offset: u64,
        data: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<(), Failure> {
        let file = file.clone();
        self.run(move |target| target.write_block(&file, offset, data.as_ref()))
            .await
    }

    /// Ends a file: makes one that was `copied` durable and gives it its name, and removes what is
    /// left of another state of the source.
    ///
    /// # Errors
    /// That of `copied`, or the file cannot be committed.
    pub async fn end(&self, file: Arc<PartialFile>, copied: Result<(), Failure>) -> WriteOutcome {
        let Some(file) = Arc::into_inner(file) else {
            return Err(copied.err().unwrap_or_else(not_committed));
        };
        match copied {
            Ok(()) => {
                let (done, committed) = oneshot::channel();
                self.run(move |target| {
                    target.commit(file, |outcome, hash| {
                        let _ = done.send((outcome, hash));
                    });
                    Ok(())
                })
                .await?;
                committed_by(committed).await
            }
            Err(failure) => {
                if failure.kind == FailureKind::Changed {
                    self.run(move |target| {
                        target.discard(file);
                        Ok(())
                    })
                    .await?;
                }
                Err(failure)
            }
        }
    }

    /// Gives the directories their permissions and times, makes everything durable, and reports
    /// failures.
    pub async fn finish(&self, reporter: &EntryReporter) {
        let directories = std::mem::take(&mut *self.directories.lock());
        let finished = self.run(move |target| Ok(target.finish_all(directories)));
        let failures = finished
            .await
            .unwrap_or_else(|failure| vec![(0, RelPath::root(), failure)]);
        for (source, path, failure) in failures {
            reporter.failed(source, &path, failure.at_destination());
        }
    }
}

/// Leaves the directories of a copy that ended early to a later one.
impl Drop for LocalWriter {
    fn drop(&mut self) {
        for directory in self.directories.get_mut() {
            self.target.leave_dir(directory);
        }
    }
}

/// Waits for the outcome of a commit.
async fn committed_by(
    committed: oneshot::Receiver<(Result<EntryOutcome, Failure>, Option<Hash>)>,
) -> WriteOutcome {
    let (outcome, hash) = committed.await.map_err(|_| not_committed())?;
    Ok((outcome.map_err(Failure::at_destination)?, hash))
}

fn not_committed() -> Failure {
    Failure::with_detail(FailureKind::Io, "the file could not be committed").at_destination()
}
