//! A file that is kept when its copy ends early, for a later copy of the same to go on with.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Parent;
use super::flusher::{Flusher, Journaled};
use crate::error::Failure;
use crate::store::journal::Journal;
use crate::tree_hash::Subtree;

/// A file in the making, written through a journal. Dropped before it is finished or discarded,
/// what there is of it is made durable and left.
pub(crate) struct KeptFile {
    /// Where it goes.
    pub(super) parent: Parent,
    file: Arc<Journaled>,
    /// It has its name, or is to be removed.
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

    /// Whether another copy of the same holds the journal, so that this one has none.
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

    /// Syncs what was written if that is recorded. Returns whether it was.
    pub(super) fn settle(&self) -> Result<bool, Failure> {
        self.file.journal.settle()
    }

    /// The file takes its name.
    pub(super) fn finish(&mut self, replace: bool) -> Result<(), Failure> {
        self.file.journal.finish(replace)?;
        self.has_ended = true;
        Ok(())
    }

    /// Nobody is to go on with it.
    pub(super) fn discard(&mut self) {
        self.file.journal.discard();
        self.has_ended = true;
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if !self.has_ended {
            // What could not be recorded travels again; nobody is left to report it to.
            let _ = self.file.journal.let_go();
        }
    }
}
