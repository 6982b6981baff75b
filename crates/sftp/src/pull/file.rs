//! Files from a host: small ones whole, large ones in blocks over all connections.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use longhaul_transfer::local_end::{EntryOutcome, NewEntry, PartialFile, WriteOutcome};
use longhaul_transfer::{Failure, FailureKind};

use super::{FoundEntry, Pull};
use crate::content::{read_beginning, read_range};
use crate::entries::Attributes;
use crate::remote_file::{OpenMode, RemoteFile};

/// Bytes of blocks of one file that are under way.
const MAX_BLOCK_BYTES: u64 = 32 << 20;

impl Pull {
    /// Copies a file. Returns its hash if it was read.
    pub(super) async fn file(&self, found: &FoundEntry) -> WriteOutcome {
        let (entry, size) = (self.new_entry(found), found.attributes.size);
        // Without checksums at the host, content is compared once it has been read.
        if !self.compares_content && self.writer.is_in_place(&entry, size).await? {
            self.reporter.written(size);
            return Ok((EntryOutcome::Unchanged, None));
        }
        let path = self.path_of(found.source, &found.path);
        let remote = RemoteFile::new(path, OpenMode::Read);
        let is_small = size <= u64::from(self.pool.abilities().read_bytes);
        let copied = match is_small {
            true => self.small(entry, &remote, &found.attributes).await,
            false => self.large(entry, &remote, found).await,
        };
        let _ = remote.close(&self.pool).await;
        copied
    }

    async fn small(
        &self,
        entry: NewEntry,
        remote: &RemoteFile,
        attributes: &Attributes,
    ) -> WriteOutcome {
        let size = attributes.size;
        let _memory = self.memory.take(size).await;
        let data = again!(self.pool, size, |lease| async {
            let handle = remote.handle(&lease).await?;
            let read = async {
                match size {
                    0 => Ok(Box::default()),
                    _ => lease.read(&handle, 0, size as u32).await,
                }
            };
            // The server answers in order, so this describes the file after it was read.
            let (data, after) = tokio::join!(biased; read, lease.describe_open(&handle));
            lease.carried(size);
            Ok((data?, after?))
        });
        let (mut data, after) = data.map_err(vanished)?;
        if (data.len() as u64) < size {
            // The server gives less than was requested.
            let rest = read_beginning(&self.pool, &remote.path, size as u32).await?;
            data = rest.into();
        }
        if data.len() as u64 != size || !is_same(attributes, &after) {
            return Err(Failure::new(FailureKind::Changed));
        }
        let written = self.writer.small(entry, data).await?;
        self.reporter.written(size);
        Ok(written)
    }

    async fn large(
        &self,
        entry: NewEntry,
        remote: &RemoteFile,
        found: &FoundEntry,
    ) -> WriteOutcome {
        let _permit = self.large_files.acquire().await;
        let size = found.attributes.size;
        let host = self.pool.host();
        let identity = self
            .resumes
            .then(|| identity(host, remote, &found.attributes));
        let file = self.writer.begin(entry, size, identity).await?;
        let missing = file.missing_blocks();
        let missing_bytes: u64 = missing.iter().map(|(_, len)| u64::from(*len)).sum();
        let resumed = size.saturating_sub(missing_bytes);
        if resumed > 0 {
            self.reporter
                .resumed(found.source, &found.path, resumed, size);
        }
        let (written, copied) = self.blocks(&file, remote, missing).await;
        let checked = match copied {
            Ok(()) => self.check_unchanged(remote, &found.attributes).await,
            Err(failure) => Err(failure),
        };
        let committed = self.writer.end(file, checked).await;
        if committed.is_err() {
            self.reporter.taken_back(resumed + written);
        }
        committed
    }

    /// Reads and writes blocks until all are in place, or one fails. Returns the bytes written.
    async fn blocks(
        &self,
        file: &Arc<PartialFile>,
        remote: &RemoteFile,
        missing: Vec<(u64, u32)>,
    ) -> (u64, Result<(), Failure>) {
        let mut missing = missing.into_iter().peekable();
        let mut under_way = FuturesUnordered::new();
        let (mut written, mut reading) = (0, 0);
        loop {
            while reading < MAX_BLOCK_BYTES
                && let Some((offset, len)) = missing.next()
            {
                reading += u64::from(len);
                under_way.push(self.block(file, remote, offset, len));
            }
            match under_way.next().await {
                Some(Ok(len)) => {
                    reading -= u64::from(len);
                    written += u64::from(len);
                    self.reporter.written(u64::from(len));
                }
                Some(Err(failure)) => return (written, Err(failure)),
                None => return (written, Ok(())),
            }
        }
    }

    async fn block(
        &self,
        file: &Arc<PartialFile>,
        remote: &RemoteFile,
        offset: u64,
        len: u32,
    ) -> Result<u32, Failure> {
        let data = read_range(&self.pool, remote, offset, len)
            .await
            .map_err(vanished)?;
        self.writer.block(file, offset, data).await?;
        Ok(len)
    }

    async fn check_unchanged(
        &self,
        remote: &RemoteFile,
        before: &Attributes,
    ) -> Result<(), Failure> {
        let after = again!(self.pool, 0, |lease| async {
            let handle = remote.handle(&lease).await?;
            lease.describe_open(&handle).await
        })?;
        match is_same(before, &after) {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Changed)),
        }
    }
}

/// Returns true if a file has not changed, as far as SFTP shows.
fn is_same(before: &Attributes, after: &Attributes) -> bool {
    (before.size, before.modified) == (after.size, after.modified)
}

/// Returns a value that distinguishes this state of a file at the host from others. A file of the
/// same path, size and time is taken for the same.
fn identity(host: &str, remote: &RemoteFile, attributes: &Attributes) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("longhaul 2026 identity of a file by sftp");
    hasher.update(&attributes.size.to_le_bytes());
    hasher.update(&attributes.modified.to_le_bytes());
    hasher.update(&(host.len() as u64).to_le_bytes());
    hasher.update(host.as_bytes());
    hasher.update(remote.path.as_os_str().as_encoded_bytes());
    *hasher.finalize().as_bytes()
}

/// Returns the failure of a file that the walk had found.
fn vanished(error: crate::error::RequestError) -> Failure {
    match error.is_not_found() {
        true => Failure::new(FailureKind::Vanished),
        false => error.into(),
    }
}
