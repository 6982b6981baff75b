//! The writing side's file system: where entries go, and how a file comes to be there only when it
//! is whole.
//!
//! A file is written under a temporary name in the directory it is for, and renamed when its hash
//! has been verified. Whatever ends a copy early removes the temporary files with it, but for large
//! ones that a later copy can go on with ([`super::journal`]). Nothing that exists is replaced
//! unless asked.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::time::Instant;

use crate::error::{Error, Failure, FailureKind};
use crate::path::RelPath;
use crate::store::confine::{Dir, Kind, kind_of};
use crate::store::contest::{Contest, Patience, Rival};
use crate::typed_path::names_directory;
use crate::wire::{Head, Token};

mod again;
mod commit;
mod compare;
mod directories;
mod flusher;
mod in_place;
mod kept_file;
mod link;
mod made;
mod names_in_place;
mod new_file;
mod open_dirs;
mod temp_file;
mod times;
mod trial;
mod write;

use commit::Committer;
use directories::{Directories, MARKED_DIR_MODE};
use flusher::Flusher;
use names_in_place::{Entry, NamesInPlace};
use open_dirs::OpenDirs;
use times::Grains;

/// Beginning of a temporary name.
pub const TEMP_PREFIX: &str = ".longhaul-";

/// Letters that tell one copy's temporary names from another's.
const TEMP_TOKEN_LETTERS: usize = 8;

/// Beginning of the temporary names of one copy.
fn temp_prefix(token: Token) -> String {
    let [a, b, c, d, ..] = token.0;
    format!("{TEMP_PREFIX}{a:02x}{b:02x}{c:02x}{d:02x}-")
}

/// Whether a file of this name is one that is being written without a journal.
pub(super) fn is_temp_name(name: &[u8]) -> bool {
    let rest = name.strip_prefix(TEMP_PREFIX.as_bytes());
    let Some((token, entry)) = rest.and_then(|rest| rest.split_at_checked(TEMP_TOKEN_LETTERS))
    else {
        return false;
    };
    let hex = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_hexdigit);
    hex(token) && entry.strip_prefix(b"-").is_some_and(hex)
}

/// How to treat what is there, and how hard to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Replace files and links that exist.
    pub overwrite: bool,
    /// Make names durable as well: the directories are synced at the end. A file system that cannot
    /// sync is an error.
    pub fsync: bool,
    /// Keep what is there of a large file when the copy ends early, and go on with what an earlier
    /// one has kept.
    pub resume: bool,
}

/// Has other copies give way that hold what this one is to go on with, and that nobody carries any
/// more. Takes the time since the copy first looked for them, and returns the states of those that
/// are left. Blocking.
pub(crate) type Rivals = Box<dyn Fn(Duration) -> Vec<Rival> + Send + Sync>;

/// Where an entry goes.
#[derive(Clone)]
struct Parent {
    dir: Arc<Dir>,
    /// The directory's path beneath the base.
    path: RelPath,
    /// The entry's name in it.
    name: OsString,
    /// Number of the source that the entry is of, where that is known.
    source: u32,
    /// The directory is an entry of this copy itself, which finishes it.
    is_described: bool,
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
    rivals: Option<Rivals>,
    /// Returns whether the base is still what its path leads to.
    is_in_place: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    began: Instant,
    patience: Mutex<Patience>,
    flusher: Flusher,
    committer: Committer,
    open_dirs: Arc<OpenDirs>,
    directories: Directories,
    /// The base is the user's own choice, not what a server has granted.
    is_local: bool,
    names_in_place: Arc<NamesInPlace>,
    grains: Grains,
}

impl Destination {
    /// `target` beneath `base`, as a server writes. `names` are the sources' names, as
    /// [`crate::Sources::local`] gives them. `into`: the user wrote a trailing slash, or otherwise
    /// means a directory.
    pub fn beneath(
        base: Arc<Dir>,
        target: RelPath,
        into: bool,
        names: Vec<Vec<u8>>,
        options: WriteOptions,
        token: Token,
    ) -> Result<Self, Error> {
        let must_be_dir = into || names.len() > 1;
        let directories = Directories::default();
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
                    // A copy that describes it finishes it; one that does not leaves it as it is.
                    let is_described = names.iter().any(Vec::is_empty);
                    let mode = match is_described {
                        true => MARKED_DIR_MODE,
                        false => 0o777,
                    };
                    parent_dir
                        .make_dir(OsStr::from_bytes(name), mode)
                        .map_err(|errno| Error::path(&target, Failure::for_name(errno, name)))?;
                    if is_described {
                        directories.made.lock().insert(&target);
                    }
                    if options.fsync {
                        parent_dir.sync().map_err(|errno| {
                            Error::path(&parent, open_dirs::sync_failure(errno))
                        })?;
                    }
                }
                must_be_dir
            }
            Err(errno) => return Err(Error::path(&target, errno)),
        };
        let names_in_place = Arc::new(NamesInPlace::new(&names));
        Ok(Self {
            base,
            target,
            into,
            names,
            options,
            within: RelPath::root(),
            may_compare: true,
            temp_prefix: temp_prefix(token),
            rivals: None,
            is_in_place: None,
            began: Instant::now(),
            patience: Mutex::default(),
            flusher: Flusher::new(),
            committer: Committer::default(),
            open_dirs: Arc::new(OpenDirs::new(options.fsync)),
            directories,
            is_local: false,
            names_in_place,
            grains: Grains::default(),
        })
    }

    /// The same, with nothing made outside of the directory `within` of its base, temporary files
    /// included. Unless the writer `may_compare`, what exists is answered with "exists", whatever
    /// it holds.
    #[must_use]
    pub fn held_to(mut self, within: RelPath, may_compare: bool) -> Self {
        (self.within, self.may_compare) = (within, may_compare);
        self
    }

    /// Whether what is there of a large file is kept when the copy ends early.
    pub(crate) fn resumes(&self) -> bool {
        self.options.resume
    }

    /// The same, beside other copies in this process that may hold what this one is to go on with.
    #[must_use]
    pub(crate) fn beside(mut self, rivals: Rivals) -> Self {
        self.rivals = Some(rivals);
        self
    }

    /// The same; concludes only if `is_in_place`.
    #[must_use]
    pub(crate) fn concluded_if(mut self, is_in_place: Box<dyn Fn() -> bool + Send + Sync>) -> Self {
        self.is_in_place = Some(is_in_place);
        self
    }

    /// Returns the pause before a file that another copy may hold is looked at again, or `None`
    /// once this copy has waited long enough for others.
    fn contest_pause(&self, contest: Contest) -> Option<Duration> {
        let now = self.began.elapsed();
        let mut patience = self.patience.lock();
        let looking = patience.since_first_look(now);
        let rivals = self.rivals.as_ref().map(|rivals| rivals(looking));
        patience.pause(contest, &rivals.unwrap_or_default(), now)
    }

    /// A local path as a person names it. Symbolic links in it are the person's own and followed;
    /// beneath it, none is.
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
            let beneath = Self::beneath(open(path)?, RelPath::root(), true, names, options, token)?;
            return Ok(Self {
                is_local: true,
                ..beneath
            });
        }
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let into = names_directory(path.as_os_str().as_bytes());
        let target = RelPath::from_typed(path.file_name().unwrap_or_default().as_bytes()).map_err(
            |error| Error::Path {
                path: shown(),
                failure: error.into(),
            },
        )?;
        let beneath =
            Self::beneath(open(parent)?, target, into, names, options, token).map_err(named)?;
        Ok(Self {
            is_local: true,
            ..beneath
        })
    }

    /// Where an entry goes, beneath the base.
    fn beneath_base(&self, head: &Head) -> Result<RelPath, Failure> {
        let name = self
            .names
            .get(head.source as usize)
            .ok_or(Failure::new(FailureKind::RefusedPath))?;
        // LH-COPY-37.
        let mut parts = name
            .split(|&byte| byte == b'/')
            .chain(head.path.as_bytes().split(|&byte| byte == b'/'));
        if parts.any(|part| part.starts_with(TEMP_PREFIX.as_bytes())) {
            let why = format!("names beginning with {TEMP_PREFIX} are for temporary files");
            return Err(Failure::with(FailureKind::RefusedPath, why));
        }
        let mut place = self.target.clone();
        if self.into && !name.is_empty() {
            place = place.child(name)?;
        }
        Ok(place.join(&head.path)?)
    }

    /// The directory an entry goes into, made if need be, its path beneath the base, and the
    /// entry's name there.
    fn parent(&self, place: &RelPath) -> Result<Parent, Failure> {
        let (parent, name) = place
            .split_last()
            .ok_or(Failure::new(FailureKind::WrongKind))?;
        let name = OsString::from_vec(name.to_vec());
        if !parent.is_within(&self.within) {
            return Err(Failure::new(FailureKind::RefusedPath));
        }
        if let Some(dir) = self.open_dirs.get(&parent) {
            return Ok(Parent {
                dir,
                is_described: self.is_described(&parent),
                path: parent,
                name,
                source: 0,
            });
        }
        let dir = match self.base.open_dir(&parent) {
            Err(Errno::NOENT) if parent.is_within(&self.target) => {
                self.make_parents(&parent)?;
                self.base.open_dir(&parent)?
            }
            other => other.map_err(|errno| Failure::for_name(errno, parent.as_bytes()))?,
        };
        let dir = Arc::new(dir);
        self.refuse_second_directory(&parent)?;
        self.open_dirs.insert(parent.clone(), dir.clone());
        Ok(Parent {
            dir,
            is_described: self.is_described(&parent),
            path: parent,
            name,
            source: 0,
        })
    }

    /// Fails if a directory, which is there, is one to the file system with another directory of
    /// this copy.
    fn refuse_second_directory(&self, path: &RelPath) -> Result<(), Failure> {
        let Some((above, name)) = path
            .split_last()
            .filter(|(above, _)| path != &self.target && above.is_within(&self.target))
            .filter(|(above, _)| above.is_within(&self.within))
        else {
            return Ok(());
        };
        let name = OsStr::from_bytes(name);
        let dir = match self.open_dirs.get(&above) {
            Some(dir) => dir,
            None if self.names_in_place.has_folding() => match self.parent(path) {
                Err(failure) if failure.kind == FailureKind::PermissionDenied => return Ok(()),
                parent => parent?.dir,
            },
            // One that may be passed and not read has been passed already.
            None => {
                let Ok(dir) = self.base.open_dir(&above).map(Arc::new) else {
                    return Ok(());
                };
                self.open_dirs.insert(above.clone(), dir.clone());
                dir
            }
        };
        let entry = Entry {
            dir: &*dir,
            path: &above,
            name,
            source: 0,
            is_directory: true,
        };
        self.names_in_place.reserve(entry)?.confirm(entry);
        Ok(())
    }

    fn make_parents(&self, parent: &RelPath) -> Result<(), Failure> {
        self.reopen_above(parent);
        // Locked while they are made, so that another thread that finds one knows that this copy
        // made it.
        let mut made = self.directories.made.lock();
        let mut changed = Vec::new();
        let result = self.base.make_dirs(parent, MARKED_DIR_MODE, &mut |path| {
            made.insert(path);
            changed.extend(path.split_last().map(|(parent, _)| parent));
        });
        drop(made);
        for path in changed {
            self.open_dirs.changed_at(&self.base, &path);
        }
        result.map_err(|errno| Failure::for_name(errno, parent.as_bytes()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
