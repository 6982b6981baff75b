//! Limits of this process on descriptors and memory, and the limits of copies that follow from
//! them.

use std::num::NonZero;

use rustix::process::{Resource, getrlimit};

use crate::limits::{
    BUFFER_BYTES, DESCRIPTORS_PER_FILE, MIN_OPEN_FILES, OPEN_DIRECTORIES_PER_COPY, STREAM_BYTES,
    ServerLimits,
};

/// Descriptors of a client that no copy uses: standard streams, the runtime, signals, ssh, the
/// controller.
const CLIENT_DESCRIPTORS: usize = 16;
/// Descriptors reserved for files that are opened briefly.
const SPARE_DESCRIPTORS: usize = 4;
/// Address space of the program itself, its libraries, and memory outside any limit.
const PROGRAM_BYTES: usize = 96 << 20;
/// Address space of a thread's stack, in bytes.
const THREAD_BYTES: usize = 2 << 20;
/// Minimum number of buffers with which a copy makes progress.
const MIN_BUFFERS: usize = 8;
const MIN_STREAMS: usize = 4;
const MIN_BOOKKEEPING_BYTES: usize = 16 << 20;

/// Limits that the system sets for this process. `None` if it sets none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Open descriptors (RLIMIT_NOFILE).
    pub descriptors: Option<usize>,
    /// Bytes of address space (RLIMIT_AS).
    pub address_space: Option<usize>,
}

/// Returns the number of processors that this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

impl ProcessLimits {
    /// Returns the limits in force now.
    pub fn current() -> Self {
        let limit = |resource| {
            getrlimit(resource)
                .current
                .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
        };
        Self {
            descriptors: limit(Resource::Nofile),
            address_space: limit(Resource::As),
        }
    }

    /// Returns the number of descriptors for the files, directories and streams of a client's copy.
    fn copy_descriptors(self) -> usize {
        let fixed = CLIENT_DESCRIPTORS + SPARE_DESCRIPTORS;
        self.descriptors.unwrap_or(usize::MAX).saturating_sub(fixed)
    }

    /// Returns the number of requests that a copy with a store may have in flight, at most `most`.
    /// Each has a connection, and two files that are open: its own, and one that waits.
    pub fn requests(self, most: usize) -> usize {
        (self.copy_descriptors() / 4).clamp(1, most.max(1))
    }

    /// Returns the number of bytes of an input that a copy may keep in memory, at most `most`.
    pub fn input_bytes(self, most: usize) -> usize {
        self.address_space.map_or(most, |space| most.min(space / 8))
    }

    /// Returns the number of directories that a copy may keep open.
    pub(crate) fn open_directories(self) -> usize {
        (self.copy_descriptors() / 6).clamp(1, OPEN_DIRECTORIES_PER_COPY)
    }

    /// Returns the number of files that a client may have open at once.
    fn open_files(self) -> usize {
        let left = self
            .copy_descriptors()
            .saturating_sub(self.open_directories());
        // A stream has one descriptor and two files: the one that it ends, and the next one.
        (left / (DESCRIPTORS_PER_FILE + 1)).max(1)
    }

    /// Returns true if a client may have as many files open as a sender begins before it ends the
    /// first.
    pub(crate) fn may_wait_for_files(self) -> bool {
        self.open_files() >= MIN_OPEN_FILES
    }

    /// Returns the number of streams that a client may open, at most `most`. With fewer than two
    /// open files per stream, streams would wait for each other.
    pub(crate) fn streams(self, most: usize) -> usize {
        (self.open_files() / 2).clamp(1, most.max(1))
    }
}

impl ServerLimits {
    /// Returns the limits of a client: those of one key at a server, as far as `process` allows.
    pub(crate) fn for_client(process: ProcessLimits) -> Self {
        let limits = Self::default().within_memory(process.address_space);
        Self {
            // One key alone may hold half.
            open_files: limits
                .open_files
                .min(process.open_files().saturating_mul(2)),
            ..limits
        }
    }

    /// Reduces buffers, streams and bookkeeping to fit `limit` bytes of address space.
    #[must_use]
    pub fn within_memory(mut self, limit: Option<usize>) -> Self {
        let Some(limit) = limit else { return self };
        let left = limit.saturating_sub(PROGRAM_BYTES);
        let wanted = self.address_space();
        if wanted > left {
            let share = |part: usize| (part as u128 * left as u128 / wanted as u128) as usize;
            self.buffers = share(self.buffers).max(MIN_BUFFERS.min(self.buffers));
            self.streams = share(self.streams).max(MIN_STREAMS.min(self.streams));
            self.bookkeeping =
                share(self.bookkeeping).max(MIN_BOOKKEEPING_BYTES.min(self.bookkeeping));
            self.copies = share(self.copies).max(2.min(self.copies));
        }
        self
    }

    /// Returns the address space that copies may take, including the stacks of their threads.
    fn address_space(&self) -> usize {
        let buffers = self.buffers.saturating_mul(BUFFER_BYTES);
        let streams = self.streams.saturating_mul(STREAM_BYTES);
        let threads = self.blocking_threads().saturating_mul(THREAD_BYTES);
        [self.bookkeeping, buffers, streams, threads]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_limits_fit_its_descriptors() {
        for descriptors in (0..200).chain([256, 1024, 4096, 1 << 20]) {
            let process = ProcessLimits {
                descriptors: Some(descriptors),
                address_space: None,
            };
            let (streams, directories) = (process.streams(64), process.open_directories());
            let files = process.open_files();
            assert!(streams >= 1 && directories >= 1 && files >= streams);
            let held = files * DESCRIPTORS_PER_FILE + streams + directories;
            let fixed = CLIENT_DESCRIPTORS + SPARE_DESCRIPTORS;
            assert!(
                descriptors < 26 || held + fixed <= descriptors,
                "{descriptors}: {held}"
            );
        }
        let unlimited = ProcessLimits::default();
        assert_eq!(unlimited.streams(64), 64);
        assert_eq!(unlimited.open_directories(), OPEN_DIRECTORIES_PER_COPY);
        assert_eq!(
            ServerLimits::for_client(unlimited).open_files,
            ServerLimits::default().open_files
        );
    }

    #[test]
    fn copy_limits_fit_the_address_space() {
        let limits = ServerLimits::default();
        assert_eq!(limits.clone().within_memory(None).buffers, limits.buffers);
        assert_eq!(
            limits.clone().within_memory(Some(usize::MAX)).buffers,
            limits.buffers
        );
        for mib in [256, 488, 1024, 2000] {
            let limit = mib << 20;
            let fitted = limits.clone().within_memory(Some(limit));
            assert!(fitted.address_space() + PROGRAM_BYTES <= limit, "{mib} MiB");
            assert!(fitted.buffers >= MIN_BUFFERS && fitted.streams >= MIN_STREAMS);
        }
        // Even with too little memory, a copy makes progress or fails in order.
        assert_eq!(limits.within_memory(Some(0)).buffers, MIN_BUFFERS);
    }
}
