//! What is asked of files without copying them, and what is answered: one line of JSON each
//! (LH-FILES-1).
//!
//! Fields may be added within a version; unknown ones are passed over.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use super::failure::{FilesFailure, FilesFailureKind};

/// Longest line that asks, in bytes: two paths and a name take 12 KiB (LH-FILES-3).
pub const MAX_ASK_BYTES: usize = 32 << 10;
/// Longest line that answers, in bytes (LH-FILES-3).
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The first line of a client (LH-FILES-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesHello {
    /// The lowest version that it speaks.
    pub lowest: u16,
    /// The highest.
    pub highest: u16,
}

/// A question about files, or a change of names. Over ssh, paths are as typed; at a server they are
/// plain, beneath its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "files", rename_all = "snake_case")]
pub enum FilesAsk {
    /// What is there? Answered by [`FilesAnswer::Entries`].
    Look {
        /// Where.
        path: PathBytes,
        /// Of a directory, what is in it; otherwise the entry itself.
        list: bool,
        /// Only names behind this one, in the order of their bytes.
        after: Option<PathBytes>,
        /// Entries in the answer, at most; a page as large as allowed if it is none, or more than
        /// that.
        #[serde(default)]
        limit: Option<u32>,
    },
    /// What follows what was listed of a directory last? Answered by [`FilesAnswer::Entries`], with
    /// none after its end (LH-FILES-12).
    More {
        /// As in [`FilesAsk::Look`].
        #[serde(default)]
        limit: Option<u32>,
    },
    /// Make a directory. Answered by [`FilesAnswer::Changed`], as all that changes names.
    MakeDirectory {
        /// Where.
        path: PathBytes,
        /// Also those above it, and it is no error if it is there.
        parents: bool,
    },
    /// Give an entry another name in the same file system.
    Rename {
        /// Its name.
        from: PathBytes,
        /// The new one; within it if it is a directory.
        to: PathBytes,
        /// A file there may be replaced.
        overwrite: bool,
    },
    /// Remove an entry.
    Remove {
        /// Which.
        path: PathBytes,
        /// A directory goes with all it holds.
        recursive: bool,
    },
    /// What did copies leave in this directory? Answered by [`FilesAnswer::Leftovers`].
    Leftovers {
        /// The directory.
        path: PathBytes,
        /// Only those whose first name is behind this one.
        after: Option<PathBytes>,
        /// Those that nobody has written to for so many seconds, and nobody uses, are removed.
        remove_older_than_seconds: Option<u64>,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "files", rename_all = "snake_case")]
pub enum FilesAnswer {
    /// The first line of a server: the version that both speak.
    Ready {
        /// It.
        version: u16,
    },
    /// The server has nothing to say to this client, and closes.
    Refused {
        /// It is a question of who asks.
        unauthorised: bool,
        /// Why, in one line.
        reason: String,
    },
    /// The answer takes long and is still to come.
    Working,
    /// What is there.
    Entries {
        /// In the order of their names' bytes.
        entries: Vec<Entry>,
        /// There are others behind this name.
        next: Option<PathBytes>,
    },
    /// What copies left there.
    Leftovers {
        /// In the order of their first names.
        leftovers: Vec<FoundLeftover>,
        /// There are others behind this name.
        next: Option<PathBytes>,
    },
    /// It has been done.
    Changed,
    /// It has not.
    Failed(FilesFailure),
}

/// One entry of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name in its directory; as it was asked for if it was asked for itself.
    pub name: PathBytes,
    /// What it is. A symbolic link is itself.
    pub kind: EntryKind,
    /// Bytes, of a file.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time in seconds since 1970-01-01 UTC.
    pub modified: i64,
    /// What a symbolic link leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<PathBytes>,
}

/// Kinds of entries.
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

/// Temporary files that belong together and that a copy left in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLeftover {
    /// What they are called.
    pub names: Vec<PathBytes>,
    /// The name that the file was to have, if that is known.
    pub target: Option<PathBytes>,
    /// Bytes of the whole file, if that is known.
    pub size: Option<u64>,
    /// Bytes that the same copy would go on from.
    pub durable_bytes: u64,
    /// Bytes that they take on the disk.
    pub disk_bytes: u64,
    /// Seconds since any of them was last written.
    pub age_seconds: u64,
    /// Whether anybody needs them.
    pub usage: LeftoverUsage,
    /// What became of them.
    pub outcome: LeftoverOutcome,
}

/// Whether anybody still needs a leftover, as [`crate::store::journal::LeftoverUse`] has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverUsage {
    /// No copy is writing it.
    Idle,
    /// A copy is writing it.
    InUse,
    /// It is not this user's, or nothing that a copy makes.
    Foreign,
    /// It cannot be known; only its age says something.
    #[serde(other)]
    Unknown,
}

/// What became of a leftover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverOutcome {
    /// It was removed.
    Removed,
    /// It could not be removed.
    Failed,
    /// It was left alone.
    #[serde(other)]
    Kept,
}

/// A path: bytes, in Base64 (RFC 4648, section 4).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PathBytes(pub Vec<u8>);

impl Serialize for PathBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PathBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text.as_bytes());
        bytes.map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lh_files_1_questions_and_answers_keep_their_form() {
        let ask = FilesAsk::Look {
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
        assert_eq!(serde_json::from_str::<FilesAsk>(&line).unwrap(), ask);
        let later = r#"{"files":"failed","kind":"of_a_later_release","path":"YQ==","more":[1]}"#;
        let failure = FilesFailure::new(FilesFailureKind::Io, &PathBytes(b"a".to_vec()));
        assert_eq!(
            serde_json::from_str::<FilesAnswer>(later).unwrap(),
            FilesAnswer::Failed(failure)
        );
    }

    proptest! {
        #[test]
        fn paths_of_any_bytes_travel(bytes: Vec<u8>) {
            let line = serde_json::to_string(&PathBytes(bytes.clone())).unwrap();
            prop_assert_eq!(serde_json::from_str::<PathBytes>(&line).unwrap(), PathBytes(bytes));
        }
    }
}
