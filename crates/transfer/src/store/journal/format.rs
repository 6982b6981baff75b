//! Format of a journal: a header, and records that are appended to it.
//!
//! | header | bytes |
//! |---|---|
//! | `LHJOURNL` | 8 |
//! | version, 1 | 2 |
//! | name of the data file, see [`super::names`] | 16 |
//! | size of the file | 8 |
//! | binary logarithm of the block size | 1 |
//! | length of the source's identity, and the identity | 2 + at most 256 |
//! | length of the target's name, and the name | 2 + at most 255 |
//! | checksum | 16 |
//!
//! | record | bytes |
//! |---|---|
//! | number of subtrees, 1 to 1024, plus 32768 if they may not be durable | 2 |
//! | of each: level, offset, chaining value | 1 + 8 + 32 |
//! | checksum | 16 |
//!
//! Numbers are little-endian. The checksum of the header is the truncated BLAKE3 hash of everything
//! before it. The checksum of a record is the truncated keyed BLAKE3 hash of the previous checksum
//! and of its own bytes; the key is derived from the header. A record is therefore valid only
//! behind the very records that it was written behind. Damaged or torn data ends the journal, and
//! old content of these disk blocks is never mistaken for a record.

#![deny(clippy::indexing_slicing)] // what is read here comes from a file
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use super::Identity;
use super::identity::MAX_IDENTITY_BYTES;
use crate::path::MAX_NAME;
use crate::tree_hash::{Subtree, TreeHash};

const MAGIC: &[u8; 8] = b"LHJOURNL";
const VERSION: u16 = 1;
/// Length of a checksum, truncated from a BLAKE3 hash, in bytes.
const CHECKSUM_BYTES: usize = 16;
/// Length of one subtree in a record, in bytes.
const SUBTREE_BYTES: usize = 1 + 8 + 32;
/// Maximum number of subtrees in one record.
const MAX_SUBTREES_PER_RECORD: usize = 1024;
/// Flag in a record's number of subtrees: they were written, and may not be durable.
const NOTED_FLAG: u16 = 1 << 15;
/// Maximum length of a journal, in bytes. Anything behind it is not read.
pub(super) const MAX_JOURNAL_BYTES: usize = 16 << 20;
/// Maximum number of separate subtrees in a journal: a quarter of those that [`MAX_JOURNAL_BYTES`]
/// could hold.
pub(super) const MAX_SUBTREES: usize = match cfg!(test) {
    true => 4096,
    false => MAX_JOURNAL_BYTES / SUBTREE_BYTES / 4,
};
/// Binary logarithm of the smallest block: a chunk of BLAKE3.
const MIN_BLOCK_LOG2: u8 = 10;
/// Context for deriving the keys of records (BLAKE3 paper, section 2.3).
const RECORD_KEY_CONTEXT: &str = "longhaul 2026 record of a journal";

type Checksum = [u8; CHECKSUM_BYTES];

/// Subject of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// Identifies the data file.
    pub data: [u8; 16],
    /// Identity of the source file.
    pub identity: Identity,
    /// Final name of the file, in the directory of the journal. It is not empty.
    pub target: Vec<u8>,
    /// Size of the whole file, in bytes.
    pub size: u64,
    /// Binary logarithm of the block size in bytes, 10 to 63.
    pub block_log2: u8,
}

impl Header {
    /// Returns the empty tree of the file.
    pub(super) fn tree(&self) -> TreeHash {
        TreeHash::new(self.size, u32::from(self.block_log2))
    }

    /// Returns true if the target's name stays within the directory.
    pub(super) fn has_plain_target(&self) -> bool {
        let plain = !self.target.iter().any(|&byte| byte == b'/' || byte == 0);
        plain && self.target.len() <= MAX_NAME && !matches!(&*self.target, b"" | b"." | b"..")
    }

    /// Returns true if the file has more than one block, of a size for which BLAKE3 has subtrees.
    pub(super) fn has_blocks(&self) -> bool {
        (MIN_BLOCK_LOG2..64).contains(&self.block_log2) && self.size > 1 << self.block_log2
    }

    /// Returns the encoded header, which is the beginning of a journal.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.identity.as_bytes().len() + self.target.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.data);
        bytes.extend_from_slice(&self.size.to_le_bytes());
        bytes.push(self.block_log2);
        for field in [self.identity.as_bytes(), &self.target] {
            bytes.extend_from_slice(&(field.len() as u16).to_le_bytes());
            bytes.extend_from_slice(field);
        }
        let checksum = cut(&blake3::hash(&bytes));
        bytes.extend_from_slice(&checksum);
        bytes
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let all = *bytes;
        if take::<8>(bytes)? != *MAGIC || u16::from_le_bytes(take(bytes)?) != VERSION {
            return None;
        }
        let data = take(bytes)?;
        let size = u64::from_le_bytes(take(bytes)?);
        let [block_log2] = take(bytes)?;
        let identity = Identity::opaque(field(bytes, MAX_IDENTITY_BYTES)?)?;
        let target = field(bytes, MAX_NAME)?.to_vec();
        let before = all.get(..all.len() - bytes.len())?;
        let is_sound = take(bytes)? == cut(&blake3::hash(before));
        let header = Self {
            data,
            identity,
            target,
            size,
            block_log2,
        };
        (is_sound && header.has_plain_target() && header.has_blocks()).then_some(header)
    }
}

/// Content of a journal.
#[derive(Debug)]
pub(crate) struct Contents {
    pub header: Header,
    /// Recorded ranges, with their hashes.
    pub tree: TreeHash,
    /// Noted blocks: they were written, and may be lost. Some may be recorded as well.
    pub noted: Vec<Subtree>,
    /// Encoder of further records.
    pub encoder: Encoder,
    /// Number of bytes of the header and the valid records.
    pub valid_bytes: usize,
}

/// Reads the valid part of a journal, or returns `None` if the header is invalid. Accepts any
/// bytes.
pub(crate) fn read(bytes: &[u8]) -> Option<Contents> {
    let all = bytes.get(..MAX_JOURNAL_BYTES).unwrap_or(bytes);
    let mut left = all;
    let header = Header::decode(&mut left)?;
    let mut contents = Contents {
        tree: header.tree(),
        noted: Vec::new(),
        encoder: Encoder::new(&header),
        valid_bytes: all.len() - left.len(),
        header,
    };
    while contents.tree.held() < MAX_SUBTREES
        && let Some((subtrees, durability)) = contents.encoder.decode(&mut left)
    {
        // With a valid checksum, every subtree fits the tree, as no other was ever written.
        match durability {
            Durability::Durable => {
                for subtree in subtrees {
                    contents.tree.insert_subtree(subtree);
                }
            }
            Durability::Noted => {
                let tree = &contents.tree;
                let noted = subtrees.into_iter().filter(|one| tree.has_place_for(one));
                contents.noted.extend(noted);
            }
        }
        contents.valid_bytes = all.len() - left.len();
    }
    Some(contents)
}

/// Durability of a record's subtrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// They are on disk.
    Durable,
    /// They were written: present after a `kill -9`, but perhaps not after a power failure.
    Noted,
}

/// Encoder of consecutive records.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    key: [u8; 32],
    last: Checksum,
}

impl Encoder {
    /// Creates an encoder for the records behind this header.
    pub(super) fn new(header: &Header) -> Self {
        Self {
            key: blake3::derive_key(RECORD_KEY_CONTEXT, &header.encode()),
            last: Checksum::default(),
        }
    }

    /// Appends records of these subtrees to `bytes`.
    pub(super) fn encode(
        &mut self,
        subtrees: &[Subtree],
        durability: Durability,
        bytes: &mut Vec<u8>,
    ) {
        let flag = match durability {
            Durability::Durable => 0,
            Durability::Noted => NOTED_FLAG,
        };
        for part in subtrees.chunks(MAX_SUBTREES_PER_RECORD) {
            let start = bytes.len();
            bytes.extend_from_slice(&(part.len() as u16 | flag).to_le_bytes());
            for subtree in part {
                bytes.push(subtree.level as u8);
                bytes.extend_from_slice(&subtree.offset.to_le_bytes());
                bytes.extend_from_slice(&subtree.chaining_value);
            }
            self.last = self.checksum(bytes.get(start..).unwrap_or_default());
            bytes.extend_from_slice(&self.last);
        }
    }

    fn decode(&mut self, bytes: &mut &[u8]) -> Option<(Vec<Subtree>, Durability)> {
        let mut left = *bytes;
        let count = u16::from_le_bytes(take(&mut left)?);
        let durability = match count & NOTED_FLAG {
            0 => Durability::Durable,
            _ => Durability::Noted,
        };
        let count = usize::from(count & !NOTED_FLAG);
        if !(1..=MAX_SUBTREES_PER_RECORD).contains(&count) {
            return None;
        }
        let (body, mut rest) = bytes.split_at_checked(2 + count * SUBTREE_BYTES)?;
        let checksum = self.checksum(body);
        if take(&mut rest)? != checksum {
            return None;
        }
        let mut subtrees = Vec::with_capacity(count);
        for _ in 0..count {
            let [level] = take(&mut left)?;
            subtrees.push(Subtree {
                offset: u64::from_le_bytes(take(&mut left)?),
                level: u32::from(level),
                chaining_value: take(&mut left)?,
            });
        }
        (self.last, *bytes) = (checksum, rest);
        Some((subtrees, durability))
    }

    fn checksum(&self, body: &[u8]) -> Checksum {
        cut(&blake3::Hasher::new_keyed(&self.key)
            .update(&self.last)
            .update(body)
            .finalize())
    }
}

/// Returns the length of a journal with a header of `header` bytes and this number of subtrees.
pub(super) fn compact_bytes(header: usize, subtrees: usize) -> u64 {
    let records = subtrees.div_ceil(MAX_SUBTREES_PER_RECORD);
    (header + subtrees * SUBTREE_BYTES + records * (2 + CHECKSUM_BYTES)) as u64
}

fn cut(hash: &blake3::Hash) -> Checksum {
    let [a, ..] = hash.as_bytes().as_chunks().0 else {
        return Checksum::default();
    };
    *a
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = bytes.split_first_chunk()?;
    *bytes = left;
    Some(*taken)
}

fn field<'a>(bytes: &mut &'a [u8], max: usize) -> Option<&'a [u8]> {
    let len = usize::from(u16::from_le_bytes(take(bytes)?));
    if len > max {
        return None;
    }
    let (taken, left) = bytes.split_at_checked(len)?;
    *bytes = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(size: u64) -> Header {
        Header {
            data: [7; 16],
            identity: Identity::opaque(b"the same file").unwrap(),
            target: b"target".to_vec(),
            size,
            block_log2: 10,
        }
    }

    fn block(n: u64) -> Subtree {
        Subtree {
            offset: n << 10,
            level: 10,
            chaining_value: *blake3::hash(&n.to_le_bytes()).as_bytes(),
        }
    }

    /// Returns a journal of blocks in batches, and the end of each record with the content up to
    /// there.
    fn journal(batches: &[Vec<u64>]) -> (Vec<u8>, Vec<(usize, Vec<Subtree>)>) {
        let header = header(100 << 10);
        let mut bytes = header.encode();
        let (mut encoder, mut tree) = (Encoder::new(&header), TreeHash::new(100 << 10, 10));
        let mut states = vec![(bytes.len(), Vec::new())];
        for batch in batches {
            let blocks: Vec<Subtree> = batch.iter().map(|&n| block(n)).collect();
            encoder.encode(&blocks, Durability::Durable, &mut bytes);
            for block in blocks {
                tree.insert_subtree(block);
            }
            states.push((bytes.len(), tree.subtrees().collect()));
        }
        (bytes, states)
    }

    fn batches() -> impl Strategy<Value = Vec<Vec<u64>>> {
        prop::collection::vec(prop::collection::vec(0u64..100, 1..20), 0..12)
    }

    proptest! {
        #[test]
        fn truncated_journal_has_its_complete_records(
            batches in batches(),
            cut in any::<prop::sample::Index>(),
        ) {
            let (bytes, states) = journal(&batches);
            let cut = cut.index(bytes.len() + 1);
            match read(&bytes[..cut]) {
                None => prop_assert!(cut < states[0].0),
                Some(contents) => {
                    let (end, subtrees) = states.iter().rev().find(|(end, _)| *end <= cut).unwrap();
                    prop_assert_eq!(contents.valid_bytes, *end);
                    prop_assert_eq!(contents.tree.subtrees().collect::<Vec<_>>(), subtrees.clone());
                    prop_assert_eq!(contents.header, header(100 << 10));
                }
            }
        }

        #[test]
        fn noted_and_durable_blocks_are_distinguished(
            batches in prop::collection::vec(
                (prop::collection::vec(0u64..100, 1..20), any::<bool>()),
                0..12,
            ),
        ) {
            let header = header(100 << 10);
            let (mut bytes, mut encoder, mut tree) =
                (header.encode(), Encoder::new(&header), header.tree());
            let mut noted = Vec::new();
            for (batch, is_durable) in batches {
                let blocks: Vec<Subtree> = batch.into_iter().map(block).collect();
                let durability = if is_durable { Durability::Durable } else { Durability::Noted };
                encoder.encode(&blocks, durability, &mut bytes);
                match is_durable {
                    true => blocks.into_iter().for_each(|block| { tree.insert_subtree(block); }),
                    false => noted.extend(blocks),
                }
            }
            let contents = read(&bytes).unwrap();
            prop_assert_eq!(contents.valid_bytes, bytes.len());
            prop_assert_eq!(contents.noted, noted);
            prop_assert_eq!(
                contents.tree.subtrees().collect::<Vec<_>>(),
                tree.subtrees().collect::<Vec<_>>()
            );
        }

        #[test]
        fn damaged_byte_ends_the_journal_before_its_record(
            batches in batches(),
            at in any::<prop::sample::Index>(),
            change in 1u8..=255,
        ) {
            let (mut bytes, states) = journal(&batches);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            match read(&bytes) {
                None => prop_assert!(at < states[0].0),
                Some(contents) => {
                    let (end, subtrees) = states.iter().rev().find(|(end, _)| *end <= at).unwrap();
                    prop_assert_eq!(contents.valid_bytes, *end);
                    prop_assert_eq!(contents.tree.subtrees().collect::<Vec<_>>(), subtrees.clone());
                }
            }
        }

        #[test]
        fn record_is_valid_only_at_its_position(
            batches in batches(),
            junk in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let (bytes, states) = journal(&batches);
            // Records of this journal without one before them, and arbitrary bytes behind the last.
            for pair in states.windows(3) {
                let mut gap = bytes[..pair[0].0].to_vec();
                gap.extend_from_slice(&bytes[pair[1].0..]);
                prop_assert_eq!(read(&gap).unwrap().valid_bytes, pair[0].0);
            }
            let longer = [&bytes[..], &junk].concat();
            prop_assert_eq!(read(&longer).unwrap().valid_bytes, bytes.len());
        }
    }

    #[test]
    fn journal_can_be_appended_to_after_reading() {
        let (bytes, _) = journal(&[vec![1, 2], vec![3]]);
        let mut contents = read(&bytes).unwrap();
        let mut longer = bytes.clone();
        contents
            .encoder
            .encode(&[block(9)], Durability::Durable, &mut longer);
        assert_eq!(longer, journal(&[vec![1, 2], vec![3], vec![9]]).0);
        assert!(read(&longer).unwrap().tree.covers(9 << 10));
    }

    #[test]
    fn many_subtrees_take_several_records_of_known_length() {
        let (size, mut bytes) = (1 << 40, Vec::new());
        let subtrees: Vec<Subtree> = (0..3000).map(|n| block(2 * n)).collect();
        let header = header(size);
        bytes.extend(header.encode());
        let begin = bytes.len();
        Encoder::new(&header).encode(&subtrees, Durability::Durable, &mut bytes);
        assert_eq!(bytes.len() as u64, compact_bytes(begin, 3000));
        let contents = read(&bytes).unwrap();
        assert_eq!(contents.tree.subtrees().collect::<Vec<_>>(), subtrees);
    }

    #[test]
    fn target_in_another_directory_is_refused() {
        for target in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            let mut header = header(5000);
            header.target = target.to_vec();
            assert!(read(&header.encode()).is_none());
        }
    }
}
