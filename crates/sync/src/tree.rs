//! Listings of trees.

use std::collections::BTreeMap;

/// Entries of a tree by their paths. The root has the empty path, and a directory sorts before its
/// content.
pub type Tree = BTreeMap<Vec<u8>, Node>;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or FIFO, which is not copied.
    Other,
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Kind of the entry.
    pub kind: NodeKind,
    /// Size of a file, in bytes.
    pub bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time.
    pub modified: Modified,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// True if filters of size and time take the entry. One that they do not take is neither copied
    /// nor removed.
    pub is_taken: bool,
    /// True for a directory with entries that filters of names leave out. It is not removed as a
    /// whole.
    pub holds_excluded: bool,
}

/// A modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modified {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds, if the side reports them.
    pub nanoseconds: Option<u32>,
}

impl Modified {
    /// Returns true if the times are equal, as far as both sides report them.
    pub fn is_same(self, other: Self) -> bool {
        self.seconds == other.seconds
            && match (self.nanoseconds, other.nanoseconds) {
                (Some(own), Some(other)) => own == other,
                _ => true,
            }
    }

    /// Returns true if this time is later than the other, as far as both sides report them.
    pub fn is_later(self, other: Self) -> bool {
        match (self.nanoseconds, other.nanoseconds) {
            (Some(own), Some(theirs)) => (self.seconds, own) > (other.seconds, theirs),
            _ => self.seconds > other.seconds,
        }
    }
}

/// Returns the paths of the directories above `path`, from the root down.
pub(crate) fn above(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends: Vec<usize> = ends.map(|(end, _)| end).collect();
    let root = (!path.is_empty()).then_some(0);
    root.into_iter()
        .chain(ends)
        .filter_map(|end| path.get(..end))
}
