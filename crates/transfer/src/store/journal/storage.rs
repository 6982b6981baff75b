//! File system operations of a journal: creating, writing, renaming and removing files in one
//! directory.
//!
//! It is a trait, so that a test can replace the disk and lose, in a simulated power failure,
//! whatever was not synced.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_platform::fs::{self, AtFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::descriptors::with_descriptor;
use crate::full_read::read_full_at;
use crate::store::TEMP_PREFIX;
use crate::store::confine::{Dir, NodeKind, cannot_sync, kind_of};
use crate::store::durability;

/// Zeros to write if a file system cannot punch holes.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Result of looking up a file by its name.
#[derive(Debug)]
pub enum FoundFile<F> {
    /// The file does not exist.
    Missing,
    /// An entry exists that must not be used: it is not a regular file, belongs to another user, or
    /// is writable or linked by others.
    Foreign,
    /// A file that this user created, open for reading and writing.
    Own(F),
}

/// Identifies the file that has a name, to detect that another one has it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedFile {
    /// Inode number (`st_ino`, stat(2)).
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
}

/// One directory, as a journal uses it. Errors are those of the system calls.
pub trait Storage {
    /// An open file.
    type File;

    /// Creates a new file for reading and writing that only this user may open.
    fn create_new(&self, name: &OsStr) -> Result<Self::File, Errno>;
    /// Opens a file that this user created, and never anything else, even if another user put it
    /// there.
    fn open_own(&self, name: &OsStr) -> Result<FoundFile<Self::File>, Errno>;
    /// Takes the exclusive lock on a file while it is open. Returns false if it is taken.
    fn lock(&self, file: &Self::File) -> Result<bool, Errno>;
    /// Returns true if `name` still belongs to this very file.
    fn is_named(&self, file: &Self::File, name: &OsStr) -> Result<bool, Errno>;
    /// Returns the file that has this name, or `None` if it is no regular file.
    fn named(&self, name: &OsStr) -> Result<Option<NamedFile>, Errno>;
    /// Returns the size of a file in bytes.
    fn size(&self, file: &Self::File) -> Result<u64, Errno>;
    /// Truncates a file, or extends it with a hole.
    fn set_size(&self, file: &Self::File, size: u64) -> Result<(), Errno>;
    /// Makes the bytes from `start` to `end` read as zeros. The file size stays.
    fn clear(&self, file: &Self::File, start: u64, end: u64) -> Result<(), Errno>;
    /// Reads a file from its beginning, at most `limit` bytes.
    fn read(&self, file: &Self::File, limit: usize) -> Result<Vec<u8>, Errno>;
    /// Fills `bytes` from `offset` with synced content, as it is on disk if the system can tell.
    /// Returns false if the file ends before.
    fn read_back(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> Result<bool, Errno>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, file: &Self::File, data: &[u8], offset: u64) -> Result<(), Errno>;
    /// Makes earlier writes and the size durable.
    fn sync_data(&self, file: &Self::File) -> Result<(), Errno>;
    /// Makes earlier writes, the size, permissions and times durable.
    fn sync_all(&self, file: &Self::File) -> Result<(), Errno>;
    /// Renames a file atomically. Fails with `EXIST` if the new name exists and `replace` is false.
    fn rename(&self, from: &OsStr, to: &OsStr, replace: bool) -> Result<(), Errno>;
    /// Removes a name.
    fn remove(&self, name: &OsStr) -> Result<(), Errno>;
    /// Makes the names in the directory durable.
    fn sync_dir(&self) -> Result<(), Errno>;
    /// Returns unique random bytes.
    fn unique(&self) -> Result<[u8; 16], Errno>;
}

/// A directory of the operating system.
#[derive(Debug, Clone)]
pub struct DirStorage(pub Arc<Dir>);

impl Storage for DirStorage {
    type File = OwnedFd;

    fn create_new(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        with_descriptor(|| fs::openat(&*self.0, name, flags, Mode::RUSR | Mode::WUSR))
    }

    fn open_own(&self, name: &OsStr) -> Result<FoundFile<OwnedFd>, Errno> {
        // The file type is checked before, since opening a device may have side effects, and again
        // after opening, since names change.
        match self.0.stat_name(name) {
            Err(Errno::NOENT) => return Ok(FoundFile::Missing),
            stat if !self.is_own(&stat?) => return Ok(FoundFile::Foreign),
            _ => {}
        }
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match with_descriptor(|| fs::openat(&*self.0, name, flags, Mode::empty())) {
            Err(Errno::NOENT) => return Ok(FoundFile::Missing),
            Err(Errno::LOOP | Errno::ACCESS | Errno::ISDIR | Errno::NXIO) => {
                return Ok(FoundFile::Foreign);
            }
            file => file?,
        };
        Ok(match self.is_own(&fs::fstat(&file)?) {
            true => FoundFile::Own(file),
            false => FoundFile::Foreign,
        })
    }

    fn lock(&self, file: &OwnedFd) -> Result<bool, Errno> {
        match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            result => result.map(|()| true),
        }
    }

    fn is_named(&self, file: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
        let file = fs::fstat(file)?;
        match fs::statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (file.st_dev, file.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn named(&self, name: &OsStr) -> Result<Option<NamedFile>, Errno> {
        match self.0.stat_name(name) {
            Err(Errno::NOENT) => Ok(None),
            stat => Ok(Some(stat?)
                .filter(|stat| kind_of(stat) == NodeKind::File)
                .map(|stat| NamedFile {
                    inode: stat.st_ino,
                    size: stat.st_size as u64,
                })),
        }
    }

    fn size(&self, file: &OwnedFd) -> Result<u64, Errno> {
        Ok(fs::fstat(file)?.st_size as u64)
    }

    fn set_size(&self, file: &OwnedFd, size: u64) -> Result<(), Errno> {
        fs::ftruncate(file, size)
    }

    fn clear(&self, file: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
        let size = self.size(file)?;
        match fs::punch_hole(file, start, end.saturating_sub(start)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            result => return result,
        }
        if end >= size {
            fs::ftruncate(file, start)?;
            return fs::ftruncate(file, size);
        }
        let mut at = start;
        while at < end {
            let len = (end - at).min(ZEROS.len() as u64);
            self.write_at(file, ZEROS.get(..len as usize).unwrap_or(&ZEROS), at)?;
            at += len;
        }
        Ok(())
    }

    fn read(&self, file: &OwnedFd, limit: usize) -> Result<Vec<u8>, Errno> {
        let size = usize::try_from(self.size(file)?).unwrap_or(limit);
        let mut bytes = vec![0; size.min(limit)];
        let length = read_full_at(file, &mut bytes, 0)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn read_back(&self, file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<bool, Errno> {
        // A page that the disk refused may still be in memory, and look as if it had been written
        // (fsync(2)). This is only advice, which not every file system follows.
        fs::drop_cache(file, offset, bytes.len() as u64);
        Ok(read_full_at(file, bytes, offset)? == bytes.len())
    }

    fn write_at(&self, file: &OwnedFd, data: &[u8], offset: u64) -> Result<(), Errno> {
        write_all(file, data, offset)
    }

    fn sync_data(&self, file: &OwnedFd) -> Result<(), Errno> {
        fs::fdatasync(file)
    }

    fn sync_all(&self, file: &OwnedFd) -> Result<(), Errno> {
        durability::flush(file, true)
    }

    fn rename(&self, from: &OsStr, to: &OsStr, replace: bool) -> Result<(), Errno> {
        self.0.rename(from, to, replace)
    }

    fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        self.0.remove(name)
    }

    fn sync_dir(&self) -> Result<(), Errno> {
        match self.0.sync() {
            Err(errno) if cannot_sync(errno) => Ok(()),
            result => result,
        }
    }

    fn unique(&self) -> Result<[u8; 16], Errno> {
        let mut bytes = [0; 16];
        longhaul_platform::random::fill(&mut bytes)?;
        Ok(bytes)
    }
}

/// Writes all of `data` at `offset`.
pub(crate) fn write_all(file: &OwnedFd, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::pwrite(file, data, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                data = data.get(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl DirStorage {
    /// Returns true if this user creates temporary files with such metadata.
    fn is_own(&self, stat: &Stat) -> bool {
        kind_of(stat) == NodeKind::File
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && stat.st_nlink == 1
            && (!others_may_write(stat) || self.lacks_permissions())
    }

    /// Returns true if the permissions of a new private file let others write to it. exFAT and NTFS
    /// by FUSE have one mode for all files, and finished files are no safer there than a journal.
    fn lacks_permissions(&self) -> bool {
        let Ok([a, b, c, d, ..]) = self.unique() else {
            return false;
        };
        let name = format!("{TEMP_PREFIX}{a:02x}{b:02x}{c:02x}{d:02x}-0");
        let name = OsStr::new(&name);
        let Ok(file) = self.0.create_new(name) else {
            return false;
        };
        let made = fs::fstat(&file);
        let _ = self.0.remove(name);
        made.is_ok_and(|made| others_may_write(&made))
    }
}

fn others_may_write(stat: &Stat) -> bool {
    stat.st_mode & 0o022 != 0
}
