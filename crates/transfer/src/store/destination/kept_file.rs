//! A file that is kept when its copy ends early, for a later copy to resume.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Parent;
use super::flusher::{Flusher, Journaled};
use crate::error::Failure;
use crate::store::journal::Journal;
use crate::tree_hash::Subtree;

/// An unfinished file, written through a journal. If it is dropped before it is finished or
/// discarded, the data so far is made durable and left.
pub(crate) struct KeptFile {
    /// Location of the file.
    pub(super) parent: Parent,
    file: Arc<Journaled>,
    /// True once it has its final name, or is to be removed.
    has_ended: bool,
}

impl KeptFile {
    pub(super) fn new(parent: Parent, journal: Journal) -> Self {
        Self {
            parent,
            file: Journaled::new(journal),
            has_ended: false,
        }
    }

    /// Returns true if another copy holds the journal, so that this file has none.
    pub(super) fn is_contested(&self) -> bool {
        self.file.journal.is_contested()
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        self.file.journal.data()
    }

    pub(super) fn write(&self, data: &[u8], offset: u64) -> Result<(), Failure> {
        self.file.write(data, offset)
    }

    pub(super) fn written(&self, block: Subtree, flusher: &Flusher) {
        flusher.written(&self.file, block);
    }

    /// Syncs the data if it is recorded in a journal. Returns true if it is.
    pub(super) fn settle(&self) -> Result<bool, Failure> {
        self.file.journal.settle()
    }

    /// Renames the file to its final name.
    pub(super) fn finish(&mut self, replace: bool) -> Result<(), Failure> {
        self.file.journal.finish(replace)?;
        self.has_ended = true;
        Ok(())
    }

    /// Discards the file, so that no copy resumes it.
    pub(super) fn discard(&mut self) {
        self.file.journal.discard();
        self.has_ended = true;
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if !self.has_ended {
            // Data that could not be recorded travels again. No one is left to receive the error.
            let _ = self.file.journal.let_go();
        }
    }
}
