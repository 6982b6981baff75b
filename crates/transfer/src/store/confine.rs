//! A directory nothing leads out of.
//!
//! Every path of a peer is resolved by `openat2(2)` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`: the
//! kernel itself refuses `..`, absolute paths and any symbolic link on the way, so there is no moment between a check
//! and a use. Both sides work this way: a server against its clients, and a client's destination against its server.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::{Failure, vanished};
use crate::path::RelPath;

mod names;

pub(crate) use names::Names;

/// How often a resolution disturbed by a rename elsewhere is tried again.
const RETRIES: u32 = 32;

/// An open directory within which paths are resolved.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory the user named; symbolic links in this path are the user's own and are followed.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = Self(fs::open(path, flags, Mode::empty())?);
        // Fails closed, and early, on a kernel without openat2 (before Linux 5.6).
        dir.resolve(OsStr::new("."), OFlags::DIRECTORY | OFlags::PATH)?;
        Ok(dir)
    }

    /// The directory `path` beneath this one.
    pub fn open_dir(&self, path: &RelPath) -> Result<Dir, Errno> {
        self.resolve(path.as_os(), OFlags::DIRECTORY | OFlags::RDONLY)
            .map(Dir)
    }

    /// The file `path` beneath this one, for reading. Never waits, whatever `path` is: what is not a regular file shows
    /// by its `fstat`.
    pub fn open_file(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        self.resolve(path.as_os(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// What `path` is; a symbolic link at its end is itself.
    pub fn stat(&self, path: &RelPath) -> Result<Stat, Errno> {
        match path.split_last() {
            None => fs::fstat(&self.0),
            Some((parent, name)) if parent.is_root() => self.stat_name(OsStr::from_bytes(name)),
            Some((parent, name)) => self.handle(&parent)?.stat_name(OsStr::from_bytes(name)),
        }
    }

    /// What the entry `name` of this very directory is.
    pub(crate) fn stat_name(&self, name: &OsStr) -> Result<Stat, Errno> {
        fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The target of the symbolic link `path`.
    pub(crate) fn read_link(&self, path: &RelPath) -> Result<Vec<u8>, Errno> {
        let (parent, name) = path.split_last().ok_or(Errno::INVAL)?;
        let name = OsStr::from_bytes(name);
        let target = match parent.is_root() {
            true => fs::readlinkat(&self.0, name, Vec::new())?,
            false => fs::readlinkat(self.handle(&parent)?.as_fd(), name, Vec::new())?,
        };
        Ok(target.into_bytes())
    }

    /// A handle on the directory `path` for `*at` calls; needs no permission to read it.
    pub(crate) fn handle(&self, path: &RelPath) -> Result<Dir, Errno> {
        self.resolve(path.as_os(), OFlags::DIRECTORY | OFlags::PATH)
            .map(Dir)
    }

    fn resolve(&self, path: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mut tries = 0;
        loop {
            match fs::openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if tries < RETRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// The names in this directory, sorted by their bytes, so that a walk has one order. Each is first offered to `room`.
    pub(crate) fn names(
        &self,
        room: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<Names, Failure> {
        let mut names = Names::default();
        for entry in fs::Dir::read_from(&self.0).map_err(vanished)? {
            let entry = entry.map_err(vanished)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                room(name)?;
                names.push(name, Kind::of(entry.file_type()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether there is nothing in this directory.
    pub(crate) fn is_empty(&self) -> Result<bool, Errno> {
        for entry in fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the directory `path` and those missing above it; reports each that is new to `made`. `Ok(true)` if `path` itself is.
    pub(crate) fn make_dirs(
        &self,
        path: &RelPath,
        mode: u32,
        made: &mut impl FnMut(&RelPath),
    ) -> Result<bool, Errno> {
        let Some((parent, name)) = path.split_last() else {
            return Ok(false);
        };
        let parent = match self.open_dir(&parent) {
            Err(Errno::NOENT) => {
                self.make_dirs(&parent, mode, made)?;
                self.open_dir(&parent)?
            }
            other => other?,
        };
        let new = parent.make_dir(OsStr::from_bytes(name), mode)?;
        if new {
            made(path);
        }
        Ok(new)
    }

    /// Makes the directory `name` in this very directory. `Ok(false)` if there was one.
    pub(crate) fn make_dir(&self, name: &OsStr, mode: u32) -> Result<bool, Errno> {
        match fs::mkdirat(&self.0, name, Mode::from_raw_mode(mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => match kind_of(&self.stat_name(name)?) {
                Kind::Directory => Ok(false),
                Kind::Symlink => Err(Errno::LOOP),
                _ => Err(Errno::NOTDIR),
            },
            Err(errno) => Err(errno),
        }
    }

    /// Creates a file that wasn't there, for writing, readable by its owner alone.
    pub(crate) fn create_new(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Creates a symbolic link that wasn't there.
    pub(crate) fn create_symlink(&self, name: &OsStr, target: &[u8]) -> Result<(), Errno> {
        fs::symlinkat(OsStr::from_bytes(target), &self.0, name)
    }

    /// Gives a file another name, in `directory`: refuses with `EXIST` to replace. A link is not followed.
    pub(crate) fn link_into(&self, from: &OsStr, directory: &Dir, to: &OsStr) -> Result<(), Errno> {
        fs::linkat(&self.0, from, &directory.0, to, AtFlags::empty())
    }

    /// Renames within this directory at one stroke; refuses with `EXIST` to replace unless told to.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr, replace: bool) -> Result<(), Errno> {
        self.rename_into(from, self, to, replace)
    }

    /// The same into another directory.
    pub(crate) fn rename_into(
        &self,
        from: &OsStr,
        directory: &Dir,
        to: &OsStr,
        replace: bool,
    ) -> Result<(), Errno> {
        if replace {
            return fs::renameat(&self.0, from, &directory.0, to);
        }
        match fs::renameat_with(&self.0, from, &directory.0, to, RenameFlags::NOREPLACE) {
            // A file system without RENAME_NOREPLACE: a hard link refuses to replace just as atomically.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.link_into(from, directory, to)?;
                fs::unlinkat(&self.0, from, AtFlags::empty())
            }
            result => result,
        }
    }

    /// Removes an empty directory of this very directory.
    pub(crate) fn remove_dir(&self, name: &OsStr) -> Result<(), Errno> {
        fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)
    }

    /// Removes a file or link of this very directory.
    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        fs::unlinkat(&self.0, name, AtFlags::empty())
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What a directory entry is, as far as copying goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

impl Kind {
    const ALL: [Self; 4] = [Self::File, Self::Directory, Self::Symlink, Self::Other];

    /// None if the system does not say.
    fn of(kind: fs::FileType) -> Option<Self> {
        match kind {
            fs::FileType::Unknown => None,
            fs::FileType::RegularFile => Some(Self::File),
            fs::FileType::Directory => Some(Self::Directory),
            fs::FileType::Symlink => Some(Self::Symlink),
            _ => Some(Self::Other),
        }
    }
}

pub(crate) fn kind_of(stat: &Stat) -> Kind {
    Kind::of(fs::FileType::from_raw_mode(stat.st_mode)).unwrap_or(Kind::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn path(s: &str) -> RelPath {
        RelPath::from_bytes(s.as_bytes()).unwrap()
    }

    #[test]
    fn no_link_leads_out_or_even_elsewhere_inside() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().join("root");
        std::fs::create_dir_all(root.join("d")).unwrap();
        std::fs::write(tmp.path().join("secret"), "s").unwrap();
        std::fs::write(root.join("d/f"), "f").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("/", root.join("slash")).unwrap();
        symlink("d", root.join("inside")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        let dir = Dir::open(&root).unwrap();
        assert!(dir.open_file(&path("d/f")).is_ok());
        for bad in [
            "out",
            "up/secret",
            "slash/etc/passwd",
            "inside/f",
            "magic/etc/passwd",
        ] {
            assert_eq!(dir.open_file(&path(bad)).unwrap_err(), Errno::LOOP, "{bad}");
        }
        // Looking at a link is allowed; through one, not.
        assert_eq!(kind_of(&dir.stat(&path("out")).unwrap()), Kind::Symlink);
        assert_eq!(dir.read_link(&path("out")).unwrap(), b"../secret");
        assert_eq!(dir.stat(&path("inside/f")).unwrap_err(), Errno::LOOP);
        let mut made = Vec::new();
        let mut make = |at: &str| dir.make_dirs(&path(at), 0o700, &mut |p| made.push(p.to_string()));
        assert_eq!(make("up/new").unwrap_err(), Errno::LOOP);
        assert_eq!(make("inside").unwrap_err(), Errno::LOOP);
        assert!(make("x/y/z").unwrap());
        assert!(!make("x/y/z").unwrap());
        assert_eq!(made, ["x", "x/y", "x/y/z"]);
    }

    #[test]
    fn renaming_replaces_only_when_asked() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("a"), "a").unwrap();
        std::fs::write(tmp.path().join("b"), "b").unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        assert_eq!(
            dir.rename(OsStr::new("a"), OsStr::new("b"), false).unwrap_err(),
            Errno::EXIST
        );
        dir.rename(OsStr::new("a"), OsStr::new("b"), true).unwrap();
        assert_eq!(std::fs::read(tmp.path().join("b")).unwrap(), b"a");
    }
}
