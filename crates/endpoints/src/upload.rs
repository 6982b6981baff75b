//! Uploads of files to a store: small ones in one request, large ones in parts.

mod multipart;
mod web;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use longhaul_transfer::local_end::{ContentMemory, EntryOutcome, EntryReporter, ExistingOptions};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, StreamCounters, WriteOptions};
use object_store::path::Path as Key;
use object_store::{PutMode, PutOptions, PutPayload};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::content::{Content, ContentSource, MAX_READ_BYTES};
use crate::destination::{Destination, Place};
use crate::existing::{Decision, decide};
use crate::gate::RequestGate;
use crate::object::attributes;
use crate::parts::MIN_MULTIPART_BYTES;
use crate::reader::ObjectReader;
use crate::reason::Reason;
use crate::store::{Found, Store};

/// Maximum bytes of content in memory.
const MAX_CONTENT_BYTES: u64 = 256 << 20;
/// Large files that are uploaded at the same time.
const MAX_LARGE_FILES: usize = 4;

/// Destination of a copy in a store.
pub(crate) struct Uploader {
    pub store: Arc<Store>,
    pub reporter: Arc<EntryReporter>,
    pub destination: Destination,
    pub existing: ExistingOptions,
    pub counters: Arc<StreamCounters>,
    /// Directory for records of unfinished uploads.
    pub records: Option<PathBuf>,
    /// Letters that distinguish the names of unfinished files of this copy.
    pub token: String,
    requests: Arc<RequestGate>,
    large_files: Semaphore,
    memory: ContentMemory,
    next_id: AtomicU64,
    unfinished: Mutex<BTreeMap<u64, Unfinished>>,
}

/// What a copy that ends early leaves at the store, unless it is removed.
#[derive(Debug, Clone)]
enum Unfinished {
    Upload { key: Key, id: String },
    File(Key),
}

/// A file to upload.
pub(crate) struct NewFile<'a> {
    pub source: u32,
    pub path: &'a RelPath,
    /// Size in bytes, as the walk found it.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: i64,
}

/// What an [`Uploader`] is made of.
pub(crate) struct UploaderParts {
    pub store: Arc<Store>,
    pub reporter: Arc<EntryReporter>,
    pub destination: Destination,
    pub options: WriteOptions,
    pub existing: ExistingOptions,
    pub counters: Arc<StreamCounters>,
    pub records: Option<PathBuf>,
    pub token: [u8; 16],
    pub requests: Arc<RequestGate>,
}

impl Uploader {
    pub(crate) fn new(parts: UploaderParts) -> Self {
        let [a, b, c, d, ..] = parts.token;
        Self {
            store: parts.store,
            reporter: parts.reporter,
            destination: parts.destination,
            existing: parts.existing,
            counters: parts.counters,
            records: parts.records.filter(|_| parts.options.resume),
            token: format!("{a:02x}{b:02x}{c:02x}{d:02x}"),
            requests: parts.requests,
            large_files: Semaphore::new(MAX_LARGE_FILES),
            memory: ContentMemory::new(MAX_CONTENT_BYTES),
            next_id: AtomicU64::new(0),
            unfinished: Mutex::default(),
        }
    }

    /// Creates a directory, if the store has any.
    pub(crate) async fn directory(
        &self,
        source: u32,
        path: &RelPath,
    ) -> Result<EntryOutcome, Failure> {
        let place = self.destination.place(source, path)?;
        self.destination.make_dir(&place).await?;
        Ok(EntryOutcome::Same)
    }

    /// Uploads a file. Its content is opened if it is needed. Returns its size, too.
    pub(crate) async fn file(
        &self,
        file: NewFile<'_>,
        content: ContentSource,
    ) -> Result<(EntryOutcome, u64), Failure> {
        let size = file.size;
        let place = self.destination.place(file.source, file.path)?;
        let there = self.destination.existing(&place).await?;
        let unchanged = || {
            self.reporter.written(size);
            Ok((EntryOutcome::Unchanged, size))
        };
        let mut opened: Option<Content> = None;
        let is_replaced = match decide(there.as_ref(), file.modified, size, &self.existing) {
            Decision::Create => false,
            Decision::Replace => true,
            Decision::Leave => return unchanged(),
            Decision::Fail(kind) => return Err(Failure::new(kind).at_destination()),
            Decision::Compare => {
                let opened = opened.insert(content.open().await?);
                if self.has_content(opened, &place, there).await? {
                    return unchanged();
                }
                if !self.existing.overwrite {
                    return Err(Failure::new(FailureKind::Exists).at_destination());
                }
                true
            }
        };
        let content = match opened {
            Some(content) => content,
            None => content.open().await?,
        };
        let size = content.size();
        if self.store.web().is_some() {
            self.by_web(&place, &content, is_replaced).await?;
        } else if size >= MIN_MULTIPART_BYTES {
            let _permit = self.large_files.acquire().await;
            self.in_parts(&file, &place, &content, is_replaced).await?;
        } else {
            self.whole(&place, &content, is_replaced).await?;
        }
        Ok((EntryOutcome::New, size))
    }

    /// Uploads a file in one request.
    async fn whole(
        &self,
        place: &Place,
        content: &Content,
        is_replaced: bool,
    ) -> Result<(), Failure> {
        let size = content.size();
        let _memory = self.memory.take(size).await;
        let mut permit = match content {
            // Reading it is a request, too.
            Content::Object(_) => Some(self.requests.acquire().await),
            Content::Local(_) => None,
        };
        let data: Vec<Bytes> = content.read(0..size).await?;
        content.check_unchanged().await?;
        if permit.is_none() {
            permit = Some(self.requests.acquire().await);
        }
        let payload: PutPayload = data.into_iter().collect();
        let options = PutOptions {
            mode: match is_replaced {
                true => PutMode::Overwrite,
                false => PutMode::Create,
            },
            attributes: attributes(content.modified()),
            ..PutOptions::default()
        };
        let objects = self.store.objects();
        let mut put = objects
            .put_opts(&place.key, payload.clone(), options.clone())
            .await;
        if let Err(object_store::Error::NotImplemented { .. }) = put {
            // The store has no conditional requests. What exists was examined just now.
            let options = PutOptions {
                mode: PutMode::Overwrite,
                ..options
            };
            put = objects.put_opts(&place.key, payload, options).await;
        }
        put.map_err(|error| self.failed(Reason::new(&error)))?;
        drop(permit);
        self.carried(size);
        self.reporter.written(size);
        Ok(())
    }

    /// Returns true if the existing object has the content of the new one. Both are read.
    async fn has_content(
        &self,
        content: &Content,
        place: &Place,
        there: Option<Found>,
    ) -> Result<bool, Failure> {
        let Some(Found::File(object)) = there else {
            return Ok(false);
        };
        let piece = content.size().min(MAX_READ_BYTES);
        let _memory = self.memory.take(2 * piece).await;
        let _permit = self.requests.acquire().await;
        let there = Content::Object(Arc::new(ObjectReader {
            store: self.store.clone(),
            key: place.key.clone(),
            object,
        }));
        let (here, there) = tokio::try_join!(hash(content), hash(&there))?;
        Ok(here == there)
    }

    /// Counts bytes that were sent.
    fn carried(&self, bytes: u64) {
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn failed(&self, reason: Reason) -> Failure {
        self.store.failure(reason).at_destination()
    }

    /// Notes what must be removed unless it is forgotten.
    fn note(&self, unfinished: Unfinished) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.unfinished.lock().insert(id, unfinished);
        id
    }

    fn forget(&self, id: u64) {
        self.unfinished.lock().remove(&id);
    }

    /// Removes what no later copy resumes.
    pub(crate) async fn remove_unfinished(&self) {
        let left = std::mem::take(&mut *self.unfinished.lock());
        let removing = left.into_values().map(|unfinished| self.remove(unfinished));
        futures_util::future::join_all(removing).await;
    }

    async fn remove(&self, unfinished: Unfinished) {
        match unfinished {
            Unfinished::File(key) => {
                let _ = self.store.remove(&key).await;
            }
            Unfinished::Upload { key, id } => {
                if let Some(parts) = self.store.parts() {
                    let _ = parts.abort_multipart(&key, &id).await;
                }
            }
        }
    }
}

/// Reads content, and returns its hash.
async fn hash(content: &Content) -> Result<blake3::Hash, Failure> {
    let (size, mut at) = (content.size(), 0);
    let mut hasher = blake3::Hasher::new();
    while at < size {
        let end = size.min(at + MAX_READ_BYTES);
        for piece in content.read(at..end).await? {
            hasher.update(&piece);
        }
        at = end;
    }
    Ok(hasher.finalize())
}
