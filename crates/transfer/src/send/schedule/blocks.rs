//! An open file that goes in blocks: what of it is still to be handed out, and the tree of its
//! hash.

use std::collections::BTreeMap;

use crate::tree_hash::{BlockHash, Hash, Subtree, TreeHash};

/// Bytes of memory that an open file takes, and each separate run of its blocks that have been
/// read, or are still to be sent.
const OPEN_FILE_BYTES: u64 = 256;
const RUN_BYTES: u64 = 112;
/// Separate runs of blocks that a receiver may report; more of what it has travels again
/// (LH-COPY-36).
const MAX_RUNS: usize = 64 * 1024;

/// See the module.
pub(super) struct Blocks {
    size: u64,
    block_log2: u32,
    /// What no stream has taken yet: ends by starts, in bytes. Each begins at a multiple of the
    /// block size, and ends at another one or with the file.
    unsent: BTreeMap<u64, u64>,
    /// The sum of that.
    unsent_bytes: u64,
    tree: TreeHash,
    /// Bytes that the receiver had from an earlier copy, as far as it has reported them.
    resumed: u64,
    /// It has reported all.
    is_resumed: bool,
    /// Blocks taken while it may have some of the file and has not answered for anything: what it
    /// has, or a block. None once it has, or has nothing.
    taken_before_answer: Option<usize>,
}

impl Blocks {
    /// A file of `size` bytes in blocks of `1 << block_log2` bytes, all of it to be sent; the
    /// receiver `may_have` some of it.
    pub(super) fn new(size: u64, block_log2: u32, may_have: bool) -> Self {
        let whole = (size > 0).then_some((0, size));
        Self {
            size,
            block_log2,
            unsent: whole.into_iter().collect(),
            unsent_bytes: size,
            tree: TreeHash::new(size, block_log2),
            resumed: 0,
            is_resumed: false,
            taken_before_answer: may_have.then_some(0),
        }
    }

    /// Takes the next block: its offset.
    pub(super) fn take(&mut self) -> Option<u64> {
        let offset = self.next()?;
        let (&start, &end) = self.unsent.range(..=offset).next_back()?;
        let next = offset.saturating_add(1 << self.block_log2);
        self.unsent.remove(&start);
        if start < offset {
            self.unsent.insert(start, offset);
        }
        if next < end {
            self.unsent.insert(next, end);
        }
        self.unsent_bytes -= end.min(next) - offset;
        if let Some(taken) = &mut self.taken_before_answer {
            *taken += 1;
        }
        Some(offset)
    }

    /// The block that is taken next: the first one; but the last one until the receiver has
    /// answered, since what it has of a copy that broke off is the beginning.
    fn next(&self) -> Option<u64> {
        let (&first, _) = self.unsent.first_key_value()?;
        if self.taken_before_answer.is_none() || first == 0 {
            return Some(first);
        }
        let (&start, &end) = self.unsent.last_key_value()?;
        let last = (end.saturating_sub(1) >> self.block_log2) << self.block_log2;
        Some(last.max(start))
    }

    /// The receiver has said what it has, or has written a block. Whether that is the first that is
    /// known of it.
    pub(super) fn answered(&mut self) -> bool {
        self.taken_before_answer.take().is_some()
    }

    /// Blocks taken before that, while it may have them.
    pub(super) fn taken_before_answer(&self) -> usize {
        self.taken_before_answer.unwrap_or(0)
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Bytes that no stream has taken yet.
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Returns true while the receiver may have some of the file and has said nothing of it.
    pub(super) fn awaits_answer(&self) -> bool {
        self.taken_before_answer.is_some()
    }

    /// Offset of the block that is taken next.
    pub(super) fn next_offset(&self) -> Option<u64> {
        self.next()
    }

    /// Number of blocks from the one at `first` up to the one at `next`; 0 if that is not behind
    /// it.
    pub(super) fn count_between(&self, first: u64, next: u64) -> u64 {
        next.saturating_sub(first) >> self.block_log2
    }

    /// Bytes of the block that is taken next.
    pub(super) fn next_len(&self) -> u64 {
        self.next().map_or(0, |offset| self.len_at(offset))
    }

    /// Bytes of the block at `offset`.
    pub(super) fn len_at(&self, offset: u64) -> u64 {
        (1 << self.block_log2).min(self.size.saturating_sub(offset))
    }

    /// The block at `offset` has been read; again changes nothing. The hash of the file once all of
    /// it has been.
    pub(super) fn read(&mut self, offset: u64, hash: BlockHash) -> Option<Hash> {
        self.tree.insert(offset, hash);
        self.tree.root()
    }

    /// The receiver has this part of the file: it need be neither sent nor read. How many bytes of
    /// it had not been handed out; none if the file has no such part.
    pub(super) fn have(&mut self, subtree: Subtree) -> Option<u64> {
        if self.tree.held() > MAX_RUNS {
            return Some(0);
        }
        if !self.tree.insert_subtree(subtree) {
            return None;
        }
        let (start, end) = (subtree.offset, subtree.end(self.size));
        let mut bytes = 0;
        while let Some((&from, &to)) = self
            .unsent
            .range(..end)
            .next_back()
            .filter(|(_, to)| **to > start)
        {
            self.unsent.remove(&from);
            if from < start {
                self.unsent.insert(from, start);
            }
            if to > end {
                self.unsent.insert(end, to);
            }
            bytes += to.min(end) - from.max(start);
        }
        self.unsent_bytes -= bytes;
        self.resumed += end - start;
        Some(bytes)
    }

    /// The receiver has reported all that it had. How many bytes that is, the first time that it is
    /// said.
    pub(super) fn reported_all(&mut self) -> Option<u64> {
        let first = !std::mem::replace(&mut self.is_resumed, true);
        (first && self.resumed > 0).then_some(self.resumed.min(self.size))
    }

    /// The hash of the file, once all of it has been read or is in place at the receiver.
    pub(super) fn root(&self) -> Option<Hash> {
        self.tree.root()
    }

    /// Whether the block at `offset` has been read.
    pub(super) fn was_read(&self, offset: u64) -> bool {
        self.tree.covers(offset)
    }

    /// Bytes of the file.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        OPEN_FILE_BYTES + (self.tree.held() + self.unsent.len()) as u64 * RUN_BYTES
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let bytes: u64 = self.unsent.iter().map(|(start, end)| end - start).sum();
        assert_eq!(self.unsent_bytes, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_the_receiver_has_answered_blocks_come_from_the_end() {
        let mut blocks = Blocks::new(5 * 65536 + 1, 16, true);
        let take = |blocks: &mut Blocks| {
            let len = blocks.next_len();
            let taken = blocks.take().map(|offset| (offset / 65536, len));
            blocks.check();
            taken
        };
        assert_eq!(take(&mut blocks), Some((0, 65536)));
        assert_eq!(take(&mut blocks), Some((5, 1)));
        assert_eq!(take(&mut blocks), Some((4, 65536)));
        blocks.answered();
        let rest: Vec<_> = std::iter::from_fn(|| take(&mut blocks)).collect();
        assert_eq!(rest, [(1, 65536), (2, 65536), (3, 65536)]);
        assert_eq!(blocks.next_len(), 0);
    }
}
