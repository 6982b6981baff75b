//! Compresses what a stream sends: the data of blocks (LH-COPY-61), and packs of other frames
//! (LH-COPY-75).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{FrameBuffer, Reader, read_and_hash};
use crate::compression::Compression;
use crate::error::{Failure, FailureKind};
use crate::packed::{MAX_PART_BYTES, PART_HEAD_BYTES, Packer, lengths};
use crate::process_limits::processors;
use crate::send::packing::{BlockTimes, PackingPlan, StreamPlanner};
use crate::send::source::SourceFile;
use crate::tree_hash::{BlockHash, BlockHasher};
use crate::wire::{Block, FRAME_HEAD_BYTES, Frame, MAX_PACK_BYTES};

/// Length that a pack does not exceed unless one frame does, in bytes. It is compressed as one
/// part.
const PACK_BYTES: usize = MAX_PART_BYTES;
/// Minimum length of a pack, in bytes. Less is not worth a header.
const MIN_PACK_BYTES: usize = 128;
/// Bytes of a PACK before its parts.
const PACK_HEAD_BYTES: usize = FRAME_HEAD_BYTES + 4;

/// Compression on one stream.
pub(crate) struct StreamPacking {
    packer: Packer,
    /// Shared with the task that measures how fast the network is.
    planner: Arc<Mutex<StreamPlanner>>,
    processors: usize,
}

/// Frames at the end of a buffer that may become one pack.
pub(super) struct PackRange {
    /// Their position in the buffer.
    start: usize,
    /// Bytes of file data in the buffer before them.
    data_before: u64,
    began: Instant,
}

impl PackRange {
    pub(super) fn new(start: usize, data_before: u64) -> Self {
        Self {
            start,
            data_before,
            began: Instant::now(),
        }
    }

    /// Returns true if the pack would become too long with another frame of `more` bytes in a
    /// buffer that is filled up to `end`.
    pub(super) fn is_full(&self, end: usize, more: u64) -> bool {
        let len = end.saturating_sub(self.start) as u64;
        len > 0 && len.saturating_add(more) > PACK_BYTES as u64
    }
}

impl StreamPacking {
    /// Returns `None` if nothing is compressed.
    pub(crate) fn new(method: Compression, planner: Arc<Mutex<StreamPlanner>>) -> Option<Self> {
        let packer = Packer::new(method.level()?);
        Some(Self {
            packer,
            planner,
            processors: processors(),
        })
    }

    /// Notes how many streams share the processors.
    pub(crate) fn share_processors(&self, streams: usize) {
        self.planner
            .lock()
            .share_processors(streams, self.processors);
    }

    /// Returns the treatment of the next block.
    pub(super) fn plan(&self) -> PackingPlan {
        self.planner.lock().blocks.plan()
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
        self.planner.lock().blocks.block_read(&times);
    }

    /// Compresses the frames of `range`, if that is planned and makes them shorter. `data_end` is
    /// the number of bytes of file data in the buffer. Returns the number of bytes of file data
    /// that are saved.
    fn pack(&mut self, out: &mut FrameBuffer, range: &PackRange, data_end: u64) -> u64 {
        let (start, end) = (range.start, out.len());
        let len = end.saturating_sub(start);
        let parts = lengths(len).count();
        let room = PACK_HEAD_BYTES + len + parts * PART_HEAD_BYTES;
        if !(MIN_PACK_BYTES..=MAX_PACK_BYTES).contains(&len) || !out.fits(room) {
            return 0;
        }
        let mut times = BlockTimes {
            data: len as u64,
            reading: range.began.elapsed(),
            ..BlockTimes::default()
        };
        let plan = self.planner.lock().packs.plan();
        let mut saved = 0;
        if plan != PackingPlan::Plain {
            let started = Instant::now();
            let packed = self.compress(out, start, len);
            times.packing = started.elapsed();
            times.packed_from = len as u64;
            times.packed_to = packed.min(len) as u64;
            match packed < len {
                true => out.replace(start, end),
                false => out.truncate(end),
            }
            saved = len.saturating_sub(packed) as u64;
        }
        self.planner.lock().packs.block_read(&times);
        saved.min(data_end.saturating_sub(range.data_before))
    }

    /// Appends a PACK of the `len` bytes from `start`, which are at the end of the buffer. Returns
    /// its length.
    fn compress(&mut self, out: &mut FrameBuffer, start: usize, len: usize) -> usize {
        let begin = out.len();
        out.put(&Frame::Pack {
            len: len as u32,
            parts: Bytes::new(),
        });
        let mut at = start;
        for len in lengths(len) {
            let frames = out.since(at).get(..len).unwrap_or_default();
            self.packer.part(len).copy_from_slice(frames);
            let packed = self.packer.pack(len, out.spare(PART_HEAD_BYTES + len));
            out.advance(packed);
            at += len;
        }
        out.finish_frame_of_parts(begin);
        out.len() - begin
    }
}

impl Reader<'_> {
    /// Compresses the frames of `range`, which are at the end of the buffer, if that pays. `data`
    /// is the number of bytes of file data in the buffer.
    pub(super) fn pack_frames(&mut self, range: &PackRange, data: u64) {
        if let Some(packing) = self.packing.as_mut().filter(|_| self.packs) {
            let saved = packing.pack(self.out, range, data);
            self.saved += saved;
        }
    }

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
        self.out.finish_frame_of_parts(start);
        times.data = block.data_len() as u64;
        times.packed_from = times.data;
        packing.planner.lock().blocks.block_read(&times);
        self.saved += times.data.saturating_sub(times.packed_to);
        Ok(hasher.finish())
    }
}
