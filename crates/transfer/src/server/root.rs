//! The directory that a server serves, and the check that its path still leads there.
//!
//! A server holds its directory open. If a file system is mounted over the path later, or another
//! directory replaces it, data would land where nobody sees it. The path is therefore looked up
//! again each second, when a copy begins, and before one is reported as complete. While it leads
//! elsewhere, copies and file requests are refused.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_platform::fs;
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::time::{MissedTickBehavior, interval};

use super::ending::EarlyEnd;
use super::{CopyRefusal, Server};
use crate::error::{Error, Failure};
use crate::path::RelPath;
use crate::store::confine::{Dir, DirIdentity};
use crate::workers::blocking;

/// Interval between two checks of the path.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Detail of the refusal while the path leads elsewhere.
pub(super) const ROOT_DISPLACED: &str = "the server's directory was moved, replaced or mounted \
                                         over; its operator must restore it, or confirm the new \
                                         one (SIGHUP)";

/// A directory to be served.
pub struct ServedRoot {
    /// Path to watch, or `None` if it is not watched.
    path: Option<PathBuf>,
    /// Path of the served directory beneath it. No symbolic link in it is followed: other users
    /// may be able to rename its parts.
    beneath: RelPath,
    state: Mutex<RootState>,
    /// Held during a lookup of the path, so that an old result does not replace a newer one.
    checking: Mutex<()>,
}

struct RootState {
    dir: Arc<Dir>,
    leads: PathLeads,
}

/// Destination of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathLeads {
    ToServed,
    Elsewhere,
    Nowhere,
}

impl PathLeads {
    /// Returns the new state, given the identity of the directory at the path. Errors that do not
    /// tell where it leads change nothing.
    fn updated(self, served: DirIdentity, at_path: Result<DirIdentity, Errno>) -> Self {
        match at_path {
            Ok(found) if found == served => Self::ToServed,
            Ok(_) => Self::Elsewhere,
            // A symbolic link is in its place.
            Err(Errno::LOOP) => Self::Elsewhere,
            Err(Errno::NOENT | Errno::NOTDIR) => Self::Nowhere,
            Err(_) => self,
        }
    }
}

impl ServedRoot {
    /// Opens the directory at `path`, and watches the path from now on.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        Self::open_beneath(path, RelPath::root())
    }

    /// Opens the directory `beneath` the one at `path`, and watches it from now on. Symbolic links
    /// in `beneath` are errors.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open_beneath(path: &Path, beneath: RelPath) -> Result<Self, Errno> {
        let dir = open_within(path, &beneath)?;
        Ok(Self {
            path: Some(path.to_owned()),
            beneath,
            ..Self::from(dir)
        })
    }

    /// Returns the open directory.
    pub fn dir(&self) -> Arc<Dir> {
        self.state.lock().dir.clone()
    }

    /// Returns true if the path led to `dir` at the last check, and `dir` is what is served.
    fn is_current(&self, dir: &Arc<Dir>) -> bool {
        let state = self.state.lock();
        state.leads == PathLeads::ToServed && Arc::ptr_eq(&state.dir, dir)
    }

    /// Looks up the path. Returns where it leads, if that has changed. Blocking.
    fn check(&self) -> Option<PathLeads> {
        let path = self.path.as_deref()?;
        let _one_at_a_time = self.checking.lock();
        let at_path = match self.beneath.is_root() {
            true => fs::stat(path),
            false => Dir::open(path).and_then(|dir| dir.stat(&self.beneath)),
        };
        let at_path = at_path.map(|stat| DirIdentity::from(&stat));
        let mut state = self.state.lock();
        let served = state.dir.identity().ok()?;
        let leads = state.leads.updated(served, at_path);
        let has_changed = leads != std::mem::replace(&mut state.leads, leads);
        has_changed.then_some(leads)
    }

    /// Opens the path again. Returns true if it leads to another directory than before. Blocking.
    fn reopen(&self) -> Result<bool, Errno> {
        let Some(path) = &self.path else {
            return Ok(false);
        };
        let _one_at_a_time = self.checking.lock();
        let dir = open_within(path, &self.beneath)?;
        let identity = dir.identity()?;
        let mut state = self.state.lock();
        state.leads = PathLeads::ToServed;
        if state.dir.identity() == Ok(identity) {
            return Ok(false);
        }
        state.dir = Arc::new(dir);
        Ok(true)
    }

    fn shown(&self) -> String {
        let path = self.path.as_deref().unwrap_or(Path::new("/"));
        let beneath = std::ffi::OsStr::from_bytes(self.beneath.as_bytes());
        let path = path.join(beneath);
        longhaul_proto::text::printable(path.as_os_str().as_encoded_bytes())
    }
}

fn open_within(path: &Path, beneath: &RelPath) -> Result<Dir, Errno> {
    let dir = Dir::open(path)?;
    match beneath.is_root() {
        true => Ok(dir),
        false => dir.open_dir(beneath),
    }
}

impl From<Dir> for ServedRoot {
    /// Serves a directory whose path is not watched.
    fn from(dir: Dir) -> Self {
        Self {
            path: None,
            beneath: RelPath::root(),
            state: Mutex::new(RootState {
                dir: Arc::new(dir),
                leads: PathLeads::ToServed,
            }),
            checking: Mutex::default(),
        }
    }
}

impl Server {
    /// Looks up the path of the root each second. Running copies end when it leads elsewhere.
    pub async fn watch_root(self: &Arc<Self>) {
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let server = self.clone();
            // A panic is not expected. After one, the next check would still run.
            let _ = tokio::task::spawn_blocking(move || server.check_root()).await;
        }
    }

    /// Returns true if the path of the root led to the served directory at the last check.
    pub fn is_root_in_place(&self) -> bool {
        self.root.is_current(&self.root.dir())
    }

    /// Serves the directory that is now at the path of the root. Blocking.
    pub fn reopen_root(&self) {
        let path = self.root.shown();
        let was_displaced = !self.is_root_in_place();
        match self.root.reopen() {
            Ok(true) => {
                tracing::info!(
                    %path,
                    "the directory at the root's path is another one than before, \
                     and is served now"
                );
                self.end_copies(EarlyEnd::RootDisplaced, |_| true);
            }
            Ok(false) if was_displaced => {
                tracing::info!(%path, "the root is back, and served again")
            }
            Ok(false) => {}
            Err(errno) => {
                tracing::error!(%path, "cannot open the root: {}", Failure::from(errno));
            }
        }
    }

    /// Looks up the path of the root, and ends all copies if it leads elsewhere now. Blocking.
    fn check_root(&self) {
        let path = || self.root.shown();
        match self.root.check() {
            None => return,
            Some(PathLeads::ToServed) => {
                tracing::info!(path = path(), "the root is back, and served again");
                return;
            }
            Some(PathLeads::Elsewhere) => tracing::error!(
                path = path(),
                "the root was replaced or mounted over: nothing is served until the former \
                 directory is restored, or SIGHUP confirms the new one"
            ),
            Some(PathLeads::Nowhere) => tracing::error!(
                path = path(),
                "the root is missing: nothing is served until it is restored, or SIGHUP confirms \
                 a new one"
            ),
        }
        self.end_copies(EarlyEnd::RootDisplaced, |_| true);
    }

    /// Returns true if the root's path now leads to `dir`. If not, running copies are ended.
    /// Blocking.
    pub(super) fn still_serves(&self, dir: &Arc<Dir>) -> bool {
        self.check_root();
        self.root.is_current(dir)
    }

    /// Returns the served directory, if the root's path leads there now. Blocking.
    pub(super) fn current_root(&self) -> Result<Arc<Dir>, Error> {
        let dir = self.root.dir();
        match self.still_serves(&dir) {
            true => Ok(dir),
            false => Err(Error::Limit(ROOT_DISPLACED.into())),
        }
    }

    /// Refuses a stream while the root's path leads elsewhere.
    pub(super) async fn require_root(self: &Arc<Self>) -> Result<(), CopyRefusal> {
        if self.is_root_in_place() {
            return Ok(());
        }
        // The path may lead back since the last check.
        let server = self.clone();
        let root = blocking(move || server.current_root()).await.flatten();
        root.map(drop)
            .map_err(|error| CopyRefusal::for_error(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_errors_do_not_change_the_state() {
        use PathLeads::{Elsewhere, Nowhere, ToServed};
        let [served, other] = [1, 2].map(|inode| DirIdentity { device: 1, inode });
        for before in [ToServed, Elsewhere, Nowhere] {
            assert_eq!(before.updated(served, Ok(served)), ToServed);
            assert_eq!(before.updated(served, Ok(other)), Elsewhere);
            assert_eq!(before.updated(served, Err(Errno::NOENT)), Nowhere);
            for errno in [Errno::ACCESS, Errno::IO, Errno::STALE, Errno::TIMEDOUT] {
                assert_eq!(before.updated(served, Err(errno)), before);
            }
        }
    }

    #[test]
    fn links_in_the_part_beneath_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root");
        std::fs::create_dir_all(path.join("lab/ana")).unwrap();
        let beneath = || RelPath::from_bytes(b"lab/ana").unwrap();
        let root = ServedRoot::open_beneath(&path, beneath()).unwrap();
        assert!(root.shown().ends_with("root/lab/ana"));
        assert_eq!(root.check(), None);
        // A member of the lab replaces it by a link.
        std::fs::rename(path.join("lab/ana"), path.join("lab/former")).unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("home"), path.join("lab/ana")).unwrap();
        assert_eq!(root.check(), Some(PathLeads::Elsewhere));
        assert!(root.reopen().is_err());
        assert!(ServedRoot::open_beneath(&path, beneath()).is_err());
        // So it is with a link to a directory further up.
        std::fs::remove_file(path.join("lab/ana")).unwrap();
        std::fs::rename(path.join("lab"), path.join("other")).unwrap();
        std::fs::rename(path.join("other/former"), path.join("other/ana")).unwrap();
        std::os::unix::fs::symlink(path.join("other"), path.join("lab")).unwrap();
        assert_eq!(root.check(), None, "still elsewhere");
        assert!(root.reopen().is_err());
    }

    #[test]
    fn replaced_root_is_detected_and_confirmed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root");
        std::fs::create_dir(&path).unwrap();
        let root = ServedRoot::open(&path).unwrap();
        assert_eq!(root.check(), None);
        std::fs::rename(&path, folder.path().join("former")).unwrap();
        assert_eq!(root.check(), Some(PathLeads::Nowhere));
        assert_eq!(root.reopen(), Err(Errno::NOENT));
        std::fs::create_dir(&path).unwrap();
        assert_eq!(root.check(), Some(PathLeads::Elsewhere));
        assert_eq!(root.check(), None, "it is reported once");
        let former = root.dir();
        assert!(!root.is_current(&former));
        assert_eq!(root.reopen(), Ok(true));
        assert!(root.is_current(&root.dir()) && !root.is_current(&former));
        std::fs::rename(folder.path().join("former"), folder.path().join("again")).unwrap();
        assert_eq!(root.check(), None);
    }
}
