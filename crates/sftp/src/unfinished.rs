//! Names of unfinished files at a host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longhaul_transfer::TEMP_PREFIX;
use parking_lot::Mutex;

use crate::pool::Pool;

/// Unfinished files of a copy that it removes when it ends early.
#[derive(Debug)]
pub(crate) struct UnfinishedFiles {
    /// Letters that distinguish the names of this copy.
    token: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    paths: BTreeSet<PathBuf>,
}

impl UnfinishedFiles {
    /// Creates the names of a copy. `token` is random.
    pub(crate) fn new(token: [u8; 16]) -> Self {
        let [a, b, c, d, ..] = token;
        Self {
            token: format!("{a:02x}{b:02x}{c:02x}{d:02x}"),
            state: Mutex::default(),
        }
    }

    /// Returns a name that no other file has, in `directory`. It is removed unless it is
    /// [forgotten](Self::forget).
    pub(crate) fn add(&self, directory: &Path) -> PathBuf {
        let mut state = self.state.lock();
        let path = directory.join(format!("{TEMP_PREFIX}{}-{:x}", self.token, state.next));
        state.next += 1;
        state.paths.insert(path.clone());
        path
    }

    /// Forgets a file that is no longer unfinished.
    pub(crate) fn forget(&self, path: &Path) {
        self.state.lock().paths.remove(path);
    }

    /// Removes the remaining files. Some may not exist, as they are noted before they are created.
    pub(crate) async fn remove(&self, pool: &Pool) {
        let paths = self.take();
        let removing = paths.iter().map(|path| async move {
            let _ = again!(pool, 0, |lease| lease.remove(path));
        });
        futures_util::future::join_all(removing).await;
    }

    fn take(&self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut self.state.lock().paths)
    }
}

/// Returns the name of a large file while it is written, in `directory`. It depends on the file's
/// own name and on the state of its source, so that the next copy finds it and no other does.
pub(crate) fn resumable(directory: &Path, name: &[u8], identity: &[u8; 32]) -> PathBuf {
    let mut hasher = blake3::Hasher::new_derive_key("longhaul 2026 unfinished file by sftp");
    hasher.update(identity);
    hasher.update(name);
    let hash = hasher.finalize().to_hex();
    let (token, rest) = hash.split_at(8);
    let rest = rest.get(..16).unwrap_or_default();
    directory.join(format!("{TEMP_PREFIX}{token}-{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_remembered_until_they_are_forgotten() {
        let files = UnfinishedFiles::new([7; 16]);
        let one = files.add("d".as_ref());
        let other = files.add("d".as_ref());
        assert_eq!(one, Path::new("d/.longhaul-07070707-0"));
        assert_ne!(one, other);
        files.forget(&one);
        assert_eq!(files.take().into_iter().collect::<Vec<_>>(), [other]);
    }

    #[test]
    fn resumable_name_depends_on_the_source() {
        let name = |name: &[u8], identity| resumable("".as_ref(), name, &[identity; 32]);
        assert_eq!(name(b"a", 1), name(b"a", 1));
        assert_ne!(name(b"a", 1), name(b"a", 2));
        assert_ne!(name(b"a", 1), name(b"b", 1));
    }
}
