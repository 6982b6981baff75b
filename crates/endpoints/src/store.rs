//! One bucket, or one web server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::StreamExt;
use longhaul_transfer::{Failure, FailureKind};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, GetOptions, GetResult, ObjectStore, ObjectStoreExt, RetryConfig,
};

use crate::connect::{Connection, Purpose, connect};
use crate::error::Error;
use crate::location::{EndpointPath, Scheme};
use crate::object::Object;
use crate::outage::Outage;
use crate::overload::OverloadCount;
use crate::reason::Reason;
use crate::web::WebClient;

/// Repetitions of the requests before the first answer: a wrong name or endpoint is reported soon.
const FIRST_RETRIES: usize = 2;
/// Maximum time for which one request is repeated. Its signature is valid for 15 minutes.
const MAX_RETRY_TIME: Duration = Duration::from_secs(600);

/// A bucket or a web server, and its state in one copy.
pub(crate) struct Store {
    /// Name as a person knows it.
    place: String,
    scheme: Scheme,
    /// Client until the first answer.
    first: Connection,
    steady: Connection,
    is_answering: AtomicBool,
    web: Option<WebClient>,
    patience: Duration,
    pub outage: Outage,
    pub overloads: OverloadCount,
}

/// Entry of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Directory,
    File(Object),
}

/// Entries of a directory by name.
pub(crate) type Listing = BTreeMap<String, Found>;

impl Store {
    /// Creates the clients. Nothing is sent to the store.
    ///
    /// # Errors
    /// There are no credentials, or a setting is invalid.
    pub(crate) async fn open(
        path: &EndpointPath,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Self, Error> {
        let retry = |max_retries, retry_timeout| RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries,
            retry_timeout,
        };
        let first = retry(FIRST_RETRIES, Duration::from_secs(10));
        let steady = retry(usize::MAX, patience.min(MAX_RETRY_TIME));
        let overloads = OverloadCount::default();
        let web = match path.scheme() {
            Scheme::Web(_) | Scheme::Dav(_) => Some(WebClient::new(path, overloads.clone())?),
            _ => None,
        };
        Ok(Self {
            place: path.place(),
            scheme: path.scheme(),
            first: connect(path, purpose, first, &overloads).await?,
            steady: connect(path, purpose, steady, &overloads).await?,
            is_answering: AtomicBool::new(false),
            web,
            patience,
            outage: Outage::default(),
            overloads,
        })
    }

    /// Creates a store of clients that exist.
    #[cfg(test)]
    pub(crate) fn with_client(connection: Connection) -> Self {
        Self {
            place: "s3://bucket".to_owned(),
            scheme: Scheme::S3,
            first: connection.clone(),
            steady: connection,
            is_answering: AtomicBool::new(true),
            web: None,
            patience: Duration::from_secs(1),
            outage: Outage::default(),
            overloads: OverloadCount::default(),
        }
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) const fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns true if the store has answered a request.
    pub(crate) fn has_answered(&self) -> bool {
        self.is_answering.load(Ordering::Relaxed)
    }

    /// Returns the client for what an object store lacks.
    pub(crate) const fn web(&self) -> Option<&WebClient> {
        self.web.as_ref()
    }

    pub(crate) fn objects(&self) -> &Arc<dyn ObjectStore> {
        match self.is_answering.load(Ordering::Relaxed) {
            true => &self.steady.objects,
            false => &self.first.objects,
        }
    }

    /// Returns the client for uploads in parts.
    pub(crate) fn parts(&self) -> Option<&Arc<dyn MultipartStore>> {
        self.steady.parts.as_ref()
    }

    /// Requests an object.
    pub(crate) async fn get(
        &self,
        key: &Key,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let got = self.objects().get_opts(key, options).await;
        self.note_answer(got.as_ref().err());
        got
    }

    /// Describes what is at a key. Returns `None` if there is nothing.
    pub(crate) async fn find(&self, key: &Key) -> Result<Option<Found>, Reason> {
        if let Scheme::Dav(_) = self.scheme {
            let Some(name) = key.filename() else {
                return Ok(Some(Found::Directory));
            };
            // The answer about a directory is the same as about what it holds.
            let parent = key.parent().unwrap_or_default();
            return Ok(self.list(&parent).await?.remove(name));
        }
        if !key.is_root() {
            match self.head(key).await {
                Ok(object) => return Ok(Some(Found::File(object))),
                Err(Reason::NotFound) => {}
                Err(other) => return Err(other),
            }
        }
        if !self.scheme.has_buckets() {
            return Ok(None);
        }
        let is_directory = self.has_below(key).await? || key.is_root();
        Ok(is_directory.then_some(Found::Directory))
    }

    /// Returns true if there are objects below a key of a bucket.
    pub(crate) async fn has_below(&self, key: &Key) -> Result<bool, Reason> {
        let mut below = self.objects().list(Some(key));
        let first = below.next().await.transpose();
        self.note_answer(first.as_ref().err());
        let first = first.map_err(|error| Reason::new(&error))?;
        Ok(first.is_some())
    }

    /// Describes an object.
    pub(crate) async fn head(&self, key: &Key) -> Result<Object, Reason> {
        let got = self.get(key, GetOptions::new().with_head(true)).await;
        let got = got.map_err(|error| Reason::new(&error))?;
        Ok(Object::from(&got.meta).with_attributes(&got.attributes))
    }

    /// Lists a directory. A name that is an object and a directory is a directory.
    pub(crate) async fn list(&self, directory: &Key) -> Result<Listing, Reason> {
        self.list_all(directory).await.map(|(listing, _)| listing)
    }

    /// Lists a directory whose names are objects or directories, and none is both.
    ///
    /// # Errors
    /// [`Reason::Ambiguous`] if one is.
    pub(crate) async fn list_unambiguous(&self, directory: &Key) -> Result<Listing, Reason> {
        match self.list_all(directory).await? {
            (_, Some(name)) => Err(Reason::Ambiguous(name)),
            (listing, None) => Ok(listing),
        }
    }

    /// Lists a directory. Returns a name that is an object and a directory, too.
    async fn list_all(&self, directory: &Key) -> Result<(Listing, Option<String>), Reason> {
        let listed = self.objects().list_with_delimiter(Some(directory)).await;
        self.note_answer(listed.as_ref().err());
        let listed = listed.map_err(|error| Reason::new(&error))?;
        let mut listing = Listing::new();
        for meta in &listed.objects {
            if let Some(name) = meta.location.filename()
                && meta.location != *directory
            {
                listing.insert(name.to_owned(), Found::File(Object::from(meta)));
            }
        }
        let mut ambiguous = None;
        for prefix in &listed.common_prefixes {
            if let Some(name) = prefix.filename()
                && let Some(Found::File(_)) = listing.insert(name.to_owned(), Found::Directory)
            {
                ambiguous = Some(name.to_owned());
            }
        }
        Ok((listing, ambiguous))
    }

    /// Removes an object, if the store still answers.
    pub(crate) async fn remove(&self, key: &Key) -> Result<(), Reason> {
        let removed = self.objects().delete(key).await;
        removed.map_err(|error| Reason::new(&error))
    }

    /// Returns the failure of an entry. The end of all answers ends the copy, too.
    pub(crate) fn failure(&self, reason: Reason) -> Failure {
        if let Reason::Unreachable(words) = &reason {
            self.outage.note(words.clone());
        }
        reason.failure()
    }

    /// Returns the failure of an entry that the walk had found.
    pub(crate) fn vanished(&self, error: &object_store::Error) -> Failure {
        self.vanished_by(Reason::new(error))
    }

    /// Returns the failure of an entry that the walk had found, by the reason of a request.
    pub(crate) fn vanished_by(&self, reason: Reason) -> Failure {
        match reason {
            Reason::NotFound => Failure::new(FailureKind::Vanished),
            other => self.failure(other),
        }
    }

    /// Waits until the store does not answer any more.
    pub(crate) async fn ended(&self) -> Error {
        let reason = self.outage.occurred().await.to_owned();
        let place = self.place.clone();
        match self.has_answered() {
            true => Error::BrokeOff {
                place,
                patience: self.patience,
                reason,
            },
            false => Error::Unreachable { place, reason },
        }
    }

    /// Returns the error of a copy that cannot begin.
    pub(crate) fn error(&self, path: &EndpointPath, reason: Reason) -> Error {
        let place = self.place.clone();
        match reason {
            Reason::NotFound if self.scheme.has_buckets() => Error::NoBucket { place },
            Reason::Denied(reason) => Error::Denied { place, reason },
            Reason::Unreachable(reason) => Error::Unreachable { place, reason },
            Reason::Other(reason) => Error::Refused { place, reason },
            other => Error::Path {
                path: path.to_string(),
                failure: other.failure(),
            },
        }
    }

    /// Notes that the store answers, unless it does not.
    fn note_answer(&self, error: Option<&object_store::Error>) {
        if !matches!(error.map(Reason::new), Some(Reason::Unreachable(_))) {
            self.is_answering.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns the key of what has this path below `key`. The library's own `join` would encode some
/// characters.
///
/// # Errors
/// The path cannot be a part of a key.
pub(crate) fn join(key: &Key, path: &[u8]) -> Result<Key, Failure> {
    let refused = |why: &str| Failure::with_detail(FailureKind::RefusedPath, why);
    let path = std::str::from_utf8(path);
    let path = path.map_err(|_| refused("the name is not UTF-8: rename it"))?;
    let text = match (key.is_root(), path.is_empty()) {
        (_, true) => return Ok(key.clone()),
        (true, false) => path.to_owned(),
        (false, false) => format!("{key}/{path}"),
    };
    let joined = Key::parse(text);
    joined.map_err(|_| refused("the name has a control character, which keys do not allow"))
}
