//! Properties of any bytes that are read as a journal.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a broken property is to panic

use longhaul_proto::fuzzing::Seed;

use super::Identity;
use super::format::{Contents, Durability, Encoder, Header, read};
use crate::tree_hash::Subtree;

/// Length of a subtree as [`records`] takes it, in bytes.
const SUBTREE_BYTES: usize = 41;

/// Reads bytes as a journal, and as the content of its records with valid checksums.
pub(crate) fn journal(data: &[u8]) {
    if let Some(contents) = read(data) {
        holds(&contents);
        assert!(contents.valid_bytes <= data.len());
        for cut in [contents.valid_bytes / 2, contents.valid_bytes - 1] {
            let Some(less) = read(&data[..cut]) else {
                continue;
            };
            for subtree in less.tree.subtrees() {
                assert!(contents.tree.covers(subtree.offset));
            }
        }
    }
    let header = header(u64::from(data.first().copied().unwrap_or(0)) * 5000 + 2000);
    let bytes = records(&header, data);
    let contents = read(&bytes).unwrap();
    assert_eq!(
        (contents.valid_bytes, &contents.header),
        (bytes.len(), &header)
    );
    holds(&contents);
}

/// Checks that the content lies within the file, does not overlap, and reads the same when it is
/// encoded again.
fn holds(contents: &Contents) {
    let subtrees: Vec<Subtree> = contents.tree.subtrees().collect();
    let mut end = 0;
    for subtree in &subtrees {
        assert!(subtree.offset >= end && subtree.offset < contents.header.size);
        end = subtree.end(contents.header.size);
    }
    assert!(
        contents
            .noted
            .iter()
            .all(|one| contents.tree.has_place_for(one))
    );
    let mut bytes = contents.header.encode();
    Encoder::new(&contents.header).encode(&subtrees, Durability::Durable, &mut bytes);
    let again = read(&bytes).unwrap();
    assert_eq!(again.valid_bytes, bytes.len());
    assert_eq!(again.header, contents.header);
    assert_eq!(again.tree.subtrees().collect::<Vec<_>>(), subtrees);
}

fn header(size: u64) -> Header {
    Header {
        data: [7; 16],
        identity: Identity::opaque(b"etag 5").unwrap(),
        target: b"target \xff".to_vec(),
        size,
        block_log2: 10,
    }
}

/// Returns a journal with one record for every four subtrees.
fn records(header: &Header, data: &[u8]) -> Vec<u8> {
    let (mut bytes, mut encoder) = (header.encode(), Encoder::new(header));
    let subtrees: Vec<Subtree> = data
        .chunks_exact(SUBTREE_BYTES)
        .map(|bytes| Subtree {
            level: u32::from(bytes[0]),
            offset: u64::from_le_bytes(bytes[1..9].try_into().unwrap()),
            chaining_value: bytes[9..].try_into().unwrap(),
        })
        .collect();
    for (at, part) in subtrees.chunks(4).enumerate() {
        let durability = match at % 3 {
            2 => Durability::Noted,
            _ => Durability::Durable,
        };
        encoder.encode(part, durability, &mut bytes);
    }
    bytes
}

/// Returns seeds of journals, valid and damaged, and of record contents.
pub(crate) fn journals() -> Vec<Seed> {
    let header = header(9000);
    let mut body = Vec::new();
    for (level, offset) in [
        (10u8, 0u64),
        (10, 1024),
        (13, 8192),
        (11, 4096),
        (12, 4096),
        (64, 0),
        (10, 1 << 40),
    ] {
        body.push(level);
        body.extend_from_slice(&offset.to_le_bytes());
        body.extend_from_slice(&[level; 32]);
    }
    let whole = records(&header, &body);
    let mut damaged = whole.clone();
    damaged[whole.len() - 100] ^= 1;
    let mut newer = whole.clone();
    newer[8] = 2;
    [
        ("whole", whole.clone()),
        ("header", header.encode()),
        ("header-cut-short", header.encode()[..50].to_vec()),
        ("torn", whole[..whole.len() - 7].to_vec()),
        ("damaged", damaged),
        ("another-version", newer),
        ("zeros-behind", [&whole[..], &[0; 64]].concat()),
        ("subtrees", body),
        ("empty", Vec::new()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}
