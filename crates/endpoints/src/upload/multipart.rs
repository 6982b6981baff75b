//! Uploads in parts, several at a time, which a later copy resumes.

use std::ops::Range;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use longhaul_transfer::{Failure, FailureKind};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{PutMultipartOptions, PutPayload};

use super::{NewFile, Unfinished, Uploader};
use crate::content::Content;
use crate::destination::Place;
use crate::object::attributes;
use crate::parts::{upload_part_bytes, upload_parts};
use crate::reason::Reason;
use crate::record::{StoredParts, UploadHead, UploadRecord};

/// Code of Azure's answer if it has forgotten blocks of an upload.
const FORGOTTEN_BLOCKS: &str = "InvalidBlockList";

/// Upload of one file.
struct Upload<'a> {
    store: Arc<dyn MultipartStore>,
    key: &'a Key,
    head: UploadHead,
    /// Parts that the store has.
    stored: StoredParts,
    record: Option<UploadRecord>,
    /// Number under which it is noted for removal, if no later copy resumes it.
    noted: Option<u64>,
}

impl Uploader {
    /// Uploads a file in parts.
    pub(super) async fn in_parts(
        &self,
        file: &NewFile<'_>,
        place: &Place,
        content: &Content,
        is_replaced: bool,
    ) -> Result<(), Failure> {
        let mut upload = self.begin(place, content).await?;
        let size = content.size();
        let mut resumed = upload.stored_bytes(size);
        if resumed > 0 {
            self.reporter.resumed(file.source, file.path, resumed, size);
        }
        let (mut sent, mut result) = self.send(&mut upload, place, content, is_replaced).await;
        if resumed > 0 && is_gone(&result) {
            // The store has forgotten the upload: some remove old ones after a few days.
            self.reporter.taken_back(resumed + sent);
            resumed = 0;
            self.begin_again(&mut upload, content).await?;
            (sent, result) = self.send(&mut upload, place, content, is_replaced).await;
        }
        match &result {
            Ok(()) => upload.forget(self),
            Err(failure) => {
                self.reporter.taken_back(resumed + sent);
                // An outage leaves what a later copy resumes; other failures come again.
                if !self.store.outage.has_occurred() || failure.kind == FailureKind::Changed {
                    let (key, id) = (place.key.clone(), upload.head.upload.clone());
                    self.remove(Unfinished::Upload { key, id }).await;
                    upload.forget(self);
                }
            }
        }
        result
    }

    /// Begins an upload, or takes the one that an earlier copy left.
    async fn begin<'a>(&self, place: &'a Place, content: &Content) -> Result<Upload<'a>, Failure> {
        let Some(store) = self.store.parts() else {
            return Err(self.failed(Reason::Unsupported));
        };
        let destination = format!("{}/{}", self.store.place(), place.key);
        let directory = self.records.clone();
        let opened = directory
            .zip(content.identity())
            .and_then(|(directory, identity)| {
                UploadRecord::open(&directory, &destination, &identity)
            });
        let (record, left) = opened.map_or((None, None), |(record, left)| (Some(record), left));
        let mut upload = Upload {
            store: store.clone(),
            key: &place.key,
            head: UploadHead {
                upload: String::new(),
                part_bytes: upload_part_bytes(content.size()),
            },
            stored: StoredParts::new(),
            record,
            noted: None,
        };
        match left {
            Some((head, stored)) => (upload.head, upload.stored) = (head, stored),
            None => self.begin_again(&mut upload, content).await?,
        }
        Ok(upload)
    }

    async fn begin_again(&self, upload: &mut Upload<'_>, content: &Content) -> Result<(), Failure> {
        let options = PutMultipartOptions {
            attributes: attributes(content.modified()),
            ..PutMultipartOptions::default()
        };
        let mut created = upload
            .store
            .create_multipart_opts(upload.key, options)
            .await;
        if let Err(object_store::Error::NotSupported { .. }) = created {
            // Blocks of Azure have no metadata.
            created = upload.store.create_multipart(upload.key).await;
        }
        upload.head.upload = created.map_err(|error| self.failed(Reason::new(&error)))?;
        upload.stored.clear();
        let is_recorded = match &upload.record {
            Some(record) => record.begin(&upload.head).is_ok(),
            None => false,
        };
        if !is_recorded {
            upload.record = None;
            upload.noted = Some(self.note(Unfinished::Upload {
                key: upload.key.clone(),
                id: upload.head.upload.clone(),
            }));
        }
        Ok(())
    }

    /// Sends the parts that the store lacks, and completes the upload. Returns the bytes that were
    /// sent.
    async fn send(
        &self,
        upload: &mut Upload<'_>,
        place: &Place,
        content: &Content,
        is_replaced: bool,
    ) -> (u64, Result<(), Failure>) {
        let (sent, result) = self.send_parts(upload, content).await;
        let result = match result {
            Ok(()) => self.complete(upload, place, content, is_replaced).await,
            Err(failure) => Err(failure),
        };
        (sent, result)
    }

    /// Sends the parts that the store lacks. Returns the bytes that were sent.
    async fn send_parts(
        &self,
        upload: &mut Upload<'_>,
        content: &Content,
    ) -> (u64, Result<(), Failure>) {
        let part_bytes = upload.head.part_bytes;
        let stored = upload.stored.clone();
        let parts = (0..).zip(upload_parts(content.size(), part_bytes));
        let mut missing = parts.filter(|(index, _)| !stored.contains_key(index));
        let mut under_way = FuturesUnordered::new();
        let mut sent = 0;
        // More would wait for memory only.
        let limit = self.requests_at_once(part_bytes);
        loop {
            while under_way.len() < limit
                && let Some((index, range)) = missing.next()
            {
                let (store, key) = (upload.store.clone(), upload.key);
                let id = upload.head.upload.clone();
                under_way.push(self.send_part(store, key, id, index, range, content));
            }
            match under_way.next().await {
                Some(Ok((index, len, part))) => {
                    sent += len;
                    self.reporter.written(len);
                    if let Some(record) = &upload.record {
                        let _ = record.note(index, &part.content_id);
                    }
                    upload.stored.insert(index, part.content_id);
                }
                Some(Err(failure)) => return (sent, Err(failure)),
                None => return (sent, Ok(())),
            }
        }
    }

    async fn send_part(
        &self,
        store: Arc<dyn MultipartStore>,
        key: &Key,
        id: String,
        index: u64,
        range: Range<u64>,
        content: &Content,
    ) -> Result<(u64, u64, PartId), Failure> {
        let len = range.end - range.start;
        // In this order everywhere, so that none waits for the other.
        let _memory = self.memory.take(len).await;
        let _permit = self.requests.acquire().await;
        let payload: PutPayload = content.read(range).await?.into_iter().collect();
        let number = usize::try_from(index).map_err(|_| Failure::new(FailureKind::Limit))?;
        let put = store.put_part(key, &id, number, payload).await;
        let part = put.map_err(|error| self.failed(Reason::new(&error)))?;
        self.carried(len);
        Ok((index, len, part))
    }

    /// Makes an object of the parts, after a last look at the source and at what exists.
    async fn complete(
        &self,
        upload: &mut Upload<'_>,
        place: &Place,
        content: &Content,
        is_replaced: bool,
    ) -> Result<(), Failure> {
        content.check_unchanged().await?;
        if !is_replaced {
            match self.store.head(&place.key).await {
                Err(Reason::NotFound) => {}
                Ok(_) => return Err(Failure::new(FailureKind::Exists).at_destination()),
                Err(other) => return Err(self.failed(other)),
            }
        }
        let parts = upload.stored.values().map(|id| PartId {
            content_id: id.clone(),
        });
        let completing =
            upload
                .store
                .complete_multipart(upload.key, &upload.head.upload, parts.collect());
        let completed = completing.await;
        completed.map_err(|error| match Reason::new(&error) {
            Reason::Other(words) if words.contains(FORGOTTEN_BLOCKS) => {
                self.failed(Reason::NotFound)
            }
            other => self.failed(other),
        })?;
        Ok(())
    }

    /// Returns the number of parts of one file that are sent at a time.
    fn requests_at_once(&self, part_bytes: u64) -> usize {
        let parts = super::MAX_CONTENT_BYTES / part_bytes.max(1);
        usize::try_from(parts).unwrap_or(usize::MAX).max(1)
    }
}

impl Upload<'_> {
    fn stored_bytes(&self, size: u64) -> u64 {
        let parts = (0..).zip(upload_parts(size, self.head.part_bytes));
        let stored = parts.filter(|(index, _)| self.stored.contains_key(index));
        stored.map(|(_, range)| range.end - range.start).sum()
    }

    /// Forgets an upload that the store has completed or removed.
    fn forget(self, uploader: &Uploader) {
        if let Some(noted) = self.noted {
            uploader.forget(noted);
        }
        if let Some(record) = self.record {
            record.remove();
        }
    }
}

/// Returns true if the store has no such upload.
fn is_gone(result: &Result<(), Failure>) -> bool {
    matches!(result, Err(failure) if failure.kind == FailureKind::NotFound)
}
