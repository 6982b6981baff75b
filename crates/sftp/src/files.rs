//! Listing, reading and removing what a host holds, without copying it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::stream::{self, StreamExt};
use longhaul_remote::Ssh;
use longhaul_transfer::TransferProgress;
use longhaul_transfer::files::message::{
    EntryKind, FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, ListingEntry,
    MAX_CONTENT_BYTES, MAX_RANGE_BYTES, PathBytes,
};
use longhaul_transfer::local_end::EntryReporter;
use longhaul_transfer::{Failure, FailureKind};

use crate::content::{read_beginning, read_range};
use crate::entries::{Attributes, Kind, check_utf8, time_attrs};
use crate::error::Error;
use crate::listing::list;
use crate::location::SftpPath;
use crate::pool::{Pool, SftpLogin};
use crate::remote_file::{OpenMode, RemoteFile};

/// Requests that are answered at the same time.
const MAX_REQUESTS: usize = 32;

/// A host whose entries are listed, read and removed.
pub struct SftpFiles {
    pool: Pool,
}

impl std::fmt::Debug for SftpFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SftpFiles").finish_non_exhaustive()
    }
}

impl SftpFiles {
    /// Logs in to the host of `path`. Up to `max_sessions` connections are opened.
    ///
    /// # Errors
    /// ssh cannot log in, or there is no SFTP server.
    pub async fn open(
        path: &SftpPath,
        ssh: Ssh,
        max_sessions: usize,
        patience: Duration,
    ) -> Result<Self, Error> {
        let login = SftpLogin {
            ssh,
            host: path.host().to_owned(),
            shown: path.shown_host().to_owned(),
        };
        // Nothing of this is a part of a copy.
        let progress = Arc::<TransferProgress>::default();
        let reporter = EntryReporter::new(progress, Arc::new(()), Vec::new());
        let pool = Pool::open(login, max_sessions, patience, Arc::new(reporter)).await?;
        Ok(Self { pool })
    }

    /// Answers a request. Its paths are those of the server.
    ///
    /// # Errors
    /// The host does not answer any more.
    pub async fn answer(&self, request: &FilesRequest) -> Result<FilesResponse, Error> {
        let answers = self.answer_all(std::slice::from_ref(request)).await?;
        Ok(answers.into_iter().next().unwrap_or(FilesResponse::Changed))
    }

    /// Answers several requests at once, in their order.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub async fn answer_all(&self, requests: &[FilesRequest]) -> Result<Vec<FilesResponse>, Error> {
        tokio::select! {
            answers = self.answer_each(requests) => Ok(answers),
            error = self.pool.given_up() => Err(error),
        }
    }

    async fn answer_each(&self, requests: &[FilesRequest]) -> Vec<FilesResponse> {
        let files = opened(requests);
        let times = self.times_to_keep(requests).await;
        let answers = requests.iter();
        let answers = answers.map(|request| self.answer_one(request, &files).boxed());
        let answers: Vec<BoxFuture<'_, _>> = answers.collect();
        let answers = stream::iter(answers).buffered(MAX_REQUESTS);
        let answers: Vec<FilesResponse> = answers.collect().await;
        join_all(files.values().map(|file| file.close(&self.pool))).await;
        self.set_times(&times).await;
        answers
    }

    async fn answer_one(
        &self,
        request: &FilesRequest,
        files: &BTreeMap<&PathBytes, RemoteFile>,
    ) -> FilesResponse {
        let answered = self.try_answer(request, files).await;
        answered.unwrap_or_else(|failure| failed(request, &failure))
    }

    async fn try_answer(
        &self,
        request: &FilesRequest,
        files: &BTreeMap<&PathBytes, RemoteFile>,
    ) -> Result<FilesResponse, Failure> {
        match request {
            FilesRequest::Look { path, list, .. } => self.look(path, *list).await,
            FilesRequest::Read { path } => {
                let limit = MAX_CONTENT_BYTES as u32;
                let content = read_beginning(&self.pool, &checked(path)?, limit + 1).await?;
                Ok(content_of(content, limit))
            }
            FilesRequest::ReadRange { path, offset } => {
                let Some(file) = files.get(path) else {
                    return Err(Failure::new(FailureKind::NotFound));
                };
                let limit = MAX_RANGE_BYTES as u32;
                // One more byte tells whether the file goes on.
                let content = read_range(&self.pool, file, *offset, limit + 1).await?;
                Ok(content_of(content, limit))
            }
            FilesRequest::Remove {
                path, recursive, ..
            } => {
                let path = checked(path)?;
                let there = again!(self.pool, 0, |lease| lease.describe_entry(&path))?;
                match (there.kind, recursive) {
                    (Kind::Directory, false) => Err(Failure::new(FailureKind::IsDirectory)),
                    (Kind::Directory, true) => self.remove_tree(path).await,
                    _ => self.remove_file(&path).await,
                }?;
                Ok(FilesResponse::Changed)
            }
            _ => Err(Failure::with_detail(
                FailureKind::Io,
                "this is not possible by sftp: use longhaul at the host",
            )),
        }
    }

    async fn look(&self, path: &PathBytes, lists: bool) -> Result<FilesResponse, Failure> {
        let typed = checked(path)?;
        let there = again!(self.pool, 0, |lease| lease.describe_entry(&typed))?;
        let entries = match (lists, there.kind) {
            (true, Kind::Directory | Kind::Symlink) => {
                let listed = list(&self.pool, &typed).await?;
                let entries = listed.iter().map(|(name, attributes)| {
                    let path = typed.join(OsStr::from_bytes(name));
                    async move { self.entry(name, &path, attributes).await }
                });
                join_all(entries)
                    .await
                    .into_iter()
                    .collect::<Result<_, _>>()?
            }
            _ => vec![self.entry(&path.0, &typed, &there).await?],
        };
        Ok(FilesResponse::Entries {
            entries,
            next: None,
        })
    }

    async fn entry(
        &self,
        name: &[u8],
        path: &Path,
        attributes: &Attributes,
    ) -> Result<ListingEntry, Failure> {
        let target = match attributes.kind {
            Kind::Symlink => {
                let target = again!(self.pool, 0, |lease| lease.read_link(path))?;
                Some(PathBytes(target.as_os_str().as_bytes().to_vec()))
            }
            _ => None,
        };
        Ok(ListingEntry {
            name: PathBytes(name.to_vec()),
            kind: match attributes.kind {
                Kind::File => EntryKind::File,
                Kind::Directory => EntryKind::Directory,
                Kind::Symlink => EntryKind::Symlink,
                Kind::Other => EntryKind::Other,
            },
            size: attributes.size,
            mode: attributes.mode,
            modified: attributes.modified,
            nanoseconds: None,
            target,
        })
    }

    async fn remove_file(&self, path: &Path) -> Result<(), Failure> {
        let removed = again!(self.pool, 0, |lease| lease.remove(path));
        match removed {
            // It is gone, or the answer to a first attempt was lost.
            Err(error) if error.is_not_found() => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Removes a directory with all it holds. Links are removed and never followed.
    async fn remove_tree(&self, root: PathBuf) -> Result<(), Failure> {
        let (mut ahead, mut directories) = (vec![root], Vec::new());
        while let Some(directory) = ahead.pop() {
            let mut files = Vec::new();
            for (name, attributes) in list(&self.pool, &directory).await? {
                let path = directory.join(OsStr::from_bytes(&name));
                match attributes.kind {
                    Kind::Directory => ahead.push(path),
                    _ => files.push(path),
                }
            }
            let removing = files.iter().map(|file| self.remove_file(file).boxed());
            let removing: Vec<BoxFuture<'_, _>> = removing.collect();
            let mut removing = stream::iter(removing).buffer_unordered(MAX_REQUESTS);
            while let Some(removed) = removing.next().await {
                removed?;
            }
            directories.push(directory);
        }
        // What was listed later lies deeper.
        for directory in directories.iter().rev() {
            let removed = again!(self.pool, 0, |lease| lease.remove_dir(directory));
            match removed {
                Err(error) if error.is_not_found() => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Returns the directories that keep their times when something is removed from them.
    async fn times_to_keep(&self, requests: &[FilesRequest]) -> Vec<(PathBuf, i64)> {
        let parents: BTreeSet<PathBuf> = requests
            .iter()
            .filter_map(|request| match request {
                FilesRequest::Remove {
                    path,
                    keep_time: true,
                    ..
                } => parent(&checked(path).ok()?),
                _ => None,
            })
            .collect();
        let described = parents.into_iter().map(|parent| async move {
            let there = again!(self.pool, 0, |lease| lease.describe(&parent));
            Some((parent, there.ok()?.modified))
        });
        join_all(described).await.into_iter().flatten().collect()
    }

    async fn set_times(&self, times: &[(PathBuf, i64)]) {
        let setting = times.iter().map(|(directory, modified)| async move {
            if let Some(attributes) = time_attrs(*modified) {
                // A directory may have been removed, too.
                let _ = again!(self.pool, 0, |lease| lease.set(directory, attributes));
            }
        });
        join_all(setting).await;
    }

    /// Returns the absolute path without links of an entry, or of one that could be created.
    /// `None` if the server does not tell.
    ///
    /// # Errors
    /// The host does not answer any more.
    pub async fn real_path(&self, path: &PathBytes) -> Result<Option<PathBuf>, Error> {
        tokio::select! {
            real = self.resolve(path) => Ok(real),
            error = self.pool.given_up() => Err(error),
        }
    }

    async fn resolve(&self, path: &PathBytes) -> Option<PathBuf> {
        let mut there = checked(path).ok()?;
        let mut below = Vec::new();
        loop {
            match again!(self.pool, 0, |lease| lease.real_path(&there)) {
                Ok(real) => {
                    let names = below.iter().rev();
                    return Some(names.fold(real.into_path_buf(), |real, name| real.join(name)));
                }
                Err(error) if error.is_not_found() => {
                    below.push(there.file_name()?.to_owned());
                    there = parent(&there)?;
                }
                Err(_) => return None,
            }
        }
    }

    /// Ends the connections.
    pub async fn end(&self) {
        self.pool.end().await;
    }
}

/// Returns the files of which requests read ranges.
fn opened(requests: &[FilesRequest]) -> BTreeMap<&PathBytes, RemoteFile> {
    let ranges = requests.iter().filter_map(|request| match request {
        FilesRequest::ReadRange { path, .. } => {
            Some((path, RemoteFile::new(checked(path).ok()?, OpenMode::Read)))
        }
        _ => None,
    });
    ranges.collect()
}

/// Returns a path as the server takes it.
fn checked(path: &PathBytes) -> Result<PathBuf, Failure> {
    let typed = match path.0.is_empty() {
        true => Path::new("."),
        false => Path::new(OsStr::from_bytes(&path.0)),
    };
    check_utf8(typed)?;
    Ok(typed.to_path_buf())
}

/// Returns the directory that holds an entry.
fn parent(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    Some(match parent.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => parent.to_path_buf(),
    })
}

fn content_of(mut content: Vec<u8>, limit: u32) -> FilesResponse {
    let is_cut = content.len() > limit as usize;
    content.truncate(limit as usize);
    FilesResponse::Content {
        content: PathBytes(content),
        is_cut,
    }
}

fn failed(request: &FilesRequest, failure: &Failure) -> FilesResponse {
    let nothing = PathBytes::default();
    let path = match request {
        FilesRequest::Look { path, .. }
        | FilesRequest::Read { path }
        | FilesRequest::ReadRange { path, .. }
        | FilesRequest::Remove { path, .. } => path,
        _ => &nothing,
    };
    let kind = match failure.kind {
        FailureKind::NotFound => FilesFailureKind::NotFound,
        FailureKind::PermissionDenied => FilesFailureKind::PermissionDenied,
        FailureKind::IsDirectory => FilesFailureKind::IsDirectory,
        FailureKind::RefusedPath => FilesFailureKind::RefusedPath,
        _ => FilesFailureKind::Io,
    };
    FilesResponse::Failed(FilesFailure::with_detail(kind, path, &failure.detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_cut_at_its_limit() {
        for (len, is_cut) in [(0, false), (3, false), (4, true)] {
            let FilesResponse::Content {
                content,
                is_cut: cut,
            } = content_of(vec![7; len], 3)
            else {
                panic!("no content")
            };
            assert_eq!((content.0.len(), cut), (len.min(3), is_cut));
        }
    }

    #[test]
    fn entry_without_a_directory_lies_at_home() {
        for (path, above) in [("a", "."), ("a/b", "a"), ("/a", "/")] {
            assert_eq!(parent(Path::new(path)), Some(PathBuf::from(above)));
        }
        assert_eq!(parent(Path::new("/")), None);
    }
}
