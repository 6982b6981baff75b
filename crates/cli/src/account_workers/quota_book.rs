//! What the accounts use of their quotas, in a file that outlives the server.
//!
//! An entry is *final* while no worker can change it. Whatever ends a worker or the server early
//! leaves one that is not, and the next worker counts again. The file may be removed at any time.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_transfer::store::quota::QuotaUse;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::home;

/// Name of the file in the directory of state.
const FILE_NAME: &str = "quotas.json";

/// Uses of all accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Uses(BTreeMap<String, AccountUse>);

/// Use of one account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct AccountUse {
    used: QuotaUse,
    is_final: bool,
}

impl Uses {
    /// Returns the use with which a worker begins, or `None` if it has to count. The entry is not
    /// final from now on.
    fn begin(&mut self, account: &str) -> Option<QuotaUse> {
        let entry = self.0.entry(account.to_owned()).or_default();
        let known = entry.is_final.then_some(entry.used);
        entry.is_final = false;
        known
    }

    fn record(&mut self, account: &str, used: QuotaUse, is_final: bool) {
        let entry = AccountUse { used, is_final };
        self.0.insert(account.to_owned(), entry);
    }
}

/// The uses, and their file.
#[derive(Debug, Clone)]
pub(super) struct QuotaBook(Arc<BookState>);

#[derive(Debug)]
struct BookState {
    /// `None` if there is no directory for it. Then every worker counts.
    file: Option<PathBuf>,
    uses: Mutex<Uses>,
    /// Held while the file is written, so that an old state does not replace a newer one.
    writing: Mutex<()>,
}

impl QuotaBook {
    /// Opens the book in the directory of state. A file that cannot be understood is not used.
    pub(super) fn open() -> Self {
        Self::at(home::state_dir().map(|dir| dir.join(FILE_NAME)))
    }

    fn at(file: Option<PathBuf>) -> Self {
        let text = file.as_ref().and_then(|file| std::fs::read(file).ok());
        let uses = text.and_then(|text| serde_json::from_slice(&text).ok());
        Self(Arc::new(BookState {
            file,
            uses: Mutex::new(uses.unwrap_or_default()),
            writing: Mutex::default(),
        }))
    }

    /// Returns the use with which a worker of `account` begins, or `None` if it has to count.
    pub(super) async fn begin(&self, account: &str) -> Option<QuotaUse> {
        let known = self.0.uses.lock().begin(account);
        self.save().await;
        known
    }

    /// Records the use of an account.
    pub(super) async fn record(&self, account: &str, used: QuotaUse, is_final: bool) {
        self.0.uses.lock().record(account, used, is_final);
        self.save().await;
    }

    async fn save(&self) {
        let book = self.clone();
        let saved = tokio::task::spawn_blocking(move || book.write()).await;
        if let Ok(Err(error)) = saved {
            tracing::warn!(%error, "cannot save the uses of quotas: they are counted again later");
        }
    }

    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.0.file else {
            return Ok(());
        };
        let _one_at_a_time = self.0.writing.lock();
        let text = serde_json::to_vec(&*self.0.uses.lock())?;
        let dir = file.parent().unwrap_or(Path::new("."));
        home::make_private(dir).map_err(io::Error::other)?;
        let mut temporary = tempfile::NamedTempFile::new_in(dir)?;
        temporary.write_all(&text)?;
        temporary.persist(file)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_final_uses_outlive_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = Some(folder.path().join("state").join(FILE_NAME));
        let book = QuotaBook::at(file.clone());
        assert_eq!(book.begin("ana").await, None);
        let used = QuotaUse { bytes: 7, files: 1 };
        book.record("ana", used, true).await;
        book.record("ben", used, false).await;
        let again = QuotaBook::at(file.clone());
        assert_eq!(again.begin("ana").await, Some(used));
        assert_eq!(again.begin("ben").await, None);
        // The server is killed.
        let after = QuotaBook::at(file.clone());
        assert_eq!(after.begin("ana").await, None);
        std::fs::write(file.as_ref().unwrap(), "nonsense").unwrap();
        assert_eq!(QuotaBook::at(file).begin("ben").await, None);
    }
}
