//! Requests and responses about files, without copying them: one line of JSON each (LH-FILES-1).
//!
//! Fields may be added within a version; unknown ones are ignored.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use longhaul_checksum::Algorithm;
use serde::{Deserialize, Serialize};

pub use super::failure::{FilesFailure, FilesFailureKind};
pub use super::path_bytes::PathBytes;
use crate::bearer::BearerToken;

/// Maximum length of a request line, in bytes. Two paths and a name take 12 KiB (LH-FILES-3).
pub const MAX_REQUEST_BYTES: usize = 32 << 10;
/// Maximum length of a response line, in bytes (LH-FILES-3).
pub const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Maximum number of bytes of a file in one response (LH-FILES-13).
pub const MAX_CONTENT_BYTES: usize = 64 << 10;

/// Maximum number of bytes of a range in one response (LH-FILES-16).
pub const MAX_RANGE_BYTES: usize = 512 << 10;

/// The first line of a client (LH-FILES-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesHello {
    /// Lowest version that the client speaks.
    pub lowest: u16,
    /// Highest version that the client speaks.
    pub highest: u16,
    /// Token of the client (LH-FILES-17). Earlier releases ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<BearerToken>,
}

/// A request about files, or to change names. Over ssh, paths are as typed; at a server they are
/// plain, beneath its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "files", rename_all = "snake_case")]
pub enum FilesRequest {
    /// Describe an entry or list a directory. Answered by [`FilesResponse::Entries`].
    Look {
        /// Path of the entry.
        path: PathBytes,
        /// If true and the entry is a directory, list its content. Otherwise describe the entry
        /// itself.
        list: bool,
        /// Only names behind this one, in byte order.
        after: Option<PathBytes>,
        /// Maximum number of entries in the answer. If `None` or too large, a page has the maximum
        /// size.
        #[serde(default)]
        limit: Option<u32>,
    },
    /// Continue the last listing of a directory. Answered by [`FilesResponse::Entries`], which is
    /// empty after the end (LH-FILES-12).
    More {
        /// Maximum number of entries, as in [`FilesRequest::Look`].
        #[serde(default)]
        limit: Option<u32>,
    },
    /// Create a directory. Answered by [`FilesResponse::Changed`], like every change of names.
    MakeDirectory {
        /// Path of the directory.
        path: PathBytes,
        /// If true, also create its parents, and succeed if it exists.
        parents: bool,
    },
    /// Give an entry another name in the same file system.
    Rename {
        /// Current name.
        from: PathBytes,
        /// New name. If it is a directory, the entry is moved into it.
        to: PathBytes,
        /// If true, an existing file may be replaced.
        overwrite: bool,
        /// If true, the directory that loses the entry keeps its modification time. Earlier
        /// releases ignore it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keep_time: bool,
    },
    /// Give a regular file without other names another name, which nothing has. Missing directories
    /// above it are made, and the directory that loses the file keeps its modification time
    /// (LH-FILES-18).
    RenameFile {
        /// Current name.
        from: PathBytes,
        /// New name.
        to: PathBytes,
    },
    /// Remove an entry.
    Remove {
        /// Path of the entry.
        path: PathBytes,
        /// If true, remove a directory with all its content.
        recursive: bool,
        /// If true, the directory that loses the entry keeps its modification time. Earlier
        /// releases ignore it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keep_time: bool,
    },
    /// Read a small file. Answered by [`FilesResponse::Content`] (LH-FILES-13).
    Read {
        /// Path of the file.
        path: PathBytes,
    },
    /// Read a range of a file. Answered by [`FilesResponse::Content`] (LH-FILES-16).
    ReadRange {
        /// Path of the file.
        path: PathBytes,
        /// Offset of the first byte.
        offset: u64,
    },
    /// Compute the checksums of files where they are. Answered by [`FilesResponse::Sums`]
    /// (LH-FILES-14).
    Sum {
        /// Paths of the files, at most [`super::MAX_SUMMED_FILES`].
        paths: Vec<PathBytes>,
        /// The algorithm.
        algorithm: Algorithm,
        /// If true and the algorithm is BLAKE3, also return hashes of parts of large files
        /// (LH-FILES-15).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        coarse: bool,
    },
    /// List what copies left in this directory. Answered by [`FilesResponse::Leftovers`].
    Leftovers {
        /// The directory.
        path: PathBytes,
        /// Only leftovers whose first name is behind this one.
        after: Option<PathBytes>,
        /// If set, remove leftovers that were last written at least this long ago and are not in
        /// use.
        remove_older_than_seconds: Option<u64>,
    },
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "files", rename_all = "snake_case")]
pub enum FilesResponse {
    /// The first line of a server: the version that both speak.
    Ready {
        /// The version.
        version: u16,
    },
    /// The server refuses this client, and closes.
    Refused {
        /// True if the refusal depends on the client's key or token.
        unauthorised: bool,
        /// Reason in one line.
        reason: String,
    },
    /// The answer takes long and will follow.
    Working,
    /// Entries that exist.
    Entries {
        /// Entries in the byte order of their names.
        entries: Vec<ListingEntry>,
        /// If set, there are more entries behind this name.
        next: Option<PathBytes>,
    },
    /// Leftovers of copies in the directory.
    Leftovers {
        /// Leftovers in the order of their first names.
        leftovers: Vec<FoundLeftover>,
        /// If set, there are more leftovers behind this name.
        next: Option<PathBytes>,
    },
    /// Content of a file.
    Content {
        /// At most [`MAX_CONTENT_BYTES`] bytes from its beginning, or [`MAX_RANGE_BYTES`] of a
        /// range.
        content: PathBytes,
        /// True if the file has more.
        is_cut: bool,
    },
    /// Checksums of the first of the files, in the order of the request.
    Sums {
        /// An outcome for each of them.
        sums: Vec<SumOutcome>,
    },
    /// The change was made.
    Changed,
    /// The request failed.
    Failed(FilesFailure),
}

/// One entry of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingEntry {
    /// Name in its directory, or the path as requested if the entry itself was requested.
    pub name: PathBytes,
    /// Kind of entry. A symbolic link is not followed.
    pub kind: EntryKind,
    /// Size of a file, in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time in seconds since 1970-01-01 UTC.
    pub modified: i64,
    /// Nanoseconds of the modification time. Earlier releases do not send them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<u32>,
    /// Target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<PathBytes>,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or FIFO.
    #[serde(other)]
    Other,
}

/// Outcome of computing the checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SumOutcome {
    /// The checksum.
    Sum {
        /// The value, most significant byte first.
        value: PathBytes,
        /// Number of bytes that were read.
        size: u64,
        /// Hashes of parts of the file, if they were requested: BLAKE3 chaining values of 32 bytes
        /// each.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        coarse: Option<PathBytes>,
    },
    /// The file could not be read.
    Failed(FilesFailure),
}

/// Temporary files that belong together and that a copy left in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLeftover {
    /// Their names.
    pub names: Vec<PathBytes>,
    /// Final name of the file, if known.
    pub target: Option<PathBytes>,
    /// Size of the whole file in bytes, if known.
    pub size: Option<u64>,
    /// Bytes from which the same copy would resume.
    pub durable_bytes: u64,
    /// Bytes that they occupy on disk.
    pub disk_bytes: u64,
    /// Seconds since any of them was last written.
    pub age_seconds: u64,
    /// Use of the leftover.
    pub usage: LeftoverUsage,
    /// Outcome of the request for the leftover.
    pub outcome: LeftoverOutcome,
}

/// Use of a leftover, like [`crate::store::journal::LeftoverUse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverUsage {
    /// It is not being written by any copy.
    Idle,
    /// A copy is writing it.
    InUse,
    /// It belongs to another user, or no copy creates such an entry.
    Foreign,
    /// The use is unknown; only its age is an indication.
    #[serde(other)]
    Unknown,
}

/// Outcome for a leftover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverOutcome {
    /// It was removed.
    Removed,
    /// It could not be removed.
    Failed,
    /// It was kept.
    #[serde(other)]
    Kept,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lh_files_1_requests_and_responses_keep_their_form() {
        let ask = FilesRequest::Look {
            path: PathBytes(b"a\xff".to_vec()),
            list: true,
            after: None,
            limit: Some(7),
        };
        let line = serde_json::to_string(&ask).unwrap();
        assert_eq!(
            line,
            r#"{"files":"look","path":"Yf8=","list":true,"after":null,"limit":7}"#
        );
        assert_eq!(serde_json::from_str::<FilesRequest>(&line).unwrap(), ask);
        let later = r#"{"files":"failed","kind":"of_a_later_release","path":"YQ==","more":[1]}"#;
        let failure = FilesFailure::new(FilesFailureKind::Io, &PathBytes(b"a".to_vec()));
        assert_eq!(
            serde_json::from_str::<FilesResponse>(later).unwrap(),
            FilesResponse::Failed(failure)
        );
    }

    #[test]
    fn lh_files_17_first_line_may_have_a_token() {
        let hello = |token| FilesHello {
            lowest: 1,
            highest: 1,
            token,
        };
        let plain = serde_json::to_string(&hello(None)).unwrap();
        assert_eq!(plain, r#"{"lowest":1,"highest":1}"#);
        let with = hello(Some(BearerToken::new("a.b.c").unwrap()));
        let line = serde_json::to_string(&with).unwrap();
        assert_eq!(line, r#"{"lowest":1,"highest":1,"token":"a.b.c"}"#);
        assert_eq!(serde_json::from_str::<FilesHello>(&line).unwrap(), with);
        assert!(!format!("{with:?}").contains("a.b.c"), "it would be logged");
        let bad = r#"{"lowest":1,"highest":1,"token":"a b"}"#;
        assert!(serde_json::from_str::<FilesHello>(bad).is_err());
    }

    proptest! {
        #[test]
        fn paths_of_any_bytes_travel(bytes: Vec<u8>) {
            let line = serde_json::to_string(&PathBytes(bytes.clone())).unwrap();
            prop_assert_eq!(serde_json::from_str::<PathBytes>(&line).unwrap(), PathBytes(bytes));
        }
    }
}
