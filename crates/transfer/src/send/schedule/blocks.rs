//! An open file that is sent in blocks: the blocks that no stream has taken, and the hash tree.

use std::collections::BTreeMap;

use crate::late_size::{EXPECTED_BYTES, LATE_SIZE, is_late};
use crate::tree_hash::{BlockHash, Hash, Subtree, TreeHash};

/// Memory of an open file, and of each separate run of its blocks that have been read or are still
/// to be sent, in bytes.
const OPEN_FILE_BYTES: u64 = 256;
const RUN_BYTES: u64 = 112;
/// Maximum number of separate runs of blocks that a receiver may report. More of what it has
/// travels again (LH-COPY-36).
const MAX_RUNS: usize = 64 * 1024;

/// The blocks of one open file.
pub(super) struct Blocks {
    size: u64,
    block_log2: u32,
    /// Ranges that no stream has taken yet: ends by starts, in bytes. Each begins at a multiple of
    /// the block size, and ends at another one or with the file.
    unsent: BTreeMap<u64, u64>,
    /// Sum of the ranges.
    unsent_bytes: u64,
    /// True if the file had a late size when it was opened.
    has_late_size: bool,
    /// Bytes of a file of late size that could be sent so far.
    available: u64,
    tree: TreeHash,
    /// Bytes that the receiver had from an earlier copy, as reported so far.
    resumed: u64,
    /// True once the receiver has reported everything.
    is_resumed: bool,
    /// Number of blocks taken before the receiver's first answer about the file, of which it may
    /// have a part. `None` after the answer, or if it has nothing.
    taken_before_answer: Option<usize>,
}

impl Blocks {
    /// Creates the blocks of a file of `size` bytes in blocks of `1 << block_log2` bytes, all to be
    /// sent. If `may_have`, the receiver may have a part of it.
    pub(super) fn new(size: u64, block_log2: u32, may_have: bool) -> Self {
        let whole = (size > 0).then_some((0, size));
        Self {
            size,
            block_log2,
            unsent: whole.into_iter().collect(),
            unsent_bytes: size,
            has_late_size: false,
            available: 0,
            tree: TreeHash::new(size, block_log2),
            resumed: 0,
            is_resumed: false,
            taken_before_answer: may_have.then_some(0),
        }
    }

    /// Creates the blocks of a file of late size. Nothing can be sent before [`Self::grow`].
    pub(super) fn late(block_log2: u32) -> Self {
        Self {
            size: LATE_SIZE,
            has_late_size: true,
            tree: TreeHash::new(LATE_SIZE, block_log2),
            ..Self::new(0, block_log2, false)
        }
    }

    /// Adds the blocks of a file of late size up to `available`, in bytes. If `is_whole`, that is
    /// the size of the file. Any other file has all of its blocks.
    pub(super) fn grow(&mut self, available: u64, is_whole: bool) {
        if !self.has_late_size {
            return;
        }
        let from = self.available;
        self.available = available.max(from);
        if from < self.available {
            // A range that ends there goes on.
            let last = self.unsent.last_key_value();
            let start = last.filter(|(_, end)| **end == from);
            let start = start.map_or(from, |(start, _)| *start);
            self.unsent.insert(start, self.available);
            self.unsent_bytes += self.available - from;
        }
        if is_whole && is_late(self.size) {
            self.size = available;
            let empty = TreeHash::new(available, self.block_log2);
            self.tree = std::mem::replace(&mut self.tree, empty).with_size(available);
        }
    }

    /// Returns true if the file had a late size when it was opened.
    pub(super) fn has_late_size(&self) -> bool {
        self.has_late_size
    }

    /// Keeps the coarse subtrees of the file from now on.
    pub(super) fn keep_coarse(&mut self) {
        self.tree = TreeHash::new(self.size, self.block_log2).keeping_coarse();
    }

    /// Returns the coarse subtrees that were kept. See [`TreeHash::coarse`].
    pub(super) fn coarse(&self) -> &[Subtree] {
        self.tree.coarse()
    }

    /// Takes the next block, and returns its offset.
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

    /// Returns the next block: the first one, or the last one until the receiver has answered. What
    /// an interrupted copy left is usually the beginning.
    fn next(&self) -> Option<u64> {
        let (&first, _) = self.unsent.first_key_value()?;
        if self.taken_before_answer.is_none() || first == 0 {
            return Some(first);
        }
        let (&start, &end) = self.unsent.last_key_value()?;
        let last = (end.saturating_sub(1) >> self.block_log2) << self.block_log2;
        Some(last.max(start))
    }

    /// Notes that the receiver has reported what it has, or has written a block. Returns true the
    /// first time.
    pub(super) fn answered(&mut self) -> bool {
        self.taken_before_answer.take().is_some()
    }

    /// Returns the number of blocks taken before the receiver's first answer, or 0 after it.
    pub(super) fn taken_before_answer(&self) -> usize {
        self.taken_before_answer.unwrap_or(0)
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns the number of bytes that no stream has taken yet. Those that are expected of a file
    /// of late size count, so that it seems to end only when it does.
    pub(super) fn unsent_bytes(&self) -> u64 {
        match is_late(self.size) {
            true => self.unsent_bytes.saturating_add(EXPECTED_BYTES),
            false => self.unsent_bytes,
        }
    }

    /// Returns true while the receiver may have a part of the file and has not answered.
    pub(super) fn awaits_answer(&self) -> bool {
        self.taken_before_answer.is_some()
    }

    /// Returns the offset of the next block.
    pub(super) fn next_offset(&self) -> Option<u64> {
        self.next()
    }

    /// Returns the number of blocks from the one at `first` up to the one at `next`, or 0 if `next`
    /// is not behind `first`.
    pub(super) fn count_between(&self, first: u64, next: u64) -> u64 {
        next.saturating_sub(first) >> self.block_log2
    }

    /// Returns the size of the next block.
    pub(super) fn next_len(&self) -> u64 {
        self.next().map_or(0, |offset| self.len_at(offset))
    }

    /// Returns the size of the block at `offset`.
    pub(super) fn len_at(&self, offset: u64) -> u64 {
        (1 << self.block_log2).min(self.size.saturating_sub(offset))
    }

    /// Notes that the block at `offset` has been read; a repetition changes nothing. Returns the
    /// hash of the file once all of it has been read.
    pub(super) fn read(&mut self, offset: u64, hash: BlockHash) -> Option<Hash> {
        self.tree.insert(offset, hash);
        self.tree.root()
    }

    /// Notes that the receiver has this part of the file, so that it need be neither sent nor read.
    /// Returns the number of bytes that had not been taken, or `None` if the file has no such part.
    pub(super) fn mark_present(&mut self, subtree: Subtree) -> Option<u64> {
        if self.tree.subtree_count() > MAX_RUNS {
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
        self.resumed = self.resumed.saturating_add(end - start);
        Some(bytes)
    }

    /// Notes that the receiver has reported everything. Returns the number of bytes that it had,
    /// the first time.
    pub(super) fn reported_all(&mut self) -> Option<u64> {
        let first = !std::mem::replace(&mut self.is_resumed, true);
        (first && self.resumed > 0).then_some(self.resumed.min(self.size))
    }

    /// Returns the hash of the file, once all of it has been read or is in place at the receiver.
    pub(super) fn root(&self) -> Option<Hash> {
        self.tree.root()
    }

    /// Returns true if the block at `offset` has been read.
    pub(super) fn was_read(&self, offset: u64) -> bool {
        self.tree.covers(offset)
    }

    /// Returns the size of the file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the memory that it uses, in bytes.
    pub(super) fn memory(&self) -> u64 {
        OPEN_FILE_BYTES + (self.tree.subtree_count() + self.unsent.len()) as u64 * RUN_BYTES
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
    fn blocks_come_from_the_end_until_the_receiver_answers() {
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
