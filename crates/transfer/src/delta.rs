//! Blocks that are put together from an existing file (LH-COPY-62 to LH-COPY-64). Pure.
//!
//! The receiver cuts its file into chunks at positions that depend on the content (FastCDC, USENIX
//! ATC 2016 and IEEE TPDS 2020), and sends their hashes: the signature. The sender cuts its blocks
//! alike, and sends only chunks that the signature lacks. Both cut block by block, so that files
//! that differ in place have the same chunks elsewhere.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::HashMap;
use std::ops::RangeInclusive;

use fastcdc::v2020::FastCDC;

/// Average lengths of chunks, as binary logarithms.
pub(crate) const CHUNK_LOG2: RangeInclusive<u32> = 13..=18;
/// Maximum number of chunks of a signature.
pub(crate) const MAX_CHUNKS: u64 = 1 << 20;
/// Binary logarithm of the number of chunks from which they grow with the file.
const MANY_CHUNKS_LOG2: u32 = 18;
/// Maximum number of files of a copy whose signatures are in use at once.
pub(crate) const MAX_SIGNATURES: usize = 256;
/// Minimum size of an existing file that is compared in chunks, in bytes.
const MIN_DELTA_BYTES: u64 = 64 * 1024;
/// Chunks shorter than this are sent, as a reference is hardly shorter.
const MIN_REFERENCE_BYTES: usize = 64;
/// Bytes of a chunk's hash that are sent. The whole block is verified by its full hash.
pub(crate) const CHUNK_HASH_BYTES: usize = 16;
/// Memory of a chunk in a [`Signature`], in bytes. It is enough for a map that has just grown.
pub(crate) const CHUNK_MEMORY: u64 = 80;

/// Hash of a chunk: the first bytes of its BLAKE3 hash.
pub(crate) type ChunkHash = [u8; CHUNK_HASH_BYTES];

/// One chunk of the existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SignedChunk {
    /// Length in bytes.
    pub len: u32,
    pub hash: ChunkHash,
}

/// Returns the average length of chunks for an existing file of `size` bytes, as a binary
/// logarithm. `None` if it is too small or too large to be compared.
pub(crate) fn chunk_log2(size: u64) -> Option<u32> {
    let needed = u64::BITS - (size >> MANY_CHUNKS_LOG2).leading_zeros();
    let log2 = needed.clamp(*CHUNK_LOG2.start(), *CHUNK_LOG2.end());
    (size >= MIN_DELTA_BYTES && size >> log2 <= MAX_CHUNKS / 2).then_some(log2)
}

/// Cuts a block into chunks of this average length.
pub(crate) fn chunks(block: &[u8], chunk_log2: u32) -> impl Iterator<Item = &[u8]> {
    let average = 1 << chunk_log2;
    FastCDC::new(block, average / 4, average, average * 4)
        .filter_map(move |chunk| block.get(chunk.offset..chunk.offset + chunk.length))
}

/// Returns the hash of a chunk.
pub(crate) fn hash_chunk(chunk: &[u8]) -> ChunkHash {
    let hash = blake3::hash(chunk);
    let (first, _) = hash.as_bytes().split_at(CHUNK_HASH_BYTES);
    first.try_into().unwrap_or_default()
}

/// Part of the data of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchPart {
    /// The next `len` bytes of the block.
    Data { len: u32 },
    /// Bytes of the existing file.
    Existing { offset: u64, len: u32 },
}

/// Chunks of an existing file.
#[derive(Debug)]
pub(crate) struct Signature {
    chunk_log2: u32,
    /// Length of the file as far as it is known, in bytes.
    size: u64,
    chunks: KnownChunks,
}

#[derive(Debug)]
enum KnownChunks {
    /// Offset and length, by the hash.
    Anywhere(HashMap<ChunkHash, (u64, u32)>),
    /// Hash and length, by the offset. What lies elsewhere in the file may be overwritten by the
    /// time that it is read (LH-COPY-74).
    SameOffset(HashMap<u64, (ChunkHash, u32)>),
}

impl KnownChunks {
    /// Returns the offset in the existing file of a chunk of `len` bytes at `offset` of the new
    /// one.
    fn find(&self, offset: u64, len: u32, hash: &ChunkHash) -> Option<u64> {
        match self {
            Self::Anywhere(chunks) => {
                let (at, known_len) = chunks.get(hash)?;
                (*known_len == len).then_some(*at)
            }
            Self::SameOffset(chunks) => (chunks.get(&offset)? == &(*hash, len)).then_some(offset),
        }
    }
}

impl Signature {
    pub(crate) fn new(chunk_log2: u32) -> Self {
        Self {
            chunk_log2,
            size: 0,
            chunks: KnownChunks::Anywhere(HashMap::new()),
        }
    }

    /// Creates the signature of a file that is overwritten in place.
    pub(crate) fn in_place(chunk_log2: u32) -> Self {
        Self {
            chunks: KnownChunks::SameOffset(HashMap::new()),
            ..Self::new(chunk_log2)
        }
    }

    /// Returns true if the next chunk of the file is at `offset`, and has this average length.
    pub(crate) fn continues_at(&self, offset: u64, chunk_log2: u32) -> bool {
        self.size == offset && self.chunk_log2 == chunk_log2
    }

    /// Appends the next chunks of the file. Returns false if there are too many.
    pub(crate) fn extend(&mut self, chunks: &[SignedChunk]) -> bool {
        for chunk in chunks {
            match &mut self.chunks {
                KnownChunks::Anywhere(chunks) => {
                    let first = (self.size, chunk.len);
                    chunks.entry(chunk.hash).or_insert(first);
                }
                KnownChunks::SameOffset(chunks) => {
                    chunks.insert(self.size, (chunk.hash, chunk.len));
                }
            }
            self.size = self.size.saturating_add(u64::from(chunk.len));
        }
        let known = match &self.chunks {
            KnownChunks::Anywhere(chunks) => chunks.len(),
            KnownChunks::SameOffset(chunks) => chunks.len(),
        };
        known as u64 <= MAX_CHUNKS
    }

    /// Returns the parts that make up `block`, which begins at `offset` of the new file, in order.
    /// No two parts of data follow each other.
    pub(crate) fn patch(&self, offset: u64, block: &[u8]) -> Vec<PatchPart> {
        let mut parts: Vec<PatchPart> = Vec::new();
        let mut at = offset;
        for chunk in chunks(block, self.chunk_log2) {
            let len = chunk.len() as u32;
            let known = self.chunks.find(at, len, &hash_chunk(chunk));
            let known = known.filter(|_| chunk.len() >= MIN_REFERENCE_BYTES);
            at = at.saturating_add(u64::from(len));
            match (known, parts.last_mut()) {
                (
                    Some(offset),
                    Some(PatchPart::Existing {
                        offset: first,
                        len: so_far,
                    }),
                ) if first.saturating_add(u64::from(*so_far)) == offset => {
                    *so_far += len;
                }
                (Some(offset), _) => parts.push(PatchPart::Existing { offset, len }),
                (None, Some(PatchPart::Data { len: so_far })) => *so_far += len,
                (None, _) => parts.push(PatchPart::Data { len }),
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn noise(len: usize, seed: u8) -> Vec<u8> {
        let mut out = vec![0; len];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[seed]);
        hasher.finalize_xof().fill(&mut out);
        out
    }

    fn sign(file: &[u8], block: usize, chunk_log2: u32) -> Signature {
        signed(Signature::new(chunk_log2), file, block, chunk_log2)
    }

    fn signed(mut signature: Signature, file: &[u8], block: usize, chunk_log2: u32) -> Signature {
        for block in file.chunks(block) {
            let signed: Vec<SignedChunk> = chunks(block, chunk_log2)
                .map(|chunk| SignedChunk {
                    len: chunk.len() as u32,
                    hash: hash_chunk(chunk),
                })
                .collect();
            assert!(signature.extend(&signed));
        }
        signature
    }

    /// Puts `new` together from `old`. Returns the bytes of data that this took.
    fn patched(old: &[u8], new: &[u8], block: usize) -> usize {
        let signature = sign(old, block, 13);
        let (mut whole, mut sent) = (Vec::new(), 0);
        for block in new.chunks(block) {
            let start = whole.len();
            for part in signature.patch(start as u64, block) {
                match part {
                    PatchPart::Data { len } => {
                        let at = whole.len() - start;
                        whole.extend_from_slice(&block[at..][..len as usize]);
                        sent += len as usize;
                    }
                    PatchPart::Existing { offset, len } => {
                        whole.extend_from_slice(&old[offset as usize..][..len as usize]);
                    }
                }
            }
        }
        assert!(whole == new);
        sent
    }

    const BLOCK: usize = 1 << 20;

    #[test]
    fn changes_in_place_cost_their_chunks() {
        let old = noise(4 << 20, 1);
        assert_eq!(patched(&old, &old, BLOCK), 0);
        let mut new = old.clone();
        new[1_000_000] ^= 1;
        new[3_000_000] ^= 1;
        let sent = patched(&old, &new, BLOCK);
        assert!((1..=4 << 15).contains(&sent), "{sent}");
    }

    #[test]
    fn insertion_costs_little() {
        let old = noise(8 << 20, 1);
        let new = [&old[..5000], b"inserted", &old[5000..]].concat();
        let sent = patched(&old, &new, BLOCK);
        assert!(sent < old.len() / 10, "{sent}");
        let shorter = &old[3_000_000..];
        let sent = patched(&old, shorter, BLOCK);
        assert!(sent < old.len() / 10, "{sent}");
    }

    /// LH-COPY-74: in place, nothing is taken from elsewhere, in whatever order blocks are written.
    #[test]
    fn in_place_only_the_same_offset_is_taken() {
        let old = noise(4 << 20, 1);
        let mut new = old.clone();
        new[1_000_000] ^= 1;
        // A part that exists elsewhere, and one that repeats.
        new.copy_within(0..500_000, 2_500_000);
        let signature = signed(Signature::in_place(13), &old, BLOCK, 13);
        let (mut file, mut sent) = (old.clone(), 0);
        for (number, block) in new.chunks(BLOCK).enumerate().rev() {
            let mut at = number * BLOCK;
            for part in signature.patch(at as u64, block) {
                match part {
                    PatchPart::Data { len } => {
                        file[at..][..len as usize].copy_from_slice(&new[at..][..len as usize]);
                        sent += len as usize;
                        at += len as usize;
                    }
                    PatchPart::Existing { offset, len } => {
                        assert_eq!(offset, at as u64);
                        at += len as usize;
                    }
                }
            }
        }
        assert!(file == new);
        assert!((500_000..700_000).contains(&sent), "{sent}");
    }

    #[test]
    fn other_content_is_sent_whole() {
        let (old, new) = (noise(1 << 20, 1), noise(2 << 20, 2));
        assert_eq!(patched(&old, &new, BLOCK), new.len());
    }

    #[test]
    fn chunks_grow_with_the_file() {
        for (size, expected) in [
            (MIN_DELTA_BYTES - 1, None),
            (MIN_DELTA_BYTES, Some(13)),
            (1 << 30, Some(13)),
            (8 << 30, Some(16)),
            (64 << 30, Some(18)),
            (u64::MAX, None),
        ] {
            assert_eq!(chunk_log2(size), expected, "{size}");
        }
    }

    proptest! {
        #[test]
        fn any_block_is_put_together(
            old in prop::collection::vec(0u8..3, 0..60_000),
            new in prop::collection::vec(0u8..3, 0..60_000),
            cut in 0usize..60_000,
        ) {
            let mixed = [&new[..], old.get(cut..).unwrap_or_default()].concat();
            patched(&old, &mixed, 1 << 16);
        }
    }
}
