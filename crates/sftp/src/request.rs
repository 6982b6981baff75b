//! Requests for copies.

use std::sync::Arc;
use std::time::Duration;

use longhaul_filter::Filter;
use longhaul_remote::Ssh;
use longhaul_transfer::local_end::LocalTarget;
use longhaul_transfer::{
    CopyToken, ExistingPolicy, Observer, Sources, TransferProgress, WriteOptions,
};

use crate::location::SftpPath;

/// Settings of a copy.
pub struct CopySettings {
    /// The ssh command.
    pub ssh: Ssh,
    /// Maximum number of connections, if the user gives one.
    pub sessions: Option<u32>,
    /// Time for which an outage is tolerated.
    pub patience: Duration,
    /// The copy's counters.
    pub progress: Arc<TransferProgress>,
    /// Receives the copy's events.
    pub observer: Arc<dyn Observer>,
    /// Random token, which distinguishes the names of unfinished files.
    pub token: CopyToken,
}

/// A copy to a host.
pub struct PushRequest<'a> {
    /// The sources, and the name of each in a destination directory.
    pub sources: Sources,
    /// Names of the sources in a destination directory.
    pub names: Vec<Vec<u8>>,
    /// The destination.
    pub destination: &'a SftpPath,
    /// Treatment of existing files, and durability.
    pub options: WriteOptions,
    /// Restriction of what is created and replaced.
    pub existing: ExistingPolicy,
    /// If true, existing files are compared by content.
    pub checksum: bool,
}

/// A copy from a host.
pub struct PullRequest<'a> {
    /// The sources.
    pub sources: &'a [SftpPath],
    /// If true, directories are copied with all they hold, and links as links.
    pub recursive: bool,
    /// Filter of the entries.
    pub filter: Arc<Filter>,
    /// The destination.
    pub target: LocalTarget,
    /// If true, existing files are compared by content.
    pub checksum: bool,
    /// If true, unfinished files are kept for a later copy.
    pub resume: bool,
}
