//! Block devices that are read as files.

use std::os::fd::OwnedFd;

use longhaul_platform::fs::{self, FileType, SeekFrom, Stat};

use super::SourceFile;
use crate::error::Failure;
use crate::full_read::read_full_at;
use crate::metadata::meta_of;
use crate::wire::Meta;

/// An open block device. Whoever copies it must keep others from writing to it: a change is not
/// noticed.
pub(super) struct DeviceFile {
    fd: OwnedFd,
    stat: Stat,
    size: u64,
}

impl DeviceFile {
    /// Returns true if this is a block device.
    pub(super) fn is_device(stat: &Stat) -> bool {
        fs::file_type(stat.st_mode) == FileType::BlockDevice
    }

    /// Takes an open block device.
    ///
    /// # Errors
    /// Its size is not known.
    pub(super) fn new(fd: OwnedFd, stat: Stat) -> Result<Self, Failure> {
        let size = fs::seek(&fd, SeekFrom::End(0))?;
        Ok(Self { fd, stat, size })
    }
}

impl SourceFile for DeviceFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn meta(&self) -> Meta {
        meta_of(&self.stat)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        Ok(read_full_at(&self.fd, buffer, offset)?)
    }

    fn is_unchanged(&self) -> Result<bool, Failure> {
        Ok(true)
    }
}
