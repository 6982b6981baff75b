//! The file system at the writing side: where entries go, and how files appear only once complete.
//!
//! A file is written under a temporary name in its directory, and renamed when its hash has been
//! verified. Whatever ends a copy early removes its temporary files, except large ones that a later
//! copy can resume ([`super::journal`]). Nothing that exists is replaced unless requested.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::time::Instant;

use crate::error::{Error, Failure, FailureKind};
use crate::existing::ExistingPolicy;
use crate::path::RelPath;
use crate::store::confine::{Dir, NodeKind, kind_of};
use crate::store::contest::{ContestPatience, ContestState, Rival};
use crate::store::quota::Quota;
use crate::stripe::MemberId;
use crate::typed_path::names_directory;
use crate::wire::{CopyToken, EntryHead};

mod again;
mod attributes;
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
mod overwritten;
mod special;
mod temp_file;
mod times;
mod trial;
mod write;

pub use attributes::AttributeSettings;
use attributes::AttributeWriter;
use commit::Committer;
use directories::{Directories, MARKED_DIR_MODE};
use flusher::Flusher;
use names_in_place::{NamesInPlace, PlacedEntry};
use open_dirs::OpenDirs;
use times::GranularityCache;

/// Prefix of temporary names.
pub const TEMP_PREFIX: &str = ".longhaul-";

/// Number of letters that distinguish one copy's temporary names from another's.
const TEMP_TOKEN_LETTERS: usize = 8;

/// Returns the prefix of the temporary names of one copy.
fn temp_prefix(token: CopyToken) -> String {
    let [a, b, c, d, ..] = token.0;
    format!("{TEMP_PREFIX}{a:02x}{b:02x}{c:02x}{d:02x}-")
}

/// Returns true if a file of this name is being written without a journal.
pub(super) fn is_temp_name(name: &[u8]) -> bool {
    let rest = name.strip_prefix(TEMP_PREFIX.as_bytes());
    let Some((token, entry)) = rest.and_then(|rest| rest.split_at_checked(TEMP_TOKEN_LETTERS))
    else {
        return false;
    };
    let hex = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_hexdigit);
    hex(token) && entry.strip_prefix(b"-").is_some_and(hex)
}

/// Treatment of existing files, and durability of written ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// If true, existing files and links are replaced.
    pub overwrite: bool,
    /// If true, names are also made durable: the directories are synced at the end. A file system
    /// that cannot sync is an error.
    pub fsync: bool,
    /// If true, parts of large files are kept when the copy ends early, and parts that an earlier
    /// copy kept are resumed.
    pub resume: bool,
    /// If true, large files that are replaced are overwritten in place (LH-COPY-73).
    pub in_place: bool,
}

/// Function that makes abandoned copies release what this one wants to resume. It takes the time
/// since the copy first looked for them, and returns the states of the remaining ones. Blocking.
pub(crate) type RivalCheck = Arc<dyn Fn(Duration) -> Vec<Rival> + Send + Sync>;

/// Function that returns true if the path of the base still leads to it.
pub(crate) type EndCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// Location of an entry.
#[derive(Clone)]
struct EntryLocation {
    dir: Arc<Dir>,
    /// Path of the directory beneath the base.
    path: RelPath,
    /// Name of the entry in the directory.
    name: OsString,
    /// Number of the source of the entry, if known.
    source: u32,
    /// If true, the directory is an entry of this copy itself, which finishes it.
    is_described: bool,
}

/// Destination of a copy.
pub struct CopyDestination {
    base: Arc<Dir>,
    target: RelPath,
    /// If true, sources go beneath `target` under their names. Otherwise the single source becomes
    /// `target`.
    into: bool,
    names: Vec<Vec<u8>>,
    options: WriteOptions,
    existing: ExistingPolicy,
    /// Directory outside which nothing is created, including temporary files.
    within: RelPath,
    /// If true, the writer may learn what exists: identical existing content counts as written.
    may_compare: bool,
    temp_prefix: String,
    rivals: Option<RivalCheck>,
    is_in_place: Option<EndCheck>,
    began: Instant,
    patience: Mutex<ContestPatience>,
    flusher: Flusher,
    committer: Committer,
    open_dirs: Arc<OpenDirs>,
    directories: Directories,
    /// If true, the base is the user's own choice, not what a server has granted.
    is_local: bool,
    names_in_place: Arc<NamesInPlace>,
    grains: GranularityCache,
    attributes: AttributeWriter,
    /// Quota of the account that the files belong to, if it has one.
    quota: Option<Arc<Quota>>,
    /// Member of a striped server that writes, if one does. Others may write beside it.
    member: Option<MemberId>,
}

impl CopyDestination {
    /// Creates the destination `target` beneath `base`, as a server writes. `names` are the
    /// sources' names as [`crate::Sources::local`] returns them. `into` is true if the user wrote a
    /// trailing slash, or means a directory for another reason.
    pub fn beneath(
        base: Arc<Dir>,
        target: RelPath,
        into: bool,
        names: Vec<Vec<u8>>,
        options: WriteOptions,
        token: CopyToken,
    ) -> Result<Self, Error> {
        let must_be_dir = into || names.len() > 1;
        let directories = Directories::default();
        let into = match base.stat(&target) {
            Ok(stat) if kind_of(&stat) == NodeKind::Directory => true,
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
                    // A copy that describes the directory also finishes it. Otherwise it stays as
                    // created.
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
            existing: ExistingPolicy::default(),
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
            grains: GranularityCache::default(),
            attributes: AttributeWriter::default(),
            quota: None,
            member: None,
        })
    }

    /// Restricts the destination to the directory `within` of its base, including temporary files.
    /// Unless the writer `may_compare`, every existing file is answered with "exists", whatever its
    /// content.
    #[must_use]
    pub fn confined_to(mut self, within: RelPath, may_compare: bool) -> Self {
        (self.within, self.may_compare) = (within, may_compare);
        self
    }

    /// Restricts what is created and replaced (LH-COPY-56).
    #[must_use]
    pub fn with_existing(self, existing: ExistingPolicy) -> Self {
        Self { existing, ..self }
    }

    /// Keeps further properties of the sources (LH-COPY-65).
    #[must_use]
    pub fn with_attributes(self, settings: AttributeSettings) -> Self {
        Self {
            attributes: AttributeWriter::new(settings),
            ..self
        }
    }

    /// Charges what is written to a quota.
    #[must_use]
    pub(crate) fn with_quota(self, quota: Option<Arc<Quota>>) -> Self {
        Self { quota, ..self }
    }

    /// Writes as a member of a striped server. What another member left is not resumed, as that one
    /// may still write it, and locks may not hold between machines.
    #[must_use]
    pub(crate) fn at_member(self, member: Option<MemberId>) -> Self {
        Self { member, ..self }
    }

    /// Returns true if the permissions, time and attributes of what exists are corrected.
    fn corrects_existing(&self) -> bool {
        self.options.overwrite || self.attributes.settings().corrects_existing
    }

    /// Returns true if parts of large files are kept when the copy ends early.
    pub(crate) fn resumes(&self) -> bool {
        self.options.resume
    }

    /// Sets the function that ends rivals in this process.
    #[must_use]
    pub(crate) fn with_rivals(mut self, rivals: RivalCheck) -> Self {
        self.rivals = Some(rivals);
        self
    }

    /// Sets a condition without which the copy does not conclude.
    #[must_use]
    pub(crate) fn with_end_check(mut self, is_in_place: EndCheck) -> Self {
        self.is_in_place = Some(is_in_place);
        self
    }

    /// Returns the pause before a file that another copy may hold is checked again, or `None` once
    /// this copy has waited long enough.
    fn contest_pause(&self, contest: ContestState) -> Option<Duration> {
        let now = self.began.elapsed();
        let mut patience = self.patience.lock();
        let looking = patience.since_first_look(now);
        let rivals = self.rivals.as_ref().map(|rivals| rivals(looking));
        patience.pause(contest, &rivals.unwrap_or_default(), now)
    }

    /// Creates a local destination as a user names it. Symbolic links in this path are the user's
    /// own and are followed; beneath it, none is.
    pub fn local(
        path: &Path,
        names: Vec<Vec<u8>>,
        options: WriteOptions,
        token: CopyToken,
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

    /// Returns the path of an entry beneath the base.
    fn path_of(&self, head: &EntryHead) -> Result<RelPath, Failure> {
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
            return Err(Failure::with_detail(FailureKind::RefusedPath, why));
        }
        let mut place = self.target.clone();
        if self.into && !name.is_empty() {
            place = place.child(name)?;
        }
        Ok(place.join(&head.path)?)
    }

    /// Returns the location of an entry, and creates its directory if necessary.
    fn locate(&self, place: &RelPath) -> Result<EntryLocation, Failure> {
        let (parent, name) = place
            .split_last()
            .ok_or(Failure::new(FailureKind::WrongKind))?;
        let name = OsString::from_vec(name.to_vec());
        if !parent.is_within(&self.within) {
            return Err(Failure::new(FailureKind::RefusedPath));
        }
        if let Some(dir) = self.open_dirs.get(&parent) {
            return Ok(EntryLocation {
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
        Ok(EntryLocation {
            dir,
            is_described: self.is_described(&parent),
            path: parent,
            name,
            source: 0,
        })
    }

    /// Fails if the file system equates an existing directory with another directory of this copy.
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
            None if self.names_in_place.has_folding() => match self.locate(path) {
                Err(failure) if failure.kind == FailureKind::PermissionDenied => return Ok(()),
                parent => parent?.dir,
            },
            // A directory that may be entered but not read has been entered already.
            None => {
                let Ok(dir) = self.base.open_dir(&above).map(Arc::new) else {
                    return Ok(());
                };
                self.open_dirs.insert(above.clone(), dir.clone());
                dir
            }
        };
        let entry = PlacedEntry {
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
        // The lock is held while they are created, so that another thread that finds one knows that
        // this copy created it.
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
