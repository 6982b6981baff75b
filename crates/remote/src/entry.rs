//! What a far side is asked of files without copying them, and what it tells of each.

use serde::{Deserialize, Serialize};

use crate::message::PathBytes;

/// A question about files, or a change of names. Paths are as typed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "files", rename_all = "snake_case")]
pub enum FilesAsk {
    /// What is there?
    Look {
        /// Where.
        path: PathBytes,
        /// Of a directory, what is in it; otherwise the entry itself.
        list: bool,
        /// Only names behind this one, in the order of their bytes.
        after: Option<PathBytes>,
    },
    /// Make a directory.
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
}

/// One entry of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name in its directory; as typed if it was asked for itself.
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
    Other,
}
