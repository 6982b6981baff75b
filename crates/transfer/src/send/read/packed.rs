//! Reads blocks that travel compressed (LH-COPY-61).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Reader, read_and_hash};
use crate::compression::Compression;
use crate::error::{Failure, FailureKind};
use crate::packed::{MAX_PART_BYTES, PART_HEAD_BYTES, Packer};
use crate::send::packing::{BlockTimes, PackingPlan, PackingPlanner};
use crate::send::source::SourceFile;
use crate::tree_hash::{BlockHash, BlockHasher};
use crate::wire::{Block, Frame};

/// Compression of the blocks of one stream.
pub(crate) struct StreamPacking {
    packer: Packer,
    /// Shared with the task that measures how fast the network is.
    planner: Arc<Mutex<PackingPlanner>>,
}

impl StreamPacking {
    /// Returns `None` if nothing is compressed.
    pub(crate) fn new(method: Compression, planner: Arc<Mutex<PackingPlanner>>) -> Option<Self> {
        let packer = Packer::new(method.level()?);
        Some(Self { packer, planner })
    }

    /// Returns the treatment of the next block.
    pub(super) fn plan(&self) -> PackingPlan {
        self.planner.lock().plan()
    }

    /// Takes the measurements of a block that is sent as it is, whose content begins with `first`.
    pub(super) fn plain_block_read(
        &mut self,
        plan: PackingPlan,
        data: u64,
        reading: Duration,
        first: &[u8],
    ) {
        let mut times = BlockTimes {
            data,
            reading,
            ..BlockTimes::default()
        };
        if plan == PackingPlan::Sample {
            let sample = first.get(..MAX_PART_BYTES).unwrap_or(first);
            let mut packed = vec![0; PART_HEAD_BYTES + sample.len()];
            let started = Instant::now();
            self.packer.part(sample.len()).copy_from_slice(sample);
            times.packed_to = self.packer.pack(sample.len(), &mut packed) as u64;
            times.packing = started.elapsed();
            times.packed_from = sample.len() as u64;
        }
        self.planner.lock().block_read(&times);
    }
}

impl Reader<'_> {
    /// Reads, hashes, compresses and frames a block.
    pub(super) fn read_packed_block(
        &mut self,
        file: &dyn SourceFile,
        block: &Block,
    ) -> Result<BlockHash, Failure> {
        let Some(packing) = &mut self.packing else {
            return Err(Failure::new(FailureKind::Changed));
        };
        let start = self.out.len();
        let mut times = BlockTimes::default();
        self.out.put(&Frame::PackedBlock(block.clone()));
        let mut hasher = BlockHasher::new(block.offset, u64::from(block.len), file.size());
        let mut hashed = 0;
        for extent in &block.extents {
            hasher.update_zeros(u64::from(extent.offset.saturating_sub(hashed)));
            hashed = extent.offset.saturating_add(extent.len);
            let mut at = block.offset + u64::from(extent.offset);
            let mut left = extent.len as usize;
            while left > 0 {
                let began = Instant::now();
                let len = left.min(MAX_PART_BYTES);
                let part = packing.packer.part(len);
                read_and_hash(file, part, at, &mut hasher)?;
                let read = Instant::now();
                let packed = packing
                    .packer
                    .pack(len, self.out.spare(PART_HEAD_BYTES + len));
                self.out.advance(packed);
                times.reading += read - began;
                times.packing += read.elapsed();
                times.packed_to += packed as u64;
                at += len as u64;
                left -= len;
            }
        }
        hasher.update_zeros(u64::from(block.len.saturating_sub(hashed)));
        self.out.finish_block_of_parts(start);
        times.data = block.data_len() as u64;
        times.packed_from = times.data;
        packing.planner.lock().block_read(&times);
        let saved = times.data.saturating_sub(times.packed_to);
        self.reports.count_saved(saved);
        Ok(hasher.finish())
    }
}
