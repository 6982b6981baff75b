//! A walk that takes only the files of one part (LH-COPY-49).

use longhaul_platform::fs::Stat;

use crate::account::ResourcePermit;
use crate::part::PartFilter;
use crate::path::RelPath;
use crate::send::schedule::{FoundEntry, SourceInode};
use crate::send::walk::WalkSink;
use crate::store::confine::{Dir, DirectoryNames, NodeKind};
use crate::wire::Meta;

/// Passes the files of the part to `sink`. Directories, links, and unreadable entries are left to
/// the copy after the parts, which reports each of them once.
pub(super) struct PartFilterSink<'a> {
    pub filter: PartFilter,
    pub sink: &'a dyn WalkSink,
}

impl WalkSink for PartFilterSink<'_> {
    fn hold(&self) -> Option<ResourcePermit> {
        self.sink.hold()
    }

    fn wants(&self, source: u32, path: &RelPath, kind: NodeKind) -> bool {
        kind == NodeKind::File && self.filter.may_take(source, path)
    }

    fn takes(&self, source: u32, path: &RelPath, stat: &Stat) -> bool {
        self.sink.takes(source, path, stat)
    }

    fn enter(&self, source: u32, path: &RelPath, dir: &Dir, names: &DirectoryNames) -> bool {
        self.sink.enter(source, path, dir, names)
    }

    fn note_stat(&self, stat: &Stat) {
        self.sink.note_stat(stat);
    }

    fn found(&self, source: u32, path: RelPath, meta: Meta, found: FoundEntry) -> bool {
        match found {
            FoundEntry::File { .. } if self.filter.part.contains(source, &path) => {
                self.sink.found(source, path, meta, found)
            }
            _ => true,
        }
    }

    fn is_over(&self) -> bool {
        self.sink.is_over()
    }

    fn found_linked(
        &self,
        source: u32,
        path: RelPath,
        meta: Meta,
        size: u64,
        (inode, names): (SourceInode, u64),
    ) -> bool {
        // The device is omitted, as each host numbers its devices differently.
        let is_taken = match self.filter.links_together {
            true => self.filter.part.contains_inode(inode.number),
            false => self.filter.part.contains(source, &path),
        };
        !is_taken
            || self
                .sink
                .found_linked(source, path, meta, size, (inode, names))
    }
}
