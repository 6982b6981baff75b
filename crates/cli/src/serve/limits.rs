//! Limits of a server: memory, descriptors and threads that its process may have.

use anyhow::Result;
use longhaul_transfer::{MIN_OPEN_FILES, ProcessLimits, ServerLimits};

use super::ServeCommand;
use crate::descriptors;
use crate::runtime::StartError;

/// Descriptors for everything except copies: connections being set up, measurements, listeners, the
/// runtime.
const OTHER_DESCRIPTORS: usize = 1024;
/// Minimum descriptors with which a server can make progress.
const MIN_DESCRIPTORS: u64 = 64;
/// Descriptors for each stream of a copy when they are scarce: the stream, and the files and
/// directories of its work.
const DESCRIPTORS_PER_STREAM: u64 = 8;
/// Blocking threads for everything except copies: look-ups, the doctor.
const OTHER_BLOCKING_THREADS: usize = 64;

impl ServeCommand {
    /// Returns the number of descriptors beyond those of the limits.
    pub(super) fn other_descriptors(&self, limits: &ServerLimits) -> usize {
        OTHER_DESCRIPTORS.saturating_add(self.stripe.descriptors(limits.streams))
    }

    /// Returns the limits, with as many open files as this process may have.
    pub fn limits(&self) -> Result<ServerLimits> {
        let limits = ServerLimits {
            copies: self.max_copies,
            streams_per_copy: self.max_streams,
            open_files: self.max_open_files,
            bookkeeping: usize::try_from(self.max_memory.0).unwrap_or(usize::MAX),
            ..ServerLimits::default()
        };
        let limits = limits.within_memory(ProcessLimits::current().address_space);
        let descriptors = descriptors::raise();
        match limits
            .clone()
            .within_descriptors(descriptors, self.other_descriptors(&limits))
        {
            Ok(limits) => Ok(limits),
            Err(_) if descriptors < MIN_DESCRIPTORS => {
                let few = format!(
                    "this process may have {descriptors} descriptors and needs {MIN_DESCRIPTORS}"
                );
                Err(StartError::Descriptors(std::io::Error::other(few)).into())
            }
            Err(needed) => {
                tracing::warn!(
                    "this process may have {descriptors} descriptors, and needs {needed} for its \
                     limits: raise the limit on open files (ulimit -n), or lower --max-copies"
                );
                // Too few for any guarantee: work waits for a free one.
                let streams =
                    u16::try_from(descriptors / DESCRIPTORS_PER_STREAM).unwrap_or(u16::MAX);
                Ok(ServerLimits {
                    open_files: MIN_OPEN_FILES,
                    streams_per_copy: limits.streams_per_copy.min(streams.max(1)),
                    ..limits
                })
            }
        }
    }
}

/// Returns the blocking threads of a runtime that serves within `limits`.
pub fn blocking_threads(limits: &ServerLimits) -> usize {
    let copies = limits.blocking_threads();
    copies.saturating_add(OTHER_BLOCKING_THREADS)
}
