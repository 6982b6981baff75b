//! Owner, mode and extended attributes of an inode, by a descriptor.
//!
//! No path is followed: a descriptor that only names its inode (`O_PATH`) takes calls through its
//! entry in `/proc/self/fd`, which leads to the inode itself.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{self, AtFlags, Gid, Mode, Stat, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

/// Maximum number of bytes of the names and of the value of extended attributes (xattr(7)).
const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Number of attempts to read a value that others change.
const MAX_READS: u32 = 4;

/// An inode.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    fd: BorrowedFd<'a>,
    /// Name of the descriptor in `/proc`, if calls need it.
    path: Option<String>,
}

impl<'a> Node<'a> {
    /// Creates a node of an open file or directory.
    pub(crate) fn open(fd: BorrowedFd<'a>) -> Self {
        Self { fd, path: None }
    }

    /// Creates a node of a descriptor that only names its inode.
    pub(crate) fn handle(fd: BorrowedFd<'a>) -> Self {
        let path = Some(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        Self { fd, path }
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        fs::fstat(self.fd)
    }

    /// Returns the names of the extended attributes, each terminated by NUL.
    pub(crate) fn attribute_names(&self) -> Result<Vec<u8>, Errno> {
        read_sized(
            || match &self.path {
                None => fs::flistxattr_query(self.fd),
                Some(path) => fs::listxattr_query(path.as_str()),
            },
            |names| match &self.path {
                None => fs::flistxattr(self.fd, names),
                Some(path) => fs::listxattr(path.as_str(), names),
            },
        )
    }

    /// Returns the value of an extended attribute.
    pub(crate) fn attribute(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        read_sized(
            || match &self.path {
                None => fs::fgetxattr_query(self.fd, name),
                Some(path) => fs::getxattr_query(path.as_str(), name),
            },
            |value| match &self.path {
                None => fs::fgetxattr(self.fd, name, value),
                Some(path) => fs::getxattr(path.as_str(), name, value),
            },
        )
    }

    /// Sets an extended attribute.
    pub(crate) fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match &self.path {
            None => fs::fsetxattr(self.fd, name, value, XattrFlags::empty()),
            Some(path) => fs::setxattr(path.as_str(), name, value, XattrFlags::empty()),
        }
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_attribute(&self, name: &[u8]) -> Result<(), Errno> {
        match &self.path {
            None => fs::fremovexattr(self.fd, name),
            Some(path) => fs::removexattr(path.as_str(), name),
        }
    }

    /// Sets user and group, as far as they are given.
    pub(crate) fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> Result<(), Errno> {
        // The largest number stands for no owner (chown(2)).
        let user = user.filter(|id| *id != u32::MAX).map(Uid::from_raw);
        let group = group.filter(|id| *id != u32::MAX).map(Gid::from_raw);
        match &self.path {
            None => fs::fchown(self.fd, user, group),
            Some(_) => fs::chownat(self.fd, "", user, group, AtFlags::EMPTY_PATH),
        }
    }

    /// Sets the mode bits. Not for symbolic links, which have none.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match &self.path {
            None => fs::fchmod(self.fd, mode),
            Some(path) => fs::chmod(path.as_str(), mode),
        }
    }

    /// Sets the times.
    pub(crate) fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match &self.path {
            None => fs::futimens(self.fd, times),
            Some(path) => fs::utimensat(fs::CWD, path.as_str(), times, AtFlags::empty()),
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

    use rustix::fs::OFlags;

    use super::*;

    #[test]
    fn handles_and_open_files_reach_the_same_inode() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        let open = Node::open(file.as_fd());
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let named = fs::open(&path, flags, Mode::empty()).unwrap();
        let handle = Node::handle(named.as_fd());
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
