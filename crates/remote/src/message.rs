//! Messages between the two sides of an ssh connection: one JSON object per line.
//!
//! The far side begins with [`FarAnswer::Ready`]; then each [`FarQuestion`] gets its answer, in
//! order. Fields may be added within a [`VERSION`]; unknown ones are ignored. Public keys are
//! exchanged here, private ones never.

use std::net::IpAddr;

use longhaul_proto::{PortRange, PublicKey};
pub use longhaul_transfer::files::message::PathBytes;
use longhaul_transfer::files::message::{FilesRequest, FilesResponse};
use longhaul_transfer::{Compression, ExistingPolicy, FailureKind, FilterRules, Preservation};
use serde::{Deserialize, Serialize};

use crate::ClientClock;

/// Version of these messages.
pub const VERSION: u32 = 2;
/// Maximum bytes of a line: far more than the HELLO of a copy takes.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// A question to the far side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum FarQuestion {
    /// Permit this key to access these paths. Answered by [`FarAnswer::Serving`].
    Serve(ServeAsk),
    /// Connect to the asking side, and accept a session over that connection. Answered by
    /// [`FarAnswer::Dialled`].
    Dial {
        /// Names and addresses of the asking side, the likeliest first.
        hosts: Vec<String>,
        /// Port of the asking side.
        port: u16,
        /// Time limit, in milliseconds.
        #[serde(default)]
        within_ms: Option<u32>,
    },
    /// Carry one session over standard input and output from the answer on. Answered by
    /// [`FarAnswer::Inside`].
    Inside,
    /// List files, or change names. Answered by [`FarAnswer::Files`].
    Files(FilesRequest),
    /// Be the client of a copy with another far side. Answered by [`FarAnswer::Event`]s and
    /// [`FarAnswer::Ended`], or by [`FarAnswer::NotReached`].
    Copy(Box<CopyAsk>),
    /// As [`FarQuestion::Copy`], with a filter or a restriction of what is replaced. A far side of
    /// an earlier release, which knows neither, refuses it.
    CopySelected(Box<CopyAsk>),
}

/// Content of [`FarQuestion::Serve`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServeAsk {
    /// Key of the client.
    pub client: PublicKey,
    /// Operations that it may do.
    pub access: Access,
    /// Paths as typed. For writing there is one path, the destination.
    pub paths: Vec<PathBytes>,
    /// If true, a source that is a symbolic link is followed.
    pub follow: bool,
    /// Ports to listen on; any free port if `None`.
    #[serde(default)]
    pub ports: Option<PortRange>,
    /// TCP congestion control.
    pub congestion: Option<String>,
    /// If true, the data of large files may be sent as plaintext.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_encrypt: bool,
    /// The client's clock, with which the far side checks what the client has signed. Earlier
    /// releases ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClientClock>,
}

/// Operations of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Receive the files.
    Read,
    /// Create files, and replace none.
    Create,
    /// Create and replace files.
    Write,
}

/// Content of [`FarQuestion::Copy`]. Paths of this host are as typed. Those of the other are
/// beneath its root, as it reported them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyAsk {
    /// The other far side's key.
    pub server: PublicKey,
    /// Names and addresses of the other far side, the likeliest first.
    pub hosts: Vec<String>,
    /// Port of the other far side.
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
    /// Compression of the data of large files. An earlier release compresses nothing.
    #[serde(default, skip_serializing_if = "Compression::is_none")]
    pub compression: Compression,
    /// If true, blocks are put together from existing files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delta: bool,
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
    /// Returns the question. Which one depends on what an earlier release has to know.
    #[must_use]
    pub fn into_question(self) -> FarQuestion {
        let restricts = self.update || self.existing || self.ignore_existing;
        match restricts || !(self.filter.is_empty() || self.filter.is_only_ignore_files()) {
            true => FarQuestion::CopySelected(Box::new(self)),
            false => FarQuestion::Copy(Box::new(self)),
        }
    }

    /// Returns the restriction of what is created and replaced.
    #[must_use]
    pub fn existing_policy(&self) -> ExistingPolicy {
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

/// A message of the far side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum FarAnswer {
    /// The first message, which is not an answer.
    Ready(Ready),
    /// It serves.
    Serving {
        /// The port it listens on; `None` if it can't listen.
        port: Option<u16>,
        /// Reason why it can't listen.
        why_not: Option<String>,
        /// The paths beneath its root, in the order of the question.
        paths: Vec<PathBytes>,
    },
    /// A session is established over a connection that the far side made, to this one of the named
    /// hosts.
    Dialled {
        /// The host that it reached.
        host: String,
    },
    /// The far side could not make such a connection.
    NotDialled {
        /// Attempts, in one line.
        reason: String,
    },
    /// The next bytes belong to a session.
    Inside,
    /// Listed files, or the result of a change.
    Files(FilesResponse),
    /// The other far side was not reached, so nothing was copied.
    NotReached {
        /// Attempts, in one line.
        reason: String,
    },
    /// An event of the copy whose client the far side is.
    Event(CopyEvent),
    /// Progress of that copy.
    Progress(CopyProgress),
    /// End of that copy.
    Ended(CopyEnd),
    /// The question cannot be answered.
    Refused {
        /// Reason, in one line.
        reason: String,
    },
}

/// Content of [`FarAnswer::Ready`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Version of the messages: [`VERSION`].
    pub version: u32,
    /// Version of the copy protocol.
    pub copy_version: u16,
    /// Release of longhaul.
    pub release: String,
    /// The far side's key, made for this login alone.
    pub key: PublicKey,
    /// Source address of ssh's connection, as the host saw it.
    pub client: Option<IpAddr>,
    /// Destination address of ssh's connection.
    pub server: Option<IpAddr>,
    /// The host's own addresses.
    pub addresses: Vec<IpAddr>,
    /// The host's clock, in milliseconds since 1970-01-01 UTC. Earlier releases do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ms: Option<u64>,
}

/// An event of a copy between two far sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// A stream is open.
    StreamOpened {
        /// Number of the stream.
        stream: u32,
    },
    /// A stream was lost.
    StreamLost {
        /// Number of the stream, if it ever opened.
        stream: Option<u32>,
        /// Reason.
        reason: String,
    },
    /// The copy waits, as nothing arrives: see [`longhaul_transfer::TransferEvent::Waiting`].
    Waiting {
        /// Milliseconds since something arrived.
        silence_ms: u64,
        /// Milliseconds after which the copy is given up.
        patience_ms: u64,
    },
    /// Data arrives again.
    Back {
        /// Milliseconds for which nothing had arrived.
        after_ms: u64,
    },
    /// The copy was lost, and another one replaces it.
    BegunAgain {
        /// Reason.
        reason: String,
    },
    /// A file is resumed.
    Resumed {
        /// Path of the file.
        path: String,
        /// Bytes of it that have arrived.
        bytes: u64,
        /// Size of the whole file in bytes.
        size: u64,
    },
    /// An entry is complete.
    Done {
        /// Path of the entry.
        path: String,
        /// Size in bytes, if it is a file.
        bytes: Option<u64>,
        /// BLAKE3 hash in hexadecimal, if it is a file.
        blake3: Option<String>,
        /// True if it existed before.
        same: bool,
    },
    /// An entry failed.
    Failed {
        /// Path of the entry.
        path: String,
        /// Kind of failure.
        kind: FailureKind,
        /// Details.
        detail: String,
    },
}

/// Counters of a copy between two far sides, as in [`longhaul_transfer::TransferProgress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the counter of that name")]
pub struct CopyProgress {
    pub entries_found: u64,
    pub bytes_found: u64,
    pub walk_complete: bool,
    pub entries_done: u64,
    pub files_done: u64,
    pub bytes_done: u64,
    #[serde(default)]
    pub bytes_resumed: Option<u64>,
    #[serde(default)]
    pub files_unchanged: u64,
    #[serde(default)]
    pub bytes_unchanged: u64,
    #[serde(default)]
    pub files_linked: u64,
    #[serde(default)]
    pub bytes_linked: u64,
    pub failures: u64,
    #[serde(default)]
    pub bytes_clear: u64,
    #[serde(default)]
    pub bytes_saved: u64,
}

/// Result of a copy between two far sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyEnd {
    /// Hash over all entries in hexadecimal, if the copy completed.
    pub manifest: Option<String>,
    /// Error that ended it early, in one line.
    pub error: Option<String>,
    /// Kind of that error.
    pub kind: Option<CopyErrorKind>,
}

/// Kinds of [`longhaul_transfer::Error`], as far as exit codes distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyErrorKind {
    /// The other side could not be reached.
    Connect,
    /// The key is not permitted to do this.
    Unauthorised,
    /// Refused for another reason.
    Refused,
    /// The copy broke off.
    BrokeOff,
    /// The two sides disagree or do not understand each other.
    Disagreement,
    /// A path can't be used.
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_keep_their_form() {
        let ask = FarQuestion::Serve(ServeAsk {
            client: PublicKey::from_bytes([1; 32]),
            access: Access::Create,
            paths: vec![PathBytes(b"a\xff".to_vec())],
            follow: true,
            ports: Some("50000-50010".parse().unwrap()),
            congestion: None,
            no_encrypt: false,
            clock: None,
        });
        let line = serde_json::to_string(&ask).unwrap();
        assert_eq!(
            line,
            format!(
                "{{\"ask\":\"serve\",\"client\":\"{}\",\"access\":\"create\",\
                 \"paths\":[\"Yf8=\"],\"follow\":true,\"ports\":\"50000-50010\",\
                 \"congestion\":null}}",
                PublicKey::from_bytes([1; 32])
            )
        );
        assert_eq!(serde_json::from_str::<FarQuestion>(&line).unwrap(), ask);
        assert_eq!(
            serde_json::from_str::<FarQuestion>("{\"ask\":\"inside\",\"later\":1}").unwrap(),
            FarQuestion::Inside
        );
    }
}
