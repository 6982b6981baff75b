//! A file that arrives in blocks, until it is complete: kept for a later copy to resume, or removed
//! with its copy.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::EntryLocation;
use super::compare::is_same;
use super::flusher::Flusher;
use super::kept_file::KeptFile;
use super::overwritten::OverwrittenFile;
use super::temp_file::TempFile;
use crate::error::Failure;
use crate::store::journal::Journal;
use crate::store::quota::QuotaCharge;
use crate::tree_hash::{BlockHash, Hash};
use crate::wire::{Block, EntryOutcome};

/// Bytes of a unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// A file that arrives in blocks.
pub(crate) struct NewFile {
    /// Location of the file.
    pub(super) parent: EntryLocation,
    kind: NewFileKind,
    /// Binary logarithm of its block size in bytes.
    block_log2: u32,
    /// True if its size was not known when it was created.
    has_late_size: bool,
    /// Part of the quota that it holds, if there is one.
    charge: Option<QuotaCharge>,
}

enum NewFileKind {
    /// Removed when its copy ends early.
    Temporary(TempFile),
    /// Kept when its copy ends early.
    Kept(Arc<KeptFile>),
    /// An existing file that stays. Data that arrives for it is not written.
    InPlace {
        fd: OwnedFd,
        /// Failure of the entry, unless the file has the same content.
        failure: Failure,
    },
    /// An existing file that is overwritten in place.
    Overwritten(OverwrittenFile),
}

impl NewFile {
    /// Creates a file that is removed with its copy, in blocks of `1 << block_log2` bytes.
    pub(super) fn temporary(parent: EntryLocation, file: TempFile, block_log2: u32) -> Self {
        Self {
            parent,
            kind: NewFileKind::Temporary(file),
            block_log2,
            has_late_size: false,
            charge: None,
        }
    }

    /// Creates a file that is kept when its copy ends early.
    pub(super) fn kept(parent: EntryLocation, journal: Journal, block_log2: u32) -> Self {
        Self {
            parent,
            kind: NewFileKind::Kept(Arc::new(KeptFile::new(journal))),
            block_log2,
            has_late_size: false,
            charge: None,
        }
    }

    /// Creates the representation of an existing file that stays.
    pub(super) fn in_place(parent: EntryLocation, fd: OwnedFd, failure: Failure) -> Self {
        Self {
            parent,
            kind: NewFileKind::InPlace { fd, failure },
            block_log2: 0,
            has_late_size: false,
            charge: None,
        }
    }

    /// Sets the part of the quota that the file holds.
    pub(super) fn charged(self, charge: Option<QuotaCharge>) -> Self {
        // Not by struct update, as it is dropped otherwise.
        let mut file = self;
        file.charge = charge;
        file
    }

    /// Sets whether the size is late, so that it is to be set at the end.
    pub(super) fn with_late_size(self, has_late_size: bool) -> Self {
        // Not by struct update, as it is dropped otherwise.
        let mut file = self;
        file.has_late_size = has_late_size;
        file
    }

    /// Creates the representation of an existing file that is overwritten in place.
    pub(super) fn overwritten(parent: EntryLocation, file: OverwrittenFile) -> Self {
        Self {
            parent,
            kind: NewFileKind::Overwritten(file),
            block_log2: 0,
            has_late_size: false,
            charge: None,
        }
    }

    /// Returns the outcome of an existing file that stays, or `None` for any other.
    pub(super) fn conclude(&self, size: u64, hash: &Hash) -> Option<Result<EntryOutcome, Failure>> {
        match &self.kind {
            NewFileKind::InPlace { failure, .. } => Some(match is_same(&self.parent, size, hash) {
                true => Ok(EntryOutcome::Same),
                false => Err(failure.clone()),
            }),
            NewFileKind::Temporary(_) | NewFileKind::Kept(_) | NewFileKind::Overwritten(_) => None,
        }
    }

    /// Returns true if another copy holds the file's journal, so that this copy has none.
    pub(super) fn is_contested(&self) -> bool {
        matches!(&self.kind, NewFileKind::Kept(file) if file.journal.is_contested())
    }

    /// Syncs the data if it is recorded in a journal. Returns true if the file is durable, so that
    /// [`Self::finish`] needs no flush before it. The file has `size` bytes.
    pub(super) fn settle(&self, size: u64) -> Result<bool, Failure> {
        match &self.kind {
            NewFileKind::Kept(file) => file.journal.settle(),
            NewFileKind::Temporary(file) if self.has_late_size => {
                // The file may end with a hole.
                file.set_size(size)?;
                Ok(false)
            }
            NewFileKind::InPlace { .. } | NewFileKind::Temporary(_) => Ok(false),
            NewFileKind::Overwritten(file) => {
                file.set_size()?;
                Ok(false)
            }
        }
    }

    /// Returns the open file.
    ///
    /// # Errors
    /// `EBADF` once it has been closed.
    pub(super) fn fd(&self) -> Result<&OwnedFd, Errno> {
        match &self.kind {
            NewFileKind::Temporary(file) => file.fd(),
            NewFileKind::Kept(file) => Ok(file.journal.data()),
            NewFileKind::InPlace { fd, .. } => Ok(fd),
            NewFileKind::Overwritten(file) => Ok(file.fd()),
        }
    }

    /// Closes a file that needs no descriptor any more.
    ///
    /// # Errors
    /// Delayed errors of earlier writes.
    pub(super) fn close(&mut self) -> Result<(), Errno> {
        match &mut self.kind {
            NewFileKind::Temporary(file) => file.close(),
            NewFileKind::Kept(_) | NewFileKind::InPlace { .. } | NewFileKind::Overwritten(_) => {
                Ok(())
            }
        }
    }

    /// Returns a descriptor to flush the file with.
    ///
    /// # Errors
    /// Those of opening it again.
    pub(super) fn open_to_flush(&self) -> Result<OwnedFd, Errno> {
        match &self.kind {
            NewFileKind::Temporary(file) => file.reopen(),
            NewFileKind::Kept(_) | NewFileKind::InPlace { .. } | NewFileKind::Overwritten(_) => {
                fcntl_dupfd_cloexec(self.fd()?, 0)
            }
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
        if let NewFileKind::Overwritten(file) = &self.kind {
            return Ok(file.write(block, data)?);
        }
        for extent in &block.extents {
            let (now, rest) = data
                .split_at_checked(extent.len as usize)
                .unwrap_or((data, &[]));
            let at = block.offset + u64::from(extent.offset);
            match &self.kind {
                NewFileKind::Temporary(file) => file.write(now, at)?,
                NewFileKind::Kept(file) => file.write(now, at)?,
                NewFileKind::InPlace { .. } | NewFileKind::Overwritten(_) => {}
            }
            data = rest;
        }
        if let NewFileKind::Kept(file) = &self.kind {
            flusher.written(file, hash.subtree(block.offset, self.block_log2));
        }
        Ok(())
    }

    /// Renames the file to its final name. With `replace`, an existing file is replaced.
    pub(super) fn finish(&mut self, replace: bool) -> Result<(), Failure> {
        let replaced = self.charge.as_ref().filter(|_| replace);
        let replaced = replaced.and_then(|_| self.parent.dir.stat_name(&self.parent.name).ok());
        match &mut self.kind {
            NewFileKind::Temporary(file) => file.finish(&self.parent.name, replace)?,
            NewFileKind::Kept(file) => file.journal.finish(replace)?,
            NewFileKind::InPlace { .. } | NewFileKind::Overwritten(_) => {}
        }
        if let Some(charge) = self.charge.take() {
            charge.keep(replaced.as_ref());
        }
        Ok(())
    }

    /// Removes the file, at the latest when this is dropped.
    pub(super) fn discard(&mut self) {
        if let NewFileKind::Kept(file) = &self.kind {
            file.journal.discard();
        }
    }
}

impl Drop for NewFile {
    /// Makes the data of an unfinished file that is kept durable, and leaves it.
    fn drop(&mut self) {
        if let NewFileKind::Kept(file) = &self.kind {
            // Data that could not be recorded travels again. No one is left to receive the error.
            let _ = file.journal.release();
            if let Some(charge) = self.charge.take()
                && let Some(disk_bytes @ 1..) = bytes_on_disk(file.journal.data())
            {
                charge.keep_unfinished(disk_bytes);
            }
        }
    }
}

/// Returns the bytes on disk of an unfinished file, or `None` if it has no name any more.
pub(super) fn bytes_on_disk(file: &OwnedFd) -> Option<u64> {
    let stat = longhaul_platform::fs::fstat(file)
        .ok()
        .filter(|stat| stat.st_nlink > 0)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    Some(size.min(blocks.saturating_mul(BLOCK_BYTES)))
}
