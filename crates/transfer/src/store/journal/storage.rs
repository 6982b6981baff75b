//! What a journal needs of the file system: one directory, in which it makes, writes, renames and
//! removes files.
//!
//! A trait, so that a test can stand in for the disk and lose, when the power fails, whatever was
//! not synced.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::descriptors::with_descriptor;
use crate::store::TEMP_PREFIX;
use crate::store::confine::{Dir, Kind, cannot_sync, kind_of};
use crate::store::durability;

/// Bytes of zeros written at once where a file system cannot make holes.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// A file that was looked for by its name.
#[derive(Debug)]
pub enum Found<F> {
    /// There is none.
    Missing,
    /// There is something that may not be used: not a regular file, another user's, one that others
    /// may write to or that has another name as well.
    Foreign,
    /// A file that this user made, open for reading and writing.
    Own(F),
}

/// What tells the file that has a name from another that has it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The file's number (`st_ino`, stat(2)).
    pub inode: u64,
    /// Bytes of it.
    pub size: u64,
}

/// One directory, as a journal uses it. Errors are those of the system calls.
pub trait Storage {
    /// An open file.
    type File;

    /// Makes a file that was not there, for reading and writing, which this user alone may open.
    fn create_new(&self, name: &OsStr) -> Result<Self::File, Errno>;
    /// Opens a file that this user made, never anything else, whatever another user has put there.
    fn open_own(&self, name: &OsStr) -> Result<Found<Self::File>, Errno>;
    /// Takes the only lock on a file, for as long as it is open. False if another holds it.
    fn lock(&self, file: &Self::File) -> Result<bool, Errno>;
    /// Whether `name` is the name of this very file still.
    fn is_named(&self, file: &Self::File, name: &OsStr) -> Result<bool, Errno>;
    /// Which file has this name; none if it is no regular file.
    fn named(&self, name: &OsStr) -> Result<Option<Named>, Errno>;
    /// Bytes of a file.
    fn size(&self, file: &Self::File) -> Result<u64, Errno>;
    /// Cuts a file off, or has it end in a hole.
    fn set_size(&self, file: &Self::File, size: u64) -> Result<(), Errno>;
    /// Has the bytes from `start` to `end` read as zeros; the file's size stays.
    fn clear(&self, file: &Self::File, start: u64, end: u64) -> Result<(), Errno>;
    /// Reads a file from its beginning, `limit` bytes at most.
    fn read(&self, file: &Self::File, limit: usize) -> Result<Vec<u8>, Errno>;
    /// Fills `bytes` with what a file has from `offset` on, as it is on the disk where the system
    /// can say: what was synced is read back. False if it ends before.
    fn read_back(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> Result<bool, Errno>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, file: &Self::File, data: &[u8], offset: u64) -> Result<(), Errno>;
    /// Makes durable what was written before, and the size.
    fn sync_data(&self, file: &Self::File) -> Result<(), Errno>;
    /// The same, and permissions and times.
    fn sync_all(&self, file: &Self::File) -> Result<(), Errno>;
    /// Gives a file another name at one stroke; with `EXIST` if there is a file of that name and
    /// `replace` was not said.
    fn rename(&self, from: &OsStr, to: &OsStr, replace: bool) -> Result<(), Errno>;
    /// Removes a name.
    fn remove(&self, name: &OsStr) -> Result<(), Errno>;
    /// Makes durable which names there are.
    fn sync_dir(&self) -> Result<(), Errno>;
    /// Bytes that nobody else has come upon.
    fn unique(&self) -> Result<[u8; 16], Errno>;
}

/// The operating system's.
#[derive(Debug, Clone)]
pub struct DirStorage(pub Arc<Dir>);

impl Storage for DirStorage {
    type File = OwnedFd;

    fn create_new(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        with_descriptor(|| fs::openat(&*self.0, name, flags, Mode::RUSR | Mode::WUSR))
    }

    fn open_own(&self, name: &OsStr) -> Result<Found<OwnedFd>, Errno> {
        // Looked at first, since opening a device may do something; and again once it is open,
        // since names change.
        match self.0.stat_name(name) {
            Err(Errno::NOENT) => return Ok(Found::Missing),
            stat if !self.is_own(&stat?) => return Ok(Found::Foreign),
            _ => {}
        }
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match with_descriptor(|| fs::openat(&*self.0, name, flags, Mode::empty())) {
            Err(Errno::NOENT) => return Ok(Found::Missing),
            Err(Errno::LOOP | Errno::ACCESS | Errno::ISDIR | Errno::NXIO) => {
                return Ok(Found::Foreign);
            }
            file => file?,
        };
        Ok(match self.is_own(&fs::fstat(&file)?) {
            true => Found::Own(file),
            false => Found::Foreign,
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

    fn named(&self, name: &OsStr) -> Result<Option<Named>, Errno> {
        match self.0.stat_name(name) {
            Err(Errno::NOENT) => Ok(None),
            stat => Ok(Some(stat?)
                .filter(|stat| kind_of(stat) == Kind::File)
                .map(|stat| Named {
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
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fs::fallocate(file, hole, start, end.saturating_sub(start)) {
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
        let length = read_at(file, &mut bytes, 0)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn read_back(&self, file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<bool, Errno> {
        // A page that the disk refused may be in memory still, and look as if it had been written
        // (fsync(2)). Only advice: not every file system takes it.
        let length = std::num::NonZeroU64::new(bytes.len() as u64);
        let _ = fs::fadvise(file, offset, length, fs::Advice::DontNeed);
        Ok(read_at(file, bytes, offset)? == bytes.len())
    }

    fn write_at(&self, file: &OwnedFd, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
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
        let mut left = &mut bytes[..];
        while !left.is_empty() {
            let got = rustix::rand::getrandom(&mut *left, rustix::rand::GetRandomFlags::empty())?;
            left = left.get_mut(got..).unwrap_or_default();
        }
        Ok(bytes)
    }
}

/// Reads until `bytes` are full or the file ends; how many were read.
fn read_at(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut at = 0;
    while let Some(left) = bytes.get_mut(at..).filter(|left| !left.is_empty()) {
        match rustix::io::pread(file, left, offset + at as u64) {
            Ok(0) => break,
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(at)
}

impl DirStorage {
    /// Whether a file is as this user makes temporary files.
    fn is_own(&self, stat: &Stat) -> bool {
        kind_of(stat) == Kind::File
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && stat.st_nlink == 1
            && (!others_may_write(stat) || self.lacks_permissions())
    }

    /// Whether others may write to a new file that is made for this user alone: exFAT and NTFS by
    /// FUSE have one mode for all files, and what is finished is no safer there than a journal.
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
