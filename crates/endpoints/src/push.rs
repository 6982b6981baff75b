//! Copies of local files to a store.

use std::sync::Arc;

use longhaul_transfer::local_end::{EntryOutcome, LocalEntry, RemoteTarget};
use longhaul_transfer::{Failure, FailureKind, Sources, TransferProgress};

use crate::content::ContentSource;
use crate::upload::{NewFile, Uploader};

/// A copy to a store, shared by the tasks of its entries.
pub(crate) struct Push {
    pub sources: Arc<Sources>,
    pub progress: Arc<TransferProgress>,
    pub uploader: Arc<Uploader>,
}

impl RemoteTarget for Push {
    async fn file(&self, entry: &LocalEntry, size: u64) -> Result<(EntryOutcome, u64), Failure> {
        let file = NewFile {
            source: entry.source,
            path: &entry.path,
            size,
            modified: entry.meta.mtime.0,
        };
        let content = ContentSource::Local {
            sources: self.sources.clone(),
            source: entry.source,
            path: entry.path.clone(),
            progress: self.progress.clone(),
        };
        self.uploader.file(file, content).await
    }

    async fn directory(&self, entry: &LocalEntry) -> Result<EntryOutcome, Failure> {
        self.uploader.directory(entry.source, &entry.path).await
    }

    async fn link(&self, _: &LocalEntry, _: &[u8]) -> Result<EntryOutcome, Failure> {
        let why = "a symbolic link: stores have none; leave it out, or name its target";
        Err(Failure::with_detail(FailureKind::NotRegular, why))
    }
}
