//! A source file that is open to be sent in blocks.

use crate::account::ResourcePermit;
use crate::block_size::block_log2;
use crate::late_size::{LATE_BLOCK_LOG2, LATE_SIZE, is_late};
use crate::send::source::SourceFile;
use crate::wire::SourceIdentity;

/// A file that is open to be sent in blocks.
pub(crate) struct OpenSourceFile {
    pub(super) file: Box<dyn SourceFile>,
    /// True if its size was late when it was opened (LH-COPY-80).
    pub(super) has_late_size: bool,
    pub block_log2: u32,
    /// Identity by which a later copy recognises the file, if it may be resumed.
    pub(crate) identity: Option<SourceIdentity>,
    /// Its permit among the open files.
    _permit: Option<ResourcePermit>,
}

impl OpenSourceFile {
    pub(super) fn new(
        file: Box<dyn SourceFile>,
        resume: bool,
        place: Option<ResourcePermit>,
    ) -> Self {
        // A late size may become known at any moment.
        let size = file.size();
        Self {
            identity: file.identity().filter(|_| resume),
            block_log2: match is_late(size) {
                true => LATE_BLOCK_LOG2,
                false => block_log2(size),
            },
            has_late_size: is_late(size),
            file,
            _permit: place,
        }
    }

    /// Returns the size that FILE says. It is always the same (LH-COPY-13).
    pub(crate) fn announced_size(&self) -> u64 {
        match self.has_late_size {
            true => LATE_SIZE,
            false => self.size(),
        }
    }

    /// Notes that the receiver has the block at `offset`.
    pub(crate) fn release(&self, offset: u64) {
        self.file.release(offset);
    }

    /// Returns the size in bytes when the file was opened. A late size is replaced by the size as
    /// soon as that is known.
    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }
}
