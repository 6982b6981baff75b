//! Trees at another end, as they are listed.

use std::collections::BTreeMap;
use std::future::Future;

use longhaul_filter::EntryKind;

use crate::error::Failure;
use crate::path::RelPath;

/// An entry at the other end, with its attributes there.
#[derive(Debug)]
pub struct RemoteEntry<A> {
    /// Number of the source, from 0.
    pub source: u32,
    /// Path beneath the source, or the root for the source itself.
    pub path: RelPath,
    /// Attributes of the entry.
    pub attributes: A,
}

/// Entries of a directory at the other end by name.
pub type RemoteListing<A> = BTreeMap<Vec<u8>, A>;

/// Trees at another end.
pub trait ListedTree: Send + Sync + 'static {
    /// Attributes of an entry, as listings have them.
    type Attributes: Send + Sync + 'static;

    /// Returns the kind of an entry.
    fn kind(attributes: &Self::Attributes) -> EntryKind;

    /// Lists a directory.
    fn list(
        &self,
        directory: &RemoteEntry<Self::Attributes>,
    ) -> impl Future<Output = Result<RemoteListing<Self::Attributes>, Failure>> + Send;

    /// Reads the ignore file in a directory.
    fn ignore_file(
        &self,
        directory: &RemoteEntry<Self::Attributes>,
        file: &Self::Attributes,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;
}
