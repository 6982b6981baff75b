//! Destination in a store: the key of each entry, and what exists there.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, TEMP_PREFIX};
use object_store::path::Path as Key;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::error::Error;
use crate::location::{EndpointPath, Scheme};
use crate::reason::Reason;
use crate::store::{Found, Listing, Store, join};

/// Destination of the sources of a copy.
pub(crate) struct Destination {
    store: Arc<Store>,
    key: Key,
    /// If true, sources go below it under their names. Otherwise the single source becomes it.
    is_into: bool,
    names: Vec<Vec<u8>>,
    listings: Mutex<BTreeMap<Key, Arc<OnceCell<Arc<Listing>>>>>,
}

/// Place of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub key: Key,
    /// True if the entry is a source itself.
    pub is_source: bool,
}

impl Destination {
    /// Finds the destination. A directory of a WebDAV server is created if the path must be one.
    ///
    /// # Errors
    /// The bucket does not exist or cannot be used.
    pub(crate) async fn find(
        store: Arc<Store>,
        path: &EndpointPath,
        names: Vec<Vec<u8>>,
    ) -> Result<Self, Error> {
        let must_be_directory = path.is_directory() || names.len() > 1;
        let is_into = match store.scheme() {
            // A web server has no directories that could be examined.
            Scheme::Web(_) => match store.head(path.key()).await {
                Err(reason @ Reason::Denied(_)) => return Err(store.error(path, reason)),
                _ => must_be_directory,
            },
            _ => {
                let found = store.find(path.key()).await;
                match found.map_err(|reason| store.error(path, reason))? {
                    Some(Found::Directory) => true,
                    Some(Found::File(_)) if must_be_directory && store.web().is_some() => {
                        let failure = Failure::new(FailureKind::WrongKind);
                        return Err(store_error(path, failure));
                    }
                    _ => must_be_directory,
                }
            }
        };
        if is_into && let (Scheme::Dav(_), Some(web)) = (store.scheme(), store.web()) {
            let made = match path.key().is_root() {
                true => Ok(()),
                false => web.make_dir(path.key()).await,
            };
            made.map_err(|reason| match reason {
                Reason::NotFound => {
                    let why = "the directory above it does not exist: make that directory first";
                    store_error(path, Failure::with_detail(FailureKind::NotFound, why))
                }
                other => store.error(path, other),
            })?;
        }
        Ok(Self {
            key: path.key().clone(),
            store,
            is_into,
            names,
            listings: Mutex::default(),
        })
    }

    /// Returns where an entry goes.
    ///
    /// # Errors
    /// The name is not UTF-8, or cannot be a key.
    pub(crate) fn place(&self, source: u32, path: &RelPath) -> Result<Place, Failure> {
        let name = self.names.get(source as usize).map(Vec::as_slice);
        let name = name.filter(|_| self.is_into).unwrap_or_default();
        let mut parts = name
            .split(|&byte| byte == b'/')
            .chain(path.as_bytes().split(|&b| b == b'/'));
        if parts.any(|part| part.starts_with(TEMP_PREFIX.as_bytes())) {
            let why = format!("names beginning with {TEMP_PREFIX} are for temporary files");
            return Err(Failure::with_detail(FailureKind::RefusedPath, why));
        }
        let key = join(&join(&self.key, name)?, path.as_bytes())?;
        Ok(Place {
            key,
            is_source: path.is_root(),
        })
    }

    /// Returns what exists at a place. Directories of a WebDAV server are created above it.
    pub(crate) async fn existing(&self, place: &Place) -> Result<Option<Found>, Failure> {
        let fail = |reason| self.store.failure(reason).at_destination();
        if place.is_source && !matches!(self.store.scheme(), Scheme::Dav(_)) {
            return match self.store.head(&place.key).await {
                Ok(object) => Ok(Some(Found::File(object))),
                Err(Reason::NotFound) => Ok(None),
                Err(other) => Err(fail(other)),
            };
        }
        let (Some(parent), Some(name)) = (place.key.parent(), place.key.filename()) else {
            return Ok(Some(Found::Directory));
        };
        let listing = self.listing(&parent).await.map_err(fail)?;
        Ok(listing.get(name).cloned())
    }

    /// Creates a directory, if the store has any.
    pub(crate) async fn make_dir(&self, place: &Place) -> Result<(), Failure> {
        let listed = match self.store.scheme() {
            Scheme::Dav(_) => self.listing(&place.key).await.map(drop),
            _ => Ok(()),
        };
        listed.map_err(|reason| self.store.failure(reason).at_destination())
    }

    /// Lists a directory once.
    async fn listing(&self, directory: &Key) -> Result<Arc<Listing>, Reason> {
        let cell = {
            let mut listings = self.listings.lock();
            listings.entry(directory.clone()).or_default().clone()
        };
        let listed = cell.get_or_try_init(|| async {
            match self.store.scheme() {
                Scheme::Dav(_) => self.list_or_make(directory).await,
                _ => self.store.list(directory).await.map(Arc::new),
            }
        });
        listed.await.cloned()
    }

    /// Lists a directory of a WebDAV server, and creates it and those above it if needed.
    fn list_or_make<'a>(
        &'a self,
        directory: &'a Key,
    ) -> BoxFuture<'a, Result<Arc<Listing>, Reason>> {
        Box::pin(async move {
            let is_above = self.key.prefix_matches(directory);
            let is_known = is_above && (self.is_into || *directory != self.key);
            let (Some(parent), Some(name)) = (directory.parent(), directory.filename()) else {
                return self.store.list(directory).await.map(Arc::new);
            };
            if !is_known {
                match self.listing(&parent).await?.get(name) {
                    Some(Found::Directory) => {}
                    Some(Found::File(_)) => {
                        return Err(Reason::Other(format!("{directory} is a file there")));
                    }
                    None => {
                        if let Some(web) = self.store.web() {
                            web.make_dir(directory).await?;
                        }
                        return Ok(Arc::default());
                    }
                }
            }
            self.store.list(directory).await.map(Arc::new)
        })
    }
}

fn store_error(path: &EndpointPath, failure: Failure) -> Error {
    Error::Path {
        path: path.to_string(),
        failure,
    }
}
