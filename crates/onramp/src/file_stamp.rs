//! Detection of files that have changed since they were read.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// State of a file. A different stamp means that its content or permissions may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileStamp(Option<Fields>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    inode: u64,
    /// Last change of the content, in seconds and nanoseconds.
    modified: [i64; 2],
    /// Last change of the inode, in seconds and nanoseconds. A change of permissions alters only
    /// this one.
    changed: [i64; 2],
    bytes: u64,
}

impl FileStamp {
    /// Reads the stamp of a file. Files that are missing or cannot be examined have the default
    /// stamp.
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
