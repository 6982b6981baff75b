//! Types that the functions of every platform return.

use std::os::fd::OwnedFd;

/// Metadata that no cache has made old.
#[derive(Debug, Clone, Copy)]
pub struct FreshStat {
    /// File type and permissions.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: i64,
}

/// A pipe that does not block, for splice(2).
#[derive(Debug)]
pub struct SplicePipe {
    /// End to read from.
    pub read: OwnedFd,
    /// End to write to.
    pub write: OwnedFd,
    /// Capacity in bytes.
    pub capacity: usize,
}
