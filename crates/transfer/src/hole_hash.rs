//! Hashes blocks that are mostly holes, on threads where they delay nothing else.
//!
//! A hole of a megabyte costs its sender 27 bytes, and the receiver the hash of a megabyte of
//! zeros. The chunks of BLAKE3 carry their number (BLAKE3 paper, section 2.4), so no two subtrees
//! of zeros have the same hash and none can be looked up. To bound the cost, such blocks are hashed
//! on threads of the lowest priority, one block of a key at a time. The stream that brought a block
//! reads on when its hash is done.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::sync::{Arc, OnceLock, mpsc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::process_limits::processors;
use crate::tree_hash::{BlockHash, BlockHasher};
use crate::wire::Block;

/// A block is mostly hole if less than one part in this many is data.
const DATA_DIVISOR: usize = 16;
/// Maximum number of threads. At most half of the processors are used.
const MAX_THREADS: usize = 4;
/// Lowest priority (`setpriority(2)`). Next to a thread of ordinary priority, it receives about 1.5
/// % of a processor.
const THREAD_NICENESS: i32 = 19;

/// Returns true if `block` costs far more to hash than to send.
pub(crate) fn is_mostly_hole(block: &Block) -> bool {
    block.data_len().saturating_mul(DATA_DIVISOR) < block.len as usize
}

/// Returns the hash of `block` of a file of `size` bytes. Holes hash as zeros.
pub(crate) fn hash_block(block: &Block, mut data: &[u8], size: u64) -> BlockHash {
    let mut hasher = BlockHasher::new(block.offset, u64::from(block.len), size);
    let mut hashed = 0;
    for extent in &block.extents {
        let (now, rest) = data
            .split_at_checked(extent.len as usize)
            .unwrap_or((data, &[]));
        hasher.update_zeros(u64::from(extent.offset.saturating_sub(hashed)));
        hasher.update(now);
        data = rest;
        hashed = extent.offset.saturating_add(extent.len);
    }
    hasher.update_zeros(u64::from(block.len.saturating_sub(hashed)));
    hasher.finish()
}

type HashJob = Box<dyn FnOnce() + Send>;

/// Pool of hashing threads, started with the first block.
#[derive(Default)]
pub(crate) struct HoleHasher(OnceLock<mpsc::Sender<HashJob>>);

impl HoleHasher {
    /// Hashes a block, and returns its data with the hash.
    pub(crate) async fn hash(
        &self,
        block: &Block,
        data: Vec<u8>,
        size: u64,
    ) -> Result<(BlockHash, Vec<u8>), Error> {
        let (done, result) = oneshot::channel();
        let (block, len) = (block.clone(), block.data_len());
        let job: HashJob = Box::new(move || {
            let hash = hash_block(&block, data.get(..len).unwrap_or_default(), size);
            // The stream has ended if the receiver of this channel is gone.
            let _ = done.send((hash, data));
        });
        let gone = || Error::Stream(std::io::Error::other("a thread that hashes has ended"));
        self.0.get_or_init(start).send(job).map_err(|_| gone())?;
        result.await.map_err(|_| gone())
    }
}

fn start() -> mpsc::Sender<HashJob> {
    let (sender, jobs) = mpsc::channel::<HashJob>();
    let jobs = Arc::new(Mutex::new(jobs));
    for _ in 0..(processors() / 2).clamp(1, MAX_THREADS) {
        let jobs = jobs.clone();
        let work = move || {
            longhaul_platform::process::set_thread_niceness(THREAD_NICENESS);
            loop {
                let job = jobs.lock().recv();
                match job {
                    Ok(job) => job(),
                    Err(_) => return,
                }
            }
        };
        // If no thread can be started, the jobs fail with an error.
        let _ = std::thread::Builder::new().name("holes".into()).spawn(work);
    }
    sender
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Extent;

    fn block(extents: &[(u32, u32)]) -> Block {
        Block {
            id: 0,
            offset: 1 << 20,
            len: 1 << 20,
            extents: extents
                .iter()
                .map(|&(offset, len)| Extent { offset, len })
                .collect(),
        }
    }

    #[tokio::test]
    async fn hole_hashes_like_zeros() {
        let hasher = HoleHasher::default();
        let data = vec![7; 3000];
        let sparse = block(&[(5000, 1000), (700_000, 2000)]);
        assert!(is_mostly_hole(&sparse) && is_mostly_hole(&block(&[])));
        assert!(!is_mostly_hole(&block(&[(0, 1 << 16)])));
        let mut plain = vec![0; 1 << 20];
        plain[5000..6000].fill(7);
        plain[700_000..702_000].fill(7);
        let (hash, back) = hasher.hash(&sparse, data.clone(), 3 << 20).await.unwrap();
        assert_eq!(back, data);
        let whole = hash_block(&block(&[(0, 1 << 20)]), &plain, 3 << 20);
        assert_eq!(hash, whole);
    }

    #[test]
    fn zeros_at_different_offsets_hash_differently() {
        let at = |offset| {
            let mut block = block(&[]);
            block.offset = offset;
            hash_block(&block, &[], 8 << 20)
        };
        assert_ne!(at(1 << 20), at(2 << 20));
    }
}
