//! The journal on a simulated disk that loses unsynced data, on real directories, and in processes
//! that are killed.

#![allow(clippy::single_range_in_vec_init)] // a list of ranges that has one

mod killed;
mod power_loss;
mod real;
mod sim_disk;
mod troubles;

use std::time::Duration;

pub(super) use real::{leave, open as open_real};

use super::{Identity, Subtree};
use crate::tree_hash::BlockHasher;

/// Binary logarithm of the block size in these tests: a chunk of BLAKE3.
const BLOCK_LOG2: u8 = 10;
const BLOCK: usize = 1 << BLOCK_LOG2;
/// Time that passes with every block.
const TICK: Duration = Duration::from_millis(100);

/// Returns content of which each part differs from any other. Every fifth block is a hole.
fn content(size: usize, seed: u64) -> Vec<u8> {
    (0..size)
        .map(|at| {
            let mixed = (at as u64 / 8 + 1)
                .wrapping_mul(seed | 1)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            if is_hole(at / BLOCK) {
                0
            } else {
                mixed.to_le_bytes()[at % 8]
            }
        })
        .collect()
}

fn is_hole(block: usize) -> bool {
    block % 5 == 3
}

fn block_of(content: &[u8], n: usize) -> &[u8] {
    &content[n * BLOCK..content.len().min((n + 1) * BLOCK)]
}

fn subtree_of(content: &[u8], n: usize) -> Subtree {
    let block = block_of(content, n);
    let mut hasher = BlockHasher::new((n * BLOCK) as u64, block.len() as u64, content.len() as u64);
    hasher.update(block);
    hasher
        .finish()
        .subtree((n * BLOCK) as u64, BLOCK_LOG2.into())
}

/// Returns true if a subtree matches this content.
fn is_true(content: &[u8], subtree: &Subtree) -> bool {
    let (start, end) = (subtree.offset, subtree.end(content.len() as u64));
    let mut hasher = BlockHasher::new(start, end - start, content.len() as u64);
    hasher.update(&content[start as usize..end as usize]);
    hasher.finish().subtree(start, subtree.level) == *subtree
}

fn identity() -> Identity {
    Identity::opaque(b"the source").unwrap()
}

/// Reproducible random numbers (splitmix64, Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for n in (1..items.len()).rev() {
            items.swap(n, self.below(n + 1));
        }
    }
}
