//! A source file that is open to be sent in blocks.

use crate::account::ResourcePermit;
use crate::block_size::block_log2;
use crate::send::source::SourceFile;
use crate::wire::SourceIdentity;

/// A file that is open to be sent in blocks.
pub(crate) struct OpenSourceFile {
    pub(super) file: Box<dyn SourceFile>,
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
        Self {
            identity: file.identity().filter(|_| resume),
            block_log2: block_log2(file.size()),
            file,
            _permit: place,
        }
    }

    /// Returns the size in bytes when the file was opened.
    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }
}
