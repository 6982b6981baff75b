//! Directories that copies create. A later copy recognises them however the earlier one ended, and
//! finishes them (LH-COPY-51).
//!
//! The state of a directory is stored in the directory itself, so nothing is lost if a copy is
//! killed at any moment:
//!
//! | state | shown by |
//! |---|---|
//! | marked | permissions 0700 and the sticky bit: created by a copy and not finished |
//! | finished | the attribute [`RECORD_NAME`] names the directory's present permissions and time |
//! | reopened | the attribute names its permissions, to which sticky bit and 0700 were added |
//! | the user's | anything else |
//!
//! A copy reopens a finished directory before it puts the first name into it, and finishes it again
//! at its end. If the file system keeps no such attributes, a directory with the permissions and
//! time of its source counts as finished.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::Arc;

use longhaul_platform::fs::{self, Stat, XattrFlags};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::made::RememberedDirs;
use super::{CopyDestination, EntryLocation, times};
use crate::error::{Failure, FailureKind, metadata_failure};
use crate::metadata::meta_of;
use crate::metadata::node::Node;
use crate::path::RelPath;
use crate::store::MadeDir;
use crate::store::confine::Dir;
use crate::wire::Meta;

/// Mode of a directory from its creation until everything in it is written. No copy otherwise gives
/// a directory the sticky bit (LH-COPY-3), and the bit has no effect if only the owner may write.
pub(super) const MARKED_DIR_MODE: u32 = 0o1700;
/// Mode bits that are compared with [`MARKED_DIR_MODE`]: all except set-group-ID, which a directory
/// inherits from its parent.
const MARK_BITS: u32 = 0o5777;
/// Permissions that the owner needs to put names into a directory.
const WRITE_BITS: u32 = 0o300;
/// Set-user-ID, set-group-ID and sticky bit.
const SPECIAL_BITS: u32 = 0o7000;
const SET_GROUP_ID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
/// Extended attribute that records the permissions and time that a copy gave to a directory
/// (xattr(7)).
const RECORD_NAME: &str = "user.longhaul.directory";
/// Length of the longest record, in bytes.
const MAX_RECORD_BYTES: usize = 64;

/// Directories that the copy remembers until they are described or finished.
#[derive(Default, Clone)]
pub(super) struct Directories {
    /// Directories that this copy created before they were described. Needed if the file system
    /// keeps no permissions, and so no mark.
    pub(super) made: Arc<Mutex<RememberedDirs>>,
    /// Directories that an earlier copy finished without a record, and that are not writable.
    unwritable: Arc<Mutex<RememberedDirs>>,
}

/// State of an existing directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryState {
    /// Created by a copy and not finished.
    Marked,
    /// Finished by a copy, and unchanged since.
    Finished,
    /// Finished once with these permissions; a copy has begun to put more into it.
    Reopened(u32),
    /// Anything else, which is the user's.
    Own,
}

impl DirectoryState {
    fn read(dir: &Dir, stat: &Stat) -> Self {
        if stat.st_mode & MARK_BITS == MARKED_DIR_MODE {
            return Self::Marked;
        }
        let mut record = [0; MAX_RECORD_BYTES];
        let Ok(length) = fs::fgetxattr(dir, RECORD_NAME, &mut record[..]) else {
            return Self::Own;
        };
        Self::of_recorded(stat, record.get(..length).unwrap_or_default())
    }

    fn of_recorded(stat: &Stat, record: &[u8]) -> Self {
        if record == encode_record(&meta_of(stat)).as_bytes()
            && stat.st_mode & MARKED_DIR_MODE & SPECIAL_BITS == 0
        {
            return Self::Finished;
        }
        match recorded_mode(record) {
            Some(mode) if stat.st_mode & MARK_BITS == mode | MARKED_DIR_MODE => {
                Self::Reopened(mode)
            }
            _ => Self::Own,
        }
    }
}

/// Encodes the record of a finished directory: permissions in octal, seconds, nanoseconds.
fn encode_record(meta: &Meta) -> String {
    format!("{:o} {} {}", meta.mode, meta.mtime.0, meta.mtime.1)
}

fn recorded_mode(record: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(record).ok()?;
    let mode = u32::from_str_radix(text.split(' ').next()?, 8).ok()?;
    (mode <= 0o777).then_some(mode)
}

impl CopyDestination {
    /// Returns the state of an existing directory that `meta` describes and that this copy has not
    /// created.
    pub(super) fn found_dir(&self, place: &RelPath, dir: &Dir, meta: &Meta) -> MadeDir {
        let Ok(stat) = fs::fstat(dir) else {
            return MadeDir::Kept;
        };
        let state = DirectoryState::read(dir, &stat);
        match state {
            DirectoryState::Marked => return MadeDir::New,
            _ if self.corrects_existing() && self.may_describe(place) => {
                return MadeDir::Overwritten;
            }
            DirectoryState::Finished | DirectoryState::Reopened(_) => return MadeDir::Earlier,
            DirectoryState::Own => {}
        }
        if !meta_of(&stat).has_same_basics(meta) || stat.st_mode & SPECIAL_BITS & !SET_GROUP_ID != 0
        {
            return MadeDir::Kept;
        }
        if stat.st_mode & WRITE_BITS != WRITE_BITS {
            self.directories.unwritable.lock().insert(place);
        }
        MadeDir::Earlier
    }

    /// Returns true if an existing directory may get other permissions. A directory that a server
    /// has granted as a whole belongs to its operator.
    fn may_describe(&self, place: &RelPath) -> bool {
        self.is_local || *place != self.within && !place.is_root()
    }

    /// Puts a name into a directory. Reopens the directory first if an earlier copy finished it.
    pub(super) fn put_name<T>(
        &self,
        parent: &EntryLocation,
        mut change: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.reopen(parent);
        let denied = match change() {
            Err(failure) if failure.kind == FailureKind::PermissionDenied => failure,
            changed => return changed,
        };
        match self.reopens(parent) {
            true => change(),
            false => Err(explain(parent, denied)),
        }
    }

    /// Reopens a directory that another copy has finished in the meantime, and returns true if it
    /// did.
    pub(super) fn reopens(&self, parent: &EntryLocation) -> bool {
        self.open_dirs.set_reopened(&parent.path, false);
        self.reopen(parent)
    }

    /// Makes a directory accept names until this copy finishes it. Returns true if its mode was
    /// changed for that. Missing permissions show when a name is put into it.
    fn reopen(&self, parent: &EntryLocation) -> bool {
        if !parent.is_described || self.open_dirs.is_reopened(&parent.path) {
            return false;
        }
        let Ok(stat) = fs::fstat(&*parent.dir) else {
            return false;
        };
        let is_writable = stat.st_mode & WRITE_BITS == WRITE_BITS;
        let mode = match DirectoryState::read(&parent.dir, &stat) {
            DirectoryState::Finished => Some(stat.st_mode & 0o777 | MARKED_DIR_MODE),
            DirectoryState::Own if is_writable => None,
            DirectoryState::Own if self.options.overwrite => Some(stat.st_mode & 0o777 | 0o700),
            DirectoryState::Own if self.directories.unwritable.lock().contains(&parent.path) => {
                Some(MARKED_DIR_MODE)
            }
            _ => None,
        };
        let is_changed = mode.is_some_and(|mode| set_mode(&parent.dir, &stat, mode).is_ok());
        self.open_dirs.set_reopened(&parent.path, true);
        is_changed
    }

    /// Gives a directory its permissions and time, when everything in it is written.
    pub(super) fn complete(&self, dir: &Dir, made: MadeDir, meta: &Meta) -> Result<(), Failure> {
        let stat = fs::fstat(dir)?;
        let state = DirectoryState::read(dir, &stat);
        match (made, state) {
            (MadeDir::Kept, _) | (MadeDir::Earlier, DirectoryState::Finished) => Ok(()),
            (MadeDir::Earlier, DirectoryState::Reopened(mode)) => {
                let meta = Meta {
                    mode,
                    ..meta.clone()
                };
                self.set_directory_metadata(dir, &stat, &meta, FinishRecord::Write)
            }
            (MadeDir::Earlier, DirectoryState::Own) => restore_time(dir, &stat, meta),
            (MadeDir::Overwritten, DirectoryState::Own | DirectoryState::Finished)
                if meta_of(&stat).has_same_basics(meta)
                    && !self
                        .attributes
                        .differs(&Node::open(dir.as_fd()), &stat, meta) =>
            {
                Ok(())
            }
            (MadeDir::Overwritten, DirectoryState::Own) => {
                self.set_directory_metadata(dir, &stat, meta, FinishRecord::Leave)
            }
            (MadeDir::New | MadeDir::Earlier | MadeDir::Overwritten, _) => {
                self.set_directory_metadata(dir, &stat, meta, FinishRecord::Write)
            }
        }
    }

    /// Gives a directory its attributes, permissions and time. It counts as unfinished until the
    /// last step.
    fn set_directory_metadata(
        &self,
        dir: &Dir,
        stat: &Stat,
        meta: &Meta,
        record: FinishRecord,
    ) -> Result<(), Failure> {
        let node = Node::open(dir.as_fd());
        let applied = self.attributes.apply(&node, stat, meta);
        match applied.special_bits {
            None => set_metadata(dir, stat, meta, record)?,
            // A sticky directory looks unfinished, so it has no record that says otherwise.
            Some(bits) if bits & STICKY != 0 => {
                let _ = node.remove_attribute(RECORD_NAME.as_bytes());
                set_mode_and_time(dir, bits, meta)?;
            }
            Some(bits) => {
                if record == FinishRecord::Write {
                    write_record(dir, meta);
                }
                set_mode_and_time(dir, bits, meta)?;
            }
        }
        applied.failure.map_or(Ok(()), Err)
    }

    /// Leaves a directory that an earlier copy finished in a state that a later one recognises, as
    /// this copy ends early.
    pub(super) fn leave(&self, dir: &Dir, meta: &Meta) {
        if let Ok(stat) = fs::fstat(dir)
            && DirectoryState::read(dir, &stat) == DirectoryState::Own
        {
            // Only its time shows a later copy what it is. An error is ignored, as the copy has
            // failed already.
            let _ = restore_time(dir, &stat, meta);
        }
    }

    /// Reopens the deepest existing directory above `path`, which receives the first missing one.
    pub(super) fn reopen_above(&self, path: &RelPath) {
        let mut ahead = path.split_last().map(|(above, _)| above);
        while let Some(path) = ahead {
            match self.base.open_dir(&path) {
                Ok(dir) => {
                    self.reopen(&EntryLocation {
                        is_described: self.is_described(&path),
                        dir: Arc::new(dir),
                        path,
                        name: OsString::new(),
                        source: 0,
                    });
                    return;
                }
                Err(Errno::NOENT) => ahead = path.split_last().map(|(above, _)| above),
                Err(_) => return,
            }
        }
    }

    /// Returns true if a directory is an entry of this copy, and not the one that its sources are
    /// put into.
    pub(super) fn is_described(&self, path: &RelPath) -> bool {
        let is_entry = *path != self.target || !self.into || self.names.iter().any(Vec::is_empty);
        path.is_within(&self.target) && is_entry
    }
}

/// Selects whether a finished directory gets a record.
#[derive(PartialEq)]
enum FinishRecord {
    Write,
    Leave,
}

/// Gives a directory permissions and time. It counts as unfinished until the last step.
fn set_metadata(dir: &Dir, stat: &Stat, meta: &Meta, record: FinishRecord) -> Result<(), Failure> {
    let special = match record {
        FinishRecord::Write => {
            write_record(dir, meta);
            SET_GROUP_ID
        }
        FinishRecord::Leave => SPECIAL_BITS,
    };
    set_mode_and_time(dir, stat.st_mode & special, meta)
}

/// Records the permissions and time that a directory is about to get. Without a record, a later
/// copy goes by permissions and time.
fn write_record(dir: &Dir, meta: &Meta) {
    let text = encode_record(meta);
    let _ = fs::fsetxattr(dir, RECORD_NAME, text.as_bytes(), XattrFlags::empty());
}

/// Sets the time of a directory, and its permissions with these special bits.
fn set_mode_and_time(dir: &Dir, special_bits: u32, meta: &Meta) -> Result<(), Failure> {
    times::set(dir, meta)?;
    let mode = fs::mode_bits(special_bits | meta.mode);
    fs::fchmod(dir, mode).map_err(metadata_failure)
}

/// Sets permissions. The set-group-ID bit stays as it was inherited.
fn set_mode(dir: &Dir, stat: &Stat, mode: u32) -> Result<(), Errno> {
    fs::fchmod(dir, fs::mode_bits(stat.st_mode & SET_GROUP_ID | mode))
}

/// Restores the time of a directory if it still has the permissions with which it was finished, and
/// belongs to this user.
fn restore_time(dir: &Dir, stat: &Stat, meta: &Meta) -> Result<(), Failure> {
    let is_own =
        stat.st_uid == rustix::process::geteuid().as_raw() || rustix::process::geteuid().is_root();
    match is_own && stat.st_mode & 0o777 == meta.mode && !meta_of(stat).has_same_basics(meta) {
        true => times::set(dir, meta),
        false => Ok(()),
    }
}

/// Reopens a directory that another copy has finished, and returns true if it did.
pub(super) fn reopen_finished(parent: &EntryLocation) -> bool {
    let Some(stat) = finished(&parent.dir).filter(|_| parent.is_described) else {
        return false;
    };
    set_mode(&parent.dir, &stat, stat.st_mode & 0o777 | MARKED_DIR_MODE).is_ok()
}

/// Returns the metadata of a directory if it is finished.
fn finished(dir: &Dir) -> Option<Stat> {
    let stat = fs::fstat(dir).ok()?;
    (DirectoryState::read(dir, &stat) == DirectoryState::Finished).then_some(stat)
}

/// Tries something in a directory that leaves no name there. Afterwards restores the time of a
/// finished directory.
pub(super) fn keeping_finished<T>(dir: &Dir, attempt: impl FnOnce() -> T) -> T {
    let before = finished(dir);
    let result = attempt();
    if let Some(stat) = before {
        let _ = restore_time(dir, &fs::fstat(dir).unwrap_or(stat), &meta_of(&stat));
    }
    result
}

/// Explains a denial, if a directory of this user is read-only.
fn explain(parent: &EntryLocation, denied: Failure) -> Failure {
    let is_own = |stat: &Stat| stat.st_uid == rustix::process::geteuid().as_raw();
    match fs::fstat(&*parent.dir) {
        Ok(stat) if is_own(&stat) && stat.st_mode & WRITE_BITS != WRITE_BITS => {
            let what = "its directory at the destination is read-only and was not made by a copy; \
                        run chmod u+wx on it";
            Failure::with_detail(denied.kind, what)
        }
        _ => denied,
    }
}

/// Removes a temporary name. A directory that was finished meanwhile keeps its permissions and
/// time.
pub(super) fn remove_temporary(dir: &Dir, name: &OsStr) {
    let Some(stat) = finished(dir) else {
        let _ = dir.remove(name);
        return;
    };
    if set_mode(dir, &stat, stat.st_mode & 0o777 | MARKED_DIR_MODE).is_ok() {
        let _ = dir.remove(name);
        let _ = set_metadata(dir, &stat, &meta_of(&stat), FinishRecord::Write);
    }
}

#[cfg(test)]
mod tests;
