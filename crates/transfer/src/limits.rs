//! Limits of a server, and the descriptors and memory that they require.

use std::time::Duration;

/// Limits of a server.
///
/// `copies`, `streams`, `open_files`, `buffers` and `bookkeeping` are ceilings over all keys. Each
/// key has a share of them (see [`longhaul_proto::Shares`]). A key alone may hold half, and a new
/// key always gets its first unit.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Maximum number of copies at once. A copy that has lost its streams counts until it is
    /// dropped.
    pub copies: usize,
    /// Maximum number of streams of one copy.
    pub streams_per_copy: u16,
    /// Maximum number of streams of all copies, including those that have not sent HELLO yet.
    pub streams: usize,
    /// Maximum number of files open at once to be written or read in blocks. Each may take
    /// [`DESCRIPTORS_PER_FILE`] descriptors.
    pub open_files: usize,
    /// Maximum number of buffers of [`BUFFER_BYTES`] between the network and the disk. Each has one
    /// piece of work on a blocking thread.
    pub buffers: usize,
    /// Maximum number of bytes of bookkeeping of copies: entries, directories, failures, hashes of
    /// blocks.
    pub bookkeeping: usize,
    /// Time limit for HELLO after the session is established.
    pub hello_timeout: Duration,
    /// Time for which a copy without a stream is kept.
    pub stream_grace: Duration,
    /// Time for which a copy without a stream is kept once a block of a file of late size has been
    /// answered. Its client cannot read that again.
    pub late_stream_grace: Duration,
    /// Time for which a file waits for a permit among `open_files` before it fails with
    /// [`crate::FailureKind::Limit`].
    pub file_timeout: Duration,
}

/// Descriptors of a file that is written or read: its own, its journal's, and its directory's.
pub const DESCRIPTORS_PER_FILE: usize = 3;
/// Size of a buffer, in bytes: the largest block and its header, or a batch of small files.
pub const BUFFER_BYTES: usize = (1 << 20) + 64 * 1024;
/// Bytes that one stream may take in addition to its buffers: read-ahead, one frame, queued
/// answers, compression, attributes, and its session.
pub const STREAM_BYTES: usize = 17 << 17;
/// Maximum number of directories that a copy keeps open for the files in them.
pub(crate) const OPEN_DIRECTORIES_PER_COPY: usize = 16;
/// Descriptors that one piece of work on a blocking thread opens briefly.
const DESCRIPTORS_PER_WORK: usize = 3;

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            copies: 64,
            streams_per_copy: 64,
            streams: 512,
            open_files: 4096,
            buffers: 256,
            bookkeeping: 256 << 20,
            hello_timeout: Duration::from_secs(20),
            stream_grace: Duration::from_secs(20),
            late_stream_grace: Duration::from_secs(300),
            file_timeout: Duration::from_secs(5),
        }
    }
}

impl ServerLimits {
    /// Returns the maximum number of descriptors of streams and copies, including one per stream.
    pub fn descriptors(&self) -> usize {
        self.descriptors_without_files()
            .saturating_add(self.open_files.saturating_mul(DESCRIPTORS_PER_FILE))
    }

    /// Returns the maximum number of threads for blocking work: one per buffer, and three per copy
    /// for its walk, its commits and its end.
    pub fn blocking_threads(&self) -> usize {
        self.buffers.saturating_add(self.copies.saturating_mul(3))
    }

    /// Returns the maximum memory of copies, in bytes.
    pub fn memory(&self) -> usize {
        let buffers = self.buffers.saturating_mul(BUFFER_BYTES);
        let streams = self.streams.saturating_mul(STREAM_BYTES);
        self.bookkeeping
            .saturating_add(buffers)
            .saturating_add(streams)
    }

    /// Adjusts the number of open files to `limit` descriptors (`RLIMIT_NOFILE`), of which `others`
    /// are used elsewhere.
    ///
    /// # Errors
    /// The number of descriptors needed, if the limit leaves fewer than [`MIN_OPEN_FILES`] files.
    pub fn within_descriptors(mut self, limit: u64, others: usize) -> Result<Self, u64> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let taken = self.descriptors_without_files().saturating_add(others);
        let left = limit.saturating_sub(taken) / DESCRIPTORS_PER_FILE;
        self.open_files = self.open_files.min(left);
        if self.open_files < MIN_OPEN_FILES {
            return Err((taken + MIN_OPEN_FILES * DESCRIPTORS_PER_FILE) as u64);
        }
        Ok(self)
    }

    /// Returns the part of one of `processes` that share these limits. Each gets enough for two
    /// copies, so many processes may exceed the limits together.
    #[must_use]
    pub fn divided(&self, processes: usize) -> Self {
        let part = |all: usize, least: usize| (all / processes.max(1)).max(least).min(all);
        Self {
            copies: part(self.copies, 4),
            streams: part(self.streams, 2 * usize::from(self.streams_per_copy)),
            open_files: part(self.open_files, 4 * MIN_OPEN_FILES),
            buffers: part(self.buffers, 16),
            bookkeeping: part(self.bookkeeping, 16 << 20),
            ..self.clone()
        }
    }

    fn descriptors_without_files(&self) -> usize {
        let copies = self.copies.saturating_mul(OPEN_DIRECTORIES_PER_COPY);
        self.blocking_threads()
            .saturating_mul(DESCRIPTORS_PER_WORK)
            .saturating_add(copies)
            .saturating_add(self.streams)
    }
}

/// Minimum number of open files. With fewer, copies over several streams wait for each other.
pub const MIN_OPEN_FILES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_limits_suffices_for_two_copies() {
        let limits = ServerLimits::default();
        assert_eq!(limits.divided(1).copies, limits.copies);
        let few = limits.divided(4);
        assert_eq!((few.copies, few.buffers), (16, 64));
        let many = limits.divided(1000);
        assert_eq!((many.copies, many.streams), (4, 128));
        let small = ServerLimits {
            copies: 1,
            ..limits
        };
        assert_eq!(small.divided(3).copies, 1);
    }

    #[test]
    fn open_files_follow_from_the_descriptor_limit() {
        let limits = ServerLimits::default();
        let others = 600;
        let plenty = limits.clone().within_descriptors(1 << 20, others).unwrap();
        assert_eq!(plenty.open_files, limits.open_files);
        assert!(limits.clone().within_descriptors(u64::MAX, others).is_ok());
        for limit in [4096, 8192, 11_000] {
            let fitted = limits.clone().within_descriptors(limit, others).unwrap();
            assert!(fitted.open_files < limits.open_files);
            assert!(fitted.descriptors() + others <= limit as usize);
            assert!(fitted.descriptors() + others + DESCRIPTORS_PER_FILE > limit as usize);
        }
        let needed = limits.clone().within_descriptors(1024, others).unwrap_err();
        assert!(limits.within_descriptors(needed, others).is_ok());
    }
}
