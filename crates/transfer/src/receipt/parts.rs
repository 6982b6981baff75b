//! Hashes of the parts of a large file, and which parts differ.

use serde::{Deserialize, Serialize};

use super::encoding::base64;
use crate::tree_hash::{Hash, Subtree, TreeHash, coarse_log2};

/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// Hashes of the parts of a file, in order and without gaps. Each part is a subtree of the file's
/// BLAKE3 tree: of the size that [`coarse_log2`] gives, or larger if a resumed copy knew no more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileParts {
    /// The hashes.
    #[serde(with = "base64")]
    hashes: Vec<u8>,
    /// Levels of the parts that are larger than usual: index and level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    larger: Vec<(usize, u32)>,
}

/// A part of a file that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedPart {
    /// Number of the part, from 0.
    pub index: usize,
    /// Offset of its first byte.
    pub start: u64,
    /// Offset behind its last byte.
    pub end: u64,
}

impl FileParts {
    /// Creates the parts of a file of `size` bytes from its coarse subtrees, in any order. Parts
    /// that others contain are left out.
    pub(super) fn new(coarse: &[Subtree], size: u64) -> Self {
        let mut sorted = coarse.to_vec();
        sorted.sort_unstable_by_key(|part| (part.offset, std::cmp::Reverse(part.level)));
        let (mut parts, mut end) = (Self::default(), 0);
        for part in sorted {
            if part.offset < end {
                continue;
            }
            if part.level != coarse_log2(size) {
                parts.larger.push((parts.count(), part.level));
            }
            parts.hashes.extend_from_slice(&part.chaining_value);
            end = part.end(size);
        }
        parts
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    fn count(&self) -> usize {
        self.hashes.len() / HASH_BYTES
    }

    fn subtrees(&self, size: u64) -> impl Iterator<Item = Subtree> {
        let mut offset = 0;
        let mut larger = self.larger.iter().peekable();
        let (hashes, _) = self.hashes.as_chunks::<HASH_BYTES>();
        hashes.iter().enumerate().map(move |(index, hash)| {
            let level = larger
                .next_if(|(at, _)| *at == index)
                .map_or(coarse_log2(size), |(_, level)| *level);
            let part = Subtree {
                offset,
                level,
                chaining_value: *hash,
            };
            offset = part.end(size);
            part
        })
    }

    /// Returns true if they are the parts of a file with this hash.
    pub(super) fn belong_to(&self, size: u64, hash: &Hash) -> bool {
        let mut tree = TreeHash::new(size, coarse_log2(size));
        let fit = self.subtrees(size).all(|part| tree.insert_subtree(part));
        self.is_empty() || (fit && tree.root() == Some(*hash))
    }

    /// Compares them with the hashes of the same file elsewhere, all of the usual size
    /// (LH-FILES-15). Returns the parts that differ.
    pub fn changed(&self, size: u64, found: &[u8]) -> Vec<ChangedPart> {
        let log2 = coarse_log2(size);
        let (found, _) = found.as_chunks::<HASH_BYTES>();
        let is_equal = |part: &Subtree| {
            let end = part.end(size);
            let mut tree = TreeHash::new(size, log2);
            let first = part.offset >> log2;
            let found = found.get(first as usize..).unwrap_or_default();
            let within = found.iter().zip(first..).map(|(hash, n)| Subtree {
                offset: n << log2,
                level: log2,
                chaining_value: *hash,
            });
            for one in within.take_while(|one| one.offset < end) {
                tree.insert_subtree(one);
            }
            let mut merged = tree.subtrees();
            let first = merged.next().map(|merged| merged.chaining_value);
            first == Some(part.chaining_value) && merged.next().is_none()
        };
        self.subtrees(size)
            .enumerate()
            .filter(|(_, part)| !is_equal(part))
            .map(|(index, part)| ChangedPart {
                index,
                start: part.offset,
                end: part.end(size),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree_hash::BlockHash;

    /// Builds the tree of a file whose block of 16 MiB number `n` has the content `content(n)`.
    fn tree(size: u64, content: impl Fn(u64) -> u8) -> TreeHash {
        let mut tree = TreeHash::new(size, 24).keeping_coarse();
        for n in 0..size.div_ceil(1 << 24) {
            tree.insert(n << 24, BlockHash::from_bytes([content(n); 32]));
        }
        tree
    }

    fn hashes(tree: &TreeHash) -> Vec<u8> {
        let mut coarse = tree.coarse().to_vec();
        coarse.sort_by_key(|part| part.offset);
        coarse.iter().flat_map(|part| part.chaining_value).collect()
    }

    #[test]
    fn the_changed_part_is_found() {
        let size = (9 << 26) + 5;
        let before = tree(size, |n| n as u8);
        let parts = FileParts::new(before.coarse(), size);
        assert!(parts.belong_to(size, &before.root().unwrap()));
        assert!(!parts.belong_to(size, &[0; 32]));
        assert_eq!(parts.changed(size, &hashes(&before)), []);
        // Block 30 of 16 MiB is in part 7, and the last one is short.
        let after = tree(size, |n| if n == 30 || n == 36 { 0xff } else { n as u8 });
        let changed = parts.changed(size, &hashes(&after));
        let ranges: Vec<_> = changed.iter().map(|part| (part.index, part.end)).collect();
        assert_eq!(ranges, [(7, 8 << 26), (9, size)]);
        assert_eq!(changed[0].start, 7 << 26);
    }

    proptest! {
        #[test]
        fn parts_of_a_resumed_copy_are_compared(
            blocks in 9u64..64,
            short in 1u64..(1 << 24),
            known in 1u32..4,
            flipped in any::<prop::sample::Index>(),
        ) {
            let size = (blocks << 24) + short;
            let whole = tree(size, |n| n as u8);
            // An earlier copy left its beginning as one subtree.
            let level = 26 + known;
            let mut resumed = TreeHash::new(size, 24).keeping_coarse();
            let beginning = tree(size, |n| n as u8);
            let mut first = TreeHash::new(size, 26);
            for part in beginning.coarse() {
                if part.offset < 1 << level {
                    first.insert_subtree(*part);
                }
            }
            if let Some(known) = first.subtrees().next().filter(|_| size > 1 << level) {
                prop_assert!(resumed.insert_subtree(known));
            }
            for n in 0..size.div_ceil(1 << 24) {
                if !resumed.covers(n << 24) {
                    resumed.insert(n << 24, BlockHash::from_bytes([n as u8; 32]));
                }
            }
            let parts = FileParts::new(resumed.coarse(), size);
            prop_assert!(parts.belong_to(size, &whole.root().unwrap()));
            prop_assert_eq!(parts.changed(size, &hashes(&whole)), []);
            let line = serde_json::to_string(&parts).unwrap();
            prop_assert_eq!(&serde_json::from_str::<FileParts>(&line).unwrap(), &parts);
            let at = flipped.index(size.div_ceil(1 << 24) as usize) as u64;
            let after = tree(size, |n| if n == at { 0xee } else { n as u8 });
            let changed = parts.changed(size, &hashes(&after));
            prop_assert_eq!(changed.len(), 1);
            prop_assert!((changed[0].start..changed[0].end).contains(&(at << 24)));
        }

        #[test]
        fn any_parts_are_compared_without_a_panic(
            hashes in prop::collection::vec(any::<u8>(), 0..200),
            larger in prop::collection::vec((0usize..8, 0u32..70), 0..4),
            found: Vec<u8>,
            size: u64,
        ) {
            let parts = FileParts { hashes, larger };
            let _ = parts.belong_to(size, &[1; 32]);
            let _ = parts.changed(size, &found);
        }
    }
}
