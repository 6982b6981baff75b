//! Listing and removing what a store holds, without copying it.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use longhaul_transfer::files::message::{
    EntryKind, FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, ListingEntry, PathBytes,
};
use object_store::path::Path as Key;

use crate::connect::Purpose;
use crate::error::Error;
use crate::location::{EndpointPath, Scheme};
use crate::object::{DIRECTORY_MODE, FILE_MODE};
use crate::reason::Reason;
use crate::store::{Found, Store, join};

/// Time for which a request is repeated.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests at a time.
const MAX_REQUESTS: usize = 32;

/// A bucket or WebDAV server whose entries are listed and removed.
pub struct EndpointFiles {
    store: Store,
    root: EndpointPath,
}

impl std::fmt::Debug for EndpointFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointFiles").finish_non_exhaustive()
    }
}

impl EndpointFiles {
    /// Creates the client of the store in which the path is. Nothing is sent.
    ///
    /// # Errors
    /// There are no credentials, or a setting cannot be used.
    pub async fn open(path: &EndpointPath) -> Result<Self, Error> {
        Ok(Self {
            store: Store::open(path, Purpose::Read, PATIENCE).await?,
            root: path.root(),
        })
    }

    /// Answers a request. Its paths are keys.
    ///
    /// # Errors
    /// The store cannot be reached or refuses the credentials, or the bucket does not exist.
    pub async fn answer(&self, request: &FilesRequest) -> Result<FilesResponse, Error> {
        let answered = match request {
            FilesRequest::Look { path, list, .. } => self.look(path, *list).await,
            FilesRequest::Remove { path, .. } if path.0.is_empty() => {
                let reason = "it would remove all that is there: name what to remove";
                return Err(self.unsupported("rm", reason));
            }
            FilesRequest::Remove {
                path, recursive, ..
            } => self.remove(path, *recursive).await,
            _ => return Err(self.unsupported("this command", "use the tools of the store")),
        };
        answered.map_err(|reason| self.store.error(&self.root, reason))
    }

    fn unsupported(&self, option: &'static str, reason: &'static str) -> Error {
        Error::Unsupported {
            option,
            place: self.root.place(),
            reason,
        }
    }

    /// Answers several requests at once, in their order.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub async fn answer_all(&self, requests: &[FilesRequest]) -> Result<Vec<FilesResponse>, Error> {
        let answers = requests.iter().map(|request| self.answer(request).boxed());
        let answers: Vec<BoxFuture<'_, _>> = answers.collect();
        let answers = stream::iter(answers).buffered(MAX_REQUESTS);
        answers.try_collect().await
    }

    async fn look(&self, path: &PathBytes, list: bool) -> Result<FilesResponse, Reason> {
        let Some((key, found)) = self.find(path).await? else {
            return Ok(failed(FilesFailureKind::NotFound, path));
        };
        let entries = match (list, &found) {
            (true, Found::Directory) => {
                let listed = self.store.list(&key).await?;
                let named = listed.iter();
                named
                    .map(|(name, found)| entry(name.as_bytes(), found))
                    .collect()
            }
            _ => vec![entry(&path.0, &found)],
        };
        Ok(FilesResponse::Entries {
            entries,
            next: None,
        })
    }

    async fn remove(&self, path: &PathBytes, recursive: bool) -> Result<FilesResponse, Reason> {
        let Some((key, found)) = self.find(path).await? else {
            return Ok(failed(FilesFailureKind::NotFound, path));
        };
        match found {
            Found::File(_) => self.store.remove(&key).await?,
            Found::Directory if !recursive => {
                return Ok(failed(FilesFailureKind::IsDirectory, path));
            }
            Found::Directory => self.remove_tree(&key).await?,
        }
        Ok(FilesResponse::Changed)
    }

    async fn remove_tree(&self, directory: &Key) -> Result<(), Reason> {
        if let (Scheme::Dav(_), Some(web)) = (self.store.scheme(), self.store.web()) {
            return web.remove_dir(directory).await;
        }
        let store = &self.store;
        let objects = store.objects().list(Some(directory));
        let objects = objects.map_err(|error| Reason::new(&error));
        let removing = objects.try_for_each_concurrent(MAX_REQUESTS, |object| async move {
            match store.remove(&object.location).await {
                // Another program removed it.
                Err(Reason::NotFound) => Ok(()),
                removed => removed,
            }
        });
        removing.await
    }

    async fn find(&self, path: &PathBytes) -> Result<Option<(Key, Found)>, Reason> {
        let Ok(key) = join(&Key::ROOT, &path.0) else {
            return Ok(None);
        };
        let found = self.store.find(&key).await?;
        Ok(found.map(|found| (key, found)))
    }
}

fn entry(name: &[u8], found: &Found) -> ListingEntry {
    let entry = ListingEntry {
        name: PathBytes(name.to_vec()),
        kind: EntryKind::Directory,
        size: 0,
        mode: DIRECTORY_MODE,
        modified: 0,
        nanoseconds: None,
        target: None,
    };
    match found {
        Found::Directory => entry,
        Found::File(object) => ListingEntry {
            kind: EntryKind::File,
            size: object.size,
            mode: FILE_MODE,
            modified: object.modified().0,
            nanoseconds: object.mtime.map(|(_, nanoseconds)| nanoseconds),
            ..entry
        },
    }
}

fn failed(kind: FilesFailureKind, path: &PathBytes) -> FilesResponse {
    FilesResponse::Failed(FilesFailure::new(kind, path))
}
