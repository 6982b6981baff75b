//! Directories at a host: created once, listed once, and finished at the end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use longhaul_transfer::local_end::{EntryOutcome, LocalEntry, Meta};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::{Push, metadata_failure, parent_of};
use crate::entries::{Attributes, Kind, meta_attrs};
use crate::error::RequestError;
use crate::listing::{Entries, list};

/// Permissions of a directory while a copy fills it. A later copy recognises an unfinished one by
/// them.
const UNFINISHED_MODE: u32 = 0o1700;
/// A directory at the host, as a copy found it.
#[derive(Debug)]
pub(super) enum Directory {
    /// This copy created it, or an earlier copy did not finish it. `entries` are what an earlier
    /// copy left.
    Unfinished { entries: Entries },
    /// It existed.
    Existing { entries: Entries },
    /// It does not exist, and is not to be created.
    Absent,
}

impl Directory {
    /// Returns what has this name.
    pub(super) fn entry(&self, name: &[u8]) -> Option<&Attributes> {
        match self {
            Self::Unfinished { entries } | Self::Existing { entries } => entries.get(name),
            Self::Absent => None,
        }
    }
}

type DirectoryCell = Arc<OnceCell<Result<Arc<Directory>, Failure>>>;

/// Directories of a copy.
pub(super) struct RemoteDirectories {
    /// The directory above all others.
    root: PathBuf,
    cells: Mutex<HashMap<PathBuf, DirectoryCell>>,
    described: Mutex<Vec<DescribedDirectory>>,
}

/// A directory to be finished.
struct DescribedDirectory {
    source: u32,
    entry: RelPath,
    path: PathBuf,
    meta: Meta,
}

impl RemoteDirectories {
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            cells: Mutex::default(),
            described: Mutex::default(),
        }
    }
}

impl Push {
    /// Creates the directory of an entry.
    pub(super) async fn copy_directory(&self, entry: &LocalEntry) -> Result<EntryOutcome, Failure> {
        let place = self.place(entry)?;
        let directory = self.directory_at(&place.path).await?;
        let is_finished = match &*directory {
            Directory::Unfinished { .. } => true,
            Directory::Existing { .. } => self.options.overwrite,
            Directory::Absent => false,
        };
        if is_finished {
            self.directories.described.lock().push(DescribedDirectory {
                source: entry.source,
                entry: entry.path.clone(),
                path: place.path,
                meta: entry.meta.clone(),
            });
        }
        Ok(match &*directory {
            Directory::Unfinished { .. } => EntryOutcome::New,
            Directory::Existing { .. } | Directory::Absent => EntryOutcome::Same,
        })
    }

    /// Returns a directory, which is created if necessary.
    pub(super) fn directory_at<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Arc<Directory>, Failure>> {
        Box::pin(async move {
            let cell = self
                .directories
                .cells
                .lock()
                .entry(path.to_path_buf())
                .or_default()
                .clone();
            cell.get_or_init(|| self.find_or_make(path)).await.clone()
        })
    }

    async fn find_or_make(&self, path: &Path) -> Result<Arc<Directory>, Failure> {
        let there = if path == self.directories.root {
            again!(self.pool, 0, |lease| lease.describe(path)).map(Some)?
        } else {
            let parent = parent_of(path);
            let name = path.file_name().unwrap_or_default();
            let above = self.directory_at(&parent).await?;
            if matches!(*above, Directory::Absent) {
                return Ok(above);
            }
            above.entry(name.as_encoded_bytes()).copied()
        };
        match there {
            Some(there) if there.kind == Kind::Directory => {
                let entries = list(&self.pool, path).await?;
                let is_unfinished = there.mode & 0o5777 == UNFINISHED_MODE;
                Ok(Arc::new(match is_unfinished {
                    true => Directory::Unfinished { entries },
                    false => Directory::Existing { entries },
                }))
            }
            Some(_) => Err(Failure::new(FailureKind::WrongKind)),
            None if self.existing.policy.existing => Ok(Arc::new(Directory::Absent)),
            None => self.make(path).await,
        }
    }

    async fn make(&self, path: &Path) -> Result<Arc<Directory>, Failure> {
        let mut is_repeated = false;
        let made = loop {
            let lease = self.pool.lease(0).await;
            match lease.make_dir(path, UNFINISHED_MODE).await {
                Err(RequestError::Lost) => is_repeated = true,
                made => break made,
            }
        };
        let mut entries = Entries::new();
        if let Err(refused) = made {
            // It was made meanwhile, or the answer to a first attempt was lost.
            let there = again!(self.pool, 0, |lease| lease.describe_entry(path));
            match there {
                Ok(there) if there.kind == Kind::Directory && !is_repeated => {
                    entries = list(&self.pool, path).await?;
                    return Ok(Arc::new(Directory::Existing { entries }));
                }
                Ok(there) if there.kind == Kind::Directory => {
                    entries = list(&self.pool, path).await?;
                }
                Ok(_) => return Err(Failure::new(FailureKind::WrongKind)),
                Err(_) => return Err(refused.into()),
            }
        }
        Ok(Arc::new(Directory::Unfinished { entries }))
    }

    /// Gives the directories their permissions and times, deepest first.
    pub(super) async fn finish_directories(&self) {
        let mut described = std::mem::take(&mut *self.directories.described.lock());
        let depth = |directory: &DescribedDirectory| directory.path.components().count();
        described.sort_by_key(|directory| std::cmp::Reverse(depth(directory)));
        for level in described.chunk_by(|one, other| depth(one) == depth(other)) {
            join_all(level.iter().map(|directory| self.finish(directory))).await;
        }
    }

    async fn finish(&self, directory: &DescribedDirectory) {
        let (attrs, has_time) = meta_attrs(&directory.meta);
        let path = &directory.path;
        let mut finished = Ok(());
        if self.options.fsync {
            finished = self.sync(path).await;
        }
        if finished.is_ok() {
            let set = again!(self.pool, 0, |lease| lease.set(path, attrs));
            finished = set.map_err(metadata_failure).and_then(|()| match has_time {
                true => Ok(()),
                false => Err(no_time()),
            });
        }
        if let Err(failure) = finished {
            self.reporter
                .failed(directory.source, &directory.entry, failure);
        }
    }

    /// Makes the names in a directory durable.
    pub(super) async fn sync(&self, path: &Path) -> Result<(), Failure> {
        let synced = again!(self.pool, 0, |lease| async {
            let handle = lease.open_to_read(path).await?;
            let synced = lease.sync(&handle).await;
            lease.close(&handle).await?;
            synced
        });
        synced.map_err(|error| {
            let why = format!(
                "the server does not make names durable (--fsync): {}",
                Failure::from(error)
            );
            Failure::with_detail(FailureKind::Io, why)
        })
    }
}

/// Returns the failure for a time that SFTP cannot express.
pub(super) fn no_time() -> Failure {
    let why = "sftp has no times before 1970 or after 2106";
    Failure::with_detail(FailureKind::Metadata, why)
}
