//! Lists a directory of any length in the order of its names, in bounded memory.
//!
//! A directory has no order of its own, and sorting a million names takes memory for a million.
//! Instead, one pass keeps as many of the smallest names behind the last listed one as fit. Pages
//! are cut from these, and when they are used up, another pass follows. A name that is created or
//! removed meanwhile may or may not be reported; every other one is reported once.

use std::collections::{BinaryHeap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use longhaul_platform::fs::{self, Stat};

use super::message::{EntryKind, FilesFailure, ListingEntry, PathBytes};
use crate::path::RelPath;
use crate::store::confine::{Dir, NodeKind, kind_of};

/// Maximum number of entries in one response (LH-FILES-7).
pub const MAX_ENTRIES_PER_PAGE: usize = 5000;
/// Maximum number of bytes of names and link targets in one response. The last entry may exceed it.
const MAX_PAGE_BYTES: usize = 256 << 10;
/// Memory for the names of one pass, in bytes (LH-FILES-7).
pub(crate) const MAX_KEPT_BYTES: usize = 4 << 20;
/// Memory overhead of a name, in bytes.
const NAME_OVERHEAD_BYTES: usize = 48;

/// The smallest names behind a given one, as many as fit.
#[derive(Debug)]
struct SmallestNames<'a> {
    after: Option<&'a [u8]>,
    names: BinaryHeap<Vec<u8>>,
    bytes: usize,
    max_bytes: usize,
    /// True if some names did not fit.
    is_cut: bool,
}

impl<'a> SmallestNames<'a> {
    fn new(after: Option<&'a [u8]>, max_bytes: usize) -> Self {
        Self {
            after,
            names: BinaryHeap::new(),
            bytes: 0,
            max_bytes,
            is_cut: false,
        }
    }

    fn offer(&mut self, name: &[u8]) {
        if self.after.is_some_and(|after| name <= after) {
            return;
        }
        // Once a name did not fit, larger ones do not fit either.
        if self.is_cut && self.names.peek().is_some_and(|largest| name > &largest[..]) {
            return;
        }
        self.bytes += name.len() + NAME_OVERHEAD_BYTES;
        self.names.push(name.to_vec());
        while self.bytes > self.max_bytes && self.names.len() > 1 {
            if let Some(largest) = self.names.pop() {
                self.bytes -= largest.len() + NAME_OVERHEAD_BYTES;
                self.is_cut = true;
            }
        }
    }
}

/// Names that a pass found and no page has listed yet.
#[derive(Debug, Default)]
struct PassNames {
    path: RelPath,
    /// Last name that was listed, or `None` before the first.
    reported: Option<Vec<u8>>,
    names: VecDeque<Vec<u8>>,
    /// True if there are more names behind the last of these.
    is_cut: bool,
}

/// Pages of directories. It remembers where the last page ended, so that the next one needs no pass
/// of its own.
#[derive(Debug, Default)]
pub struct Listing(Option<PassNames>);

impl Listing {
    /// Returns true if a page needs a pass over the directory, and the memory for it.
    pub(crate) fn needs_pass(&self, path: &RelPath, after: Option<&[u8]>) -> bool {
        !self.continues_at(path, after)
    }

    /// Returns the number of bytes held.
    pub(crate) fn kept_bytes(&self) -> usize {
        let names = self.0.iter().flat_map(|kept| &kept.names);
        names.map(|name| name.len() + NAME_OVERHEAD_BYTES).sum()
    }

    fn continues_at(&self, path: &RelPath, after: Option<&[u8]>) -> bool {
        self.0.as_ref().is_some_and(|kept| {
            let more = !kept.names.is_empty() || !kept.is_cut;
            after.is_some() && kept.path == *path && kept.reported.as_deref() == after && more
        })
    }

    /// Returns the entries of `dir`, which is at `path`, behind `after`, and the name behind which
    /// there are more. Blocking.
    pub(crate) fn page(
        &mut self,
        dir: &Dir,
        path: &RelPath,
        after: Option<&[u8]>,
        limit: Option<u32>,
    ) -> Result<(Vec<ListingEntry>, Option<PathBytes>), FilesFailure> {
        let limit = limit.map_or(MAX_ENTRIES_PER_PAGE, |limit| limit as usize);
        let limit = limit.clamp(1, MAX_ENTRIES_PER_PAGE);
        if !self.continues_at(path, after) {
            self.0 = None;
            self.0 = Some(pass(dir, path, after)?);
        }
        let kept = self.0.get_or_insert_default();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < limit && bytes < MAX_PAGE_BYTES {
            let Some(name) = kept.names.pop_front() else {
                break;
            };
            // An entry that vanished since the pass is skipped.
            if let Some(entry) = stat_entry(dir, &name) {
                bytes += name.len() + entry.target.as_ref().map_or(0, |target| target.0.len());
                entries.push(entry);
            }
            kept.reported = Some(name);
        }
        let more = kept.is_cut || !kept.names.is_empty();
        let next = kept.reported.clone().filter(|_| more).map(PathBytes);
        if next.is_none() {
            self.0 = None;
        }
        Ok((entries, next))
    }
}

fn pass(dir: &Dir, path: &RelPath, after: Option<&[u8]>) -> Result<PassNames, FilesFailure> {
    let failed = |errno| FilesFailure::from_errno(errno, &PathBytes(path.as_bytes().to_vec()));
    let mut smallest = SmallestNames::new(after, MAX_KEPT_BYTES);
    for found in dir.entries().map_err(failed)? {
        let found = found.map_err(failed)?;
        let name = found.file_name().to_bytes();
        if name != b"." && name != b".." {
            smallest.offer(name);
        }
    }
    let is_cut = smallest.is_cut;
    Ok(PassNames {
        path: path.clone(),
        reported: after.map(<[u8]>::to_vec),
        names: smallest.names.into_sorted_vec().into(),
        is_cut,
    })
}

fn stat_entry(dir: &Dir, name: &[u8]) -> Option<ListingEntry> {
    let stat = dir.stat_name(OsStr::from_bytes(name)).ok()?;
    let mut found = entry(PathBytes(name.to_vec()), &stat);
    if found.kind == EntryKind::Symlink {
        let target = fs::readlinkat(dir, OsStr::from_bytes(name), Vec::new()).ok();
        found.target = target.map(|target| PathBytes(target.into_bytes()));
    }
    Some(found)
}

/// Converts the metadata of an entry. The target of a link is read separately.
pub(super) fn entry(name: PathBytes, stat: &Stat) -> ListingEntry {
    let kind = match kind_of(stat) {
        NodeKind::File => EntryKind::File,
        NodeKind::Directory => EntryKind::Directory,
        NodeKind::Symlink => EntryKind::Symlink,
        NodeKind::Other => EntryKind::Other,
    };
    ListingEntry {
        name,
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified: stat.st_mtime,
        nanoseconds: u32::try_from(stat.st_mtime_nsec).ok(),
        target: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Passes with room for a few names each report all names once and in order.
        #[test]
        fn lh_files_7_passes_with_little_room_report_every_name_once(
            names in prop::collection::btree_set("[a-f]{1,4}", 0..60),
            shuffle in any::<prop::sample::Index>(),
            room in 1usize..400,
        ) {
            let mut order: Vec<&String> = names.iter().collect();
            if !order.is_empty() {
                let middle = shuffle.index(order.len());
                order.rotate_left(middle);
            }
            let (mut reported, mut after): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
            loop {
                let mut smallest = SmallestNames::new(after.as_deref(), room);
                for name in &order {
                    smallest.offer(name.as_bytes());
                    prop_assert!(smallest.bytes <= room.max(NAME_OVERHEAD_BYTES + 4));
                }
                let is_cut = smallest.is_cut;
                reported.extend(smallest.names.into_sorted_vec());
                after = reported.last().cloned();
                if !is_cut {
                    break;
                }
            }
            let expected: Vec<Vec<u8>> =
                names.iter().map(|name| name.clone().into_bytes()).collect();
            prop_assert_eq!(reported, expected);
        }
    }

    #[test]
    fn pages_continue_whatever_is_requested_in_between() {
        let tmp = tempfile::tempdir().unwrap();
        for n in 0..250 {
            std::fs::write(tmp.path().join(format!("f{n:03}")), "x").unwrap();
        }
        let dir = Dir::open(tmp.path()).unwrap();
        let mut listing = Listing::default();
        let (mut reported, mut after) = (Vec::new(), None::<PathBytes>);
        loop {
            let after_bytes = after.as_ref().map(|after| &after.0[..]);
            let root = RelPath::root();
            let (entries, next) = listing.page(&dir, &root, after_bytes, Some(40)).unwrap();
            reported.extend(entries.into_iter().map(|entry| entry.name));
            if next == Some(PathBytes(b"f079".to_vec())) {
                // A different position, and a name that has vanished.
                listing.page(&dir, &root, Some(b"f200"), Some(1)).unwrap();
                std::fs::remove_file(tmp.path().join("f100")).unwrap();
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        let unique: BTreeSet<_> = reported.iter().collect();
        assert_eq!((reported.len(), unique.len()), (249, 249));
        assert!(reported.is_sorted());
    }
}
