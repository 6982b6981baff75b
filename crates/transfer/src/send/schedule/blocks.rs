//! An open file that goes in blocks: what of it is still to be handed out, and the tree of its hash.

use std::collections::VecDeque;

use crate::tree_hash::{BlockHash, Hash, TreeHash};

/// Bytes of memory that an open file takes, and each separate run of its blocks that have been read.
const OPEN_FILE_BYTES: u64 = 256;
const RUN_BYTES: u64 = 112;

/// A range of a file, in bytes: from `start`, a multiple of the block size, up to `end`, another one or the file's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub start: u64,
    pub end: u64,
}

/// See the module.
pub(super) struct Blocks {
    size: u64,
    block_log2: u32,
    /// What no stream has taken yet, in order.
    unsent: VecDeque<Extent>,
    tree: TreeHash,
}

impl Blocks {
    /// A file of `size` bytes in blocks of `1 << block_log2` bytes, all of it to be sent.
    pub(super) fn new(size: u64, block_log2: u32) -> Self {
        let whole = (size > 0).then_some(Extent { start: 0, end: size });
        Self {
            size,
            block_log2,
            unsent: whole.into_iter().collect(),
            tree: TreeHash::new(size, block_log2),
        }
    }

    /// Takes the next block: its offset.
    pub(super) fn take(&mut self) -> Option<u64> {
        let extent = self.unsent.front_mut()?;
        let offset = extent.start;
        extent.start = extent.start.saturating_add(1 << self.block_log2);
        if extent.start >= extent.end {
            self.unsent.pop_front();
        }
        Some(offset)
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Bytes of the block at `offset`.
    pub(super) fn len_at(&self, offset: u64) -> u64 {
        (1 << self.block_log2).min(self.size.saturating_sub(offset))
    }

    /// The block at `offset` has been read; again changes nothing. The hash of the file once all of it has been.
    pub(super) fn read(&mut self, offset: u64, hash: BlockHash) -> Option<Hash> {
        self.tree.insert(offset, hash);
        self.tree.root()
    }

    /// Whether the block at `offset` has been read.
    pub(super) fn was_read(&self, offset: u64) -> bool {
        self.tree.covers(offset)
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        OPEN_FILE_BYTES + self.tree.held() as u64 * RUN_BYTES
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    #[cfg(test)]
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.unsent.iter().map(|extent| extent.end - extent.start).sum()
    }
}
