//! Files to a host: written under a temporary name, made durable, and renamed.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use longhaul_transfer::local_end::{EntryOutcome, LocalEntry, LocalFile, blocking};
use longhaul_transfer::{Failure, FailureKind};

use super::commit::Unfinished;
use super::directories::{Directory, no_time};
use super::{Place, Push, metadata_failure};
use crate::entries::{Attributes, Kind, meta_attrs};
use crate::error::RequestError;
use crate::existing::{Decision, decide_file};
use crate::ranges::{FileRanges, Range, WINDOW_BYTES, resume_offset};
use crate::remote_file::{OpenMode, RemoteFile};
use crate::unfinished;

/// Size from which a file is kept when the copy ends early, in bytes. Less would not be resumed.
const MIN_RESUMED_BYTES: u64 = 2 * WINDOW_BYTES;

/// A local file that was opened, and its beginning.
struct OpenedFile {
    file: Arc<LocalFile>,
    /// The whole content, if it fits one request.
    content: Option<Bytes>,
}

impl Push {
    /// Copies a file. Returns its size, too.
    pub(super) async fn copy_file(
        &self,
        entry: &LocalEntry,
        size: u64,
    ) -> Result<(EntryOutcome, u64), Failure> {
        let place = self.place(entry)?;
        let directory = self.directory_at(&place.directory).await?;
        if matches!(*directory, Directory::Absent) {
            return Ok((EntryOutcome::Unchanged, size));
        }
        let there = directory.entry(&place.name);
        let is_replaced = match decide_file(there, &entry.meta, size, &self.existing) {
            Decision::Create => false,
            Decision::Replace => true,
            Decision::Fail(kind) => return Err(Failure::new(kind)),
            Decision::Leave | Decision::Unchanged { fix_mode: false } => {
                self.reporter.written(size);
                return Ok((EntryOutcome::Unchanged, size));
            }
            Decision::Unchanged { fix_mode: true } => {
                let outcome = self.fix_mode(&place.path, entry.meta.mode).await?;
                self.reporter.written(size);
                return Ok((outcome, size));
            }
            Decision::Compare => {
                if self.has_content(entry, &place).await? {
                    self.reporter.written(size);
                    return Ok((EntryOutcome::Unchanged, size));
                }
                if !self.existing.overwrite {
                    return Err(Failure::new(FailureKind::Exists));
                }
                true
            }
        };
        let write_bytes = u64::from(self.pool.abilities().write_bytes);
        let _memory = self.memory.take(size.min(write_bytes)).await;
        let opened = self.open_local(entry).await?;
        let file = &opened.file;
        let outcome = match opened.content {
            Some(content) => self.small(file, content, &place, is_replaced).await,
            None => {
                let directory = &*directory;
                let large = self.large(entry, file, &place, directory, is_replaced);
                large.await
            }
        };
        outcome.map(|outcome| (outcome, file.size()))
    }

    /// Opens a local file, and reads it if it fits one request.
    async fn open_local(&self, entry: &LocalEntry) -> Result<OpenedFile, Failure> {
        let (sources, source, path) = (self.sources.clone(), entry.source, entry.path.clone());
        let limit = u64::from(self.pool.abilities().write_bytes);
        let progress = self.reporter.progress().clone();
        blocking(move || {
            let file = sources.open(source, &path)?;
            file.note_lost(&progress);
            let content = match file.size() <= limit {
                true => {
                    let mut content = vec![0; file.size() as usize];
                    let read = file.read_at(&mut content, 0)?;
                    if read != content.len() || !file.is_unchanged()? {
                        return Err(Failure::new(FailureKind::Changed));
                    }
                    Some(content.into())
                }
                false => None,
            };
            let file = Arc::new(file);
            Ok(OpenedFile { file, content })
        })
        .await
    }

    /// Copies a file in one request.
    async fn small(
        &self,
        file: &LocalFile,
        content: Bytes,
        place: &Place,
        is_replaced: bool,
    ) -> Result<EntryOutcome, Failure> {
        let size = content.len() as u64;
        let (attrs, has_time) = meta_attrs(&file.meta());
        let (temp, metadata) = loop {
            let temp = self.unfinished.add(&place.directory);
            let lease = self.pool.lease(size).await;
            let handle = match lease.create(&temp).await {
                Ok(handle) => handle,
                // It may have been created: another name is taken.
                Err(RequestError::Lost) => continue,
                Err(error) => {
                    self.unfinished.forget(&temp);
                    return Err(error.into());
                }
            };
            // The server answers requests for one file in order, so none waits for another.
            let write = async {
                match content.is_empty() {
                    true => Ok(()),
                    false => lease.write(&handle, 0, content.clone()).await,
                }
            };
            let sync = async {
                match self.pool.abilities().fsync {
                    true => lease.sync(&handle).await,
                    false => Ok(()),
                }
            };
            let (written, metadata, synced, closed) = tokio::join!(
                biased;
                write,
                lease.set_open(&handle, attrs),
                sync,
                lease.close(&handle)
            );
            match written.and(synced).and(closed) {
                Ok(()) => {
                    lease.carried(size);
                    break (temp, metadata);
                }
                Err(RequestError::Lost) => {}
                Err(error) => {
                    self.remove_unfinished(&temp).await;
                    return Err(error.into());
                }
            }
        };
        let unfinished = Unfinished {
            path: temp,
            is_kept: false,
        };
        self.commit(&unfinished, place, is_replaced).await?;
        self.reporter.written(size);
        outcome_of(metadata, has_time)
    }

    /// Copies a file in ranges over all connections.
    async fn large(
        &self,
        entry: &LocalEntry,
        file: &Arc<LocalFile>,
        place: &Place,
        directory: &Directory,
        is_replaced: bool,
    ) -> Result<EntryOutcome, Failure> {
        let _permit = self.large_files.acquire().await;
        let size = file.size();
        let range = self.pool.abilities().write_bytes;
        let (unfinished, written) = self.begin(file, place, directory).await?;
        let from = resume_offset(written.min(size), u64::from(range));
        if from > 0 {
            self.reporter.resumed(entry.source, &entry.path, from, size);
        }
        let remote = RemoteFile::new(unfinished.path.clone(), OpenMode::Write);
        let copied = self.ranges(file, &remote, FileRanges::new(from, size, range));
        let copied = copied.await;
        let finished = match copied {
            (_, Ok(())) => self.finish_content(file, &remote).await,
            (_, Err(failure)) => Err(failure),
        };
        let closed = remote.close(&self.pool).await;
        let committed = match finished.and_then(|metadata| {
            closed.map_err(Failure::from)?;
            Ok(metadata)
        }) {
            Ok(metadata) => self
                .commit(&unfinished, place, is_replaced)
                .await
                .map(|()| metadata),
            Err(failure) => {
                // The part of another state of the source is useless, and a full disk is freed.
                self.remove_unfinished(&unfinished.path).await;
                Err(failure)
            }
        };
        match committed {
            Ok((metadata, has_time)) => outcome_of(metadata, has_time),
            Err(failure) => {
                self.reporter.taken_back(from + copied.0);
                Err(failure)
            }
        }
    }

    /// Creates an unfinished file, or takes the one that an earlier copy left. Returns its size,
    /// too.
    async fn begin(
        &self,
        file: &LocalFile,
        place: &Place,
        directory: &Directory,
    ) -> Result<(Unfinished, u64), Failure> {
        let identity = file
            .identity()
            .filter(|_| self.options.resume && file.size() >= MIN_RESUMED_BYTES);
        let Some(identity) = identity else {
            let path = loop {
                let path = self.unfinished.add(&place.directory);
                match self.create(&path).await {
                    Ok(()) => break path,
                    Err(RequestError::Lost) => {}
                    Err(error) => {
                        self.unfinished.forget(&path);
                        return Err(error.into());
                    }
                }
            };
            let is_kept = false;
            return Ok((Unfinished { path, is_kept }, 0));
        };
        let path = unfinished::resumable(&place.directory, &place.name, &identity);
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let left = directory.entry(name).map(|left| (left.kind, left.size));
        let unfinished = Unfinished {
            path,
            is_kept: true,
        };
        match left {
            Some((Kind::File, size)) => return Ok((unfinished, size)),
            Some(_) => return Err(Failure::new(FailureKind::WrongKind)),
            None => {}
        }
        loop {
            match self.create(&unfinished.path).await {
                Ok(()) => return Ok((unfinished, 0)),
                Err(RequestError::Lost) => {}
                Err(error) => {
                    // The answer to a first attempt may have been lost.
                    let path = &unfinished.path;
                    let there = again!(self.pool, 0, |lease| lease.describe_entry(path));
                    return match there {
                        Ok(Attributes {
                            kind: Kind::File,
                            size: 0,
                            ..
                        }) => Ok((unfinished, 0)),
                        _ => Err(error.into()),
                    };
                }
            }
        }
    }

    async fn create(&self, path: &Path) -> Result<(), RequestError> {
        let lease = self.pool.lease(0).await;
        let handle = lease.create(path).await?;
        lease.close(&handle).await
    }

    /// Sends ranges until all are written, or one fails. Returns the bytes that were written.
    async fn ranges(
        &self,
        file: &Arc<LocalFile>,
        remote: &RemoteFile,
        mut ranges: FileRanges,
    ) -> (u64, Result<(), Failure>) {
        let mut under_way = FuturesUnordered::new();
        let mut written = 0;
        loop {
            while let Some(range) = ranges.take() {
                under_way.push(self.range(file, remote, range));
            }
            match under_way.next().await {
                Some(Ok(range)) => {
                    written += u64::from(range.len);
                    self.reporter.written(u64::from(range.len));
                    ranges.complete(range);
                }
                Some(Err(failure)) => return (written, Err(failure)),
                None => return (written, Ok(())),
            }
        }
    }

    async fn range(
        &self,
        file: &Arc<LocalFile>,
        remote: &RemoteFile,
        range: Range,
    ) -> Result<Range, Failure> {
        let bytes = u64::from(range.len);
        let mut data: Option<Bytes> = None;
        loop {
            let lease = self.pool.lease(bytes).await;
            // Read only once there is room for it, so that memory is bounded.
            let content = match data.clone() {
                Some(data) => data,
                None => {
                    let file = file.clone();
                    let read = blocking(move || {
                        let mut data = vec![0; range.len as usize];
                        match file.read_at(&mut data, range.offset)? == data.len() {
                            true => Ok(Bytes::from(data)),
                            false => Err(Failure::new(FailureKind::Changed)),
                        }
                    });
                    data.insert(read.await?).clone()
                }
            };
            let sent = async {
                let handle = remote.handle(&lease).await?;
                lease.write(&handle, range.offset, content).await
            };
            match sent.await {
                Ok(()) => {
                    lease.carried(bytes);
                    return Ok(range);
                }
                Err(RequestError::Lost) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sets permissions and time of a complete file, and makes it durable. Returns the result of
    /// the former.
    async fn finish_content(
        &self,
        file: &Arc<LocalFile>,
        remote: &RemoteFile,
    ) -> Result<(Result<(), RequestError>, bool), Failure> {
        let opened = file.clone();
        if !blocking(move || opened.is_unchanged()).await? {
            return Err(Failure::new(FailureKind::Changed));
        }
        let (attrs, has_time) = meta_attrs(&file.meta());
        let finished = again!(self.pool, 0, |lease| async {
            let handle = remote.handle(&lease).await?;
            let metadata = lease.set_open(&handle, attrs).await;
            if metadata == Err(RequestError::Lost) {
                return Err(RequestError::Lost);
            }
            if self.pool.abilities().fsync {
                lease.sync(&handle).await?;
            }
            Ok(metadata)
        });
        Ok((finished?, has_time))
    }

    /// Returns true if the existing file has the content of the local one. Both are read.
    async fn has_content(&self, entry: &LocalEntry, place: &Place) -> Result<bool, Failure> {
        let (sources, source, path) = (self.sources.clone(), entry.source, entry.path.clone());
        let here = blocking(move || {
            let file = sources.open(source, &path)?;
            let (mut hasher, mut part, mut at) = (blake3::Hasher::new(), vec![0; 1 << 20], 0);
            loop {
                let read = file.read_at(&mut part, at)?;
                if read == 0 {
                    return Ok((hasher.finalize(), at));
                }
                hasher.update(part.get(..read).unwrap_or_default());
                at += read as u64;
            }
        });
        let there = crate::content::hash(&self.pool, &place.path);
        let (here, there) = tokio::try_join!(here, there)?;
        Ok(here == there)
    }
}

fn outcome_of(metadata: Result<(), RequestError>, has_time: bool) -> Result<EntryOutcome, Failure> {
    match (metadata, has_time) {
        (Err(error), _) => Err(metadata_failure(error)),
        (Ok(()), false) => Err(no_time()),
        (Ok(()), true) => Ok(EntryOutcome::New),
    }
}
