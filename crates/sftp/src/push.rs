//! Copies to a host.

mod commit;
mod directories;
mod file;
mod link;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_transfer::local_end::{
    ContentMemory, EntryOutcome, EntryReporter, ExistingOptions, LocalEntry, RemoteTarget,
    push_entries,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, Sources, TEMP_PREFIX, WriteOptions};
use tokio::sync::Semaphore;

use crate::entries::{Kind, check_utf8};
use crate::error::Error;
use crate::error::RequestError;
use crate::location::SftpPath;
use crate::pool::Pool;
use crate::request::PushRequest;
use crate::unfinished::UnfinishedFiles;

use directories::RemoteDirectories;

/// Entries that are copied at the same time.
const MAX_ENTRIES: usize = 1024;
/// Large files that are copied at the same time.
const MAX_LARGE_FILES: usize = 8;
/// Maximum bytes of small files in memory.
const MAX_CONTENT_BYTES: u64 = 64 << 20;

/// State of a copy to a host, shared by the tasks of its entries.
struct Push {
    pool: Arc<Pool>,
    reporter: Arc<EntryReporter>,
    unfinished: Arc<UnfinishedFiles>,
    sources: Arc<Sources>,
    names: Vec<Vec<u8>>,
    target: Target,
    options: WriteOptions,
    existing: ExistingOptions,
    directories: RemoteDirectories,
    large_files: Semaphore,
    memory: ContentMemory,
}

/// Destination of the sources.
struct Target {
    /// The destination.
    path: PathBuf,
    /// If true, sources go below it under their names. Otherwise the single source becomes it.
    is_into: bool,
}

/// Destination of an entry.
struct Place {
    /// Directory, and the name there.
    directory: PathBuf,
    name: Vec<u8>,
    path: PathBuf,
}

/// Copies to a host.
pub(crate) async fn push(
    pool: Arc<Pool>,
    reporter: Arc<EntryReporter>,
    unfinished: Arc<UnfinishedFiles>,
    request: PushRequest<'_>,
    existing: ExistingOptions,
) -> Result<(), Error> {
    let PushRequest {
        sources,
        names,
        destination,
        options,
        ..
    } = request;
    let must_be_directory = destination.is_directory() || names.len() > 1;
    let target = find_target(&pool, destination, must_be_directory).await?;
    let root = match target.is_into {
        true => target.path.clone(),
        false => parent_of(&target.path),
    };
    let push = Arc::new(Push {
        directories: RemoteDirectories::new(root),
        pool,
        reporter,
        unfinished,
        sources: Arc::new(sources),
        names,
        target,
        options,
        existing,
        large_files: Semaphore::new(MAX_LARGE_FILES),
        memory: ContentMemory::new(MAX_CONTENT_BYTES),
    });
    push_entries(push.sources.clone(), &push, &push.reporter, MAX_ENTRIES).await;
    // Before the directories get their times. Connections may have been lost with some.
    push.unfinished.remove(&push.pool).await;
    push.finish_directories().await;
    Ok(())
}

/// Finds the destination, and creates it if it must be a directory.
async fn find_target(
    pool: &Pool,
    destination: &SftpPath,
    must_be_directory: bool,
) -> Result<Target, Error> {
    let path = PathBuf::from(OsStr::from_bytes(destination.path()));
    let error = |failure: Failure| Error::Path {
        path: destination.to_string(),
        failure,
    };
    check_utf8(&path).map_err(error)?;
    let there = again!(pool, 0, |lease| lease.describe(&path));
    let is_into = match there {
        Ok(there) if there.kind == Kind::Directory => true,
        Ok(_) if must_be_directory => return Err(error(Failure::new(FailureKind::WrongKind))),
        Ok(_) => false,
        Err(missing) if missing.is_not_found() => {
            let parent = parent_of(&path);
            let above = again!(pool, 0, |lease| lease.describe(&parent));
            match above {
                Ok(above) if above.kind == Kind::Directory => {}
                Ok(_) => return Err(error(Failure::new(FailureKind::WrongKind))),
                Err(missing) if missing.is_not_found() => {
                    let why = "the directory above it does not exist: make that directory first";
                    return Err(error(Failure::with_detail(FailureKind::NotFound, why)));
                }
                Err(other) => return Err(error(other.into())),
            }
            if must_be_directory {
                let made = again!(pool, 0, |lease| lease.make_dir(&path, 0o777));
                let is_there = match &made {
                    Ok(()) => true,
                    // The answer to a first attempt may have been lost.
                    Err(_) => again!(pool, 0, |lease| lease.describe(&path))
                        .is_ok_and(|there| there.kind == Kind::Directory),
                };
                if !is_there {
                    return made
                        .map(|()| Target {
                            path: path.clone(),
                            is_into: true,
                        })
                        .map_err(|refused| error(refused.into()));
                }
            }
            must_be_directory
        }
        Err(other) => return Err(error(other.into())),
    };
    Ok(Target { path, is_into })
}

impl RemoteTarget for Push {
    async fn file(&self, entry: &LocalEntry, size: u64) -> Result<(EntryOutcome, u64), Failure> {
        self.copy_file(entry, size).await
    }

    async fn directory(&self, entry: &LocalEntry) -> Result<EntryOutcome, Failure> {
        self.copy_directory(entry).await
    }

    async fn link(&self, entry: &LocalEntry, target: &[u8]) -> Result<EntryOutcome, Failure> {
        self.copy_link(entry, target).await
    }
}

impl Push {
    /// Returns where an entry goes.
    fn place(&self, entry: &LocalEntry) -> Result<Place, Failure> {
        let name = self.names.get(entry.source as usize);
        let name = name.map(Vec::as_slice).unwrap_or_default();
        let mut parts = name
            .split(|&byte| byte == b'/')
            .chain(entry.path.as_bytes().split(|&byte| byte == b'/'));
        if parts.any(|part| part.starts_with(TEMP_PREFIX.as_bytes())) {
            let why = format!("names beginning with {TEMP_PREFIX} are for temporary files");
            return Err(Failure::with_detail(FailureKind::RefusedPath, why));
        }
        let mut path = self.target.path.clone();
        if self.target.is_into && !name.is_empty() {
            path.push(OsStr::from_bytes(RelPath::from_bytes(name)?.as_bytes()));
        }
        if !entry.path.is_root() {
            path.push(entry.path.as_path());
        }
        check_utf8(&path)?;
        let name = path.file_name().unwrap_or_default();
        Ok(Place {
            directory: parent_of(&path),
            name: name.as_bytes().to_vec(),
            path,
        })
    }

    /// Fixes what a copy may fix of an unchanged entry.
    async fn fix_mode(&self, path: &Path, mode: u32) -> Result<EntryOutcome, Failure> {
        let attrs = crate::entries::mode_attrs(mode);
        again!(self.pool, 0, |lease| lease.set(path, attrs)).map_err(metadata_failure)?;
        Ok(EntryOutcome::Unchanged)
    }
}

/// Returns the directory of a path.
fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_path_buf(),
        None => path.to_path_buf(),
    }
}

/// Returns the failure of an entry that is in place, but lacks its permissions or time.
fn metadata_failure(error: RequestError) -> Failure {
    Failure::with_detail(FailureKind::Metadata, Failure::from(error).to_string())
}
