//! Copies from a host.

mod file;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_filter::{IGNORE_FILE_NAME, MAX_IGNORE_FILE_BYTES};
use longhaul_transfer::local_end::{
    ContentMemory, EntryKind, EntryOutcome, EntryReporter, ListedTree, LocalWriter, NewEntry,
    RemoteEntry, RemoteListing, RemoteTree, WalkLimits, WriteOutcome, pull_trees,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind};
use tokio::sync::Semaphore;

use crate::content::read_beginning;
use crate::entries::{Attributes, Kind, check_utf8};
use crate::error::Error;
use crate::listing::list;
use crate::pool::Pool;
use crate::request::PullRequest;

/// Entries that are copied at the same time, and directories that are listed.
const LIMITS: WalkLimits = WalkLimits {
    entries: 512,
    listings: 64,
};
/// Large files that are copied at the same time.
const MAX_LARGE_FILES: usize = 8;
/// Maximum bytes of small files in memory.
const MAX_CONTENT_BYTES: u64 = 64 << 20;

/// State of a copy from a host, shared by the tasks of its entries.
struct Pull {
    pool: Arc<Pool>,
    reporter: Arc<EntryReporter>,
    writer: LocalWriter,
    sources: Vec<PathBuf>,
    is_recursive: bool,
    compares_content: bool,
    resumes: bool,
    large_files: Semaphore,
    memory: ContentMemory,
}

/// An entry that the walk found.
type FoundEntry = RemoteEntry<Attributes>;

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
        writer: LocalWriter::new(target),
        sources: paths.collect(),
        is_recursive: recursive,
        compares_content: checksum,
        resumes: resume,
        large_files: Semaphore::new(MAX_LARGE_FILES),
        memory: ContentMemory::new(MAX_CONTENT_BYTES),
    });
    let mut found = Vec::new();
    for (number, path) in (0..).zip(&pull.sources) {
        found.extend(pull.source(number, path).await);
    }
    let count = pull.sources.len();
    pull_trees(&pull, found, count, filter, &pull.reporter, LIMITS).await;
    pull.writer.finish(&pull.reporter).await;
    Ok(())
}

impl ListedTree for Pull {
    type Attributes = Attributes;

    fn kind(attributes: &Attributes) -> EntryKind {
        match attributes.kind {
            Kind::Directory => EntryKind::Directory,
            Kind::File => EntryKind::File {
                bytes: attributes.size,
                modified_ms: attributes.modified.saturating_mul(1000),
            },
            Kind::Symlink | Kind::Other => EntryKind::Other,
        }
    }

    async fn list(&self, found: &FoundEntry) -> Result<RemoteListing<Attributes>, Failure> {
        let path = self.path_of(found.source, &found.path);
        list(&self.pool, &path).await
    }

    async fn ignore_file(&self, found: &FoundEntry, _: &Attributes) -> Result<Vec<u8>, Failure> {
        let path = self.path_of(found.source, &found.path);
        let file = path.join(IGNORE_FILE_NAME);
        read_beginning(&self.pool, &file, MAX_IGNORE_FILE_BYTES as u32).await
    }
}

impl RemoteTree for Pull {
    async fn directory(&self, found: &FoundEntry) -> Result<EntryOutcome, Failure> {
        self.writer.directory(self.new_entry(found)).await
    }

    async fn entry(&self, found: &FoundEntry) -> WriteOutcome {
        match found.attributes.kind {
            Kind::File => self.file(found).await,
            Kind::Symlink => Ok((self.link(found).await?, None)),
            Kind::Directory | Kind::Other => Err(Failure::new(FailureKind::NotRegular)),
        }
    }
}

impl Pull {
    /// Describes a source. Returns `None` if there is nothing to copy, which is reported.
    async fn source(&self, number: u32, path: &Path) -> Option<FoundEntry> {
        let root = RelPath::root();
        let failed = |failure| {
            self.reporter.not_copied(number, &root, failure);
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

    async fn link(&self, found: &FoundEntry) -> Result<EntryOutcome, Failure> {
        let path = self.path_of(found.source, &found.path);
        let link = again!(self.pool, 0, |lease| lease.read_link(&path))?;
        let link = link.as_os_str().as_bytes().to_vec();
        self.writer.symlink(self.new_entry(found), link).await
    }

    fn new_entry(&self, found: &FoundEntry) -> NewEntry {
        let meta = found.attributes.meta();
        self.writer.entry(found.source, &found.path, meta)
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
}
