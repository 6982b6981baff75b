//! Trees of a store, as they are listed and read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use longhaul_filter::{Filter, IGNORE_FILE_NAME, MAX_IGNORE_FILE_BYTES};
use longhaul_transfer::local_end::{
    EntryKind, ListedTree, LocalEntryKind, Meta, RelayFile, RelayTree, RemoteEntry, RemoteListing,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, Hash};
use object_store::path::Path as Key;
use parking_lot::Mutex;

use crate::content::identity;
use crate::error::Error;
use crate::location::{EndpointPath, Scheme};
use crate::object::{DIRECTORY_MODE, FILE_MODE, Object};
use crate::reader::ObjectReader;
use crate::store::{Found, Store, join};

/// Objects that are remembered between their description and their opening.
const MAX_REMEMBERED: usize = 1 << 16;

/// An entry that was found.
pub(crate) type FoundEntry = RemoteEntry<Found>;

/// Sources in one store.
pub(crate) struct StoreTree {
    pub store: Arc<Store>,
    sources: Vec<EndpointPath>,
    /// Objects as they were described, until they are opened.
    described: Mutex<HashMap<(u32, RelPath), Object>>,
}

impl StoreTree {
    pub(crate) fn new(store: Arc<Store>, sources: Vec<EndpointPath>) -> Self {
        Self {
            store,
            sources,
            described: Mutex::default(),
        }
    }

    /// Returns the number of sources.
    pub(crate) fn source_count(&self) -> usize {
        self.sources.len()
    }

    /// Finds a source. The failure is the reason why there is nothing to copy.
    ///
    /// # Errors
    /// The bucket does not exist or cannot be used.
    pub(crate) async fn root(
        &self,
        number: u32,
        recursive: bool,
    ) -> Result<Result<FoundEntry, Failure>, Error> {
        let Some(source) = self.sources.get(number as usize) else {
            return Ok(Err(Failure::new(FailureKind::NotFound)));
        };
        if let (Scheme::Web(_), true) = (self.store.scheme(), source.is_directory()) {
            return Err(Error::Unsupported {
                option: "a directory",
                place: source.place(),
                reason: "a web server does not list files: name each, or the tree as webdavs://",
            });
        }
        let found = self.store.find(source.key()).await;
        let missing = match found.map_err(|reason| self.store.error(source, reason))? {
            Some(Found::Directory) if !recursive => FailureKind::IsDirectory,
            Some(attributes) => {
                return Ok(Ok(FoundEntry {
                    source: number,
                    path: RelPath::root(),
                    attributes,
                }));
            }
            None => FailureKind::NotFound,
        };
        Ok(Err(Failure::new(missing)))
    }

    /// Returns the key of an entry.
    pub(crate) fn key_of(&self, source: u32, path: &RelPath) -> Result<Key, Failure> {
        let source = self.sources.get(source as usize);
        let key = source.map(EndpointPath::key);
        join(key.unwrap_or(&Key::ROOT), path.as_bytes())
    }

    async fn head(&self, source: u32, path: &RelPath) -> Result<Object, Failure> {
        let found = self.store.head(&self.key_of(source, path)?).await;
        found.map_err(|reason| self.store.vanished_by(reason))
    }
}

impl ListedTree for StoreTree {
    type Attributes = Found;

    fn kind(found: &Found) -> EntryKind {
        match found {
            Found::Directory => EntryKind::Directory,
            Found::File(object) => EntryKind::File {
                bytes: object.size,
                modified_ms: object.changed.saturating_mul(1000),
            },
        }
    }

    async fn list(&self, directory: &FoundEntry) -> Result<RemoteListing<Found>, Failure> {
        let key = self.key_of(directory.source, &directory.path)?;
        let listed = self.store.list_unambiguous(&key).await;
        let listed = listed.map_err(|reason| self.store.failure(reason))?;
        let bytes = listed
            .into_iter()
            .map(|(name, found)| (name.into_bytes(), found));
        Ok(bytes.collect())
    }

    async fn ignore_file(&self, directory: &FoundEntry, file: &Found) -> Result<Vec<u8>, Failure> {
        let Found::File(object) = file else {
            return Ok(Vec::new());
        };
        let directory = self.key_of(directory.source, &directory.path)?;
        let reader = ObjectReader {
            store: self.store.clone(),
            key: join(&directory, IGNORE_FILE_NAME.as_bytes())?,
            object: object.clone(),
        };
        let len = object.size.min(MAX_IGNORE_FILE_BYTES as u64);
        Ok(reader.read(0..len).await?.to_vec())
    }
}

impl RelayTree for StoreTree {
    type File = StoreFile;

    async fn describe(&self, entry: &FoundEntry) -> Result<(Meta, LocalEntryKind), Failure> {
        let Found::File(listed) = &entry.attributes else {
            return Ok((directory_meta(), LocalEntryKind::Directory));
        };
        let (source, path) = (entry.source, &entry.path);
        // Listings of buckets have no modification times of files.
        let object = match self.store.scheme().has_buckets() && listed.mtime.is_none() {
            true => self.head(source, path).await?,
            false => listed.clone(),
        };
        let (meta, size) = (meta_of(&object), object.size);
        let mut described = self.described.lock();
        if described.len() >= MAX_REMEMBERED {
            described.clear();
        }
        described.insert((source, path.clone()), object);
        Ok((meta, LocalEntryKind::File { size }))
    }

    async fn open(&self, source: u32, path: &RelPath) -> Result<StoreFile, Failure> {
        let described = self.described.lock().remove(&(source, path.clone()));
        let object = match described {
            Some(object) => object,
            None => self.head(source, path).await?,
        };
        Ok(StoreFile {
            reader: ObjectReader {
                store: self.store.clone(),
                key: self.key_of(source, path)?,
                object,
            },
        })
    }
}

/// An object that is read for a copy to another end.
pub(crate) struct StoreFile {
    reader: ObjectReader,
}

impl RelayFile for StoreFile {
    fn size(&self) -> u64 {
        self.reader.object.size
    }

    fn meta(&self) -> Meta {
        meta_of(&self.reader.object)
    }

    fn identity(&self) -> Option<[u8; 32]> {
        identity(&self.reader)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        self.reader.read(range).await
    }

    async fn check(&self, _: Option<Hash>) -> Result<(), Failure> {
        match self.reader.is_pinned() {
            // The store gave every range of this state, or none.
            true => Ok(()),
            false => self.reader.look().await.map(drop),
        }
    }
}

/// Refuses a filter that stores cannot apply.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) fn refuse_file_systems(place: &str, filter: &Filter) -> Result<(), Error> {
    match filter.rules().one_file_system {
        true => Err(Error::Unsupported {
            option: "--one-file-system",
            place: place.to_owned(),
            reason: "it has no file systems",
        }),
        false => Ok(()),
    }
}

/// Returns the metadata of a directory. Stores have no times of directories.
pub(crate) fn directory_meta() -> Meta {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or_default();
    Meta::new(DIRECTORY_MODE, (seconds, 0))
}

/// Returns the metadata of a file.
pub(crate) fn meta_of(object: &Object) -> Meta {
    Meta::new(FILE_MODE, object.modified())
}
