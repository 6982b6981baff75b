//! Files of a store to this machine: small ones whole, large ones in ranges, many at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt};
use longhaul_transfer::local_end::{
    ContentMemory, EntryOutcome, EntryReporter, LocalDirectory, LocalTarget, Meta, NewEntry,
    PartialFile, blocking,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, StreamCounters};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::content::identity;

use crate::parts::download_ranges;
use crate::reader::{Body, ObjectReader};

/// Maximum size of a file that is read whole, in bytes.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// Maximum bytes of small files in memory.
const MAX_CONTENT_BYTES: u64 = 64 << 20;
/// Large files that are copied at the same time.
const MAX_LARGE_FILES: usize = 4;
/// Permissions of new files and directories: stores keep none.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

type Hash = [u8; 32];
type Outcome = Result<(EntryOutcome, Option<Hash>), Failure>;

/// Destination of a copy at this machine.
pub(crate) struct Downloader {
    pub target: Arc<LocalTarget>,
    pub reporter: Arc<EntryReporter>,
    pub counters: Arc<StreamCounters>,
    pub compares_content: bool,
    pub resumes: bool,
    /// Requests for content at a time.
    pub max_requests: usize,
    requests: Semaphore,
    large_files: Semaphore,
    memory: ContentMemory,
    next_id: AtomicU64,
    /// Directories to be finished.
    directories: Mutex<Vec<LocalDirectory>>,
}

/// Progress of one file.
#[derive(Default)]
struct Progress {
    written: AtomicU64,
}

impl Downloader {
    pub(crate) fn new(
        target: LocalTarget,
        reporter: Arc<EntryReporter>,
        counters: Arc<StreamCounters>,
        max_requests: usize,
    ) -> Self {
        Self {
            target: Arc::new(target),
            reporter,
            counters,
            compares_content: false,
            resumes: true,
            max_requests,
            requests: Semaphore::new(max_requests),
            large_files: Semaphore::new(MAX_LARGE_FILES),
            memory: ContentMemory::new(MAX_CONTENT_BYTES),
            next_id: AtomicU64::new(0),
            directories: Mutex::default(),
        }
    }

    /// Creates a directory, or takes an existing one.
    pub(crate) async fn directory(
        &self,
        source: u32,
        path: &RelPath,
    ) -> Result<EntryOutcome, Failure> {
        // Stores have no times of directories.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let meta = Meta {
            mode: DIRECTORY_MODE,
            mtime: (i64::try_from(now.as_secs()).unwrap_or_default(), 0),
            ..Meta::default()
        };
        let (target, entry) = (self.target.clone(), self.entry(source, path, meta));
        let made = blocking(move || target.make_dir(entry).map_err(Failure::at_destination));
        let directory = made.await?;
        let outcome = match directory.is_new() {
            true => EntryOutcome::New,
            false => EntryOutcome::Same,
        };
        self.directories.lock().push(directory);
        Ok(outcome)
    }

    /// Copies a file. Returns its hash if it was read.
    pub(crate) async fn file(
        &self,
        source: u32,
        path: &RelPath,
        mut reader: ObjectReader,
    ) -> Outcome {
        let mut entry = self.entry(source, path, meta_of(&reader));
        let (target, offered) = (self.target.clone(), entry.clone());
        if blocking(move || Ok(target.has_entry(&offered))).await? {
            // A listing has no modification times of files.
            let now = reader.store.head(&reader.key).await;
            let now = now.map_err(|reason| reader.store.failure(reason))?;
            if !reader.object.is_same(&now) {
                return Err(Failure::new(FailureKind::Changed));
            }
            reader.object = now;
            entry.meta = meta_of(&reader);
            if self.is_in_place(&entry, reader.object.size).await? {
                self.reporter.written(reader.object.size);
                return Ok((EntryOutcome::Unchanged, None));
            }
        }
        match reader.object.size <= MAX_SMALL_BYTES {
            true => self.small(entry, &reader).await,
            false => self.large(entry, reader).await,
        }
    }

    async fn is_in_place(&self, entry: &NewEntry, size: u64) -> Result<bool, Failure> {
        // What must be compared by content is read first.
        if self.compares_content {
            return Ok(false);
        }
        let (target, entry) = (self.target.clone(), entry.clone());
        blocking(move || {
            target
                .is_in_place(&entry, size)
                .map_err(Failure::at_destination)
        })
        .await
    }

    async fn small(&self, mut entry: NewEntry, reader: &ObjectReader) -> Outcome {
        let size = reader.object.size;
        let _memory = self.memory.take(size).await;
        let permit = self.requests.acquire().await;
        let mut body = reader.get(None).await?;
        entry.meta.mtime = body.object.modified();
        let mut data = BytesMut::new();
        while let Some(chunk) = body.next().await? {
            self.counters
                .bytes
                .fetch_add(chunk.len() as u64, Ordering::Relaxed);
            data.extend_from_slice(&chunk);
            if data.len() as u64 > size {
                break;
            }
        }
        drop(permit);
        if data.len() as u64 != size {
            return Err(Failure::new(FailureKind::Changed));
        }
        let (target, (done, committed)) = (self.target.clone(), oneshot::channel());
        blocking(move || {
            target.write_small(&entry, &data, |outcome, hash| {
                let _ = done.send((outcome, hash));
            });
            Ok(())
        })
        .await?;
        let (outcome, hash) = committed.await.map_err(|_| lost_commit())?;
        let outcome = outcome.map_err(Failure::at_destination)?;
        self.reporter.written(size);
        Ok((outcome, Some(hash)))
    }

    async fn large(&self, mut entry: NewEntry, mut reader: ObjectReader) -> Outcome {
        let _permit = self.large_files.acquire().await;
        if reader.object.mtime.is_none() {
            // The time belongs to the unfinished file, so it is needed first.
            let now = reader.store.head(&reader.key).await;
            let now = now.map_err(|reason| reader.store.failure(reason))?;
            if !reader.object.is_same(&now) {
                return Err(Failure::new(FailureKind::Changed));
            }
            reader.object = now;
            entry.meta = meta_of(&reader);
        }
        let size = reader.object.size;
        let identity = identity(&reader).filter(|_| self.resumes);
        let (source, path) = (entry.source, entry.path.clone());
        let target = self.target.clone();
        let begun = blocking(move || {
            target
                .begin(entry, size, identity)
                .map_err(Failure::at_destination)
        });
        let file = Arc::new(begun.await?);
        let missing = file.missing_blocks();
        let missing_bytes: u64 = missing.iter().map(|(_, len)| u64::from(*len)).sum();
        let resumed = size.saturating_sub(missing_bytes);
        if resumed > 0 {
            self.reporter.resumed(source, &path, resumed, size);
        }
        let progress = Progress::default();
        let copied = self.ranges(&file, &reader, &missing, &progress).await;
        let ended = match copied {
            Ok(()) => self.commit(file).await,
            Err(failure) if failure.kind == FailureKind::Changed => {
                self.discard(file).await?;
                Err(failure)
            }
            Err(failure) => Err(failure),
        };
        if ended.is_err() {
            let written = progress.written.load(Ordering::Relaxed);
            self.reporter.taken_back(resumed + written);
        }
        ended
    }

    /// Requests and writes ranges until all are in place, or one fails.
    async fn ranges(
        &self,
        file: &Arc<PartialFile>,
        reader: &ObjectReader,
        missing: &[(u64, u32)],
        progress: &Progress,
    ) -> Result<(), Failure> {
        let ranges = download_ranges(missing, reader.object.size, self.max_requests);
        let mut ranges = ranges.into_iter();
        let Some(first) = ranges.next() else {
            return Ok(());
        };
        // The first answer tells whether the server knows ranges.
        let body = reader.get(Some(first.clone())).await?;
        if body.is_whole {
            ranges = Vec::new().into_iter();
        }
        let mut begun = Some((first, body));
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < self.max_requests {
                let (range, body) = match begun.take() {
                    Some((range, body)) => (range, Some(body)),
                    None => match ranges.next() {
                        Some(range) => (range, None),
                        None => break,
                    },
                };
                under_way.push(self.range(file, reader, (range, body), missing, progress));
            }
            match under_way.next().await {
                Some(Ok(())) => {}
                Some(Err(failure)) => return Err(failure),
                None => return Ok(()),
            }
        }
    }

    /// Requests one range, unless there is an answer already, and writes its blocks; or all missing
    /// blocks, if the server sends the whole file.
    async fn range(
        &self,
        file: &Arc<PartialFile>,
        reader: &ObjectReader,
        (range, body): (Range<u64>, Option<Body>),
        missing: &[(u64, u32)],
        progress: &Progress,
    ) -> Result<(), Failure> {
        let _permit = self.requests.acquire().await;
        let mut body = match body {
            Some(body) => body,
            None => reader.get(Some(range.clone())).await?,
        };
        let is_whole = body.is_whole;
        let mut at = if is_whole { 0 } else { range.start };
        let wanted = missing
            .iter()
            .filter(|(offset, _)| is_whole || range.contains(offset));
        let mut data = BytesMut::new();
        for &(offset, len) in wanted {
            // What lies before it is in place.
            let skipped = offset.saturating_sub(at);
            self.fill(&mut body, &mut data, skipped, false).await?;
            let block = self
                .fill(&mut body, &mut data, u64::from(len), true)
                .await?;
            at = offset + u64::from(len);
            let (target, file) = (self.target.clone(), file.clone());
            blocking(move || {
                target
                    .write_block(&file, offset, &block)
                    .map_err(Failure::at_destination)
            })
            .await?;
            progress
                .written
                .fetch_add(u64::from(len), Ordering::Relaxed);
            self.reporter.written(u64::from(len));
        }
        Ok(())
    }

    /// Takes the next `len` bytes of the content. Returns nothing unless they are `kept`.
    async fn fill(
        &self,
        body: &mut Body,
        data: &mut BytesMut,
        len: u64,
        kept: bool,
    ) -> Result<Bytes, Failure> {
        let mut left = len;
        let mut taken = BytesMut::new();
        loop {
            let step = left.min(data.len() as u64);
            let piece = data.split_to(usize::try_from(step).unwrap_or_default());
            left -= step;
            if kept {
                match taken.is_empty() {
                    true => taken = piece,
                    false => taken.extend_from_slice(&piece),
                }
            }
            if left == 0 {
                return Ok(taken.freeze());
            }
            match body.next().await? {
                Some(chunk) => {
                    self.counters
                        .bytes
                        .fetch_add(chunk.len() as u64, Ordering::Relaxed);
                    *data = chunk.into();
                }
                None => return Err(Failure::new(FailureKind::Changed)),
            }
        }
    }

    async fn commit(&self, file: Arc<PartialFile>) -> Outcome {
        let file = Arc::into_inner(file).ok_or_else(lost_commit)?;
        let (target, (done, committed)) = (self.target.clone(), oneshot::channel());
        blocking(move || {
            target.commit(file, |outcome, hash| {
                let _ = done.send((outcome, hash));
            });
            Ok(())
        })
        .await?;
        let (outcome, hash) = committed.await.map_err(|_| lost_commit())?;
        Ok((outcome.map_err(Failure::at_destination)?, hash))
    }

    /// Removes an unfinished file whose object is another one now.
    async fn discard(&self, file: Arc<PartialFile>) -> Result<(), Failure> {
        let target = self.target.clone();
        blocking(move || {
            if let Some(file) = Arc::into_inner(file) {
                target.discard(file);
            }
            Ok(())
        })
        .await
    }

    fn entry(&self, source: u32, path: &RelPath, meta: Meta) -> NewEntry {
        NewEntry {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            source,
            path: path.clone(),
            meta,
        }
    }

    /// Finishes the directories, and makes everything durable.
    pub(crate) async fn finish(&self) {
        let directories = std::mem::take(&mut *self.directories.lock());
        let target = self.target.clone();
        let finished = blocking(move || Ok(target.finish_all(directories))).await;
        let failures = finished.unwrap_or_else(|failure| vec![(0, RelPath::root(), failure)]);
        for (source, path, failure) in failures {
            self.reporter
                .failed(source, &path, failure.at_destination());
        }
    }
}

/// Leaves the directories of a copy that ended early to a later one.
impl Drop for Downloader {
    fn drop(&mut self) {
        for directory in self.directories.get_mut() {
            self.target.leave_dir(directory);
        }
    }
}

fn meta_of(reader: &ObjectReader) -> Meta {
    Meta {
        mode: FILE_MODE,
        mtime: reader.object.modified(),
        ..Meta::default()
    }
}

fn lost_commit() -> Failure {
    Failure::with_detail(FailureKind::Io, "the file could not be committed").at_destination()
}
