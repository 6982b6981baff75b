//! Owner, mode and extended attributes of an inode, by a descriptor or a handle. No symbolic link
//! is followed.

use std::os::fd::BorrowedFd;

use longhaul_platform::fs::{self, EntryHandle, Gid, Stat, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

/// Maximum number of bytes of the names and of the value of extended attributes (xattr(7)).
const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Number of attempts to read a value that others change.
const MAX_READS: u32 = 4;

/// An inode.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// An entry that is not opened.
    Entry(&'a EntryHandle),
}

impl<'a> Node<'a> {
    /// Creates a node of an open file or directory.
    pub(crate) fn open(fd: BorrowedFd<'a>) -> Self {
        Self::Open(fd)
    }

    /// Creates a node of an entry that is not opened.
    pub(crate) fn handle(entry: &'a EntryHandle) -> Self {
        Self::Entry(entry)
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        match self {
            Self::Open(fd) => fs::fstat(fd),
            Self::Entry(entry) => entry.stat(),
        }
    }

    /// Returns the names of the extended attributes, each terminated by NUL.
    pub(crate) fn attribute_names(&self) -> Result<Vec<u8>, Errno> {
        read_sized(
            || match self {
                Self::Open(fd) => fs::flistxattr_query(fd),
                Self::Entry(entry) => entry.attribute_names_query(),
            },
            |names| match self {
                Self::Open(fd) => fs::flistxattr(fd, names),
                Self::Entry(entry) => entry.attribute_names(names),
            },
        )
    }

    /// Returns the value of an extended attribute.
    pub(crate) fn attribute(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        read_sized(
            || match self {
                Self::Open(fd) => fs::fgetxattr_query(fd, name),
                Self::Entry(entry) => entry.attribute_query(name),
            },
            |value| match self {
                Self::Open(fd) => fs::fgetxattr(fd, name, value),
                Self::Entry(entry) => entry.attribute(name, value),
            },
        )
    }

    /// Sets an extended attribute.
    pub(crate) fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Entry(entry) => entry.set_attribute(name, value),
        }
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_attribute(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fs::fremovexattr(fd, name),
            Self::Entry(entry) => entry.remove_attribute(name),
        }
    }

    /// Sets user and group, as far as they are given.
    pub(crate) fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> Result<(), Errno> {
        // The largest number stands for no owner (chown(2)).
        let user = user.filter(|id| *id != u32::MAX).map(Uid::from_raw);
        let group = group.filter(|id| *id != u32::MAX).map(Gid::from_raw);
        match self {
            Self::Open(fd) => fs::fchown(fd, user, group),
            Self::Entry(entry) => entry.set_owner(user, group),
        }
    }

    /// Sets the mode bits. Not for symbolic links, which have none.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = fs::mode_bits(mode);
        match self {
            Self::Open(fd) => fs::fchmod(fd, mode),
            Self::Entry(entry) => entry.set_mode(mode),
        }
    }

    /// Sets the times.
    pub(crate) fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fs::futimens(fd, times),
            Self::Entry(entry) => entry.set_times(times),
        }
    }
}

/// Reads something whose size is asked for first, and asks again if it has grown.
fn read_sized(
    size: impl Fn() -> Result<usize, Errno>,
    read: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut attempts = 0;
    loop {
        let mut buffer = match size()? {
            0 => return Ok(Vec::new()),
            size => vec![0; size.min(MAX_VALUE_BYTES)],
        };
        match read(&mut buffer[..]) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if attempts < MAX_READS => attempts += 1,
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use longhaul_platform::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn handles_and_open_files_reach_the_same_inode() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        let open = Node::open(file.as_fd());
        let directory = fs::open(tmp.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let entry = EntryHandle::open(&directory, "file".as_ref()).unwrap();
        let handle = Node::handle(&entry);
        handle.set_mode(0o640).unwrap();
        assert_eq!(open.stat().unwrap().st_mode & 0o777, 0o640);
        if open.set_attribute(b"user.a", b"one") == Err(Errno::OPNOTSUPP) {
            eprintln!("left out: no extended attributes here");
            return;
        }
        handle.set_attribute(b"user.b", b"").unwrap();
        assert_eq!(handle.attribute(b"user.a").unwrap(), b"one");
        assert_eq!(open.attribute(b"user.b").unwrap(), b"");
        let names = |node: &Node<'_>| {
            let mut names = node.attribute_names().unwrap();
            names.retain(|byte| *byte != 0);
            names
        };
        assert_eq!(names(&open), names(&handle));
        open.remove_attribute(b"user.a").unwrap();
        assert_eq!(handle.attribute(b"user.a"), Err(Errno::NODATA));
    }
}
