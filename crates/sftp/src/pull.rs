//! Copies from a host: the walk of its trees, and one task for each entry.
//!
//! Directories are listed many at a time, and files are copied meanwhile. The walk pauses while
//! many entries wait.

mod file;
mod walk;

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_filter::{Filter, IgnoreRules};
use longhaul_transfer::local_end::{
    ContentMemory, EntryOutcome, EntryReporter, LocalDirectory, LocalTarget, NewEntry, blocking,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::entries::{Attributes, Kind, check_utf8};
use crate::error::Error;
use crate::pool::Pool;
use crate::request::PullRequest;

/// Entries that are copied at the same time, and directories that are listed.
const MAX_ENTRIES: usize = 512;
const MAX_LISTINGS: usize = 64;
/// Entries that wait, from which on no further directory is listed.
const MAX_WAITING: usize = 4096;
/// Large files that are copied at the same time.
const MAX_LARGE_FILES: usize = 8;
/// Maximum bytes of small files in memory.
const MAX_CONTENT_BYTES: u64 = 64 << 20;

/// State of a copy from a host, shared by the tasks of its entries.
struct Pull {
    pool: Arc<Pool>,
    reporter: Arc<EntryReporter>,
    target: Arc<LocalTarget>,
    sources: Vec<PathBuf>,
    filter: Arc<Filter>,
    /// Rules of the ignore files of each source.
    ignored: Vec<Mutex<IgnoreRules>>,
    /// Listed paths that have been found.
    found: Mutex<BTreeSet<Vec<u8>>>,
    is_recursive: bool,
    compares_content: bool,
    resumes: bool,
    next_id: AtomicU64,
    large_files: Semaphore,
    memory: ContentMemory,
    /// Directories to be finished.
    directories: Mutex<Vec<LocalDirectory>>,
}

/// An entry that the walk found.
#[derive(Debug)]
struct FoundEntry {
    source: u32,
    path: RelPath,
    attributes: Attributes,
}

/// Entries that wait for a task.
#[derive(Default)]
struct Backlog {
    directories: Vec<FoundEntry>,
    others: VecDeque<FoundEntry>,
}

/// Result of a task.
enum TaskResult {
    /// The entries of a directory.
    Listed(Vec<FoundEntry>),
    /// An entry is done.
    Done,
}

/// Copies from a host.
pub(crate) async fn pull(
    pool: Arc<Pool>,
    reporter: Arc<EntryReporter>,
    request: PullRequest<'_>,
) -> Result<(), Error> {
    let PullRequest {
        sources,
        recursive,
        filter,
        target,
        checksum,
        resume,
    } = request;
    if filter.rules().one_file_system {
        return Err(Error::Unsupported {
            option: "--one-file-system",
            reason: "the server does not tell where another file system begins",
        });
    }
    let paths = sources
        .iter()
        .map(|source| PathBuf::from(OsStr::from_bytes(source.path())));
    let pull = Arc::new(Pull {
        pool,
        reporter,
        target: Arc::new(target),
        sources: paths.collect(),
        filter,
        ignored: sources.iter().map(|_| Mutex::default()).collect(),
        found: Mutex::default(),
        is_recursive: recursive,
        compares_content: checksum,
        resumes: resume,
        next_id: AtomicU64::new(0),
        large_files: Semaphore::new(MAX_LARGE_FILES),
        memory: ContentMemory::new(MAX_CONTENT_BYTES),
        directories: Mutex::default(),
    });
    pull.copy().await;
    Ok(())
}

impl Pull {
    async fn copy(self: &Arc<Self>) {
        let mut backlog = Backlog::default();
        for (number, path) in (0..).zip(&self.sources) {
            if let Some(found) = self.source(number, path).await {
                backlog.add(found);
            }
        }
        let mut tasks = JoinSet::new();
        let (mut listings, mut is_walking) = (0, true);
        loop {
            while tasks.len() < MAX_ENTRIES
                && let Some(entry) = backlog.next(listings)
            {
                let (pull, is_directory) = (self.clone(), entry.is_directory());
                listings += usize::from(is_directory);
                tasks.spawn(async move {
                    match is_directory {
                        true => TaskResult::Listed(pull.directory(entry).await),
                        false => {
                            pull.entry(entry).await;
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
                    entries.into_iter().for_each(|entry| backlog.add(entry));
                }
                Some(Ok(TaskResult::Done)) => {}
                Some(Err(error)) => self.task_failed(&error.to_string()),
                None if backlog.is_empty() => break,
                // A listing that panicked is not counted any more.
                None => listings = 0,
            }
        }
        self.finish().await;
    }

    /// Reports a task that ended by a panic. The result of its entry is missing.
    fn task_failed(&self, why: &str) {
        let failure = Failure::with_detail(FailureKind::Io, why);
        self.reporter.failed(0, &RelPath::root(), failure);
    }

    /// Describes a source. Returns `None` if there is nothing to copy, which is reported.
    async fn source(&self, number: u32, path: &Path) -> Option<FoundEntry> {
        let root = RelPath::root();
        let failed = |failure| {
            self.reporter.found(0);
            self.reporter.ended(number, &root, Err(failure), None);
            None
        };
        if let Err(failure) = check_utf8(path) {
            return failed(failure);
        }
        let described = match self.is_recursive {
            true => again!(self.pool, 0, |lease| lease.describe_entry(path)),
            // A link that is named is followed.
            false => again!(self.pool, 0, |lease| lease.describe(path)),
        };
        match described {
            Ok(there) if there.kind == Kind::Directory && !self.is_recursive => {
                failed(Failure::new(FailureKind::IsDirectory))
            }
            Ok(attributes) => Some(FoundEntry {
                source: number,
                path: root,
                attributes,
            }),
            Err(error) => failed(error.into()),
        }
    }

    /// Copies an entry that is no directory, and reports the result.
    async fn entry(&self, found: FoundEntry) {
        let bytes = match found.attributes.kind {
            Kind::File => found.attributes.size,
            _ => 0,
        };
        self.reporter.found(bytes);
        let (outcome, content) = match found.attributes.kind {
            Kind::File => match self.file(&found).await {
                Ok((outcome, hash)) => (Ok(outcome), Some((bytes, hash))),
                Err(failure) => (Err(failure), None),
            },
            Kind::Symlink => (self.link(&found).await, None),
            Kind::Directory | Kind::Other => (Err(Failure::new(FailureKind::NotRegular)), None),
        };
        self.reporter
            .ended(found.source, &found.path, outcome, content);
    }

    async fn link(&self, found: &FoundEntry) -> Result<EntryOutcome, Failure> {
        let path = self.path_of(found.source, &found.path);
        let link = again!(self.pool, 0, |lease| lease.read_link(&path))?;
        let (target, entry) = (self.target.clone(), self.new_entry(found));
        blocking(move || {
            target
                .write_symlink(&entry, link.as_os_str().as_bytes())
                .map_err(Failure::at_destination)
        })
        .await
    }

    fn new_entry(&self, found: &FoundEntry) -> NewEntry {
        NewEntry {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            source: found.source,
            path: found.path.clone(),
            meta: found.attributes.meta(),
        }
    }

    /// Returns the path of an entry at the host.
    fn path_of(&self, source: u32, path: &RelPath) -> PathBuf {
        let source = self.sources.get(source as usize);
        let source = source.map(PathBuf::as_path).unwrap_or(Path::new(""));
        match path.is_root() {
            true => source.to_path_buf(),
            false => source.join(path.as_path()),
        }
    }

    /// Gives the directories their permissions and times, and makes everything durable.
    async fn finish(&self) {
        let directories = std::mem::take(&mut *self.directories.lock());
        let target = self.target.clone();
        let finished = tokio::task::spawn_blocking(move || target.finish_all(directories));
        match finished.await {
            Ok(failures) => {
                for (source, path, failure) in failures {
                    self.reporter
                        .failed(source, &path, failure.at_destination());
                }
            }
            Err(error) => self.task_failed(&error.to_string()),
        }
    }
}

/// Leaves the directories of a copy that ended early as the source has them.
impl Drop for Pull {
    fn drop(&mut self) {
        for directory in self.directories.get_mut() {
            self.target.leave_dir(directory);
        }
    }
}

impl FoundEntry {
    fn is_directory(&self) -> bool {
        self.attributes.kind == Kind::Directory
    }
}

impl Backlog {
    fn add(&mut self, found: FoundEntry) {
        match found.is_directory() {
            true => self.directories.push(found),
            false => self.others.push_back(found),
        }
    }

    fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.others.is_empty()
    }

    /// Takes the next entry. Directories come first, deepest first, unless much waits.
    fn next(&mut self, listings: usize) -> Option<FoundEntry> {
        let may_list = listings < MAX_LISTINGS && self.others.len() < MAX_WAITING;
        let directory = may_list.then(|| self.directories.pop()).flatten();
        directory.or_else(|| self.others.pop_front())
    }
}
