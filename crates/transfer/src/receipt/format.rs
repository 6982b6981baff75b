//! Lines of a receipt, as JSON.

use longhaul_filter::PathText;
use longhaul_proto::PublicKey;
use serde::{Deserialize, Serialize};

use super::encoding::{base64, hex};
use super::parts::FileParts;
use super::signature::ServerReceipt;
use crate::attributes::{SpecialFile, SpecialKind};
use crate::manifest::ManifestRecord;
use crate::path::RelPath;
use crate::tree_hash::{Hash, Subtree};

/// Version of the format.
pub(super) const RECEIPT_VERSION: u32 = 1;

/// The first line: the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptHeader {
    /// Version of the format.
    pub(super) receipt: u32,
    /// Sources, as they were typed.
    pub sources: Vec<PathText>,
    /// Destination, as it was typed.
    pub destination: PathText,
    /// True if the server had the sources.
    pub fetch: bool,
    /// Path of each source's files at the client, absolute.
    pub here: Vec<PathText>,
}

impl ReceiptHeader {
    /// Creates the header of a copy.
    pub fn new(
        sources: Vec<PathText>,
        destination: PathText,
        fetch: bool,
        here: Vec<PathText>,
    ) -> Self {
        Self {
            receipt: RECEIPT_VERSION,
            sources,
            destination,
            fetch,
            here,
        }
    }
}

/// A line about an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptEntry {
    /// Number of the entry in the copy, from 0. Lines may be in any order.
    pub id: u64,
    /// Number of its source, from 0.
    pub source: u32,
    /// Path beneath the source. Empty for the source itself.
    pub path: PathText,
    /// What the copy recorded.
    #[serde(flatten)]
    pub recorded: RecordedEntry,
}

/// What a copy recorded of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RecordedEntry {
    /// A file whose content was compared at both ends.
    File {
        /// Size in bytes.
        size: u64,
        /// BLAKE3 of its content.
        #[serde(with = "hex")]
        blake3: Hash,
        /// Modification time at the source: seconds since 1970, and nanoseconds.
        mtime: (i64, u32),
        /// Hashes of its parts. Empty for a small file.
        #[serde(default, skip_serializing_if = "FileParts::is_empty")]
        parts: FileParts,
    },
    /// A file that was there already with the same size and modification time.
    Unchanged {
        /// Size in bytes.
        size: u64,
        /// Modification time, as above.
        mtime: (i64, u32),
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: PathText,
    },
    /// A device, FIFO or socket.
    Special {
        /// 1: FIFO, 2: socket, 3: character device, 4: block device.
        special: u8,
        /// Major and minor number of a device, otherwise zeros.
        device: (u32, u32),
    },
    /// Another name of a file.
    HardLink {
        /// Size of the file in bytes.
        size: u64,
        /// Number of the source of its first name.
        first_source: u32,
        /// Path of its first name beneath that source.
        first: PathText,
    },
    /// An entry that was not copied.
    Failed,
}

impl RecordedEntry {
    pub(super) fn from_record(record: ManifestRecord<'_>) -> Self {
        match record {
            ManifestRecord::File {
                size,
                hash,
                mtime,
                parts,
            } => Self::File {
                size,
                blake3: *hash,
                mtime,
                parts: FileParts::new(parts, size),
            },
            ManifestRecord::Unchanged { size, mtime } => Self::Unchanged { size, mtime },
            ManifestRecord::Directory => Self::Directory,
            ManifestRecord::Symlink { target } => Self::Symlink {
                target: PathText(target.to_vec()),
            },
            ManifestRecord::Special(special) => Self::Special {
                special: special.kind as u8,
                device: special.device,
            },
            ManifestRecord::HardLink { size, source, path } => Self::HardLink {
                size,
                first_source: source,
                first: PathText(path.as_bytes().to_vec()),
            },
            ManifestRecord::Failed => Self::Failed,
        }
    }

    /// Passes the record to `take`. Returns `None` if a path is not plain, or a kind is unknown.
    pub(super) fn with_record<T>(&self, take: impl FnOnce(ManifestRecord<'_>) -> T) -> Option<T> {
        const NO_PARTS: &[Subtree] = &[];
        Some(match self {
            Self::File {
                size,
                blake3,
                mtime,
                ..
            } => take(ManifestRecord::File {
                size: *size,
                hash: blake3,
                mtime: *mtime,
                parts: NO_PARTS,
            }),
            Self::Unchanged { size, mtime } => take(ManifestRecord::Unchanged {
                size: *size,
                mtime: *mtime,
            }),
            Self::Directory => take(ManifestRecord::Directory),
            Self::Symlink { target } => take(ManifestRecord::Symlink { target: &target.0 }),
            Self::Special { special, device } => take(ManifestRecord::Special(SpecialFile {
                kind: SpecialKind::from_repr(*special)?,
                device: *device,
            })),
            Self::HardLink {
                size,
                first_source,
                first,
            } => {
                let path = RelPath::from_bytes(&first.0).ok()?;
                take(ManifestRecord::HardLink {
                    size: *size,
                    source: *first_source,
                    path: &path,
                })
            }
            Self::Failed => take(ManifestRecord::Failed),
        })
    }
}

/// The line after the entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceiptEnd {
    /// Number of entries.
    pub entries: u64,
    /// Hash over all of them (LH-COPY-26).
    #[serde(with = "hex")]
    pub manifest: Hash,
    /// The client's clock at the end of the copy, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Key of the client, which signs the next line.
    pub client: String,
    /// The server's statement. Absent if the copy had no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerLine>,
}

/// The server's statement in the line after the entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServerLine {
    key: String,
    client: String,
    time_ms: u64,
    #[serde(with = "base64")]
    signature: Vec<u8>,
}

impl ServerLine {
    pub(super) fn new(receipt: &ServerReceipt) -> Self {
        Self {
            key: receipt.key.to_string(),
            client: receipt.client.to_string(),
            time_ms: receipt.time_ms,
            signature: receipt.signature.to_vec(),
        }
    }

    /// Returns the statement. `None` if a key or the signature has another form.
    pub(super) fn receipt(&self) -> Option<ServerReceipt> {
        Some(ServerReceipt {
            key: self.key.parse::<PublicKey>().ok()?,
            client: self.client.parse::<PublicKey>().ok()?,
            time_ms: self.time_ms,
            signature: self.signature.as_slice().try_into().ok()?,
        })
    }
}

/// The last line: the client's signature over the BLAKE3 hash of all lines before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClientSignature {
    #[serde(with = "base64")]
    pub client_signature: Vec<u8>,
}

/// Beginning of what a client signs.
const CLIENT_CONTEXT: &[u8] = b"longhaul receipt of a client 1\0";

/// Returns what the client signs, given the hash of all lines before.
pub(super) fn client_statement(lines: &blake3::Hash) -> Vec<u8> {
    [CLIENT_CONTEXT, lines.as_bytes()].concat()
}
