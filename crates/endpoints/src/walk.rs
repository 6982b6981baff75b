//! Copies from a store: the walk of its trees, and one task for each entry.
//!
//! Directories are listed many at a time, and files are copied meanwhile. The walk pauses while
//! many entries wait.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use longhaul_filter::{EntryKind, Filter, IGNORE_FILE_NAME, IgnoreRules, MAX_IGNORE_FILE_BYTES};
use longhaul_transfer::local_end::{EntryOutcome, EntryReporter};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, TEMP_PREFIX};
use object_store::path::Path as Key;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::content::ContentSource;
use crate::download::Downloader;
use crate::error::Error;
use crate::location::{EndpointPath, Scheme};
use crate::object::Object;
use crate::reader::ObjectReader;
use crate::store::{Found, Store, join};
use crate::upload::{NewFile, Uploader};

/// Directories that are listed at the same time.
const MAX_LISTINGS: usize = 32;
/// Entries that wait, from which on no further directory is listed.
const MAX_WAITING: usize = 4096;

/// A copy from a store, shared by the tasks of its entries.
pub(crate) struct Walk {
    pub store: Arc<Store>,
    pub reporter: Arc<EntryReporter>,
    pub sources: Vec<EndpointPath>,
    pub sink: Sink,
    pub filter: Arc<Filter>,
    pub is_recursive: bool,
    /// Entries that are copied at the same time.
    pub max_entries: usize,
    /// Rules of the ignore files of each source.
    pub ignored: Vec<Mutex<IgnoreRules>>,
    /// Listed paths that have been found.
    pub found: Mutex<BTreeSet<Vec<u8>>>,
}

/// Where the entries go.
pub(crate) enum Sink {
    Local(Downloader),
    Endpoint(Arc<Uploader>),
}

/// An entry that the walk found.
#[derive(Debug)]
pub(crate) struct FoundEntry {
    pub source: u32,
    pub path: RelPath,
    found: Found,
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
    /// A file is done.
    Done,
}

impl Walk {
    /// Copies all that the sources hold.
    ///
    /// # Errors
    /// The bucket does not exist or cannot be used.
    pub(crate) async fn copy(self: &Arc<Self>) -> Result<(), Error> {
        let mut backlog = Backlog::default();
        for (number, source) in (0..).zip(&self.sources) {
            if let Some(found) = self.source(number, source).await? {
                backlog.add(found);
            }
        }
        let mut tasks = JoinSet::new();
        let (mut listings, mut is_walking) = (0, true);
        loop {
            while tasks.len() < self.max_entries
                && let Some(entry) = backlog.next(listings)
            {
                let (walk, is_directory) = (self.clone(), entry.found == Found::Directory);
                listings += usize::from(is_directory);
                tasks.spawn(async move {
                    match entry.found.clone() {
                        Found::Directory => TaskResult::Listed(walk.directory(entry).await),
                        Found::File(object) => {
                            walk.file(entry, object).await;
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
        if let Sink::Local(downloader) = &self.sink {
            downloader.finish().await;
        }
        Ok(())
    }

    /// Reports a task that ended by a panic. The result of its entry is missing.
    fn task_failed(&self, why: &str) {
        let failure = Failure::with_detail(FailureKind::Io, why);
        self.reporter.failed(0, &RelPath::root(), failure);
    }

    /// Describes a source. Returns `None` if there is nothing to copy, which is reported.
    async fn source(
        &self,
        number: u32,
        source: &EndpointPath,
    ) -> Result<Option<FoundEntry>, Error> {
        let root = RelPath::root();
        let found = match (self.store.scheme(), source.is_directory()) {
            (Scheme::Web(_), true) => {
                return Err(Error::Unsupported {
                    option: "a directory",
                    place: source.place(),
                    reason: "a web server does not list files: name each, or the tree as \
                             webdavs://",
                });
            }
            _ => self.store.find(source.key()).await,
        };
        let failure = match found {
            Ok(Some(Found::Directory)) if !self.is_recursive => FailureKind::IsDirectory,
            Ok(Some(found)) => {
                return Ok(Some(FoundEntry {
                    source: number,
                    path: root,
                    found,
                }));
            }
            Ok(None) => FailureKind::NotFound,
            Err(reason) => return Err(self.store.error(source, reason)),
        };
        self.reporter.found(0);
        let ended = Err(Failure::new(failure));
        self.reporter.ended(number, &root, ended, None);
        Ok(None)
    }

    /// Copies a file, and reports the result.
    async fn file(&self, entry: FoundEntry, object: Object) {
        let FoundEntry { source, path, .. } = entry;
        let size = object.size;
        self.reporter.found(size);
        let (outcome, content) = match self.copy_file(source, &path, object).await {
            Ok((outcome, hash)) => (Ok(outcome), Some((size, hash))),
            Err(failure) => (Err(failure), None),
        };
        self.reporter.ended(source, &path, outcome, content);
    }

    async fn copy_file(
        &self,
        source: u32,
        path: &RelPath,
        object: Object,
    ) -> Result<(EntryOutcome, Option<[u8; 32]>), Failure> {
        let size = object.size;
        let reader = ObjectReader {
            store: self.store.clone(),
            key: self.key_of(source, path)?,
            object,
        };
        match &self.sink {
            Sink::Local(downloader) => downloader.file(source, path, reader).await,
            Sink::Endpoint(uploader) => {
                let file = NewFile {
                    source,
                    path,
                    size,
                    modified: reader.object.modified().0,
                };
                let content = ContentSource::Object(Arc::new(reader));
                let (outcome, _) = uploader.file(file, content).await?;
                Ok((outcome, None))
            }
        }
    }

    /// Creates a directory, and lists what is in it. Failures are reported.
    async fn directory(&self, entry: FoundEntry) -> Vec<FoundEntry> {
        let FoundEntry { source, path, .. } = entry;
        self.reporter.found(0);
        let made = match &self.sink {
            Sink::Local(downloader) => downloader.directory(source, &path).await,
            Sink::Endpoint(uploader) => uploader.directory(source, &path).await,
        };
        let (outcome, entries) = match made {
            Err(failure) => (Err(failure), Vec::new()),
            Ok(outcome) => match self.list(source, &path).await {
                Ok(entries) => (Ok(outcome), entries),
                Err(failure) => (Err(failure), Vec::new()),
            },
        };
        self.reporter.ended(source, &path, outcome, None);
        entries
    }

    async fn list(&self, source: u32, path: &RelPath) -> Result<Vec<FoundEntry>, Failure> {
        let key = self.key_of(source, path)?;
        let listed = self.store.list(&key).await;
        let listed = listed.map_err(|reason| self.store.failure(reason))?;
        if self.filter.rules().ignore_files
            && let Some(Found::File(object)) = listed.get(IGNORE_FILE_NAME)
            && let Some(ignored) = self.ignored.get(source as usize)
        {
            let reader = ObjectReader {
                store: self.store.clone(),
                key: join(&key, IGNORE_FILE_NAME.as_bytes())?,
                object: object.clone(),
            };
            let len = object.size.min(MAX_IGNORE_FILE_BYTES as u64);
            let text = match len {
                0 => bytes::Bytes::new(),
                len => reader.read(0..len).await?,
            };
            ignored.lock().add(path.as_bytes(), &text);
        }
        let mut entries = Vec::new();
        for (name, found) in listed {
            if name.starts_with(TEMP_PREFIX) {
                continue;
            }
            match path.child(name.as_bytes()) {
                Ok(path) if self.takes(source, &path, &found) => entries.push(FoundEntry {
                    source,
                    path,
                    found,
                }),
                Ok(_) => {}
                // A store must not choose where a name leads.
                Err(error) => self.reporter.failed(source, path, error.into()),
            }
        }
        Ok(entries)
    }

    fn takes(&self, source: u32, path: &RelPath, found: &Found) -> bool {
        let kind = match found {
            Found::Directory => EntryKind::Directory,
            Found::File(object) => EntryKind::File {
                bytes: object.size,
                modified_ms: object.changed.saturating_mul(1000),
            },
        };
        let bytes = path.as_bytes();
        if self.filter.lists(bytes) {
            self.found.lock().insert(bytes.to_vec());
        }
        let is_ignored = || {
            let ignored = self.ignored.get(source as usize);
            let is_directory = *found == Found::Directory;
            ignored.is_some_and(|ignored| ignored.lock().leaves_out(bytes, is_directory))
        };
        self.filter.takes(bytes, kind) && !is_ignored()
    }

    /// Reports the listed paths that the walk has not found.
    fn report_missing(&self) {
        let found = std::mem::take(&mut *self.found.lock());
        for path in self.filter.listed().filter(|path| !found.contains(*path)) {
            let (path, kind) = match RelPath::from_bytes(path) {
                Ok(path) => (path, FailureKind::NotFound),
                Err(_) => (RelPath::root(), FailureKind::RefusedPath),
            };
            self.reporter.found(0);
            self.reporter.ended(0, &path, Err(Failure::new(kind)), None);
        }
    }

    /// Returns the key of an entry.
    fn key_of(&self, source: u32, path: &RelPath) -> Result<Key, Failure> {
        let key = self.sources.get(source as usize).map(EndpointPath::key);
        join(key.unwrap_or(&Key::ROOT), path.as_bytes())
    }
}

impl Backlog {
    fn add(&mut self, entry: FoundEntry) {
        match entry.found {
            Found::Directory => self.directories.push(entry),
            Found::File(_) => self.others.push_back(entry),
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
