//! A file until it is whole.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use rustix::fs;
use rustix::io::Errno;

use super::Parent;
use crate::error::{Failure, FailureKind};

/// A file in the making; removed when dropped before it is finished.
pub(crate) struct TempFile {
    /// Where it goes.
    pub(super) parent: Parent,
    /// Its temporary name, until it has its own.
    pub(super) temp: Option<OsString>,
    pub(super) fd: OwnedFd,
}

impl TempFile {
    /// Writes all of `data` at `offset`.
    pub(crate) fn write(&self, mut data: &[u8], mut offset: u64) -> Result<(), Failure> {
        while !data.is_empty() {
            match rustix::io::pwrite(&self.fd, data, offset) {
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
            self.parent.dir.rename(temp, &self.parent.name, replace)?;
            self.temp = None;
        }
        Ok(())
    }

    /// Sets its size; what is not written is a hole.
    pub(crate) fn set_size(&self, size: u64) -> Result<(), Failure> {
        Ok(fs::ftruncate(&self.fd, size)?)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(temp) = &self.temp {
            let _ = self.parent.dir.remove(temp);
        }
    }
}
