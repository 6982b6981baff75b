//! What a server bears, in numbers, and what that comes to in descriptors.

use std::time::Duration;

/// What a server bears.
///
/// `copies`, `streams`, `open_files`, `buffers` and `bookkeeping` are ceilings over all keys. Each
/// key has a share of them (see [`longhaul_proto::Shares`]): alone it may hold half, and however
/// much some hold, another gets its first.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Copies at once. One that has lost its streams counts until it is dropped.
    pub copies: usize,
    /// Streams of one copy.
    pub streams_per_copy: u16,
    /// Streams of all copies, those included that have not said what they want.
    pub streams: usize,
    /// Files open at once to be written or read in blocks. Each may take [`DESCRIPTORS_PER_FILE`]
    /// descriptors.
    pub open_files: usize,
    /// Buffers of [`BUFFER_BYTES`] between the network and the disk, each with one piece of work on
    /// a blocking thread.
    pub buffers: usize,
    /// Bytes of memory for what is remembered of copies: entries, directories, failures, hashes of
    /// blocks.
    pub bookkeeping: usize,
    /// Time for HELLO after the session is up.
    pub hello: Duration,
    /// How long a copy without a stream waits for one.
    pub grace: Duration,
    /// How long a file waits for its place among `open_files` before it fails with
    /// [`crate::FailureKind::Limit`].
    pub file_wait: Duration,
}

/// Descriptors of a file being written or read: its own, its journal's, and its directory's.
pub const DESCRIPTORS_PER_FILE: usize = 3;
/// Bytes of a buffer: the largest block and its header, or a batch of small files.
pub const BUFFER_BYTES: usize = (1 << 20) + 64 * 1024;
/// Bytes that one stream may take besides its buffers: what is read ahead, a frame, answers that
/// wait to be sent, and its session.
pub const STREAM_BYTES: usize = 7 << 18;
/// Directories that a copy keeps open for the files that go into them.
pub(crate) const OPEN_DIRECTORIES_PER_COPY: usize = 16;
/// Descriptors that one piece of work on a blocking thread has open for a moment.
const DESCRIPTORS_PER_WORK: usize = 3;

impl Default for Limits {
    fn default() -> Self {
        Self {
            copies: 64,
            streams_per_copy: 64,
            streams: 512,
            open_files: 4096,
            buffers: 256,
            bookkeeping: 256 << 20,
            hello: Duration::from_secs(20),
            grace: Duration::from_secs(20),
            file_wait: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// The most descriptors that streams and copies may hold, one a stream included.
    pub fn descriptors(&self) -> usize {
        self.descriptors_without_files()
            .saturating_add(self.open_files.saturating_mul(DESCRIPTORS_PER_FILE))
    }

    /// The most threads that blocking work may take: one a buffer, and three a copy for its walk,
    /// its commits and its end.
    pub fn blocking_threads(&self) -> usize {
        self.buffers.saturating_add(self.copies.saturating_mul(3))
    }

    /// The most memory, in bytes, that copies may take.
    pub fn memory(&self) -> usize {
        let buffers = self.buffers.saturating_mul(BUFFER_BYTES);
        let streams = self.streams.saturating_mul(STREAM_BYTES);
        self.bookkeeping
            .saturating_add(buffers)
            .saturating_add(streams)
    }

    /// With as many open files as fit a limit on descriptors, `RLIMIT_NOFILE`, of which `others` go
    /// elsewhere. `Err` with the number needed if it leaves no room for any.
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

    fn descriptors_without_files(&self) -> usize {
        let copies = self.copies.saturating_mul(OPEN_DIRECTORIES_PER_COPY);
        self.blocking_threads()
            .saturating_mul(DESCRIPTORS_PER_WORK)
            .saturating_add(copies)
            .saturating_add(self.streams)
    }
}

/// Fewer open files than this make copies over several streams wait for each other.
pub const MIN_OPEN_FILES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_follow_from_the_limit_on_descriptors() {
        let limits = Limits::default();
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
