//! Resolves paths where `openat2(2)` is missing: before Linux 5.6, in containers whose seccomp
//! filter refuses it, and on other systems.
//!
//! Each directory on the path is opened beneath the one before it, and a symbolic link is refused
//! (`O_NOFOLLOW`). A path has no `..` and no leading slash, so the confinement is that of
//! `openat2`: there is no moment between a check and a use.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use longhaul_platform::fs::{self, AtFlags, FileType, HANDLE, Mode, OFlags};
use rustix::io::Errno;

use crate::descriptors::with_descriptor;

/// Means by which paths are resolved beneath a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolver {
    /// The kernel resolves a whole path.
    Openat2,
    /// This program opens one directory after the other.
    Steps,
    /// The kernel resolves a whole path and follows symbolic links, wherever they lead. Only for
    /// sources of the user who reads them.
    Links,
}

impl Resolver {
    /// Interprets the result of `openat2(2)` for a directory that is already open. `EPERM` comes
    /// from seccomp filters that know no other error. Opening a directory by `.` requires no
    /// permission that could be missing.
    pub(super) fn for_answer(answer: Result<(), Errno>) -> Result<Self, Errno> {
        match answer {
            Ok(()) => Ok(Self::Openat2),
            Err(Errno::NOSYS | Errno::PERM) => Ok(Self::Steps),
            Err(errno) => Err(errno),
        }
    }
}

/// Opens `path` beneath `base`. Fails with `LOOP` at a symbolic link, and with `XDEV` if the path
/// would lead out.
pub(super) fn open(base: impl AsFd, path: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let Some((directories, last)) = split(path.as_bytes())? else {
        let open = || fs::openat(&base, ".", flags | OFlags::CLOEXEC, Mode::empty());
        return with_descriptor(open);
    };
    let mut above: Option<OwnedFd> = None;
    for name in directories {
        let at = above.as_ref().map_or(base.as_fd(), |fd| fd.as_fd());
        above = Some(step(at, name, OFlags::DIRECTORY | HANDLE)?);
    }
    let at = above.as_ref().map_or(base.as_fd(), |fd| fd.as_fd());
    step(at, last, flags)
}

/// Directories on the path and its last name. `None` for the base itself.
type SplitPath<'a> = Option<(Vec<&'a [u8]>, &'a [u8])>;

fn split(path: &[u8]) -> Result<SplitPath<'_>, Errno> {
    if path == b"." {
        return Ok(None);
    }
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    if names.iter().any(|name| matches!(*name, b"" | b"." | b"..")) {
        return Err(Errno::XDEV);
    }
    Ok(names.pop().map(|last| (names, last)))
}

fn step(at: impl AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let name = OsStr::from_bytes(name);
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match with_descriptor(|| fs::openat(&at, name, flags, Mode::empty())) {
        // A link is reported as not a directory. openat2(2) reports it as a link.
        Err(Errno::NOTDIR) => match fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if fs::file_type(stat.st_mode) == FileType::Symlink => Err(Errno::LOOP),
            _ => Err(Errno::NOTDIR),
        },
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_plain_are_refused() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("d")).unwrap();
        let base = fs::open(tmp.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        for bad in [
            "..", "/", "/etc", "d/..", "d/../..", "d//x", "d/", "./d", "",
        ] {
            let opened = open(&base, OsStr::new(bad), OFlags::RDONLY);
            assert_eq!(opened.unwrap_err(), Errno::XDEV, "{bad:?}");
        }
        assert!(open(&base, OsStr::new("d"), OFlags::RDONLY).is_ok());
        assert!(open(&base, OsStr::new("."), OFlags::RDONLY).is_ok());
    }

    #[test]
    fn missing_call_is_distinguished_from_other_errors() {
        for missing in [Errno::NOSYS, Errno::PERM] {
            assert_eq!(Resolver::for_answer(Err(missing)), Ok(Resolver::Steps));
        }
        assert_eq!(Resolver::for_answer(Err(Errno::MFILE)), Err(Errno::MFILE));
        assert_eq!(Resolver::for_answer(Ok(())), Ok(Resolver::Openat2));
    }
}
