//! The BLAKE3 hash of a file whose blocks pass in any order, over several streams.
//!
//! BLAKE3 is a binary tree over chunks of 1 KiB (BLAKE3 paper, section 2.1). A block of a power-of-two size at a multiple of
//! that size is a whole subtree, so its chaining value can be computed alone and merged when its sibling is there.
//! The root is the ordinary BLAKE3 hash of the file: `b3sum` agrees.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::HashMap;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// A BLAKE3 root hash.
pub type Hash = [u8; 32];

/// Zeros to hash where a file has a hole.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// What one block contributes: its subtree's chaining value, or the root hash if the block is the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHash([u8; 32]);

/// A whole subtree of a file that is known: what a journal keeps of blocks that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// Bytes from the file's start: a multiple of `1 << log2`.
    pub offset: u64,
    /// The bytes that the subtree spans, as a power of two; at the end of the file it is cut off.
    pub log2: u32,
    /// Its chaining value; the file's hash if it is all of the file.
    pub value: [u8; 32],
}

/// Hashes one block piece by piece, holes as the zeros they read as.
pub(crate) struct BlockHasher {
    hasher: Hasher,
    whole_file: bool,
}

impl BlockHasher {
    /// For the block at `offset` (a multiple of the block size) of a file of `size` bytes.
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
            self.hasher.update(ZEROS.get(..n as usize).unwrap_or(&ZEROS));
            len -= n;
        }
    }

    /// The block must not be empty: BLAKE3 has no empty subtree.
    pub(crate) fn finish(self) -> BlockHash {
        if self.whole_file {
            BlockHash(*self.hasher.finalize().as_bytes())
        } else {
            BlockHash(self.hasher.finalize_non_root())
        }
    }
}

/// The tree of one file: remembers which blocks have been seen and merges what can be merged. Holds at most one
/// node for each run of blocks, so memory follows how far out of order blocks come, not the file's size.
#[derive(Debug)]
pub(crate) struct TreeHash {
    size: u64,
    block_log2: u32,
    /// Nodes (level, index): the subtree of bytes `index << level` to `(index + 1) << level`, cut off at the size.
    nodes: HashMap<(u32, u64), ChainingValue>,
    root: Option<Hash>,
}

impl TreeHash {
    /// For a file of `size` bytes in blocks of `1 << block_log2` bytes.
    pub(crate) fn new(size: u64, block_log2: u32) -> Self {
        let root = (size == 0).then(|| *blake3::hash(b"").as_bytes());
        Self {
            size,
            block_log2,
            nodes: HashMap::new(),
            root,
        }
    }

    /// The hash of the file, once every block has been inserted.
    pub(crate) fn root(&self) -> Option<Hash> {
        self.root
    }

    /// Whether the block at `offset` is in.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        self.root.is_some()
            || (self.block_log2..64).any(|level| self.nodes.contains_key(&(level, offset >> level)))
    }

    /// How many separate subtrees are held: what a limit on memory counts.
    pub(crate) fn held(&self) -> usize {
        self.nodes.len()
    }

    /// A tree that begins with subtrees that are known already, in ascending order; none if they can't be of such a file: one
    /// is not whole blocks, lies beyond its end, or overlaps another one.
    pub(crate) fn resumed(size: u64, block_log2: u32, known: &[Range]) -> Option<Self> {
        let mut tree = Self::new(size, block_log2);
        let mut free_from = 0;
        for range in known {
            let fits = (block_log2..64).contains(&range.log2)
                && range.offset.trailing_zeros() >= range.log2
                && (free_from..size).contains(&range.offset);
            if !fits {
                return None;
            }
            free_from = range.offset.saturating_add(1 << range.log2);
            tree.insert_subtree(range.log2, range.offset >> range.log2, range.value);
        }
        Some(tree)
    }

    /// Bytes of the file that are in.
    pub(crate) fn covered(&self) -> u64 {
        if self.root.is_some() {
            return self.size;
        }
        let bytes = |&(level, index): &(u32, u64)| (self.size - (index << level)).min(1 << level);
        self.nodes.keys().map(bytes).sum()
    }

    /// Adds the block at `offset`: the whole subtree that is in since then, of which it is a part. A block that is in already
    /// changes nothing.
    pub(crate) fn insert(&mut self, offset: u64, hash: BlockHash) -> Option<Range> {
        if self.covers(offset) {
            return None;
        }
        Some(self.insert_subtree(self.block_log2, offset >> self.block_log2, hash.0))
    }

    /// Adds a subtree of which nothing is in, and merges it with its siblings as far as that goes.
    fn insert_subtree(&mut self, mut level: u32, mut index: u64, mut value: [u8; 32]) -> Range {
        let range = |log2, index: u64, value| Range {
            offset: index << log2,
            log2,
            value,
        };
        if index == 0 && (self.size - 1) >> level == 0 {
            self.root = Some(value);
            return range(level, index, value);
        }
        loop {
            let sibling = index ^ 1;
            let (left, right) = if index & 1 == 0 {
                if (sibling << level) >= self.size {
                    // The right edge of the tree: a node without a right sibling is its own parent.
                    (level, index) = (level + 1, index >> 1);
                    continue;
                }
                match self.nodes.remove(&(level, sibling)) {
                    Some(right) => (value, right),
                    None => break,
                }
            } else {
                match self.nodes.remove(&(level, sibling)) {
                    Some(left) => (left, value),
                    None => break,
                }
            };
            (level, index) = (level + 1, index >> 1);
            if index == 0 && level < 64 && (self.size - 1) >> level == 0 {
                let root = *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes();
                self.root = Some(root);
                return range(level, index, root);
            }
            value = merge_subtrees_non_root(&left, &right, Mode::Hash);
        }
        self.nodes.insert((level, index), value);
        range(level, index, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block_hash(data: &[u8], offset: usize, block: usize) -> BlockHash {
        let part = &data[offset..data.len().min(offset + block)];
        let mut hasher = BlockHasher::new(offset as u64, part.len() as u64, data.len() as u64);
        hasher.update(part);
        hasher.finish()
    }

    proptest! {
        #[test]
        fn blocks_in_any_order_give_the_plain_blake3_hash(size in 0usize..40_000, log2 in 10u32..13, seed in any::<u64>()) {
            let data: Vec<u8> = (0..size).map(|i| (i as u64).wrapping_mul(seed | 1).to_le_bytes()[3]).collect();
            let block = 1usize << log2;
            let mut offsets: Vec<usize> = (0..size).step_by(block).collect();
            offsets.sort_by_key(|&o| (o as u64 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut tree = TreeHash::new(size as u64, log2);
            for (n, &offset) in offsets.iter().enumerate() {
                prop_assert!(tree.root().is_none());
                prop_assert!(!tree.covers(offset as u64));
                tree.insert(offset as u64, block_hash(&data, offset, block));
                // A block that comes twice (its stream died before the answer) changes nothing.
                tree.insert(offset as u64, block_hash(&data, offset, block));
                for (m, &o) in offsets.iter().enumerate() {
                    prop_assert_eq!(tree.covers(o as u64), m <= n);
                }
            }
            prop_assert_eq!(tree.root(), Some(*blake3::hash(&data).as_bytes()));
        }
    }

    proptest! {
        /// What `insert` says is in place is enough to go on from, however the copy was broken off, and says how much that is.
        #[test]
        fn a_tree_goes_on_from_the_ranges_it_has_told(blocks in 1usize..40, tail in 1usize..1025, done in any::<u64>(), seed in any::<u64>()) {
            let size = (blocks - 1) * 1024 + tail;
            let data: Vec<u8> = (0..size).map(|i| (i as u64).wrapping_mul(seed | 1).to_le_bytes()[3]).collect();
            let mut first = TreeHash::new(size as u64, 10);
            let mut journal: Vec<Range> = Vec::new();
            let end = |range: &Range| size.min((range.offset as usize) + (1 << range.log2));
            for offset in (0..blocks).filter(|n| done >> n & 1 == 1).map(|n| n * 1024) {
                let range = first.insert(offset as u64, block_hash(&data, offset, 1024)).unwrap();
                journal.retain(|older| older.offset < range.offset || older.offset as usize >= end(&range));
                journal.push(range);
            }
            journal.sort_by_key(|range| range.offset);
            let mut again = TreeHash::resumed(size as u64, 10, &journal).unwrap();
            prop_assert_eq!(again.covered(), first.covered());
            prop_assert_eq!(again.covered(), journal.iter().map(|range| (end(range) as u64) - range.offset).sum::<u64>());
            for offset in (0..size).step_by(1024) {
                prop_assert_eq!(again.covers(offset as u64), first.covers(offset as u64));
                again.insert(offset as u64, block_hash(&data, offset, 1024));
            }
            prop_assert_eq!(again.root(), Some(*blake3::hash(&data).as_bytes()));
        }

        /// A journal is a file like any other: whatever it says, no panic.
        #[test]
        fn ranges_that_make_no_sense_are_refused(size in 0u64..1 << 20, ranges in prop::collection::vec((0u64..1 << 21, 0u32..70), 0..9)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(offset, log2)| Range { offset, log2, value: [1; 32] }).collect();
            if let Some(tree) = TreeHash::resumed(size, 10, &ranges) {
                prop_assert!(tree.covered() <= size);
                prop_assert!(tree.held() <= ranges.len());
            }
        }
    }

    #[test]
    fn memory_follows_disorder_not_size() {
        let mut tree = TreeHash::new(1 << 40, 20);
        for n in 0..10_000u64 {
            tree.insert(n << 20, BlockHash([1; 32]));
            assert!(tree.held() < 40);
        }
    }

    #[test]
    fn holes_hash_as_zeros() {
        let mut hasher = BlockHasher::new(0, 200_000, 200_000);
        hasher.update_zeros(200_000);
        let mut tree = TreeHash::new(200_000, 20);
        tree.insert(0, hasher.finish());
        assert_eq!(tree.root(), Some(*blake3::hash(&vec![0; 200_000]).as_bytes()));
    }
}
