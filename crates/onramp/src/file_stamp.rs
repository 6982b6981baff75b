//! Recognition of files that have changed since they were read.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// State of a file. Another one means that its content or its permissions may be others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileStamp(Option<Fields>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    inode: u64,
    /// Seconds and nanoseconds of the last change of the content.
    modified: [i64; 2],
    /// The same of the last change of the inode: permissions change it alone.
    changed: [i64; 2],
    bytes: u64,
}

impl FileStamp {
    /// Reads the stamp of a file. Files that are missing or cannot be looked at have the default
    /// one.
    pub(crate) fn read(file: &Path) -> Self {
        let found = std::fs::metadata(file).ok();
        Self(found.map(|found| Fields {
            inode: found.ino(),
            modified: [found.mtime(), found.mtime_nsec()],
            changed: [found.ctime(), found.ctime_nsec()],
            bytes: found.size(),
        }))
    }
}
