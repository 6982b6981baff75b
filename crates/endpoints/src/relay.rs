//! A store as the source of a copy to another machine, through this one.

use std::sync::Arc;
use std::time::Duration;

use longhaul_filter::Filter;
use longhaul_transfer::Sources;

use crate::connect::Purpose;
use crate::error::Error;
use crate::location::EndpointPath;
use crate::store::Store;
use crate::tree::{StoreTree, refuse_file_systems};

/// Sources in one store, for a copy to another machine.
pub struct StoreSources {
    tree: Arc<StoreTree>,
}

impl std::fmt::Debug for StoreSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSources").finish_non_exhaustive()
    }
}

impl StoreSources {
    /// Prepares sources that are all in the store of the first. Requests are repeated for
    /// `patience`. Nothing is sent.
    ///
    /// # Errors
    /// There are no credentials, or a setting cannot be used.
    pub async fn open(
        first: &EndpointPath,
        sources: &[EndpointPath],
        patience: Duration,
    ) -> Result<Self, Error> {
        let store = Store::open(first, Purpose::Read, patience).await?;
        let tree = StoreTree::new(Arc::new(store), sources.to_vec());
        Ok(Self {
            tree: Arc::new(tree),
        })
    }

    /// Finds the sources. Must be called in a runtime.
    ///
    /// # Errors
    /// The bucket does not exist or cannot be used, or it cannot apply the filter.
    pub async fn find(&self, recursive: bool, filter: Arc<Filter>) -> Result<Sources, Error> {
        refuse_file_systems(self.tree.store.place(), &filter)?;
        let mut roots = Vec::new();
        for number in (0..).take(self.tree.source_count()) {
            roots.push(self.tree.root(number, recursive).await?);
        }
        Ok(Sources::relayed(self.tree.clone(), roots, filter))
    }

    /// Waits until the store does not answer any more.
    pub async fn outage(&self) -> Error {
        self.tree.store.ended().await
    }
}
