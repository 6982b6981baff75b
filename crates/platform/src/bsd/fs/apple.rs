//! Names and calls that differ between macOS and Linux.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Mode, SeekFrom, XattrFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Name space of the attributes that users may set. On macOS all attributes are in it, and it has
/// no name.
const USER_ATTRIBUTES: &[u8] = b"user.";
/// Error of macOS for an attribute that does not exist (`ENOATTR`). Linux has `ENODATA`.
const NO_ATTRIBUTE: i32 = 93;
/// Number of attempts to read a list that others change.
const MAX_READS: u32 = 4;

/// Metadata of an inode (stat(2)), with the fields of Linux.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the fields of stat(2)")]
#[non_exhaustive]
pub struct Stat {
    pub st_dev: u64,
    pub st_ino: u64,
    pub st_mode: u32,
    pub st_nlink: u64,
    pub st_uid: u32,
    pub st_gid: u32,
    pub st_rdev: u64,
    pub st_size: i64,
    pub st_blocks: i64,
    pub st_atime: i64,
    pub st_atime_nsec: u64,
    pub st_mtime: i64,
    pub st_mtime_nsec: u64,
    pub st_ctime: i64,
    pub st_ctime_nsec: u64,
}

impl From<rustix::fs::Stat> for Stat {
    fn from(stat: rustix::fs::Stat) -> Self {
        let nanoseconds = |number: i64| u64::try_from(number).unwrap_or(0);
        Self {
            st_dev: device(stat.st_dev),
            st_ino: stat.st_ino,
            st_mode: stat.st_mode.into(),
            st_nlink: stat.st_nlink.into(),
            st_uid: stat.st_uid,
            st_gid: stat.st_gid,
            st_rdev: device(stat.st_rdev),
            st_size: stat.st_size,
            st_blocks: stat.st_blocks,
            st_atime: stat.st_atime,
            st_atime_nsec: nanoseconds(stat.st_atime_nsec),
            st_mtime: stat.st_mtime,
            st_mtime_nsec: nanoseconds(stat.st_mtime_nsec),
            st_ctime: stat.st_ctime,
            st_ctime_nsec: nanoseconds(stat.st_ctime_nsec),
        }
    }
}

fn device(number: i32) -> u64 {
    number.cast_unsigned().into()
}

fn number(device: u64) -> i32 {
    u32::try_from(device).unwrap_or(u32::MAX).cast_signed()
}

/// Returns the major number of a device.
#[must_use]
pub fn major(device: u64) -> u32 {
    rustix::fs::major(number(device))
}

/// Returns the minor number of a device.
#[must_use]
pub fn minor(device: u64) -> u32 {
    rustix::fs::minor(number(device))
}

/// Returns the number of a device.
#[must_use]
pub fn makedev(major: u32, minor: u32) -> u64 {
    device(rustix::fs::makedev(major, minor))
}

/// Returns the metadata of an open file.
///
/// # Errors
/// Those of fstat(2).
pub fn fstat(file: impl AsFd) -> Result<Stat, Errno> {
    rustix::fs::fstat(file).map(Stat::from)
}

/// Returns the metadata of a path.
///
/// # Errors
/// Those of fstatat(2).
pub fn statat(directory: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<Stat, Errno> {
    rustix::fs::statat(directory, path, flags).map(Stat::from)
}

/// Returns the metadata of a path. Symbolic links are followed.
///
/// # Errors
/// Those of stat(2).
pub fn stat(path: impl Arg) -> Result<Stat, Errno> {
    rustix::fs::stat(path).map(Stat::from)
}

/// Turns an error that Linux does not have into the one that it reports instead.
pub(super) fn as_on_linux(errno: Errno) -> Errno {
    match errno {
        Errno::NOTSUP => Errno::OPNOTSUPP,
        errno if errno.raw_os_error() == NO_ATTRIBUTE => Errno::NODATA,
        errno => errno,
    }
}

/// Forces a file to the disk, and makes the disk empty its own cache (`F_FULLFSYNC`). fsync(2) of
/// macOS does not do the latter.
///
/// # Errors
/// Those of fcntl(2) and fsync(2).
pub fn fsync(file: impl AsFd) -> Result<(), Errno> {
    match rustix::fs::fcntl_fullfsync(&file) {
        Err(Errno::NOTSUP | Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => {
            rustix::fs::fsync(file).map_err(as_on_linux)
        }
        result => result,
    }
}

/// Forces the content of a file to the disk as [`fsync`] does.
///
/// # Errors
/// Those of [`fsync`].
pub fn fdatasync(file: impl AsFd) -> Result<(), Errno> {
    fsync(file)
}

/// Fails with `OPNOTSUPP`: macOS flushes only single files.
///
/// # Errors
/// `OPNOTSUPP`.
pub fn syncfs(_: impl AsFd) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Moves the position in a file, or finds its data and holes.
///
/// # Errors
/// Those of lseek(2). `OPNOTSUPP` if the file system does not report holes.
pub fn seek(file: impl AsFd, position: SeekFrom) -> Result<u64, Errno> {
    rustix::fs::seek(file, position).map_err(|errno| match errno {
        Errno::NOTTY => Errno::OPNOTSUPP,
        errno => as_on_linux(errno),
    })
}

/// Gives a file another name.
///
/// # Errors
/// Those of linkat(2).
pub fn linkat(
    old_directory: impl AsFd,
    old: impl Arg,
    new_directory: impl AsFd,
    new: impl Arg,
    flags: AtFlags,
) -> Result<(), Errno> {
    rustix::fs::linkat(old_directory, old, new_directory, new, flags).map_err(as_on_linux)
}

/// Creates a symbolic link.
///
/// # Errors
/// Those of symlinkat(2).
pub fn symlinkat(target: impl Arg, directory: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    rustix::fs::symlinkat(target, directory, name).map_err(as_on_linux)
}

/// Fails with `OPNOTSUPP`: special files are not created on macOS.
///
/// # Errors
/// `OPNOTSUPP`.
pub fn mknodat(_: impl AsFd, _: impl Arg, _: FileType, _: Mode, _: u64) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Returns the name of an attribute on macOS. Attributes of the system, such as Linux's ACLs, have
/// none: macOS would keep them without heeding them.
fn local_name(name: &[u8]) -> Result<&[u8], Errno> {
    name.strip_prefix(USER_ATTRIBUTES).ok_or(Errno::OPNOTSUPP)
}

/// Returns the names of all attributes, as Linux has them.
fn attribute_names(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut attempts = 0;
    loop {
        let size = rustix::fs::flistxattr_query(&file).map_err(as_on_linux)?;
        let mut local = vec![0; size];
        match rustix::fs::flistxattr(&file, &mut local[..]) {
            Ok(length) => {
                local.truncate(length);
                let names = local
                    .split(|byte| *byte == 0)
                    .filter(|name| !name.is_empty());
                return Ok(names
                    .flat_map(|name| [USER_ATTRIBUTES, name, b"\0"].concat())
                    .collect());
            }
            Err(Errno::RANGE) if attempts < MAX_READS => attempts += 1,
            Err(errno) => return Err(as_on_linux(errno)),
        }
    }
}

/// Returns the length of the list of extended attributes, in bytes.
///
/// # Errors
/// Those of flistxattr(2).
pub fn flistxattr_query(file: impl AsFd) -> Result<usize, Errno> {
    attribute_names(file).map(|names| names.len())
}

/// Reads the names of the extended attributes, each terminated by NUL.
///
/// # Errors
/// Those of flistxattr(2). `RANGE` if the list is longer.
pub fn flistxattr(file: impl AsFd, list: &mut [u8]) -> Result<usize, Errno> {
    let names = attribute_names(file)?;
    let room = list.get_mut(..names.len()).ok_or(Errno::RANGE)?;
    room.copy_from_slice(&names);
    Ok(names.len())
}

/// Returns the length of the value of an extended attribute, in bytes.
///
/// # Errors
/// Those of fgetxattr(2).
pub fn fgetxattr_query(file: impl AsFd, name: impl AsRef<[u8]>) -> Result<usize, Errno> {
    rustix::fs::fgetxattr_query(file, local_name(name.as_ref())?).map_err(as_on_linux)
}

/// Reads the value of an extended attribute.
///
/// # Errors
/// Those of fgetxattr(2).
pub fn fgetxattr(
    file: impl AsFd,
    name: impl AsRef<[u8]>,
    value: &mut [u8],
) -> Result<usize, Errno> {
    rustix::fs::fgetxattr(file, local_name(name.as_ref())?, value).map_err(as_on_linux)
}

/// Sets an extended attribute.
///
/// # Errors
/// Those of fsetxattr(2).
pub fn fsetxattr(
    file: impl AsFd,
    name: impl AsRef<[u8]>,
    value: &[u8],
    flags: XattrFlags,
) -> Result<(), Errno> {
    rustix::fs::fsetxattr(file, local_name(name.as_ref())?, value, flags).map_err(as_on_linux)
}

/// Removes an extended attribute.
///
/// # Errors
/// Those of fremovexattr(2).
pub fn fremovexattr(file: impl AsFd, name: impl AsRef<[u8]>) -> Result<(), Errno> {
    rustix::fs::fremovexattr(file, local_name(name.as_ref())?).map_err(as_on_linux)
}
