//! Files and directories.
//!
//! A [`Stat`] has the fields and widths of Linux everywhere.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

pub use rustix::fs::*;

pub use crate::types::FreshStat;

#[cfg(target_vendor = "apple")]
mod apple;
#[cfg(target_vendor = "apple")]
use apple::as_on_linux;
#[cfg(target_vendor = "apple")]
pub use apple::{
    Stat, fdatasync, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query, fremovexattr,
    fsetxattr, fstat, fsync, linkat, major, makedev, minor, mknodat, seek, stat, statat, symlinkat,
    syncfs,
};

/// Flag that opens a directory only to name what is in it. Without `O_PATH`, that takes permission
/// to read the directory.
pub const HANDLE: OFlags = OFlags::RDONLY;

/// Returns the file type in the mode of a [`Stat`].
#[must_use]
pub const fn file_type(mode: u32) -> FileType {
    FileType::from_raw_mode(mode as RawMode)
}

/// Returns the permissions in the mode of a [`Stat`].
#[must_use]
pub const fn mode_bits(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as RawMode)
}

/// Returns permissions as the mode of a [`Stat`] has them.
#[must_use]
pub const fn mode_number(mode: Mode) -> u32 {
    mode.bits() as u32
}

/// Fails with `NOSYS`. The caller then opens one directory after the other.
///
/// # Errors
/// `NOSYS`.
pub fn open_beneath(_: impl AsFd, _: &OsStr, _: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// Renames atomically, and fails with `EXIST` instead of replacing.
///
/// # Errors
/// Those of renameatx_np(2). `INVAL`, `NOSYS` and `OPNOTSUPP` if the file system cannot do that.
#[cfg(target_vendor = "apple")]
pub fn rename_noreplace(
    source: impl AsFd,
    from: &OsStr,
    target: impl AsFd,
    to: &OsStr,
) -> Result<(), Errno> {
    renameat_with(source, from, target, to, RenameFlags::NOREPLACE).map_err(as_on_linux)
}

/// Fails with `NOSYS`. The caller then links the new name and removes the old one.
///
/// # Errors
/// `NOSYS`.
#[cfg(not(target_vendor = "apple"))]
pub fn rename_noreplace(_: impl AsFd, _: &OsStr, _: impl AsFd, _: &OsStr) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Returns the metadata of `name`. A symbolic link is not followed. Nothing makes a network or FUSE
/// file system ignore its cache.
///
/// # Errors
/// Those of fstatat(2).
pub fn stat_uncached(directory: impl AsFd, name: &OsStr) -> Result<FreshStat, Errno> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FreshStat {
        mode: stat.st_mode,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: stat.st_mtime,
    })
}

/// Fails with `OPNOTSUPP`. The caller then writes zeros.
///
/// # Errors
/// `OPNOTSUPP`.
pub fn punch_hole(_: impl AsFd, _: u64, _: u64) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Does nothing: POSIX lets a program drop nothing from the cache of the system.
pub fn drop_cache(_: impl AsFd, _: u64, _: u64) {}

/// Returns 0, which is the type of no file system. Each file is then flushed by itself.
///
/// # Errors
/// None on this platform.
pub fn file_system_type(_: impl AsFd) -> Result<u64, Errno> {
    Ok(0)
}

/// An entry of a directory that is not opened: a symbolic link, a special file, or one that may not
/// be read. It is the directory and a name. No call follows a symbolic link, but the name may
/// belong to another inode from one call to the next.
#[derive(Debug)]
pub struct EntryHandle {
    directory: OwnedFd,
    name: OsString,
    follows: bool,
}

impl EntryHandle {
    /// Opens the entry `name`. A symbolic link is not followed.
    ///
    /// # Errors
    /// Those of fstatat(2), and a lack of descriptors.
    pub fn open(directory: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        let directory = rustix::io::fcntl_dupfd_cloexec(directory, 0)?;
        Self::new(directory, name, false)
    }

    /// Opens the entry at `path` by means of `open`, which confines the path. A symbolic link at
    /// its end is followed if `follows`.
    ///
    /// # Errors
    /// Those of `open` and fstatat(2).
    pub fn resolve(
        path: &OsStr,
        follows: bool,
        open: impl FnOnce(&OsStr, OFlags) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, Errno> {
        let bytes = path.as_bytes();
        let (parent, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (bytes.get(..at), bytes.get(at + 1..)),
            None => (Some(b".".as_slice()), Some(bytes)),
        };
        let (parent, name) = parent.zip(name).ok_or(Errno::INVAL)?;
        let directory = open(OsStr::from_bytes(parent), OFlags::DIRECTORY | HANDLE)?;
        Self::new(directory, OsStr::from_bytes(name), follows)
    }

    fn new(directory: OwnedFd, name: &OsStr, follows: bool) -> Result<Self, Errno> {
        let handle = Self {
            directory,
            name: name.to_owned(),
            follows,
        };
        handle.stat()?;
        Ok(handle)
    }

    fn at_flags(&self) -> AtFlags {
        match self.follows {
            true => AtFlags::empty(),
            false => AtFlags::SYMLINK_NOFOLLOW,
        }
    }

    /// Returns the metadata.
    ///
    /// # Errors
    /// Those of fstatat(2).
    pub fn stat(&self) -> Result<Stat, Errno> {
        statat(&self.directory, &self.name, self.at_flags())
    }

    /// Opens a file or directory to reach its extended attributes. Opening anything else could have
    /// side effects.
    ///
    /// # Errors
    /// `OPNOTSUPP` for links and special files, which have no attributes here, and those of
    /// openat(2).
    fn opened(&self) -> Result<OwnedFd, Errno> {
        let stat = self.stat()?;
        if !matches!(
            file_type(stat.st_mode),
            FileType::RegularFile | FileType::Directory
        ) {
            return Err(Errno::OPNOTSUPP);
        }
        let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !self.follows {
            flags |= OFlags::NOFOLLOW;
        }
        let file = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let opened = fstat(&file)?;
        match (opened.st_dev, opened.st_ino) == (stat.st_dev, stat.st_ino) {
            true => Ok(file),
            false => Err(Errno::NOENT),
        }
    }

    /// Returns the length of the list of extended attributes, in bytes.
    ///
    /// # Errors
    /// Those of flistxattr(2), and of opening the entry.
    pub fn attribute_names_query(&self) -> Result<usize, Errno> {
        flistxattr_query(self.opened()?)
    }

    /// Reads the names of the extended attributes, each terminated by NUL.
    ///
    /// # Errors
    /// Those of flistxattr(2), and of opening the entry.
    pub fn attribute_names(&self, names: &mut [u8]) -> Result<usize, Errno> {
        flistxattr(self.opened()?, names)
    }

    /// Returns the length of the value of an extended attribute, in bytes.
    ///
    /// # Errors
    /// Those of fgetxattr(2), and of opening the entry.
    pub fn attribute_query(&self, name: &[u8]) -> Result<usize, Errno> {
        fgetxattr_query(self.opened()?, name)
    }

    /// Reads the value of an extended attribute.
    ///
    /// # Errors
    /// Those of fgetxattr(2), and of opening the entry.
    pub fn attribute(&self, name: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
        fgetxattr(self.opened()?, name, value)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Those of fsetxattr(2), and of opening the entry.
    pub fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        fsetxattr(self.opened()?, name, value, XattrFlags::empty())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of fremovexattr(2), and of opening the entry.
    pub fn remove_attribute(&self, name: &[u8]) -> Result<(), Errno> {
        fremovexattr(self.opened()?, name)
    }

    /// Sets user and group, as far as they are given.
    ///
    /// # Errors
    /// Those of fchownat(2).
    pub fn set_owner(&self, user: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
        chownat(&self.directory, &self.name, user, group, self.at_flags())
    }

    /// Sets the mode bits. Not for symbolic links, which have none.
    ///
    /// # Errors
    /// `LOOP` for a symbolic link, and those of fchmodat(2).
    pub fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        if file_type(self.stat()?.st_mode) == FileType::Symlink {
            return Err(Errno::LOOP);
        }
        // Linux has the flag since 6.6 only.
        let flags = match cfg!(target_vendor = "apple") {
            true => self.at_flags(),
            false => AtFlags::empty(),
        };
        chmodat(&self.directory, &self.name, mode, flags)
    }

    /// Sets the times.
    ///
    /// # Errors
    /// Those of utimensat(2).
    pub fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        utimensat(&self.directory, &self.name, times, self.at_flags())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn entries_are_reached_without_following_links() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("file"), "content").unwrap();
        symlink("file", tmp.path().join("link")).unwrap();
        let directory = open(tmp.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let link = EntryHandle::open(&directory, "link".as_ref()).unwrap();
        assert_eq!(file_type(link.stat().unwrap().st_mode), FileType::Symlink);
        assert_eq!(link.set_mode(Mode::RWXU), Err(Errno::LOOP));
        assert_eq!(link.attribute_query(b"user.a"), Err(Errno::OPNOTSUPP));
        let open = |path: &OsStr, flags| openat(&directory, path, flags, Mode::empty());
        let followed = EntryHandle::resolve("link".as_ref(), true, open).unwrap();
        assert_eq!(followed.stat().unwrap().st_size, 7);
        followed.set_mode(Mode::RUSR).unwrap();
        let file = EntryHandle::open(&directory, "file".as_ref()).unwrap();
        assert_eq!(file.stat().unwrap().st_mode & 0o777, 0o400);
        let missing = EntryHandle::open(&directory, "missing".as_ref());
        assert_eq!(missing.unwrap_err(), Errno::NOENT);
    }

    #[test]
    fn link_that_replaces_a_file_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("secret"), "secret").unwrap();
        std::fs::write(tmp.path().join("file"), "content").unwrap();
        let directory = open(tmp.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let handle = EntryHandle::open(&directory, "file".as_ref()).unwrap();
        std::fs::remove_file(tmp.path().join("file")).unwrap();
        symlink("secret", tmp.path().join("file")).unwrap();
        assert_eq!(handle.set_mode(Mode::RWXU), Err(Errno::LOOP));
        assert_eq!(handle.set_attribute(b"user.a", b"x"), Err(Errno::OPNOTSUPP));
    }
}
