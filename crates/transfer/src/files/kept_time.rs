//! Modification times of directories that stay as they are while entries are removed.

use longhaul_platform::fs::{self, Timespec, Timestamps, UTIME_OMIT};

use crate::path::RelPath;
use crate::store::confine::Dir;

/// A directory, and the modification time that it had.
pub(super) struct KeptTime {
    directory: Dir,
    modified: Timespec,
}

impl KeptTime {
    /// Reads the time of a directory. `None` if it cannot be read.
    pub(super) fn read(root: &Dir, path: &RelPath) -> Option<Self> {
        let directory = root.open_dir(path).ok()?;
        let stat = fs::fstat(&directory).ok()?;
        let modified = Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec as _,
        };
        Some(Self {
            directory,
            modified,
        })
    }

    /// Sets the time again. A directory of another user cannot be set, and has the new time.
    pub(super) fn restore(self) {
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT as _,
            },
            last_modification: self.modified,
        };
        let _ = fs::futimens(&self.directory, &times);
    }
}
