//! Files and directories.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;

pub use rustix::fs::*;

pub use crate::types::FreshStat;

/// Flag that opens an inode only to name it: without its content, and without permission to read
/// it.
pub const HANDLE: OFlags = OFlags::PATH;

/// Returns the file type in the mode of a [`Stat`].
#[must_use]
pub const fn file_type(mode: u32) -> FileType {
    FileType::from_raw_mode(mode)
}

/// Returns the permissions in the mode of a [`Stat`].
#[must_use]
pub const fn mode_bits(mode: u32) -> Mode {
    Mode::from_raw_mode(mode)
}

/// Returns permissions as the mode of a [`Stat`] has them.
#[must_use]
pub const fn mode_number(mode: Mode) -> u32 {
    mode.bits()
}

/// Opens `path` beneath a directory. The kernel refuses `..`, absolute paths and symbolic links.
///
/// # Errors
/// Those of openat2(2). `NOSYS` before Linux 5.6.
pub fn open_beneath(directory: impl AsFd, path: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(
        directory,
        path,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )
}

/// Renames atomically, and fails with `EXIST` instead of replacing.
///
/// # Errors
/// Those of renameat2(2). `INVAL`, `NOSYS` and `OPNOTSUPP` if the file system cannot do that.
pub fn rename_noreplace(
    source: impl AsFd,
    from: &OsStr,
    target: impl AsFd,
    to: &OsStr,
) -> Result<(), Errno> {
    renameat_with(source, from, target, to, RenameFlags::NOREPLACE)
}

/// Returns the current metadata of `name`, read from the file system itself. A symbolic link is not
/// followed.
///
/// # Errors
/// Those of statx(2).
pub fn stat_uncached(directory: impl AsFd, name: &OsStr) -> Result<FreshStat, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    let stat = statx(directory, name, flags, StatxFlags::BASIC_STATS)?;
    Ok(FreshStat {
        mode: stat.stx_mode.into(),
        size: stat.stx_size,
        modified: stat.stx_mtime.tv_sec,
    })
}

/// Makes `length` bytes from `start` on a hole. The size stays.
///
/// # Errors
/// Those of fallocate(2). `NOSYS` and `OPNOTSUPP` if the file system cannot do that.
pub fn punch_hole(file: impl AsFd, start: u64, length: u64) -> Result<(), Errno> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, hole, start, length)
}

/// Advises the system to drop what it has cached of a file.
pub fn drop_cache(file: impl AsFd, offset: u64, length: u64) {
    let length = std::num::NonZeroU64::new(length);
    let _ = fadvise(file, offset, length, Advice::DontNeed);
}

/// Returns the type of the file system that holds `file`, as Linux numbers it (`linux/magic.h`).
///
/// # Errors
/// Those of fstatfs(2).
pub fn file_system_type(file: impl AsFd) -> Result<u64, Errno> {
    Ok(fstatfs(file)?.f_type as u64)
}

/// An entry of a directory that is not opened: a symbolic link, a special file, or one that may not
/// be read. It is a descriptor that only names the inode (`O_PATH`). Calls that do not take such a
/// descriptor go through its entry in `/proc/self/fd`, which leads to the inode itself.
#[derive(Debug)]
pub struct EntryHandle {
    fd: OwnedFd,
    path: String,
}

impl EntryHandle {
    /// Opens the entry `name`. A symbolic link is not followed.
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn open(directory: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(directory, name, flags, Mode::empty()).map(Self::from_descriptor)
    }

    /// Opens the entry at `path` by means of `open`, which confines the path. A symbolic link at
    /// its end is followed if `follows`, provided that `open` permits it.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn resolve(
        path: &OsStr,
        follows: bool,
        open: impl FnOnce(&OsStr, OFlags) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, Errno> {
        let flags = match follows {
            true => OFlags::PATH,
            false => OFlags::PATH | OFlags::NOFOLLOW,
        };
        open(path, flags).map(Self::from_descriptor)
    }

    fn from_descriptor(fd: OwnedFd) -> Self {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Self { fd, path }
    }

    /// Returns the metadata.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.fd)
    }

    /// Returns the length of the list of extended attributes, in bytes.
    ///
    /// # Errors
    /// Those of listxattr(2).
    pub fn attribute_names_query(&self) -> Result<usize, Errno> {
        listxattr_query(self.path.as_str())
    }

    /// Reads the names of the extended attributes, each terminated by NUL.
    ///
    /// # Errors
    /// Those of listxattr(2).
    pub fn attribute_names(&self, names: &mut [u8]) -> Result<usize, Errno> {
        listxattr(self.path.as_str(), names)
    }

    /// Returns the length of the value of an extended attribute, in bytes.
    ///
    /// # Errors
    /// Those of getxattr(2).
    pub fn attribute_query(&self, name: &[u8]) -> Result<usize, Errno> {
        getxattr_query(self.path.as_str(), name)
    }

    /// Reads the value of an extended attribute.
    ///
    /// # Errors
    /// Those of getxattr(2).
    pub fn attribute(&self, name: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
        getxattr(self.path.as_str(), name, value)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Those of setxattr(2).
    pub fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        setxattr(self.path.as_str(), name, value, XattrFlags::empty())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of removexattr(2).
    pub fn remove_attribute(&self, name: &[u8]) -> Result<(), Errno> {
        removexattr(self.path.as_str(), name)
    }

    /// Sets user and group, as far as they are given.
    ///
    /// # Errors
    /// Those of fchownat(2).
    pub fn set_owner(&self, user: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
        chownat(&self.fd, "", user, group, AtFlags::EMPTY_PATH)
    }

    /// Sets the mode bits. Not for symbolic links, which have none.
    ///
    /// # Errors
    /// Those of chmod(2).
    pub fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        chmod(self.path.as_str(), mode)
    }

    /// Sets the times.
    ///
    /// # Errors
    /// Those of utimensat(2).
    pub fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        utimensat(CWD, self.path.as_str(), times, AtFlags::empty())
    }
}
