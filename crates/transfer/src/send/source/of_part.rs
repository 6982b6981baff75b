//! A walk that takes only the files of one part (LH-COPY-49).

use rustix::fs::Stat;

use crate::account::Held;
use crate::part::PartFilter;
use crate::path::RelPath;
use crate::send::schedule::{Found, Inode};
use crate::send::walk::WalkSink;
use crate::store::confine::Kind;
use crate::wire::Meta;

/// Passes the files of the part to `sink`. Directories, links, and unreadable entries are left to
/// the copy after the parts, which reports each of them once.
pub(super) struct OfPart<'a> {
    pub filter: PartFilter,
    pub sink: &'a dyn WalkSink,
}

impl WalkSink for OfPart<'_> {
    fn hold(&self) -> Option<Held> {
        self.sink.hold()
    }

    fn wants(&self, source: u32, path: &RelPath, kind: Kind) -> bool {
        kind == Kind::File && self.filter.may_take(source, path)
    }

    fn looked_at(&self, stat: &Stat) {
        self.sink.looked_at(stat);
    }

    fn found(&self, source: u32, path: RelPath, meta: Meta, found: Found) -> bool {
        match found {
            Found::File { .. } if self.filter.part.takes(source, &path) => {
                self.sink.found(source, path, meta, found)
            }
            _ => true,
        }
    }

    fn found_linked(
        &self,
        source: u32,
        path: RelPath,
        meta: Meta,
        size: u64,
        (inode, names): (Inode, u64),
    ) -> bool {
        // The device is omitted, as each host numbers its devices differently.
        let is_taken = match self.filter.links_together {
            true => self.filter.part.takes_inode(inode.number),
            false => self.filter.part.takes(source, &path),
        };
        !is_taken
            || self
                .sink
                .found_linked(source, path, meta, size, (inode, names))
    }
}
