//! Requests for copies.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_filter::Filter;
use longhaul_transfer::local_end::LocalTarget;
use longhaul_transfer::{
    CopyToken, ExistingPolicy, Observer, Sources, TransferProgress, WriteOptions,
};

use crate::location::EndpointPath;

/// Settings of a copy.
pub struct CopySettings {
    /// Number of requests for content at a time. `None` if it follows what the store does.
    pub requests: Option<u32>,
    /// Time for which an outage is tolerated.
    pub patience: Duration,
    /// Directory for records of unfinished uploads. Without one, none is resumed.
    pub state: Option<PathBuf>,
    /// The copy's counters.
    pub progress: Arc<TransferProgress>,
    /// Receives the copy's events.
    pub observer: Arc<dyn Observer>,
    /// Random token, which distinguishes the names of unfinished files.
    pub token: CopyToken,
    /// Treatment of existing files, and durability.
    pub options: WriteOptions,
    /// Restriction of what is created and replaced.
    pub existing: ExistingPolicy,
    /// If true, existing files are compared by content.
    pub checksum: bool,
    /// If true, directories are copied with all they hold.
    pub recursive: bool,
    /// Filter of the entries.
    pub filter: Arc<Filter>,
}

/// Sources of a copy.
pub enum CopySources<'a> {
    /// Files and directories of this machine: the sources, and the name of each in a destination
    /// directory.
    Local(Sources, Vec<Vec<u8>>),
    /// Paths in one store.
    Endpoint(&'a [EndpointPath]),
}

/// Destination of a copy.
pub enum CopyTarget<'a> {
    /// A directory or file of this machine.
    Local(Box<LocalTarget>),
    /// A path in a store.
    Endpoint(&'a EndpointPath),
}
