//! Bounds on how far a sender works ahead of the receiver's answers.
//!
//! The path's capacity bounds blocks of data, but a hole of a megabyte is a frame of 27 bytes.
//! Without a bound, a sender has a million of them in flight, on streams that are answered at
//! different speeds. The receiver then holds a separate run of blocks for every other one. Within a
//! window, there are at most half as many runs as blocks.

use super::Schedule;

/// Maximum number of blocks of one file from the first in flight to the last that was sent: 4 GiB
/// in blocks of 256 KiB, which is 100 Gbit/s over 300 ms.
const MAX_BLOCKS_AHEAD: u64 = 16 * 1024;
/// Maximum number of blocks of all files in flight on all streams: 4 GiB in the smallest ones.
const MAX_BLOCKS_IN_FLIGHT: usize = 64 * 1024;

/// Bounds on the blocks in flight (LH-COPY-30).
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockLimits {
    /// Blocks of one file, from the first in flight.
    pub ahead: u64,
    /// Blocks of all files.
    pub in_flight: usize,
}

impl Default for BlockLimits {
    fn default() -> Self {
        Self {
            ahead: MAX_BLOCKS_AHEAD,
            in_flight: MAX_BLOCKS_IN_FLIGHT,
        }
    }
}

impl Schedule {
    /// Returns the first of these files for which the limits allow another block, and whether they
    /// hold back an earlier one.
    pub(super) fn first_within_limits(
        &self,
        files: impl Iterator<Item = u64>,
    ) -> (Option<u64>, bool) {
        let mut is_held_back = false;
        for file in files {
            if self.is_within_limits(file) {
                return (Some(file), is_held_back);
            }
            is_held_back = true;
        }
        (None, is_held_back)
    }

    #[cfg(test)]
    pub(crate) fn set_blocks_ahead(&mut self, blocks: u64) {
        self.block_limits.ahead = blocks;
    }

    /// Returns true if the limits allow another block of `file`. A block from the end of a file,
    /// before the receiver has answered, is always allowed. There is one for each stream
    /// (LH-COPY-36).
    fn is_within_limits(&self, file: u64) -> bool {
        if self.in_flight.blocks() >= self.block_limits.in_flight {
            return false;
        }
        let Some(blocks) = self
            .open_blocks(file)
            .filter(|blocks| !blocks.awaits_answer())
        else {
            return true;
        };
        match (self.in_flight.first_block(file), blocks.next_offset()) {
            (Some(first), Some(next)) => {
                blocks.count_between(first, next) < self.block_limits.ahead
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::*;
    use super::{MAX_BLOCKS_AHEAD, MAX_BLOCKS_IN_FLIGHT};
    use crate::tree_hash::{BlockHash, TreeHash};

    const BLOCK_LOG2: u32 = 20;
    const TIB: u64 = 1 << 40;

    /// Returns a schedule of `files` open files of 1 TiB, with `streams` streams.
    fn open_files(files: u64, streams: StreamId) -> Schedule {
        let mut schedule = Schedule::default();
        (0..streams).for_each(|stream| schedule.add_stream(stream));
        for n in 0..files {
            let path = RelPath::from_bytes(format!("f{n}").as_bytes()).unwrap();
            schedule.found(0, path, Meta::default(), Found::File { size: TIB });
        }
        for n in 0..files {
            let opened = take(
                &mut schedule,
                (n % u64::from(streams)) as StreamId,
                Duration::ZERO,
            );
            assert_eq!(opened, [(n, 0)]);
        }
        for n in 0..files {
            assert!(schedule.opened(n, TIB, BLOCK_LOG2, false));
        }
        schedule
    }

    /// Returns the blocks that are taken, by file and offset.
    fn take(schedule: &mut Schedule, stream: StreamId, now: Duration) -> Vec<(u64, u64)> {
        let Next::Send(work) = schedule.next(stream, now, MAX_BATCH_ENTRIES) else {
            return Vec::new();
        };
        let block = |work: &Work| match work {
            Work::Open { file, .. } => Some((file.head.id, 0)),
            Work::Block { file, offset } => Some((file.head.id, *offset)),
            _ => None,
        };
        work.iter().filter_map(block).collect()
    }

    fn answer(schedule: &mut Schedule, (file, offset): (u64, u64), now: Duration) {
        schedule.block_read(file, offset, BlockHash::from_bytes([1; 32]));
        schedule.acknowledged(file, offset, now);
    }

    #[test]
    fn lh_copy_30_stuck_block_bounds_the_receivers_runs() {
        let mut schedule = open_files(1, 2);
        let mut received = TreeHash::new(TIB, BLOCK_LOG2);
        let now = Duration::from_secs(1);
        // The first stream keeps block 0. Only every other block of the second is answered.
        let mut waiting = Vec::new();
        let mut taken = 0;
        while let Some((file, offset)) = take(&mut schedule, 1, now).pop() {
            taken += 1;
            match taken % 2 {
                0 => {
                    answer(&mut schedule, (file, offset), now);
                    received.insert(offset, BlockHash::from_bytes([1; 32]));
                }
                _ => waiting.push((file, offset)),
            }
            assert!(
                taken < 2 * MAX_BLOCKS_AHEAD,
                "it runs ahead without a bound"
            );
        }
        assert_eq!(taken, MAX_BLOCKS_AHEAD - 1);
        assert!(received.held() as u64 <= MAX_BLOCKS_AHEAD / 2);
        // The window advances only with the first block.
        let last = waiting.pop().unwrap();
        answer(&mut schedule, last, now);
        assert_eq!(take(&mut schedule, 1, now), []);
        answer(&mut schedule, (0, 0), now);
        let next = take(&mut schedule, 1, now);
        assert_eq!(next, [(0, MAX_BLOCKS_AHEAD << BLOCK_LOG2)]);
    }

    #[test]
    fn stream_outside_the_window_asks_again_soon() {
        let mut schedule = open_files(1, 2);
        schedule.block_limits.ahead = 3;
        let now = Duration::from_secs(1);
        assert_eq!(take(&mut schedule, 1, now), [(0, 1 << BLOCK_LOG2)]);
        assert_eq!(take(&mut schedule, 1, now), [(0, 2 << BLOCK_LOG2)]);
        let next = schedule.next(1, now, MAX_BATCH_ENTRIES);
        assert!(matches!(next, Next::Wait { until } if until <= now + SHARE_PAUSE));
    }

    #[test]
    fn idle_stream_repeats_the_block_that_holds_the_window() {
        let mut schedule = open_files(1, 2);
        schedule.block_limits.ahead = 2;
        schedule.block_read(0, 0, BlockHash::from_bytes([1; 32]));
        let (taken, answered) = (Duration::from_secs(1), Duration::from_millis(1_010));
        let next = take(&mut schedule, 1, taken)[0];
        answer(&mut schedule, next, answered);
        assert_eq!(take(&mut schedule, 1, answered), [(0, 0)]);
    }

    #[test]
    fn blocks_of_all_files_in_flight_are_bounded() {
        let mut schedule = open_files(7, 8);
        let now = Duration::from_secs(1);
        let mut in_flight = schedule.in_flight.len();
        loop {
            let taken: usize = (0..8)
                .map(|stream| take(&mut schedule, stream, now).len())
                .sum();
            in_flight += taken;
            if taken == 0 {
                break;
            }
        }
        assert_eq!(in_flight, MAX_BLOCKS_IN_FLIGHT);
        assert!(schedule.memory().work < 16 << 20);
    }
}
