//! The writing side's file system: where entries go, and how a file comes to be there only when it is whole.
//!
//! A file is written under a temporary name in the directory it is for, and renamed when its hash has been verified.
//! Whatever ends a copy early removes the temporary files with it. Nothing that exists is replaced unless asked.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{self, AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;

use crate::error::{Error, Failure, FailureKind};
use crate::limits::OPEN_DIRECTORIES_PER_COPY;
use crate::lock::Locked;
use crate::path::RelPath;
use crate::store::confine::{Dir, Kind, kind_of};
use crate::tree_hash::Hash;
use crate::wire::{Head, Meta, Token, Written};

mod made;
mod temp_file;

use made::Made;
pub(crate) use made::MadeDir;
pub(crate) use temp_file::TempFile;

/// Bytes of the names of directories that were made for what goes into them, before they were described themselves: as many as
/// can be on their way over other streams, many times over.
const MADE_BYTES: usize = 1 << 20;
/// Mode of a directory until all in it is written.
const DIR_IN_THE_MAKING: u32 = 0o700;
/// Beginning of a temporary name.
pub const TEMP_PREFIX: &str = ".longhaul-";

/// How to treat what is there, and how hard to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Replace files and links that exist.
    pub overwrite: bool,
    /// `fsync` every file, and the directories at the end, before they count as written.
    pub fsync: bool,
}

/// Where a copy goes.
pub struct Destination {
    base: Arc<Dir>,
    target: RelPath,
    /// Sources go beneath `target` under their names; otherwise the one source becomes `target`.
    into: bool,
    names: Vec<Vec<u8>>,
    options: WriteOptions,
    /// Nothing is made outside of this directory, temporary files included.
    within: RelPath,
    /// Whoever writes may know what is there: the same content again counts as written.
    may_compare: bool,
    temp_prefix: String,
    open_dirs: Mutex<HashMap<RelPath, Arc<Dir>>>,
    made: Mutex<Made>,
}

impl Destination {
    /// `target` beneath `base`, as a server writes. `names` are the sources' names, as [`crate::Sources::local`] gives them.
    /// `into`: the user wrote a trailing slash, or otherwise means a directory.
    pub fn beneath(
        base: Arc<Dir>,
        target: RelPath,
        into: bool,
        names: Vec<Vec<u8>>,
        options: WriteOptions,
        token: Token,
    ) -> Result<Self, Error> {
        let must_be_dir = into || names.len() > 1;
        let mut made = Made::default();
        let into = match base.stat(&target) {
            Ok(stat) if kind_of(&stat) == Kind::Directory => true,
            Ok(_) if must_be_dir => return Err(Error::path(&target, Errno::NOTDIR)),
            Ok(_) => false,
            Err(Errno::NOENT) => {
                let (parent, name) = target
                    .split_last()
                    .ok_or_else(|| Error::path(&target, Errno::NOENT))?;
                let parent_dir = base
                    .open_dir(&parent)
                    .map_err(|errno| Error::path(&parent, errno))?;
                if must_be_dir {
                    parent_dir
                        .make_dir(OsStr::from_bytes(name), 0o777)
                        .map_err(|errno| Error::path(&target, errno))?;
                    made.insert(&target);
                }
                must_be_dir
            }
            Err(errno) => return Err(Error::path(&target, errno)),
        };
        let [a, b, c, d, ..] = token.0;
        let temp_prefix = format!("{TEMP_PREFIX}{a:02x}{b:02x}{c:02x}{d:02x}-");
        Ok(Self {
            base,
            target,
            into,
            names,
            options,
            within: RelPath::root(),
            may_compare: true,
            temp_prefix,
            open_dirs: Mutex::default(),
            made: Mutex::new(made),
        })
    }

    /// The same, with nothing made outside of the directory `within` of its base, temporary files included. Unless the
    /// writer `may_compare`, what exists is answered with "exists", whatever it holds.
    #[must_use]
    pub fn held_to(mut self, within: RelPath, may_compare: bool) -> Self {
        (self.within, self.may_compare) = (within, may_compare);
        self
    }

    /// A local path as a person names it. Symbolic links in it are the person's own and followed; beneath it, none is.
    pub fn local(
        path: &Path,
        names: Vec<Vec<u8>>,
        options: WriteOptions,
        token: Token,
    ) -> Result<Self, Error> {
        let shown = || longhaul_proto::text::printable(path.as_os_str().as_bytes());
        let named = |error: Error| match error {
            Error::Path { failure, .. } => Error::Path {
                path: shown(),
                failure,
            },
            error => error,
        };
        let open = |dir: &Path| {
            Dir::open(dir).map(Arc::new).map_err(|errno| Error::Path {
                path: shown(),
                failure: errno.into(),
            })
        };
        if path.is_dir() {
            return Self::beneath(open(path)?, RelPath::root(), true, names, options, token);
        }
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let into = path.as_os_str().as_bytes().ends_with(b"/");
        let target =
            RelPath::from_typed(path.file_name().unwrap_or_default().as_bytes()).map_err(|error| {
                Error::Path {
                    path: shown(),
                    failure: error.into(),
                }
            })?;
        Self::beneath(open(parent)?, target, into, names, options, token).map_err(named)
    }

    /// Where an entry goes, beneath the base.
    pub(crate) fn place(&self, head: &Head) -> Result<RelPath, Failure> {
        let name = self
            .names
            .get(head.source as usize)
            .ok_or(Failure::new(FailureKind::RefusedPath))?;
        let mut place = self.target.clone();
        if self.into && !name.is_empty() {
            place = place.child(name)?;
        }
        Ok(place.join(&head.path)?)
    }

    /// How many sources there are.
    pub(crate) fn sources(&self) -> usize {
        self.names.len()
    }

    /// Bytes of their names.
    pub(crate) fn name_bytes(&self) -> u64 {
        self.names.iter().map(|name| name.len() as u64).sum()
    }

    /// The directory an entry goes into, made if need be, and its name there.
    fn parent(&self, place: &RelPath) -> Result<(Arc<Dir>, OsString), Failure> {
        let (parent, name) = place.split_last().ok_or(Failure::new(FailureKind::WrongKind))?;
        let name = OsString::from_vec(name.to_vec());
        if !parent.is_within(&self.within) {
            return Err(Failure::new(FailureKind::RefusedPath));
        }
        if let Some(dir) = self.open_dirs.locked().get(&parent) {
            return Ok((dir.clone(), name));
        }
        let dir = match self.base.open_dir(&parent) {
            Err(Errno::NOENT) if parent.is_within(&self.target) => {
                self.make_parents(&parent)?;
                self.base.open_dir(&parent)?
            }
            other => other?,
        };
        let dir = Arc::new(dir);
        let mut open = self.open_dirs.locked();
        if open.len() >= OPEN_DIRECTORIES_PER_COPY {
            open.clear();
        }
        open.insert(parent, dir.clone());
        Ok((dir, name))
    }

    fn make_parents(&self, parent: &RelPath) -> Result<(), Failure> {
        // Locked while they are made, so that whoever finds one there knows whose it is.
        let mut made = self.made.locked();
        if made.bytes >= MADE_BYTES {
            return Err(Failure::with(
                FailureKind::Limit,
                "too many directories that have not been described",
            ));
        }
        self.base
            .make_dirs(parent, DIR_IN_THE_MAKING, &mut |path| made.insert(path))?;
        Ok(())
    }

    /// Makes a directory; its permissions and time come with [`Self::finish_dir`].
    pub(crate) fn make_dir(&self, place: &RelPath) -> Result<MadeDir, Failure> {
        let Some((parent, name)) = place.split_last() else {
            return Ok(MadeDir::Kept);
        };
        let name = OsStr::from_bytes(name);
        let dir = match *place == self.within {
            // The one that all is to stay within, itself.
            true => Arc::new(self.base.open_dir(&parent)?),
            false => self.parent(place)?.0,
        };
        let mut made = self.made.locked();
        let new = dir
            .make_dir(name, DIR_IN_THE_MAKING)
            .map_err(|errno| match errno {
                Errno::EXIST => Failure::new(FailureKind::WrongKind),
                errno => errno.into(),
            })?;
        Ok(match made.remove(place) || new {
            true => MadeDir::New,
            false => MadeDir::Kept,
        })
    }

    /// When all in it is written: a directory's permissions and time, if this copy made it.
    pub(crate) fn finish_dir(&self, place: &RelPath, made: MadeDir, meta: &Meta) -> Result<(), Failure> {
        let dir = self.base.open_dir(place)?;
        if self.options.fsync {
            fs::fsync(&dir)?;
        }
        if made == MadeDir::Kept {
            return Ok(());
        }
        apply(&dir, meta)
            .map_err(|errno| Failure::with(FailureKind::Metadata, std::io::Error::from(errno).to_string()))
    }

    /// When not all in it could be written: its permissions, if this copy made it.
    pub(crate) fn leave_dir(&self, place: &RelPath, made: MadeDir, meta: &Meta) -> Result<(), Failure> {
        if made == MadeDir::Kept {
            return Ok(());
        }
        Ok(fs::fchmod(
            self.base.open_dir(place)?,
            Mode::from_raw_mode(meta.mode),
        )?)
    }

    /// Whether there is anything to be done with a directory at the end.
    pub(crate) fn finishes(&self, made: MadeDir) -> bool {
        made == MadeDir::New || self.options.fsync
    }

    /// Makes a symbolic link, pointing wherever it points: it is written, never followed.
    pub(crate) fn write_symlink(
        &self,
        id: u64,
        place: &RelPath,
        meta: &Meta,
        target: &[u8],
    ) -> Result<Written, Failure> {
        let (dir, name) = self.parent(place)?;
        match dir.create_symlink(&name, target) {
            Err(Errno::EXIST) if self.may_compare && self.is_same_link(place, target) => {
                return Ok(Written::Same);
            }
            Err(Errno::EXIST) if self.options.overwrite => {
                let temp = self.temp_name(id);
                dir.create_symlink(&temp, target)?;
                if let Err(errno) = dir.rename(&temp, &name, true) {
                    let _ = dir.remove(&temp);
                    return Err(errno.into());
                }
            }
            result => result?,
        }
        // A file system without times on links is no reason to lose the link.
        let _ = fs::utimensat(&*dir, &name, &times(meta), AtFlags::SYMLINK_NOFOLLOW);
        Ok(Written::New)
    }

    fn is_same_link(&self, place: &RelPath, target: &[u8]) -> bool {
        self.base.read_link(place).is_ok_and(|there| there == target)
    }

    /// Writes a small file whole; `data` has been verified.
    pub(crate) fn write_small(
        &self,
        head: &Head,
        place: &RelPath,
        meta: &Meta,
        data: &[u8],
        hash: &Hash,
    ) -> Result<Written, Failure> {
        let file = self.create(head.id, place, data.len() as u64)?;
        file.write(data, 0)?;
        self.finish(file, meta, data.len() as u64, hash)
    }

    /// Begins a file of `size` bytes under a temporary name.
    pub(crate) fn create(&self, id: u64, place: &RelPath, size: u64) -> Result<TempFile, Failure> {
        let (dir, name) = self.parent(place)?;
        if !self.options.overwrite
            && let Ok(stat) = dir.stat_name(&name)
        {
            // Certain already that it can't be the same.
            match kind_of(&stat) {
                Kind::File if self.may_compare && stat.st_size as u64 == size => {}
                Kind::Directory => return Err(Failure::new(FailureKind::WrongKind)),
                _ => return Err(Failure::new(FailureKind::Exists)),
            }
        }
        let temp = self.temp_name(id);
        let fd = dir.create_new(&temp)?;
        Ok(TempFile {
            dir,
            temp: Some(temp),
            name,
            fd,
        })
    }

    /// A verified file takes its place.
    pub(crate) fn finish(
        &self,
        mut file: TempFile,
        meta: &Meta,
        size: u64,
        hash: &Hash,
    ) -> Result<Written, Failure> {
        let metadata = apply(&file.fd, meta);
        if self.options.fsync {
            fs::fsync(&file.fd)?;
        }
        let Some(temp) = &file.temp else {
            return Err(Failure::new(FailureKind::Io));
        };
        match file.dir.rename(temp, &file.name, self.options.overwrite) {
            Ok(()) => file.temp = None,
            Err(Errno::EXIST) if self.may_compare && self.is_same(&file, size, hash) => {
                return Ok(Written::Same);
            }
            Err(errno) => return Err(errno.into()),
        }
        match metadata {
            Ok(()) => Ok(Written::New),
            Err(errno) => Err(Failure::with(
                FailureKind::Metadata,
                std::io::Error::from(errno).to_string(),
            )),
        }
    }

    /// Whether what is at the file's place has the same content.
    fn is_same(&self, file: &TempFile, size: u64, hash: &Hash) -> bool {
        let Ok(path) = RelPath::from_bytes(file.name.as_bytes()) else {
            return false;
        };
        let Ok(fd) = file.dir.open_file(&path) else {
            return false;
        };
        let regular = fs::fstat(&fd).is_ok_and(|s| kind_of(&s) == Kind::File && s.st_size as u64 == size);
        let mut hasher = blake3::Hasher::new();
        regular && hasher.update_reader(std::fs::File::from(fd)).is_ok() && hasher.finalize() == *hash
    }

    fn temp_name(&self, id: u64) -> OsString {
        OsString::from(format!("{}{id:x}", self.temp_prefix))
    }
}

fn times(meta: &Meta) -> Timestamps {
    let mtime = Timespec {
        tv_sec: meta.mtime.0,
        tv_nsec: i64::from(meta.mtime.1),
    };
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: fs::UTIME_OMIT,
        },
        last_modification: mtime,
    }
}

fn apply(fd: impl AsFd, meta: &Meta) -> Result<(), Errno> {
    fs::fchmod(&fd, Mode::from_raw_mode(meta.mode))?;
    fs::futimens(&fd, &times(meta))
}
