//! A temporary file until it is complete.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use longhaul_platform::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::directories::remove_temporary;
use crate::error::Failure;
use crate::store::confine::Dir;
use crate::store::durability;
use crate::store::journal::write_all;

/// An unfinished file, which is removed on drop unless it was finished.
pub(super) struct TempFile {
    pub(super) dir: Arc<Dir>,
    /// Its temporary name, until it has its final one.
    pub(super) temp: Option<OsString>,
    pub(super) fd: Option<OwnedFd>,
}

impl TempFile {
    /// Returns the open file.
    ///
    /// # Errors
    /// `EBADF` once it has been closed.
    pub(super) fn fd(&self) -> Result<&OwnedFd, Errno> {
        self.fd.as_ref().ok_or(Errno::BADF)
    }

    /// Closes the file, which keeps its temporary name.
    ///
    /// # Errors
    /// Delayed errors of earlier writes.
    pub(super) fn close(&mut self) -> Result<(), Errno> {
        self.fd.take().map_or(Ok(()), durability::close)
    }

    /// Opens the file again, to flush it.
    ///
    /// # Errors
    /// Those of opening it, as its owner may lack permission to read it.
    pub(super) fn reopen(&self) -> Result<OwnedFd, Errno> {
        match (&self.fd, &self.temp) {
            (Some(fd), _) => rustix::io::fcntl_dupfd_cloexec(fd, 0),
            (None, Some(temp)) => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                fs::openat(&*self.dir, temp, flags, Mode::empty())
            }
            (None, None) => Err(Errno::BADF),
        }
    }

    /// Writes all of `data` at `offset`.
    pub(super) fn write(&self, data: &[u8], offset: u64) -> Result<(), Failure> {
        Ok(write_all(self.fd()?, data, offset)?)
    }

    /// Gives the file its final `name`. With `replace`, an existing file is replaced.
    pub(super) fn finish(&mut self, name: &OsStr, replace: bool) -> Result<(), Failure> {
        if let Some(temp) = &self.temp {
            self.dir
                .rename(temp, name, replace)
                .map_err(|errno| Failure::for_name(errno, name.as_bytes()))?;
            self.temp = None;
        }
        Ok(())
    }

    /// Sets the size. Ranges that are not written are holes.
    pub(super) fn set_size(&self, size: u64) -> Result<(), Failure> {
        Ok(fs::ftruncate(self.fd()?, size)?)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(temp) = &self.temp {
            remove_temporary(&self.dir, temp);
        }
    }
}
