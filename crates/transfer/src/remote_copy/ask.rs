//! What a host is asked to copy.

use std::time::Duration;

use longhaul_filter::FilterRules;
use longhaul_proto::PublicKey;
use serde::{Deserialize, Serialize};

use crate::client::DEFAULT_PATIENCE;
use crate::compression::Compression;
use crate::existing::ExistingPolicy;
use crate::files::message::PathBytes;
use crate::part::Portion;
use crate::path::{PathError, RelPath};
use crate::preservation::Preservation;
use crate::store::WriteOptions;
use crate::wire::{Compare, CopyRequest, CopyToken, Hello};

/// A copy that another host makes, as the client of a server. Over ssh, the paths of that host are
/// as typed; otherwise all paths are beneath the roots of servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyAsk {
    /// Key of the server.
    pub server: PublicKey,
    /// Names and addresses of the server, the likeliest first.
    pub hosts: Vec<String>,
    /// Port of the server.
    pub port: u16,
    /// Direction of the copy.
    pub direction: CopyDirection,
    /// The sources.
    pub sources: Vec<PathBytes>,
    /// Names of the sources in a destination directory.
    pub names: Vec<PathBytes>,
    /// Names of the sources in messages.
    pub labels: Vec<String>,
    /// Destination.
    pub destination: PathBytes,
    /// If true, the destination must be a directory.
    pub into: bool,
    /// If true, directories are copied with all they hold.
    pub recursive: bool,
    /// If true, existing files are replaced.
    pub overwrite: bool,
    /// If true, files are forced to disk.
    pub fsync: bool,
    /// If true, parts of large files are kept when the copy ends early, and resumed.
    pub resume: bool,
    /// If true, the content of existing files is compared instead of their sizes and times.
    #[serde(default)]
    pub checksum: bool,
    /// If true, hard links are kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard_links: bool,
    /// Fixed number of streams, if there is one.
    pub streams: Option<u32>,
    /// Time for which an outage is tolerated, in milliseconds. `None` if the asking side does not
    /// know events about waiting.
    #[serde(default)]
    pub patience_ms: Option<u64>,
    /// TCP congestion control.
    pub congestion: Option<String>,
    /// If true, the data of large files is sent as plaintext, if the other side permits it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_encrypt: bool,
    /// Compression of the data on its way. An earlier release compresses nothing.
    #[serde(default, skip_serializing_if = "Compression::is_none")]
    pub compression: Compression,
    /// If true, blocks are put together from existing files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delta: bool,
    /// If true, existing files are overwritten in place. Only between two servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// If true, every completed entry is reported, not only counted.
    pub report_done: bool,
    /// Filter of what is copied.
    #[serde(default, skip_serializing_if = "FilterRules::is_empty")]
    pub filter: FilterRules,
    /// If true, existing files that are newer are left alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub update: bool,
    /// If true, nothing new is created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
    /// If true, what exists is left alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_existing: bool,
    /// Selection of what is kept besides permissions and times.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub keep: Preservation,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_nothing(keep: &Preservation) -> bool {
    keep.is_empty()
}

impl CopyAsk {
    /// Returns the request to the server.
    ///
    /// # Errors
    /// A path of the server is not plain.
    pub fn request(&self) -> Result<CopyRequest, PathError> {
        Ok(match self.direction {
            CopyDirection::Push => CopyRequest::Push {
                destination: RelPath::from_bytes(&self.destination.0)?,
                into: self.into,
                overwrite: self.overwrite,
                fsync: self.fsync,
                names: self.source_names(),
            },
            CopyDirection::Pull => {
                let sources = self.sources.iter();
                let sources = sources.map(|source| RelPath::from_bytes(&source.0));
                CopyRequest::Pull {
                    recursive: self.recursive,
                    sources: sources.collect::<Result<_, _>>()?,
                }
            }
        })
    }

    /// Returns the first message to the server.
    #[must_use]
    pub fn hello(&self, request: CopyRequest, token: CopyToken) -> Hello {
        // The side with the source filters, the other one decides about what exists.
        let (filter, existing) = match self.direction {
            CopyDirection::Push => (FilterRules::default(), self.existing_policy()),
            CopyDirection::Pull => (self.filter.clone(), ExistingPolicy::default()),
        };
        Hello {
            token,
            request,
            resume: self.resume,
            clear: self.no_encrypt,
            offer: None,
            hard_links: self.hard_links,
            single: self.streams == Some(1),
            portion: Portion::Whole,
            placement: None,
            reports_not_kept: false,
            filter,
            existing,
            receipt: false,
            compression: self.compression,
            packs: false,
            delta: self.delta,
            in_place: self.in_place,
            late_sizes: false,
            keep: self.keep,
            bearer: None,
        }
    }

    /// Returns the names of the sources in a destination directory.
    #[must_use]
    pub fn source_names(&self) -> Vec<Vec<u8>> {
        self.names.iter().map(|name| name.0.clone()).collect()
    }

    /// Returns how files are written.
    #[must_use]
    pub const fn write_options(&self) -> WriteOptions {
        WriteOptions {
            overwrite: self.overwrite,
            fsync: self.fsync,
            resume: self.resume,
            in_place: self.in_place,
        }
    }

    /// Returns how existing files are compared.
    #[must_use]
    pub const fn compare(&self) -> Compare {
        match self.checksum {
            true => Compare::Content,
            false => Compare::SizeAndTime,
        }
    }

    /// Returns the time for which an outage is tolerated.
    #[must_use]
    pub fn patience(&self) -> Duration {
        let patience = self.patience_ms.map(Duration::from_millis);
        patience.unwrap_or(DEFAULT_PATIENCE)
    }

    /// Returns the restriction of what is created and replaced.
    #[must_use]
    pub const fn existing_policy(&self) -> ExistingPolicy {
        ExistingPolicy {
            update: self.update,
            existing: self.existing,
            ignore_existing: self.ignore_existing,
        }
    }
}

/// Direction of a copy, as seen from its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyDirection {
    /// The client sends.
    Push,
    /// The client receives.
    Pull,
}
