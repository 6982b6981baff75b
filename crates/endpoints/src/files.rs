//! Listing and removing what a store holds, without copying it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use longhaul_transfer::FailureKind;
use longhaul_transfer::files::message::{
    EntryKind, FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, ListingEntry, PathBytes,
};
use object_store::path::Path as Key;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::connect::Purpose;
use crate::error::Error;
use crate::location::{EndpointPath, Scheme};
use crate::object::{DIRECTORY_MODE, FILE_MODE};
use crate::reason::Reason;
use crate::store::{Found, Listing, Store, join};

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

    /// Answers a request. Its paths are keys. What is removed may be gone already.
    ///
    /// # Errors
    /// The store cannot be reached or refuses the credentials, or the bucket does not exist.
    pub async fn answer(&self, request: &FilesRequest) -> Result<FilesResponse, Error> {
        self.answer_with(request, &Listings::default()).await
    }

    async fn answer_with(
        &self,
        request: &FilesRequest,
        listings: &Listings,
    ) -> Result<FilesResponse, Error> {
        let answered = match request {
            FilesRequest::Look { path, list, .. } => self.look(path, *list, listings).await,
            FilesRequest::Remove { path, .. } if path.0.is_empty() => {
                let reason = "it would remove all that is there: name what to remove";
                return Err(self.unsupported("rm", reason));
            }
            FilesRequest::Remove {
                path, recursive, ..
            } => self.remove(path, *recursive, listings).await,
            _ => return Err(self.unsupported("this command", "use the tools of the store")),
        };
        answered.or_else(|reason| match (reason, request) {
            (reason @ Reason::Ambiguous(_), FilesRequest::Look { path, .. }) => {
                Ok(failed_for(reason, path))
            }
            (reason, _) => Err(self.store.error(&self.root, reason)),
        })
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
        let listings = Listings::default();
        let answers = requests.iter();
        let answers = answers.map(|request| self.answer_with(request, &listings).boxed());
        let answers: Vec<BoxFuture<'_, _>> = answers.collect();
        let answers = stream::iter(answers).buffered(MAX_REQUESTS);
        answers.try_collect().await
    }

    async fn look(
        &self,
        path: &PathBytes,
        list: bool,
        listings: &Listings,
    ) -> Result<FilesResponse, Reason> {
        let Some((key, found)) = self.find(path, listings).await? else {
            return Ok(failed(FilesFailureKind::NotFound, path));
        };
        let entries = match (list, &found) {
            (true, Found::Directory) => {
                let listed = self.store.list_unambiguous(&key).await?;
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

    async fn remove(
        &self,
        path: &PathBytes,
        recursive: bool,
        listings: &Listings,
    ) -> Result<FilesResponse, Reason> {
        let Some((key, found)) = self.find(path, listings).await? else {
            return Ok(failed(FilesFailureKind::NotFound, path));
        };
        let is_tree = match found {
            Found::Directory if !recursive => {
                return Ok(failed(FilesFailureKind::IsDirectory, path));
            }
            Found::Directory => true,
            // An object of that name is not the directory that was listed.
            Found::File(_) if recursive && self.store.scheme().has_buckets() => {
                self.store.has_below(&key).await?
            }
            Found::File(_) => false,
        };
        let removed = match is_tree {
            true => self.remove_tree(&key).await,
            false => self.store.remove(&key).await,
        };
        match removed {
            // Another program removed it.
            Ok(()) | Err(Reason::NotFound) => Ok(FilesResponse::Changed),
            Err(reason @ Reason::Unreachable(_)) => Err(reason),
            // The store may keep this one, and let others go.
            Err(reason) => Ok(failed_for(reason, path)),
        }
    }

    async fn remove_tree(&self, directory: &Key) -> Result<(), Reason> {
        if let (Scheme::Dav(_), Some(web)) = (self.store.scheme(), self.store.web()) {
            return web.remove_dir(directory).await;
        }
        let store = &self.store;
        let objects = store.objects().list(Some(directory));
        let removing = objects.map(|object| async move {
            let object = object.map_err(|error| Reason::new(&error))?;
            store.remove(&object.location).await
        });
        let mut removing = removing.buffer_unordered(MAX_REQUESTS);
        let mut kept = Ok(());
        while let Some(removed) = removing.next().await {
            match removed {
                Ok(()) | Err(Reason::NotFound) => {}
                Err(reason @ Reason::Unreachable(_)) => return Err(reason),
                Err(reason) => kept = Err(reason),
            }
        }
        kept
    }

    async fn find(
        &self,
        path: &PathBytes,
        listings: &Listings,
    ) -> Result<Option<(Key, Found)>, Reason> {
        let Ok(key) = join(&Key::ROOT, &path.0) else {
            return Ok(None);
        };
        let found = match (self.store.scheme(), key.parent(), key.filename()) {
            (Scheme::Dav(_), Some(parent), Some(name)) => {
                let listing = listings.list(&self.store, parent).await?;
                listing.get().and_then(|listing| listing.get(name)).cloned()
            }
            _ => self.store.find(&key).await?,
        };
        Ok(found.map(|found| (key, found)))
    }
}

/// Directories of a WebDAV server that tell what several requests name, each listed once.
#[derive(Default)]
struct Listings {
    directories: Mutex<HashMap<Key, Arc<OnceCell<Listing>>>>,
}

impl Listings {
    async fn list(&self, store: &Store, directory: Key) -> Result<Arc<OnceCell<Listing>>, Reason> {
        let cell = {
            let mut directories = self.directories.lock();
            directories.entry(directory.clone()).or_default().clone()
        };
        cell.get_or_try_init(|| store.list(&directory)).await?;
        Ok(cell)
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

/// Returns the answer about one entry that the store refuses.
fn failed_for(reason: Reason, path: &PathBytes) -> FilesResponse {
    let failure = reason.failure();
    let kind = match failure.kind {
        FailureKind::PermissionDenied => FilesFailureKind::PermissionDenied,
        _ => FilesFailureKind::Io,
    };
    FilesResponse::Failed(FilesFailure::with_detail(kind, path, &failure.detail))
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::connect::Connection;

    fn files(memory: &Arc<InMemory>) -> EndpointFiles {
        EndpointFiles {
            store: Store::with_client(Connection {
                objects: memory.clone(),
                parts: None,
            }),
            root: EndpointPath::parse(b"s3://bucket").unwrap().unwrap(),
        }
    }

    fn remove(path: &str) -> FilesRequest {
        FilesRequest::Remove {
            path: PathBytes(path.into()),
            recursive: true,
            keep_time: true,
        }
    }

    #[tokio::test]
    async fn object_stays_when_a_directory_of_its_name_is_removed() {
        let memory = Arc::new(InMemory::new());
        let object = Key::from("t/a");
        for key in [&object, &Key::from("t/a/below")] {
            memory.put(key, "content".into()).await.unwrap();
        }
        let files = files(&memory);
        let list = FilesRequest::Look {
            path: PathBytes(b"t".to_vec()),
            list: true,
            after: None,
            limit: None,
        };
        let FilesResponse::Failed(failure) = files.answer(&list).await.unwrap() else {
            panic!("an object was listed as a directory")
        };
        let text = failure.to_string();
        assert!(text.contains("a is an object and a directory"), "{text}");

        let removed = files.answer(&remove("t/a")).await.unwrap();
        assert_eq!(removed, FilesResponse::Changed);
        memory.head(&object).await.unwrap();
        assert!(memory.head(&Key::from("t/a/below")).await.is_err());
        let removed = files.answer(&remove("t/a")).await.unwrap();
        assert_eq!(removed, FilesResponse::Changed);
        assert!(memory.head(&object).await.is_err());
        let missing = files.answer(&remove("t/a")).await.unwrap();
        let path = PathBytes(b"t/a".to_vec());
        assert_eq!(missing, failed(FilesFailureKind::NotFound, &path));
    }

    #[test]
    fn refusal_of_one_object_names_it() {
        let path = PathBytes(b"t/held".to_vec());
        let answer = failed_for(Reason::Denied("under legal hold".to_owned()), &path);
        let FilesResponse::Failed(failure) = answer else {
            panic!("no failure")
        };
        assert_eq!(failure.kind, FilesFailureKind::PermissionDenied);
        let text = failure.to_string();
        assert!(
            text.contains("t/held") && text.contains("legal hold"),
            "{text}"
        );
    }
}
