//! A file until it is whole.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::Parent;
use super::directories::remove_temporary;
use crate::error::{Failure, FailureKind};
use crate::store::durability;

/// A file in the making; removed when dropped before it is finished.
pub(crate) struct TempFile {
    /// Where it goes.
    pub(super) parent: Parent,
    /// Its temporary name, until it has its own.
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
    /// Those that writing it left behind.
    pub(super) fn close(&mut self) -> Result<(), Errno> {
        self.fd.take().map_or(Ok(()), durability::close)
    }

    /// Opens the file again, to flush it.
    ///
    /// # Errors
    /// Those of opening it: its owner may have no permission to read it.
    pub(super) fn reopen(&self) -> Result<OwnedFd, Errno> {
        match (&self.fd, &self.temp) {
            (Some(fd), _) => rustix::io::fcntl_dupfd_cloexec(fd, 0),
            (None, Some(temp)) => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                fs::openat(&*self.parent.dir, temp, flags, Mode::empty())
            }
            (None, None) => Err(Errno::BADF),
        }
    }

    /// Writes all of `data` at `offset`.
    pub(crate) fn write(&self, mut data: &[u8], mut offset: u64) -> Result<(), Failure> {
        while !data.is_empty() {
            match rustix::io::pwrite(self.fd()?, data, offset) {
                Ok(0) => return Err(Failure::with(FailureKind::Io, "a write wrote nothing")),
                Ok(n) => {
                    data = data.get(n..).unwrap_or_default();
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// It takes its name; `replace` what has it.
    pub(super) fn finish(&mut self, replace: bool) -> Result<(), Failure> {
        if let Some(temp) = &self.temp {
            let Parent { dir, name, .. } = &self.parent;
            dir.rename(temp, name, replace)
                .map_err(|errno| Failure::for_name(errno, name.as_bytes()))?;
            self.temp = None;
        }
        Ok(())
    }

    /// Sets its size; what is not written is a hole.
    pub(crate) fn set_size(&self, size: u64) -> Result<(), Failure> {
        Ok(fs::ftruncate(self.fd()?, size)?)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(temp) = &self.temp {
            remove_temporary(&self.parent.dir, temp);
        }
    }
}
