//! Files with several names that must stay names of one file at the receiver (LH-COPY-45).
//!
//! The name that is found first is sent like any file. Names that are found later wait until it is
//! in place, and are then announced as links to it. The receiver may still want one as a file. If
//! the first one fails, the next one replaces it. The memory is bounded: beyond the bound, a name
//! is sent as a file of its own.

use std::collections::HashMap;
use std::sync::Arc;

use super::entry::{SourceEntry, SourceName};

/// Memory for files of which not all names have been found, in bytes.
const MAX_LINK_BYTES: u64 = 16 << 20;
/// Memory of such a file besides the path of its first name, in bytes.
const LINKED_FILE_BYTES: u64 = 256;
/// A hash table may be half empty.
const _: () = assert!(
    2 * size_of::<(SourceInode, LinkedFile)>()
        + 2 * size_of::<(u64, SourceInode)>()
        + size_of::<SourceName>()
        <= LINKED_FILE_BYTES as usize
);

/// Identity of a file in the sources' file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SourceInode {
    pub device: u64,
    pub number: u64,
}

/// Files with several names.
#[derive(Default)]
pub(super) struct Links {
    /// True if links are to be kept.
    wanted: bool,
    /// True if the receiver understands HARD_LINK.
    understood: bool,
    /// True if no more names will be found.
    all_found: bool,
    files: HashMap<SourceInode, LinkedFile>,
    /// First names without a result.
    firsts: HashMap<u64, SourceInode>,
    waiting: usize,
    bytes: u64,
}

/// A file of which not all names have been found, or not all may be announced yet.
struct LinkedFile {
    first: Arc<SourceName>,
    is_in_place: bool,
    /// Number of names that have not been found. Some may lie outside the sources.
    to_find: u64,
    /// Names that were found before the first one is in place.
    waiting: Vec<SourceEntry>,
}

impl Links {
    /// Keeps links, if the receiver understands HARD_LINK.
    pub(super) fn enable(&mut self) {
        self.wanted = true;
    }

    /// Notes that the receiver understands HARD_LINK.
    pub(super) fn set_understood(&mut self) {
        self.understood = true;
    }

    /// Returns the number of waiting names.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the memory in bytes, without the waiting names.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a name of a file that has so many `names`. Returns the entry if it may be sent,
    /// otherwise it waits.
    pub(super) fn found(
        &mut self,
        inode: SourceInode,
        names: u64,
        mut entry: SourceEntry,
    ) -> Option<SourceEntry> {
        if !self.wanted {
            return Some(entry);
        }
        let Some(file) = self.files.get_mut(&inode) else {
            let first = name_of(&entry);
            let bytes = bytes_of(&first);
            if self.bytes + bytes <= MAX_LINK_BYTES {
                self.bytes += bytes;
                self.firsts.insert(entry.head.id, inode);
                let file = LinkedFile {
                    first: Arc::new(first),
                    is_in_place: false,
                    to_find: names.saturating_sub(1),
                    waiting: Vec::new(),
                };
                self.files.insert(inode, file);
            }
            return Some(entry);
        };
        file.to_find = file.to_find.saturating_sub(1);
        if !file.is_in_place {
            file.waiting.push(entry);
            self.waiting += 1;
            return None;
        }
        entry.first = Some(file.first.clone());
        self.forget_if_over(inode);
        Some(entry)
    }

    /// Notes the result of an entry. Returns the entries that may be sent now.
    pub(super) fn answered(&mut self, id: u64, is_in_place: bool) -> Vec<SourceEntry> {
        let Some(inode) = self.firsts.remove(&id) else {
            return Vec::new();
        };
        let Some(file) = self.files.get_mut(&inode) else {
            return Vec::new();
        };
        let mut released = std::mem::take(&mut file.waiting);
        if is_in_place && self.understood {
            file.is_in_place = true;
            for entry in &mut released {
                entry.first = Some(file.first.clone());
            }
            self.forget_if_over(inode);
        } else if let Some(next) = released.first().filter(|_| !is_in_place && self.wanted) {
            let first = name_of(next);
            self.bytes = self.bytes - bytes_of(&file.first) + bytes_of(&first);
            file.first = Arc::new(first);
            self.firsts.insert(next.head.id, inode);
            file.waiting = released.split_off(1);
        } else {
            // Without HARD_LINK, each name is a file of its own.
            self.wanted &= !is_in_place;
            self.forget(inode);
        }
        self.waiting -= released.len();
        released
    }

    /// Notes that no more names will be found.
    pub(super) fn all_found(&mut self) {
        self.all_found = true;
        let bytes = &mut self.bytes;
        self.files.retain(|_, file| {
            if file.is_in_place {
                *bytes -= bytes_of(&file.first);
            }
            !file.is_in_place
        });
    }

    fn forget_if_over(&mut self, inode: SourceInode) {
        let is_over = |file: &LinkedFile| file.is_in_place && (self.all_found || file.to_find == 0);
        if self.files.get(&inode).is_some_and(is_over) {
            self.forget(inode);
        }
    }

    fn forget(&mut self, inode: SourceInode) {
        if let Some(file) = self.files.remove(&inode) {
            self.bytes -= bytes_of(&file.first);
        }
    }

    #[cfg(test)]
    pub(super) fn all_waiting(&self) -> impl Iterator<Item = &SourceEntry> {
        self.files.values().flat_map(|file| &file.waiting)
    }
}

fn name_of(entry: &SourceEntry) -> SourceName {
    SourceName {
        source: entry.head.source,
        path: entry.head.path.clone(),
    }
}

fn bytes_of(name: &SourceName) -> u64 {
    LINKED_FILE_BYTES + name.path.as_bytes().len() as u64
}
