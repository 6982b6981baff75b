//! Directories that a copy has open, and those with names that are not forced to disk yet.
//!
//! A file that is forced to disk is still lost in a power failure if its name is not. A rename
//! changes the directory, which must be forced to disk itself. This includes directories that
//! existed before the copy and that no entry describes. Every change of a directory is therefore
//! noted here. The directory is synced when it makes room for another one, or at the end, and thus
//! once for many names.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(test)]
use longhaul_platform::fs;
use rustix::io::Errno;

use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::process_limits::ProcessLimits;
use crate::store::confine::{Dir, cannot_sync};

/// Maximum number of failed syncs that are reported. More would say the same.
const MAX_SYNC_FAILURES: usize = 16;

/// The open directories of a copy.
pub(super) struct OpenDirs {
    /// If true, changes are forced to disk.
    fsync: bool,
    /// Maximum number of open directories.
    max_open: usize,
    open: Mutex<HashMap<RelPath, OpenDir>>,
    failed: Mutex<Vec<Failure>>,
    #[cfg(test)]
    pub(super) log: Mutex<Vec<(DirectoryEvent, u64)>>,
}

struct OpenDir {
    dir: Arc<Dir>,
    /// True if it has changed since it was last forced to disk.
    changed: bool,
    /// True if it is known to accept names until this copy finishes it.
    is_reopened: bool,
}

/// Event in the directory of an inode.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryEvent {
    Changed,
    Synced,
}

impl OpenDirs {
    pub(super) fn new(fsync: bool) -> Self {
        Self {
            fsync,
            max_open: ProcessLimits::current().open_directories(),
            open: Mutex::default(),
            failed: Mutex::default(),
            #[cfg(test)]
            log: Mutex::default(),
        }
    }

    pub(super) fn get(&self, path: &RelPath) -> Option<Arc<Dir>> {
        self.open.lock().get(path).map(|open| open.dir.clone())
    }

    pub(super) fn insert(&self, path: RelPath, dir: Arc<Dir>) {
        let mut open = self.open.lock();
        let full = open.len() >= self.max_open;
        let left = if full {
            std::mem::take(&mut *open)
        } else {
            HashMap::new()
        };
        open.entry(path).or_insert(OpenDir {
            dir,
            changed: false,
            is_reopened: false,
        });
        drop(open);
        self.sync_changed(left);
    }

    /// Returns true if a directory is known to accept names until this copy finishes it.
    pub(super) fn is_reopened(&self, path: &RelPath) -> bool {
        self.open
            .lock()
            .get(path)
            .is_some_and(|open| open.is_reopened)
    }

    pub(super) fn set_reopened(&self, path: &RelPath, is_reopened: bool) {
        if let Some(open) = self.open.lock().get_mut(path) {
            open.is_reopened = is_reopened;
        }
    }

    /// Notes that a name in `dir`, which is at `path`, was created or replaced.
    pub(super) fn changed(&self, path: &RelPath, dir: &Dir) {
        self.note(dir, false);
        if !self.fsync {
            return;
        }
        match self.open.lock().get_mut(path) {
            Some(open) => open.changed = true,
            // It was closed for another directory after the caller obtained it.
            None => self.sync(path, dir),
        }
    }

    /// Notes the same for a directory that may not be open.
    pub(super) fn changed_at(&self, base: &Dir, path: &RelPath) {
        if !self.fsync {
            return;
        }
        match base.open_dir(path) {
            Ok(dir) => self.changed(path, &dir),
            Err(errno) => self.fail(path, errno),
        }
    }

    /// Forces all changes to disk, and closes all directories. Returns every failure to force a
    /// directory to disk so far.
    pub(super) fn finish(&self) -> Vec<Failure> {
        let left = std::mem::take(&mut *self.open.lock());
        self.sync_changed(left);
        std::mem::take(&mut *self.failed.lock())
    }

    fn sync_changed(&self, dirs: HashMap<RelPath, OpenDir>) {
        for (path, open) in dirs.into_iter().filter(|(_, open)| open.changed) {
            self.sync(&path, &open.dir);
        }
    }

    fn sync(&self, path: &RelPath, dir: &Dir) {
        match dir.sync() {
            Ok(()) => self.note(dir, true),
            Err(errno) => self.fail(path, errno),
        }
    }

    fn fail(&self, path: &RelPath, errno: Errno) {
        let mut failed = self.failed.lock();
        if failed.len() < MAX_SYNC_FAILURES {
            let failure = sync_failure(errno);
            let detail = format!("the directory /{path} could not be synced to disk: {failure}");
            failed.push(Failure::with_detail(FailureKind::Io, detail));
        }
    }

    #[cfg(not(test))]
    pub(super) fn note(&self, _: &Dir, _: bool) {}

    #[cfg(test)]
    pub(super) fn note(&self, dir: &Dir, synced: bool) {
        let inode = fs::fstat(dir).unwrap().st_ino;
        let event = if synced {
            DirectoryEvent::Synced
        } else {
            DirectoryEvent::Changed
        };
        self.log.lock().push((event, inode));
    }
}

/// Returns the failure to force a directory to disk if `--fsync` requests it.
pub(super) fn sync_failure(errno: Errno) -> Failure {
    match cannot_sync(errno) {
        true => {
            let detail = "the target's file system cannot sync directories; leave out --fsync";
            Failure::with_detail(FailureKind::Io, detail)
        }
        false => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_directory_sync_is_reported() {
        for errno in [Errno::INVAL, Errno::OPNOTSUPP, Errno::BADF, Errno::NOSYS] {
            assert!(
                sync_failure(errno).detail.ends_with("leave out --fsync"),
                "{errno}"
            );
        }
        assert!(!sync_failure(Errno::IO).detail.contains("--fsync"));
    }
}
