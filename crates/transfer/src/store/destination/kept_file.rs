//! A file that is kept when its copy ends early, for a later copy to resume.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use crate::error::Failure;
use crate::store::journal::Journal;

/// An unfinished file, written through a journal. Its writer and the flusher share it.
pub(super) struct KeptFile {
    pub journal: Journal,
    /// True if the flusher knows that the file has data at risk.
    pub is_scheduled: AtomicBool,
    /// Failure of the file, set when written data may never have reached the disk.
    pub lost: OnceLock<Failure>,
}

impl KeptFile {
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal,
            is_scheduled: AtomicBool::new(false),
            lost: OnceLock::new(),
        }
    }

    /// Writes to the data file.
    ///
    /// # Errors
    /// Those of the operating system, including those of earlier writes that did not reach the
    /// disk.
    pub(super) fn write(&self, data: &[u8], offset: u64) -> Result<(), Failure> {
        match self.lost.get() {
            Some(failure) => Err(failure.clone()),
            None => self.journal.write_at(data, offset),
        }
    }
}
