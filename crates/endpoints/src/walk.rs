//! Copies from a store.

use std::sync::Arc;

use longhaul_filter::{Filter, IGNORE_FILE_NAME, MAX_IGNORE_FILE_BYTES};
use longhaul_transfer::local_end::{
    EntryKind, EntryOutcome, EntryReporter, RemoteEntry, RemoteListing, RemoteTree, WalkLimits,
    WriteOutcome, pull_trees,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind};
use object_store::path::Path as Key;

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

/// A copy from a store, shared by the tasks of its entries.
pub(crate) struct Walk {
    pub store: Arc<Store>,
    pub reporter: Arc<EntryReporter>,
    pub sources: Vec<EndpointPath>,
    pub sink: Sink,
    pub filter: Arc<Filter>,
    pub is_recursive: bool,
}

/// Where the entries go.
pub(crate) enum Sink {
    Local(Downloader),
    Endpoint(Arc<Uploader>),
}

/// An entry that the walk found.
type FoundEntry = RemoteEntry<Found>;

impl RemoteTree for Walk {
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

    async fn directory(&self, entry: &FoundEntry) -> Result<EntryOutcome, Failure> {
        match &self.sink {
            Sink::Local(downloader) => downloader.directory(entry.source, &entry.path).await,
            Sink::Endpoint(uploader) => uploader.directory(entry.source, &entry.path).await,
        }
    }

    async fn list(&self, directory: &FoundEntry) -> Result<RemoteListing<Found>, Failure> {
        let key = self.key_of(directory)?;
        let listed = self.store.list(&key).await;
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
        let reader = ObjectReader {
            store: self.store.clone(),
            key: join(&self.key_of(directory)?, IGNORE_FILE_NAME.as_bytes())?,
            object: object.clone(),
        };
        let len = object.size.min(MAX_IGNORE_FILE_BYTES as u64);
        Ok(reader.read(0..len).await?.to_vec())
    }

    async fn entry(&self, entry: &FoundEntry) -> WriteOutcome {
        match &entry.attributes {
            Found::File(object) => self.file(entry, object.clone()).await,
            Found::Directory => Err(Failure::new(FailureKind::NotRegular)),
        }
    }
}

impl Walk {
    /// Copies all that the sources hold.
    ///
    /// # Errors
    /// The bucket does not exist or cannot be used.
    pub(crate) async fn copy(self: &Arc<Self>, max_entries: usize) -> Result<(), Error> {
        let mut found = Vec::new();
        for (number, source) in (0..).zip(&self.sources) {
            found.extend(self.source(number, source).await?);
        }
        let (count, filter) = (self.sources.len(), self.filter.clone());
        let limits = WalkLimits {
            entries: max_entries,
            listings: MAX_LISTINGS,
        };
        pull_trees(self, found, count, filter, &self.reporter, limits).await;
        if let Sink::Local(downloader) = &self.sink {
            downloader.finish().await;
        }
        Ok(())
    }

    /// Describes a source. Returns `None` if there is nothing to copy, which is reported.
    async fn source(
        &self,
        number: u32,
        source: &EndpointPath,
    ) -> Result<Option<FoundEntry>, Error> {
        if let (Scheme::Web(_), true) = (self.store.scheme(), source.is_directory()) {
            return Err(Error::Unsupported {
                option: "a directory",
                place: source.place(),
                reason: "a web server does not list files: name each, or the tree as webdavs://",
            });
        }
        let path = RelPath::root();
        let found = self.store.find(source.key()).await;
        let missing = match found.map_err(|reason| self.store.error(source, reason))? {
            Some(Found::Directory) if !self.is_recursive => FailureKind::IsDirectory,
            Some(attributes) => {
                return Ok(Some(FoundEntry {
                    source: number,
                    path,
                    attributes,
                }));
            }
            None => FailureKind::NotFound,
        };
        self.reporter
            .not_copied(number, &path, Failure::new(missing));
        Ok(None)
    }

    async fn file(&self, entry: &FoundEntry, object: Object) -> WriteOutcome {
        let size = object.size;
        let reader = ObjectReader {
            store: self.store.clone(),
            key: self.key_of(entry)?,
            object,
        };
        let (source, path) = (entry.source, &entry.path);
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

    /// Returns the key of an entry.
    fn key_of(&self, entry: &FoundEntry) -> Result<Key, Failure> {
        let source = self.sources.get(entry.source as usize);
        let key = source.map(EndpointPath::key);
        join(key.unwrap_or(&Key::ROOT), entry.path.as_bytes())
    }
}
