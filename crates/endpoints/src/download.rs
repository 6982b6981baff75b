//! Files of a store to this machine: small ones whole, large ones in ranges, many at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt};
use longhaul_transfer::local_end::{
    ContentMemory, EntryOutcome, EntryReporter, LocalTarget, LocalWriter, NewEntry, PartialFile,
    WriteOutcome,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, StreamCounters};
use tokio::sync::Semaphore;

use crate::content::identity;
use crate::gate::RequestGate;
use crate::parts::download_ranges;
use crate::reader::{Body, ObjectReader};
use crate::tree::{directory_meta, meta_of};

/// Maximum size of a file that is read whole, in bytes.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// Maximum bytes of small files in memory.
const MAX_CONTENT_BYTES: u64 = 64 << 20;
/// Large files that are copied at the same time.
const MAX_LARGE_FILES: usize = 4;

/// Destination of a copy at this machine.
pub(crate) struct Downloader {
    writer: LocalWriter,
    pub reporter: Arc<EntryReporter>,
    pub counters: Arc<StreamCounters>,
    pub compares_content: bool,
    pub resumes: bool,
    requests: Arc<RequestGate>,
    /// Permits of the ranges in flight.
    ranges: Semaphore,
    large_files: Semaphore,
    memory: ContentMemory,
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
        requests: Arc<RequestGate>,
    ) -> Self {
        Self {
            writer: LocalWriter::new(target),
            reporter,
            counters,
            compares_content: false,
            resumes: true,
            ranges: Semaphore::new(requests.large_requests()),
            requests,
            large_files: Semaphore::new(MAX_LARGE_FILES),
            memory: ContentMemory::new(MAX_CONTENT_BYTES),
        }
    }

    /// Creates a directory, or takes an existing one.
    pub(crate) async fn directory(
        &self,
        source: u32,
        path: &RelPath,
    ) -> Result<EntryOutcome, Failure> {
        let meta = directory_meta();
        let entry = self.writer.entry(source, path, meta);
        self.writer.directory(entry).await
    }

    /// Copies a file. Returns its hash if it was read.
    pub(crate) async fn file(
        &self,
        source: u32,
        path: &RelPath,
        mut reader: ObjectReader,
    ) -> WriteOutcome {
        let mut entry = self.writer.entry(source, path, meta_of(&reader.object));
        if self.writer.has_entry(&entry).await? {
            // A listing has no modification times of files.
            let permit = self.requests.acquire().await;
            reader.refresh().await?;
            drop(permit);
            entry.meta = meta_of(&reader.object);
            let size = reader.object.size;
            // What must be compared by content is read first.
            if !self.compares_content && self.writer.is_in_place(&entry, size).await? {
                self.reporter.written(size);
                return Ok((EntryOutcome::Unchanged, None));
            }
        }
        match reader.object.size <= MAX_SMALL_BYTES {
            true => self.small(entry, &reader).await,
            false => self.large(entry, reader).await,
        }
    }

    async fn small(&self, mut entry: NewEntry, reader: &ObjectReader) -> WriteOutcome {
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
        let written = self.writer.small(entry, data).await?;
        self.reporter.written(size);
        Ok(written)
    }

    async fn large(&self, mut entry: NewEntry, mut reader: ObjectReader) -> WriteOutcome {
        let _permit = self.large_files.acquire().await;
        if reader.object.mtime.is_none() {
            // The time belongs to the unfinished file, so it is needed first.
            reader.refresh().await?;
            entry.meta = meta_of(&reader.object);
        }
        let size = reader.object.size;
        let identity = identity(&reader).filter(|_| self.resumes);
        let (source, path) = (entry.source, entry.path.clone());
        let file = self.writer.begin(entry, size, identity).await?;
        let missing = file.missing_blocks();
        let missing_bytes: u64 = missing.iter().map(|(_, len)| u64::from(*len)).sum();
        let resumed = size.saturating_sub(missing_bytes);
        if resumed > 0 {
            self.reporter.resumed(source, &path, resumed, size);
        }
        let progress = Progress::default();
        let copied = self.ranges(&file, &reader, &missing, &progress).await;
        let ended = self.writer.end(file, copied).await;
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
        let max_requests = self.requests.large_requests();
        let ranges = download_ranges(missing, reader.object.size, max_requests);
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
            while under_way.len() < max_requests {
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
        // In this order everywhere, so that none waits for the other.
        let _range = self.ranges.acquire().await;
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
            self.writer.block(file, offset, block).await?;
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

    /// Finishes the directories, and makes everything durable.
    pub(crate) async fn finish(&self) {
        self.writer.finish(&self.reporter).await;
    }
}
