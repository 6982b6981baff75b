//! Makes written files durable, and detects failures that the file system reports late.
//!
//! Errors of writing may be delayed until fsync(2), and on network and FUSE file systems until
//! close(2). [`flush`] succeeds only if both did.

use std::os::fd::{AsFd, IntoRawFd, OwnedFd};

use longhaul_platform::fs;
use rustix::io::Errno;

/// Method by which the files of a file system become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The file system is in memory. Nothing survives a power failure, so nothing is flushed.
    Volatile,
    /// One syncfs(2) makes any number of files durable and reports errors.
    Grouped,
    /// Each file is flushed and closed on its own: FUSE, network and unknown file systems.
    Single,
}

// File system types of fstatfs(2), from linux/magic.h.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const EXT: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const OVERLAY: u64 = 0x794c_7630;

impl Durability {
    /// Classifies a file system by its type in fstatfs(2).
    fn from_type(file_system: u64) -> Self {
        // The type is signed and 32 bits wide on some platforms.
        match file_system & 0xffff_ffff {
            TMPFS | RAMFS => Self::Volatile,
            EXT | XFS | BTRFS | OVERLAY => Self::Grouped,
            _ => Self::Single,
        }
    }

    /// Returns the durability of the file system that holds `file`.
    ///
    /// # Errors
    /// Those of fstatfs(2).
    pub(crate) fn from_file(file: impl AsFd) -> Result<Self, Errno> {
        fs::file_system_type(file).map(Self::from_type)
    }
}

/// Flushes one file's content, permissions and times. Blocking.
///
/// # Errors
/// Those of writing it, whether the file system reports them at fsync(2) or at close(2). A file
/// system without fsync is an error only if `strict`.
pub(crate) fn flush(file: impl AsFd, strict: bool) -> Result<(), Errno> {
    match fs::fsync(&file) {
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) if !strict => {}
        result => result?,
    }
    // Every close(2), including that of a duplicate, makes the file system write out the data.
    close(rustix::io::fcntl_dupfd_cloexec(file, 0)?)
}

/// Closes a file.
///
/// # Errors
/// Delayed errors of earlier writes.
#[allow(unsafe_code, reason = "the standard library's close drops errors")]
pub(crate) fn close(file: OwnedFd) -> Result<(), Errno> {
    // SAFETY: the descriptor is owned here and given up, so nothing uses it afterwards.
    if unsafe { libc::close(file.into_raw_fd()) } == 0 {
        return Ok(());
    }
    match last_error() {
        // Linux has closed the descriptor nevertheless (close(2)).
        Errno::INTR => Ok(()),
        errno => Err(errno),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_file_systems_flush_in_groups() {
        assert_eq!(Durability::from_type(EXT), Durability::Grouped);
        assert_eq!(Durability::from_type(BTRFS), Durability::Grouped);
        assert_eq!(Durability::from_type(RAMFS), Durability::Volatile);
        assert_eq!(
            Durability::from_type(0xffff_ffff_8584_58f6),
            Durability::Volatile
        );
        // FUSE, NFS, and an unknown type.
        for other in [0x6573_5546, 0x6969, 0] {
            assert_eq!(Durability::from_type(other), Durability::Single);
        }
    }

    #[test]
    fn write_errors_are_reported() {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        assert_eq!(
            flush(&full, true),
            Err(Errno::INVAL),
            "devices have no fsync"
        );
        assert_eq!(flush(&full, false), Ok(()));
    }
}
