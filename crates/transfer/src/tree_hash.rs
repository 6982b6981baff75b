//! BLAKE3 hash of a file whose blocks arrive in any order, over several streams.
//!
//! BLAKE3 is a binary tree over chunks of 1 KiB (BLAKE3 paper, section 2.1). A block of a
//! power-of-two size at a multiple of that size is a whole subtree. Its chaining value can be
//! computed alone, and merged when its sibling is there. The root is the ordinary BLAKE3 hash of
//! the file, as `b3sum` computes it.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::late_size::is_late;

/// A BLAKE3 root hash.
pub type Hash = [u8; 32];

/// Zeros to hash for the holes of a file.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Minimum size of a coarse subtree, as a binary logarithm. Their hashes take half a MiB for a TiB.
const MIN_COARSE_LOG2: u32 = 26;
/// Binary logarithm of the maximum number of coarse subtrees of a file.
const MAX_COARSE_COUNT_LOG2: u32 = 14;

/// Returns the binary logarithm of the size of the coarse subtrees of a file of `size` bytes, whose
/// hashes are kept to find a changed part (LH-FILES-15).
pub fn coarse_log2(size: u64) -> u32 {
    let whole = u64::BITS - size.saturating_sub(1).leading_zeros();
    whole
        .saturating_sub(MAX_COARSE_COUNT_LOG2)
        .max(MIN_COARSE_LOG2)
}

/// Contribution of one block: its subtree's chaining value, or the root hash if the block is the
/// whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHash([u8; 32]);

impl BlockHash {
    /// Creates a hash from its bytes on the wire.
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes on the wire.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the subtree of the block at `offset`. Not for a block that is the whole file, as its
    /// hash is no chaining value.
    pub(crate) fn subtree(self, offset: u64, block_log2: u32) -> Subtree {
        Subtree {
            offset,
            level: block_log2,
            chaining_value: self.0,
        }
    }
}

/// A subtree of a file's BLAKE3 tree, with its hash. It covers the bytes from `offset`:
/// `1 << level` of them, or up to the end of the file. It is never the whole file, as a root is
/// hashed with a flag of its own (BLAKE3 paper, section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subtree {
    /// Offset of its first byte in the file: a multiple of `1 << level`.
    pub offset: u64,
    /// Binary logarithm of the bytes that it covers, unless the file ends before.
    pub level: u32,
    /// The chaining value (BLAKE3 paper, sections 2.4 and 2.5).
    pub chaining_value: ChainingValue,
}

impl Subtree {
    /// Returns the end of its range in a file of `size` bytes.
    pub fn end(&self, size: u64) -> u64 {
        let len = 1u64.checked_shl(self.level).unwrap_or(u64::MAX);
        self.offset.saturating_add(len).min(size)
    }
}

/// Hasher of one block, extent by extent. Holes hash as zeros.
pub(crate) struct BlockHasher {
    hasher: Hasher,
    whole_file: bool,
}

impl BlockHasher {
    /// Creates a hasher for the block at `offset` (a multiple of the block size) of a file of
    /// `size` bytes.
    pub(crate) fn new(offset: u64, len: u64, size: u64) -> Self {
        let mut hasher = Hasher::new();
        if offset != 0 {
            hasher.set_input_offset(offset);
        }
        Self {
            hasher,
            whole_file: len == size,
        }
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        self.hasher.update(data);
    }

    pub(crate) fn update_zeros(&mut self, mut len: u64) {
        while len > 0 {
            let n = len.min(ZEROS.len() as u64);
            self.hasher
                .update(ZEROS.get(..n as usize).unwrap_or(&ZEROS));
            len -= n;
        }
    }

    /// Returns the hash. The block must not be empty, as BLAKE3 has no empty subtree.
    pub(crate) fn finish(self) -> BlockHash {
        if self.whole_file {
            BlockHash(*self.hasher.finalize().as_bytes())
        } else {
            BlockHash(self.hasher.finalize_non_root())
        }
    }
}

/// The hash tree of one file. It remembers which blocks it has seen and merges subtrees where
/// possible. It holds at most one subtree for each run of blocks. Memory therefore grows with how
/// far out of order blocks arrive, not with the file size. While the size is late, it also holds
/// one subtree of each level, as any two that begin the file may be all of it.
#[derive(Debug, Clone)]
pub(crate) struct TreeHash {
    size: u64,
    block_log2: u32,
    /// Level and chaining value by offset. The subtrees are disjoint, and no two of them could be
    /// merged, except for the two halves of the whole file, which are kept.
    subtrees: BTreeMap<u64, (u32, ChainingValue)>,
    /// Subtrees of the level [`coarse_log2`] that were complete, in the order in which they were,
    /// and larger ones that were inserted whole. `None` if they are not kept.
    coarse: Option<Vec<Subtree>>,
    root: Option<Hash>,
}

impl TreeHash {
    /// Creates the tree for a file of `size` bytes in blocks of `1 << block_log2` bytes.
    pub(crate) fn new(size: u64, block_log2: u32) -> Self {
        let root = (size == 0).then(|| *blake3::hash(b"").as_bytes());
        Self {
            size,
            block_log2,
            subtrees: BTreeMap::new(),
            coarse: None,
            root,
        }
    }

    /// Returns the tree of the same file once its size is known, which was late so far. Blocks
    /// beyond that size are dropped.
    #[must_use]
    pub(crate) fn with_size(self, size: u64) -> Self {
        let mut tree = Self::new(size, self.block_log2);
        tree.coarse = self.coarse.is_some().then(Vec::new);
        for subtree in self.subtrees() {
            tree.insert_subtree(subtree);
        }
        tree
    }

    /// Keeps the coarse subtrees that are completed from now on.
    #[must_use]
    pub(crate) fn keeping_coarse(self) -> Self {
        Self {
            coarse: Some(Vec::new()),
            ..self
        }
    }

    /// Returns the coarse subtrees that were kept, in any order. A file of one coarse subtree has
    /// none. If parts of the file were inserted twice, some may contain others.
    pub(crate) fn coarse(&self) -> &[Subtree] {
        self.coarse.as_deref().unwrap_or_default()
    }

    /// Keeps a subtree if it is coarse.
    fn note_coarse(&mut self, subtree: Subtree) {
        if let Some(coarse) = &mut self.coarse {
            coarse.push(subtree);
        }
    }

    /// Returns the hash of the file, once every block has been inserted.
    pub(crate) fn root(&self) -> Option<Hash> {
        self.root
    }

    /// Returns true if the block at `offset` has been inserted.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        let before = self.subtrees.range(..=offset).next_back();
        self.root.is_some()
            || before.is_some_and(|(&start, &(level, _))| (offset - start) >> level == 0)
    }

    /// Returns the number of separate subtrees, which a memory limit counts.
    pub(crate) fn subtree_count(&self) -> usize {
        self.subtrees.len()
    }

    /// Returns the inserted subtrees by offset, merged as far as possible. A file of one block has
    /// none.
    pub(crate) fn subtrees(&self) -> impl Iterator<Item = Subtree> {
        self.subtrees_from(0)
    }

    /// Returns the subtrees that begin at `offset` or later.
    pub(crate) fn subtrees_from(&self, offset: u64) -> impl Iterator<Item = Subtree> {
        self.subtrees
            .range(offset..)
            .map(|(&offset, &(level, chaining_value))| Subtree {
                offset,
                level,
                chaining_value,
            })
    }

    /// Returns the number of bytes of the file that have been inserted.
    pub(crate) fn covered(&self) -> u64 {
        match self.root {
            Some(_) => self.size,
            None => self
                .subtrees()
                .map(|one| one.end(self.size) - one.offset)
                .sum(),
        }
    }

    /// Inserts the block at `offset`. A block that is already in changes nothing.
    pub(crate) fn insert(&mut self, offset: u64, hash: BlockHash) {
        if self.size > 1u64 << self.block_log2 {
            self.insert_subtree(hash.subtree(offset, self.block_log2));
        } else if self.root.is_none() {
            self.root = Some(hash.0);
        }
    }

    /// Returns true if the file has such a subtree of whole blocks, whatever its hash.
    pub(crate) fn can_hold(&self, subtree: &Subtree) -> bool {
        let &Subtree { offset, level, .. } = subtree;
        let in_file = level >= self.block_log2 && level < 64 && offset < self.size;
        in_file
            && offset.is_multiple_of(1 << level)
            && (offset != 0 || (self.size - 1) >> level != 0)
    }

    /// Inserts a subtree of whole blocks. One that is already in changes nothing. Returns false if
    /// the file has no such subtree.
    pub(crate) fn insert_subtree(&mut self, subtree: Subtree) -> bool {
        let Subtree {
            mut offset,
            mut level,
            chaining_value: mut value,
        } = subtree;
        if !self.can_hold(&subtree) {
            return false;
        }
        if self.covers(offset)
            && self
                .subtrees
                .get(&offset)
                .is_none_or(|&(there, _)| there >= level)
        {
            return true;
        }
        let end = subtree.end(self.size);
        while let Some((&within, _)) = self.subtrees.range(offset..end).next() {
            self.subtrees.remove(&within);
        }
        let coarse = coarse_log2(self.size);
        if level > coarse {
            self.note_coarse(subtree);
        }
        loop {
            if level == coarse && (self.size - 1) >> coarse != 0 {
                self.note_coarse(Subtree {
                    offset,
                    level,
                    chaining_value: value,
                });
            }
            let sibling = offset ^ (1 << level);
            if sibling >= self.size {
                // At the right edge of the tree, a node without a right sibling is its own parent.
                level += 1;
                continue;
            }
            let Some(&(_, other)) = self
                .subtrees
                .get(&sibling)
                .filter(|(there, _)| *there == level)
            else {
                break;
            };
            // It may be the whole file, whose root is hashed with a flag of its own.
            if offset.min(sibling) == 0 && is_late(self.size) {
                break;
            }
            let (left, right) = if offset < sibling {
                (value, other)
            } else {
                (other, value)
            };
            if offset.min(sibling) == 0 && (level == 63 || (self.size - 1) >> (level + 1) == 0) {
                self.root = Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes());
                break;
            }
            self.subtrees.remove(&sibling);
            value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            offset = offset.min(sibling);
            level += 1;
        }
        self.subtrees.insert(offset, (level, value));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::late_size::LATE_SIZE;
    use proptest::prelude::*;

    fn block_hash(data: &[u8], offset: usize, block: usize) -> BlockHash {
        let part = &data[offset..data.len().min(offset + block)];
        let mut hasher = BlockHasher::new(offset as u64, part.len() as u64, data.len() as u64);
        hasher.update(part);
        hasher.finish()
    }

    proptest! {
        #[test]
        fn blocks_in_any_order_give_the_blake3_hash(
            size in 0usize..40_000,
            log2 in 10u32..13,
            seed in any::<u64>(),
        ) {
            let data: Vec<u8> = (0..size)
                .map(|i| (i as u64).wrapping_mul(seed | 1).to_le_bytes()[3])
                .collect();
            let block = 1usize << log2;
            let mut offsets: Vec<usize> = (0..size).step_by(block).collect();
            offsets.sort_by_key(|&o| (o as u64 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut tree = TreeHash::new(size as u64, log2);
            for (n, &offset) in offsets.iter().enumerate() {
                prop_assert!(tree.root().is_none());
                prop_assert!(!tree.covers(offset as u64));
                tree.insert(offset as u64, block_hash(&data, offset, block));
                // A block that arrives twice, because its stream died before the answer, changes
                // nothing.
                tree.insert(offset as u64, block_hash(&data, offset, block));
                for (m, &o) in offsets.iter().enumerate() {
                    prop_assert_eq!(tree.covers(o as u64), m <= n);
                }
            }
            prop_assert_eq!(tree.root(), Some(*blake3::hash(&data).as_bytes()));
        }
    }

    proptest! {
        #[test]
        fn lh_copy_81_late_size_gives_the_same_hash(
            size in 1_025usize..60_000,
            seed in any::<u64>(),
            before in 0usize..60,
        ) {
            let data: Vec<u8> = (0..size).map(|i| (i as u64 ^ seed).to_le_bytes()[0]).collect();
            let mut offsets: Vec<usize> = (0..size).step_by(1024).collect();
            offsets.sort_by_key(|&o| (o as u64 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut tree = TreeHash::new(LATE_SIZE, 10);
            let (early, late) = offsets.split_at(before.min(offsets.len()));
            for &offset in early {
                tree.insert(offset as u64, block_hash(&data, offset, 1024));
                prop_assert_eq!(tree.root(), None);
            }
            let in_order = early.len() == offsets.len();
            prop_assert!(!in_order || tree.subtree_count() <= 17);
            let mut tree = tree.with_size(size as u64);
            for &offset in early {
                prop_assert!(tree.covers(offset as u64));
            }
            for &offset in late {
                prop_assert_eq!(tree.root(), None);
                tree.insert(offset as u64, block_hash(&data, offset, 1024));
            }
            prop_assert_eq!(tree.root(), Some(*blake3::hash(&data).as_bytes()));
        }
    }

    proptest! {
        #[test]
        fn subtrees_of_one_tree_build_another(
            size in 5_000usize..60_000,
            seed in any::<u64>(),
            parts in 1usize..5,
        ) {
            let data: Vec<u8> = (0..size)
                .map(|i| (i as u64).wrapping_mul(seed | 1).to_le_bytes()[4])
                .collect();
            let mut whole = TreeHash::new(size as u64, 10);
            for part in 0..parts {
                let mut tree = TreeHash::new(size as u64, 10);
                for (n, offset) in (0..size).step_by(1024).enumerate() {
                    // Every other part overlaps what came before it.
                    let mixed = (n as u64 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                    if mixed as usize % parts == part
                        || (part % 2 == 1 && mixed.is_multiple_of(3))
                    {
                        tree.insert(offset as u64, block_hash(&data, offset, 1024));
                    }
                }
                for subtree in tree.subtrees() {
                    prop_assert!(whole.insert_subtree(subtree));
                prop_assert!(
                    whole.covers(subtree.offset) && whole.covers(subtree.end(size as u64) - 1)
                );
                }
                let blocks = (0..size as u64).step_by(1024).filter(|&offset| whole.covers(offset));
                prop_assert_eq!(
                    whole.covered(),
                    blocks.map(|offset| 1024.min(size as u64 - offset)).sum::<u64>()
                );
                let mut end = 0;
                for subtree in whole.subtrees() {
                    prop_assert!(subtree.offset >= end);
                    end = subtree.end(size as u64);
                }
            }
            prop_assert_eq!(whole.root(), Some(*blake3::hash(&data).as_bytes()));
            prop_assert_eq!(whole.subtree_count(), 2);
        }
    }

    #[test]
    fn coarse_subtrees_are_kept_in_bounded_number() {
        assert_eq!(coarse_log2(0), 26);
        assert_eq!(coarse_log2(1 << 40), 26);
        assert_eq!(coarse_log2((1 << 40) + 1), 27);
        assert_eq!(coarse_log2(u64::MAX), 50);
        // The last subtree is short, and blocks arrive backwards.
        let size = (5 << 26) + 70_000;
        let mut tree = TreeHash::new(size, 20).keeping_coarse();
        for n in (0..size.div_ceil(1 << 20)).rev() {
            tree.insert(n << 20, BlockHash([n as u8; 32]));
        }
        let mut again = TreeHash::new(size, coarse_log2(size));
        let mut offsets = Vec::new();
        for subtree in tree.coarse() {
            offsets.push(subtree.offset >> 26);
            assert!(again.insert_subtree(*subtree));
        }
        assert_eq!(offsets, [5, 4, 3, 2, 1, 0]);
        assert_eq!(again.root(), tree.root());
        let mut small = TreeHash::new(1 << 26, 20).keeping_coarse();
        for n in 0..64 {
            small.insert(n << 20, BlockHash([1; 32]));
        }
        assert!(small.root().is_some() && small.coarse().is_empty());
    }

    #[test]
    fn subtree_outside_the_file_is_refused() {
        let subtree = |offset, level| Subtree {
            offset,
            level,
            chaining_value: [1; 32],
        };
        let mut tree = TreeHash::new(5 << 20, 20);
        for (offset, level) in [
            (0, 23),
            (0, 64),
            (5 << 20, 20),
            (1 << 19, 20),
            (0, 19),
            (1 << 20, 21),
        ] {
            assert!(!tree.insert_subtree(subtree(offset, level)));
        }
        assert!(tree.insert_subtree(subtree(0, 22)));
        assert!(tree.insert_subtree(subtree(4 << 20, 20)));
        assert!(tree.root().is_some());
    }

    #[test]
    fn memory_depends_on_disorder_not_size() {
        let mut tree = TreeHash::new(1 << 40, 20);
        for n in 0..10_000u64 {
            tree.insert(n << 20, BlockHash([1; 32]));
            assert!(tree.subtree_count() < 40);
        }
    }

    #[test]
    fn holes_hash_as_zeros() {
        let mut hasher = BlockHasher::new(0, 200_000, 200_000);
        hasher.update_zeros(200_000);
        let mut tree = TreeHash::new(200_000, 20);
        tree.insert(0, hasher.finish());
        assert_eq!(
            tree.root(),
            Some(*blake3::hash(&vec![0; 200_000]).as_bytes())
        );
    }
}
