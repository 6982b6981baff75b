//! A directory that no path escapes.
//!
//! Every path of a peer is resolved by `openat2(2)` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
//! RESOLVE_NO_MAGICLINKS`. The kernel itself refuses `..`, absolute paths and symbolic links on the
//! path, so there is no moment between a check and a use. A server is protected like this against
//! its clients, and a client's destination against its server. If the system lacks the call,
//! `fallback` opens one directory after the other, with the same confinement.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_platform::fs::{self, AtFlags, EntryHandle, HANDLE, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::attributes::{SpecialFile, SpecialKind};
use crate::descriptors::with_descriptor;
use crate::error::{Failure, vanished_failure};
use crate::path::RelPath;

mod claim;
mod content;
mod fallback;
mod folding;
mod names;

use claim::FoundNaming;
use fallback::Resolver;
use folding::DirectoryFolding;
pub use folding::folded;
pub(crate) use names::DirectoryNames;

/// Maximum number of retries of a resolution that a concurrent rename disturbs.
const MAX_RETRIES: u32 = 32;

/// Identity of a directory. While it is open, no other directory has the same identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirIdentity {
    pub device: u64,
    pub inode: u64,
}

impl From<&Stat> for DirIdentity {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// An open directory within which paths are resolved.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    resolver: Resolver,
    /// Method of renaming without replacing in this directory, once known.
    naming: FoundNaming,
    /// Result of the test whether names of different spelling stand for one file here.
    folding: DirectoryFolding,
}

impl Dir {
    /// Opens a directory that the user named. Symbolic links in this path are followed, as they are
    /// the user's own.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut dir = Self::new(fs::open(path, flags, Mode::empty())?, Resolver::Openat2);
        let itself = dir.resolve(OsStr::new("."), OFlags::DIRECTORY | HANDLE);
        dir.resolver = Resolver::for_answer(itself.map(drop))?;
        Ok(dir)
    }

    fn new(fd: OwnedFd, resolver: Resolver) -> Self {
        Self {
            fd,
            resolver,
            naming: FoundNaming::default(),
            folding: DirectoryFolding::default(),
        }
    }

    /// Returns the directory's identity.
    pub(crate) fn identity(&self) -> Result<DirIdentity, Errno> {
        fs::fstat(&self.fd).map(|stat| DirIdentity::from(&stat))
    }

    /// Returns true if paths are resolved without `openat2(2)`, which this system lacks or forbids.
    pub fn is_resolved_in_steps(&self) -> bool {
        self.resolver == Resolver::Steps
    }

    /// Opens the same directory for a reader whose paths may lead through symbolic links, and out
    /// of it. For sources of the user who reads them.
    pub(crate) fn following(&self) -> Result<Self, Errno> {
        let fd = with_descriptor(|| rustix::io::fcntl_dupfd_cloexec(&self.fd, 0))?;
        Ok(Self::new(fd, Resolver::Links))
    }

    /// Returns a handle on the entry at `path`, be it a symbolic link.
    pub(crate) fn node(&self, path: &RelPath) -> Result<EntryHandle, Errno> {
        let follows = self.resolver == Resolver::Links;
        EntryHandle::resolve(path.as_os(), follows, |path, flags| {
            self.resolve(path, flags)
        })
    }

    /// Returns [`Self::node`] of the entry `name` of this very directory.
    pub(crate) fn node_named(&self, name: &OsStr) -> Result<EntryHandle, Errno> {
        with_descriptor(|| EntryHandle::open(&self.fd, name))
    }

    /// Opens the directory `path` beneath this one.
    pub fn open_dir(&self, path: &RelPath) -> Result<Dir, Errno> {
        self.resolve(path.as_os(), OFlags::DIRECTORY | OFlags::RDONLY)
            .map(|fd| Self::new(fd, self.resolver))
    }

    /// Opens the file `path` beneath this one for reading. Never blocks, whatever `path` is:
    /// `fstat` shows if it is not a regular file.
    pub fn open_file(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        self.resolve(
            path.as_os(),
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
        )
    }

    /// Opens the existing regular file `name` of this very directory, to overwrite it.
    pub(crate) fn open_to_overwrite(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.resolve(name, flags)
    }

    /// Returns the metadata of `path`. A symbolic link at its end is not followed.
    pub fn stat(&self, path: &RelPath) -> Result<Stat, Errno> {
        match path.split_last() {
            None => fs::fstat(&self.fd),
            Some((parent, name)) if parent.is_root() => self.stat_name(OsStr::from_bytes(name)),
            Some((parent, name)) => self.handle(&parent)?.stat_name(OsStr::from_bytes(name)),
        }
    }

    /// Returns the metadata of the entry `name` of this very directory.
    pub(crate) fn stat_name(&self, name: &OsStr) -> Result<Stat, Errno> {
        let flags = match self.resolver {
            Resolver::Links => AtFlags::empty(),
            Resolver::Openat2 | Resolver::Steps => AtFlags::SYMLINK_NOFOLLOW,
        };
        fs::statat(&self.fd, name, flags)
    }

    /// Returns the target of the symbolic link `path`.
    pub(crate) fn read_link(&self, path: &RelPath) -> Result<Vec<u8>, Errno> {
        let (parent, name) = path.split_last().ok_or(Errno::INVAL)?;
        let name = OsStr::from_bytes(name);
        let target = match parent.is_root() {
            true => fs::readlinkat(&self.fd, name, Vec::new())?,
            false => fs::readlinkat(self.handle(&parent)?.as_fd(), name, Vec::new())?,
        };
        Ok(target.into_bytes())
    }

    /// Opens a handle on the directory `path` for `*at` calls. It needs no permission to read it.
    pub(crate) fn handle(&self, path: &RelPath) -> Result<Dir, Errno> {
        self.resolve(path.as_os(), OFlags::DIRECTORY | HANDLE)
            .map(|fd| Self::new(fd, self.resolver))
    }

    fn resolve(&self, path: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.resolver {
            Resolver::Openat2 => {}
            Resolver::Steps => return fallback::open(&self.fd, path, flags),
            Resolver::Links => {
                let flags = flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC;
                return with_descriptor(|| fs::openat(&self.fd, path, flags, Mode::empty()));
            }
        }
        let mut tries = 0;
        loop {
            match with_descriptor(|| fs::open_beneath(&self.fd, path, flags)) {
                Err(Errno::AGAIN | Errno::INTR) if tries < MAX_RETRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Returns the names in this directory, sorted by their bytes, so that a walk has one order.
    /// Each is first passed to `room`.
    pub(crate) fn names(
        &self,
        room: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<DirectoryNames, Failure> {
        let mut names = DirectoryNames::default();
        for entry in self.entries().map_err(vanished_failure)? {
            let entry = entry.map_err(vanished_failure)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                room(name)?;
                names.push(name, NodeKind::from_file_type(entry.file_type()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the entries of this directory in the order of the operating system.
    pub(crate) fn entries(&self) -> Result<fs::Dir, Errno> {
        with_descriptor(|| fs::Dir::read_from(&self.fd))
    }

    /// Returns true if this directory is empty.
    pub(crate) fn is_empty(&self) -> Result<bool, Errno> {
        for entry in self.entries()? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Creates the directory `path` and its missing parents, and calls `made` for each new one.
    /// Returns true if `path` itself is new.
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

    /// Creates the directory `name` in this very directory. Returns false if it exists.
    pub(crate) fn make_dir(&self, name: &OsStr, mode: u32) -> Result<bool, Errno> {
        match fs::mkdirat(&self.fd, name, fs::mode_bits(mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => match kind_of(&self.stat_name(name)?) {
                NodeKind::Directory => Ok(false),
                NodeKind::Symlink => Err(Errno::LOOP),
                _ => Err(Errno::NOTDIR),
            },
            Err(Errno::NOENT) => Err(self.missing_or_refused()),
            Err(errno) => Err(errno),
        }
    }

    /// Creates a new file for writing, readable only by its owner. Fails if it exists.
    pub(crate) fn create_new(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        with_descriptor(|| fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR))
    }

    /// Creates a new special file, accessible only by its owner. Fails if it exists.
    pub(crate) fn create_special(&self, name: &OsStr, special: SpecialFile) -> Result<(), Errno> {
        let kind = match special.kind {
            SpecialKind::Fifo => fs::FileType::Fifo,
            SpecialKind::Socket => fs::FileType::Socket,
            SpecialKind::CharacterDevice => fs::FileType::CharacterDevice,
            SpecialKind::BlockDevice => fs::FileType::BlockDevice,
        };
        let device = fs::makedev(special.device.0, special.device.1);
        match fs::mknodat(&self.fd, name, kind, Mode::RUSR | Mode::WUSR, device) {
            Err(Errno::NOENT) => Err(self.missing_or_refused()),
            made => made,
        }
    }

    /// Creates a new symbolic link. Fails if it exists.
    pub(crate) fn create_symlink(&self, name: &OsStr, target: &[u8]) -> Result<(), Errno> {
        match fs::symlinkat(OsStr::from_bytes(target), &self.fd, name) {
            Err(Errno::NOENT) => Err(self.missing_or_refused()),
            made => made,
        }
    }

    /// Gives a file another name in `directory`. Fails with `EXIST` instead of replacing. A link is
    /// not followed.
    pub(crate) fn link_into(&self, from: &OsStr, directory: &Dir, to: &OsStr) -> Result<(), Errno> {
        fs::linkat(&self.fd, from, &directory.fd, to, AtFlags::empty())
    }

    /// Renames atomically within this directory. Fails with `EXIST` if the name exists, unless
    /// `replace`. For file systems that cannot refuse to replace, see `claim`.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr, replace: bool) -> Result<(), Errno> {
        self.rename_into(from, self, to, replace)
    }

    /// Renames like [`Self::rename`], into another directory.
    pub(crate) fn rename_into(
        &self,
        from: &OsStr,
        directory: &Dir,
        to: &OsStr,
        replace: bool,
    ) -> Result<(), Errno> {
        let renamed = match replace {
            true => fs::renameat(&self.fd, from, &directory.fd, to),
            false => claim::rename_to_free_name(self, from, directory, to),
        };
        match renamed {
            Err(Errno::NOENT) if self.stat_name(from).is_ok() => {
                Err(directory.missing_or_refused())
            }
            renamed => renamed,
        }
    }

    /// Interprets `NOENT` from a call that creates a name here. Either the directory has been
    /// removed, or the file system does not allow the name (`INVAL`), as exFAT by FUSE reports it.
    fn missing_or_refused(&self) -> Errno {
        match fs::fstat(&self.fd) {
            Ok(stat) if stat.st_nlink > 0 => Errno::INVAL,
            _ => Errno::NOENT,
        }
    }

    /// Forces the names in this directory to disk.
    ///
    /// # Errors
    /// Includes file systems that cannot do that for directories: [`cannot_sync`].
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        fs::fsync(&self.fd)
    }

    /// Removes an empty directory from this very directory.
    pub(crate) fn remove_dir(&self, name: &OsStr) -> Result<(), Errno> {
        fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
    }

    /// Removes a file or link from this very directory.
    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        fs::unlinkat(&self.fd, name, AtFlags::empty())
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns true if an error of [`Dir::sync`] says that the file system does not support the
/// operation for directories (fsync(2)). FUSE and some network file systems do not.
pub(crate) fn cannot_sync(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL | Errno::OPNOTSUPP | Errno::BADF | Errno::NOSYS
    )
}

/// Kind of a directory entry, as far as copying distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    File,
    Directory,
    Symlink,
    Other,
}

impl NodeKind {
    const ALL: [Self; 4] = [Self::File, Self::Directory, Self::Symlink, Self::Other];

    /// Returns `None` if the system does not report the kind.
    fn from_file_type(kind: fs::FileType) -> Option<Self> {
        match kind {
            fs::FileType::Unknown => None,
            fs::FileType::RegularFile => Some(Self::File),
            fs::FileType::Directory => Some(Self::Directory),
            fs::FileType::Symlink => Some(Self::Symlink),
            _ => Some(Self::Other),
        }
    }
}

pub(crate) fn kind_of(stat: &Stat) -> NodeKind {
    NodeKind::from_file_type(fs::file_type(stat.st_mode)).unwrap_or(NodeKind::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn path(s: &str) -> RelPath {
        RelPath::from_bytes(s.as_bytes()).unwrap()
    }

    /// Opens a directory whose paths are resolved by the given means.
    fn open(root: &Path, resolver: Resolver) -> Dir {
        let mut dir = Dir::open(root).unwrap();
        dir.resolver = resolver;
        dir
    }

    /// Returns the means that this platform has.
    fn resolvers() -> impl Iterator<Item = Resolver> {
        let all = [Resolver::Openat2, Resolver::Steps].into_iter();
        all.skip(usize::from(!longhaul_platform::IS_LINUX))
    }

    #[test]
    fn links_are_refused_even_within_the_directory() {
        for resolver in resolvers() {
            no_link_leads_out(resolver);
        }
    }

    fn no_link_leads_out(resolver: Resolver) {
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
        let dir = open(&root, resolver);
        assert!(dir.open_file(&path("d/f")).is_ok());
        assert!(
            dir.open_dir(&path("d"))
                .unwrap()
                .open_file(&path("f"))
                .is_ok()
        );
        assert_eq!(dir.open_dir(&path("d/f")).unwrap_err(), Errno::NOTDIR);
        assert_eq!(dir.open_file(&path("d/f/x")).unwrap_err(), Errno::NOTDIR);
        assert_eq!(dir.open_file(&path("nothing/f")).unwrap_err(), Errno::NOENT);
        // Directories opened beneath it resolve by the same means.
        assert_eq!(dir.open_dir(&path("d")).unwrap().resolver, resolver);
        assert_eq!(dir.handle(&path("d")).unwrap().resolver, resolver);
        for link in ["out", "up", "slash", "inside", "magic"] {
            assert_eq!(
                dir.open_dir(&path(link)).unwrap_err(),
                Errno::LOOP,
                "{link}"
            );
            assert_eq!(dir.handle(&path(link)).unwrap_err(), Errno::LOOP, "{link}");
        }
        for bad in [
            "out",
            "up/secret",
            "slash/etc/passwd",
            "inside/f",
            "magic/etc/passwd",
        ] {
            assert_eq!(dir.open_file(&path(bad)).unwrap_err(), Errno::LOOP, "{bad}");
        }
        // Reading the metadata of a link is allowed. Following it is not.
        assert_eq!(kind_of(&dir.stat(&path("out")).unwrap()), NodeKind::Symlink);
        assert_eq!(dir.read_link(&path("out")).unwrap(), b"../secret");
        assert_eq!(dir.stat(&path("inside/f")).unwrap_err(), Errno::LOOP);
        let mut made = Vec::new();
        let mut make =
            |at: &str| dir.make_dirs(&path(at), 0o700, &mut |p| made.push(p.to_string()));
        assert_eq!(make("up/new").unwrap_err(), Errno::LOOP);
        assert_eq!(make("inside").unwrap_err(), Errno::LOOP);
        assert!(make("x/y/z").unwrap());
        assert!(!make("x/y/z").unwrap());
        assert_eq!(made, ["x", "x/y", "x/y/z"]);
    }

    #[test]
    fn directory_replaced_by_a_link_is_refused() {
        for resolver in resolvers() {
            let tmp = tempfile::tempdir().unwrap();
            let (root, outside) = (tmp.path().join("root"), tmp.path().join("outside"));
            std::fs::create_dir_all(root.join("a/b")).unwrap();
            std::fs::create_dir_all(outside.join("b")).unwrap();
            std::fs::write(outside.join("b/f"), "secret").unwrap();
            symlink("../outside", root.join("link")).unwrap();
            let (dir, stop) = (
                open(&root, resolver),
                std::sync::atomic::AtomicBool::new(false),
            );
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    let flags = fs::RenameFlags::EXCHANGE;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        fs::renameat_with(&dir, "a", &dir, "link", flags).unwrap();
                    }
                });
                for _ in 0..2000 {
                    assert!(dir.open_file(&path("a/b/f")).is_err(), "{resolver:?}");
                    assert!(dir.stat(&path("a/b/f")).is_err(), "{resolver:?}");
                }
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        }
    }

    #[test]
    fn renaming_replaces_only_when_asked() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("a"), "a").unwrap();
        std::fs::write(tmp.path().join("b"), "b").unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        assert_eq!(
            dir.rename(OsStr::new("a"), OsStr::new("b"), false)
                .unwrap_err(),
            Errno::EXIST
        );
        dir.rename(OsStr::new("a"), OsStr::new("b"), true).unwrap();
        assert_eq!(std::fs::read(tmp.path().join("b")).unwrap(), b"a");
    }
}
