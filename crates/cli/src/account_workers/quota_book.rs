//! Use of the quotas by the accounts, in a file that outlives the server.
//!
//! An entry is *final* while no worker can change it. Whatever ends a worker or the server early
//! leaves one that is not, and the next worker counts again. The file may be removed at any time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_transfer::store::quota::QuotaUse;
use serde::{Deserialize, Serialize};

use crate::home;

/// Name of the file in the directory of state, and of the one that is locked while it is written.
const FILE_NAME: &str = "quotas.json";
const LOCK_NAME: &str = "quotas.lock";

/// Uses of all accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Uses(BTreeMap<String, AccountUse>);

/// Use of one account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct AccountUse {
    used: QuotaUse,
    is_final: bool,
    /// Process number of the server whose worker changes it.
    server: u32,
}

impl Uses {
    /// Returns the use with which a worker of `server` begins, or `None` if it has to count. The
    /// entry is not final from now on.
    fn begin(&mut self, account: &str, server: u32) -> Option<QuotaUse> {
        let entry = self.0.entry(account.to_owned()).or_default();
        let known = entry.is_final.then_some(entry.used);
        (entry.is_final, entry.server) = (false, server);
        known
    }

    /// Records the use that a worker of `server` has reported, unless another server has begun.
    fn record(&mut self, account: &str, server: u32, used: QuotaUse, is_final: bool) {
        if let Some(entry) = self
            .0
            .get_mut(account)
            .filter(|entry| entry.server == server)
        {
            (entry.used, entry.is_final) = (used, is_final);
        }
    }
}

/// The uses, as they are in their file.
#[derive(Debug, Clone)]
pub(super) struct QuotaBook {
    /// Directory of the file, or `None` if there is none. Then every worker counts.
    dir: Option<Arc<Path>>,
    /// Process number of this server.
    server: u32,
}

impl QuotaBook {
    /// Opens the book in the directory of state.
    pub(super) fn open() -> Self {
        Self::at(home::state_dir(), std::process::id())
    }

    fn at(dir: Option<PathBuf>, server: u32) -> Self {
        let dir = dir.map(Arc::from);
        Self { dir, server }
    }

    /// Returns the use with which a worker of `account` begins, or `None` if it has to count.
    pub(super) async fn begin(&self, account: &str) -> Option<QuotaUse> {
        let (account, server) = (account.to_owned(), self.server);
        let begun = self.change(move |uses| uses.begin(&account, server)).await;
        begun.flatten()
    }

    /// Records the use of an account.
    pub(super) async fn record(&self, account: &str, used: QuotaUse, is_final: bool) {
        let (account, server) = (account.to_owned(), self.server);
        self.change(move |uses| uses.record(&account, server, used, is_final))
            .await;
    }

    /// Changes the uses. Returns `None`, and logs why, if they cannot be saved.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Uses) -> T + Send + 'static,
    ) -> Option<T> {
        let dir = self.dir.clone()?;
        let changed = tokio::task::spawn_blocking(move || change_in(&dir, change)).await;
        match changed {
            Ok(Ok(changed)) => Some(changed),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot save the uses of quotas: they are counted again");
                None
            }
            Err(_) => None,
        }
    }
}

/// Changes the file in `dir`. The server that replaces this one may do so at the same time. A file
/// that cannot be understood counts as empty.
fn change_in<T>(dir: &Path, change: impl FnOnce(&mut Uses) -> T) -> io::Result<T> {
    home::make_private(dir).map_err(io::Error::other)?;
    let lock = File::create(dir.join(LOCK_NAME))?;
    lock.lock()?;
    let file = dir.join(FILE_NAME);
    let text = std::fs::read(&file).unwrap_or_default();
    let mut uses = serde_json::from_slice(&text).unwrap_or_default();
    let changed = change(&mut uses);
    let mut temporary = tempfile::NamedTempFile::new_in(dir)?;
    temporary.write_all(&serde_json::to_vec(&uses)?)?;
    temporary.persist(file)?;
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_final_uses_outlive_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("state");
        let book = |server| QuotaBook::at(Some(dir.clone()), server);
        assert_eq!(book(1).begin("ana").await, None);
        assert_eq!(book(1).begin("ben").await, None);
        let used = QuotaUse { bytes: 7, files: 1 };
        book(1).record("ana", used, true).await;
        book(1).record("ben", used, false).await;
        assert_eq!(book(2).begin("ana").await, Some(used));
        assert_eq!(book(2).begin("ben").await, None);
        // The replaced server reports late, and the new one is killed.
        book(1).record("ana", used, true).await;
        assert_eq!(book(3).begin("ana").await, None);
        book(3).record("ana", used, true).await;
        std::fs::write(dir.join(FILE_NAME), "nonsense").unwrap();
        assert_eq!(book(3).begin("ana").await, None);
        assert_eq!(QuotaBook::at(None, 1).begin("ana").await, None);
    }
}
