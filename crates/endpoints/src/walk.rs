//! Copies from a store.

use std::sync::Arc;

use longhaul_filter::Filter;
use longhaul_transfer::local_end::{
    EntryKind, EntryOutcome, EntryReporter, ListedTree, RemoteListing, RemoteTree, WalkLimits,
    WriteOutcome, pull_trees,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind};

use crate::content::ContentSource;
use crate::download::Downloader;
use crate::error::Error;
use crate::object::Object;
use crate::reader::ObjectReader;
use crate::store::Found;
use crate::tree::{FoundEntry, StoreTree};
use crate::upload::{NewFile, Uploader};

/// Directories that are listed at the same time.
const MAX_LISTINGS: usize = 32;

/// A copy from a store, shared by the tasks of its entries.
pub(crate) struct Walk {
    pub tree: StoreTree,
    pub reporter: Arc<EntryReporter>,
    pub sink: Sink,
    pub filter: Arc<Filter>,
    pub is_recursive: bool,
}

/// Where the entries go.
pub(crate) enum Sink {
    Local(Downloader),
    Endpoint(Arc<Uploader>),
}

impl ListedTree for Walk {
    type Attributes = Found;

    fn kind(found: &Found) -> EntryKind {
        StoreTree::kind(found)
    }

    async fn list(&self, directory: &FoundEntry) -> Result<RemoteListing<Found>, Failure> {
        self.tree.list(directory).await
    }

    async fn ignore_file(&self, directory: &FoundEntry, file: &Found) -> Result<Vec<u8>, Failure> {
        self.tree.ignore_file(directory, file).await
    }
}

impl RemoteTree for Walk {
    async fn directory(&self, entry: &FoundEntry) -> Result<EntryOutcome, Failure> {
        match &self.sink {
            Sink::Local(downloader) => downloader.directory(entry.source, &entry.path).await,
            Sink::Endpoint(uploader) => uploader.directory(entry.source, &entry.path).await,
        }
    }

    async fn entry(&self, entry: &FoundEntry) -> WriteOutcome {
        match &entry.attributes {
            Found::File(object) => self.file(entry, object.clone()).await,
            Found::Directory => Err(Failure::new(FailureKind::NotRegular)),
        }
    }
}

impl Walk {
    /// Copies all that the sources hold.
    ///
    /// # Errors
    /// The bucket does not exist or cannot be used.
    pub(crate) async fn copy(self: &Arc<Self>, max_entries: usize) -> Result<(), Error> {
        let mut found = Vec::new();
        for number in (0..).take(self.tree.source_count()) {
            match self.tree.root(number, self.is_recursive).await? {
                Ok(root) => found.push(root),
                Err(missing) => self.reporter.not_copied(number, &RelPath::root(), missing),
            }
        }
        let (count, filter) = (self.tree.source_count(), self.filter.clone());
        let limits = WalkLimits {
            entries: max_entries,
            listings: MAX_LISTINGS,
        };
        pull_trees(self, found, count, filter, &self.reporter, limits).await;
        if let Sink::Local(downloader) = &self.sink {
            downloader.finish().await;
        }
        Ok(())
    }

    async fn file(&self, entry: &FoundEntry, object: Object) -> WriteOutcome {
        let size = object.size;
        let reader = ObjectReader {
            store: self.tree.store.clone(),
            key: self.tree.key_of(entry.source, &entry.path)?,
            object,
        };
        let (source, path) = (entry.source, &entry.path);
        match &self.sink {
            Sink::Local(downloader) => downloader.file(source, path, reader).await,
            Sink::Endpoint(uploader) => {
                let file = NewFile {
                    source,
                    path,
                    size,
                    modified: reader.object.modified().0,
                };
                let content = ContentSource::Object(Arc::new(reader));
                let (outcome, _) = uploader.file(file, content).await?;
                Ok((outcome, None))
            }
        }
    }
}
