//! Files whose size is not known before they are read, such as those of `/proc`.

use std::os::fd::OwnedFd;

use longhaul_platform::fs;

use super::SourceFile;
use crate::error::{Failure, FailureKind};
use crate::full_read::read_full_at;
use crate::wire::{MAX_SMALL_BYTES, Meta};

/// Content of a file that reports the size 0 and has more. It was read when it was opened, as
/// another read may give something else.
pub(super) struct UnsizedFile {
    content: Vec<u8>,
    meta: Meta,
}

impl UnsizedFile {
    /// Creates a file of this content.
    pub(super) fn new(content: Vec<u8>, meta: Meta) -> Self {
        Self { content, meta }
    }

    /// Reads a file that reports the size 0. `None` if it is empty.
    ///
    /// # Errors
    /// It has become larger meanwhile, has too much content, or cannot be read.
    pub(super) fn read(fd: &OwnedFd, meta: &Meta) -> Result<Option<Self>, Failure> {
        let mut first = [0];
        if read_full_at(fd, &mut first, 0)? == 0 {
            return Ok(None);
        }
        if fs::fstat(fd)?.st_size != 0 {
            return Err(Failure::new(FailureKind::Changed));
        }
        let max_bytes = MAX_SMALL_BYTES as usize;
        let mut content = vec![0; max_bytes + 1];
        let length = read_full_at(fd, &mut content, 0)?;
        if length > max_bytes {
            return Err(Failure::with_detail(
                FailureKind::Limit,
                format!(
                    "a file of unknown size has more than {} KiB: copy it from standard input (-)",
                    max_bytes >> 10
                ),
            ));
        }
        content.truncate(length);
        content.shrink_to_fit();
        Ok(Some(Self {
            content,
            meta: meta.clone(),
        }))
    }
}

impl SourceFile for UnsizedFile {
    fn size(&self) -> u64 {
        self.content.len() as u64
    }

    fn meta(&self) -> Meta {
        self.meta.clone()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.content.get(start..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), rest.get(..length)) {
            to.copy_from_slice(from);
        }
        Ok(length)
    }

    fn is_unchanged(&self) -> Result<bool, Failure> {
        Ok(true)
    }
}
