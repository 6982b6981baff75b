//! A file that arrives in blocks, until it is complete: kept for a later copy to resume, or removed
//! with its copy.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::EntryLocation;
use super::existing_file::InPlace;
use super::flusher::Flusher;
use super::kept_file::KeptFile;
use super::temp_file::TempFile;
use crate::error::Failure;
use crate::tree_hash::{BlockHash, Hash};
use crate::wire::{Block, EntryOutcome};

/// A file that arrives in blocks.
pub(crate) struct NewFile {
    kind: NewFileKind,
    /// Binary logarithm of its block size in bytes.
    block_log2: u32,
}

enum NewFileKind {
    /// Removed when its copy ends early.
    Temporary(TempFile),
    /// Kept when its copy ends early.
    Kept(KeptFile),
    /// An existing file that is not written.
    InPlace(InPlace),
}

impl NewFile {
    /// Creates a file that is removed with its copy, in blocks of `1 << block_log2` bytes.
    pub(super) fn temporary(file: TempFile, block_log2: u32) -> Self {
        Self {
            kind: NewFileKind::Temporary(file),
            block_log2,
        }
    }

    /// Creates a file that is kept when its copy ends early.
    pub(super) fn kept(file: KeptFile, block_log2: u32) -> Self {
        Self {
            kind: NewFileKind::Kept(file),
            block_log2,
        }
    }

    /// Creates the representation of an existing file that stays.
    pub(super) fn in_place(file: InPlace, block_log2: u32) -> Self {
        Self {
            kind: NewFileKind::InPlace(file),
            block_log2,
        }
    }

    /// Returns the outcome of an existing file that stays, or `None` for any other.
    pub(super) fn conclude(&self, size: u64, hash: &Hash) -> Option<Result<EntryOutcome, Failure>> {
        match &self.kind {
            NewFileKind::InPlace(file) => Some(file.conclude(size, hash)),
            NewFileKind::Temporary(_) | NewFileKind::Kept(_) => None,
        }
    }

    /// Syncs the data if it is recorded in a journal. Returns true if the file is durable, so that
    /// [`Self::finish`] needs no flush before it.
    pub(super) fn settle(&self) -> Result<bool, Failure> {
        match &self.kind {
            NewFileKind::Temporary(_) | NewFileKind::InPlace(_) => Ok(false),
            NewFileKind::Kept(file) => file.settle(),
        }
    }

    pub(super) fn parent(&self) -> &EntryLocation {
        match &self.kind {
            NewFileKind::Temporary(file) => &file.parent,
            NewFileKind::Kept(file) => &file.parent,
            NewFileKind::InPlace(file) => &file.parent,
        }
    }

    /// Returns the open file.
    ///
    /// # Errors
    /// `EBADF` once it has been closed.
    pub(super) fn fd(&self) -> Result<&OwnedFd, Errno> {
        match &self.kind {
            NewFileKind::Temporary(file) => file.fd(),
            NewFileKind::Kept(file) => Ok(file.fd()),
            NewFileKind::InPlace(file) => Ok(&file.fd),
        }
    }

    /// Closes a file that needs no descriptor any more.
    ///
    /// # Errors
    /// Delayed errors of earlier writes.
    pub(super) fn close(&mut self) -> Result<(), Errno> {
        match &mut self.kind {
            NewFileKind::Temporary(file) => file.close(),
            NewFileKind::Kept(_) | NewFileKind::InPlace(_) => Ok(()),
        }
    }

    /// Returns a descriptor to flush the file with.
    ///
    /// # Errors
    /// Those of opening it again.
    pub(super) fn open_to_flush(&self) -> Result<OwnedFd, Errno> {
        match &self.kind {
            NewFileKind::Temporary(file) => file.reopen(),
            NewFileKind::Kept(file) => rustix::io::fcntl_dupfd_cloexec(file.fd(), 0),
            NewFileKind::InPlace(file) => rustix::io::fcntl_dupfd_cloexec(&file.fd, 0),
        }
    }

    /// Writes a block that hashes to `hash`. `data` is the concatenated data of its extents.
    pub(super) fn write(
        &self,
        block: &Block,
        mut data: &[u8],
        hash: BlockHash,
        flusher: &Flusher,
    ) -> Result<(), Failure> {
        for extent in &block.extents {
            let (now, rest) = data
                .split_at_checked(extent.len as usize)
                .unwrap_or((data, &[]));
            let at = block.offset + u64::from(extent.offset);
            match &self.kind {
                NewFileKind::Temporary(file) => file.write(now, at)?,
                NewFileKind::Kept(file) => file.write(now, at)?,
                NewFileKind::InPlace(_) => {}
            }
            data = rest;
        }
        if let NewFileKind::Kept(file) = &self.kind {
            file.written(hash.subtree(block.offset, self.block_log2), flusher);
        }
        Ok(())
    }

    /// Renames the file to its final name. With `replace`, an existing file is replaced.
    pub(super) fn finish(&mut self, replace: bool) -> Result<(), Failure> {
        match &mut self.kind {
            NewFileKind::Temporary(file) => file.finish(replace),
            NewFileKind::Kept(file) => file.finish(replace),
            NewFileKind::InPlace(_) => Ok(()),
        }
    }

    /// Removes the file, at the latest when this is dropped.
    pub(super) fn discard(&mut self) {
        if let NewFileKind::Kept(file) = &mut self.kind {
            file.discard();
        }
    }
}
