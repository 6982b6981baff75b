//! Written blocks that are not noted yet. A note in the journal lists blocks before they are
//! durable.
//!
//! It does no I/O. Times are given by the caller, relative to any moment.

use std::time::Duration;

use crate::tree_hash::Subtree;

/// Interval of notes. A `kill -9` costs this much, in addition to data in transit.
const NOTE_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of blocks that wait to be noted. If no note can be made, because the disk is full
/// or there is no journal yet, the next flush records them.
const MAX_BLOCKS: usize = 1 << 14;

/// Blocks that wait to be noted.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Blocks as they were written, not merged, so that a torn one invalidates no other.
    blocks: Vec<Subtree>,
    noted: Duration,
}

impl Notes {
    /// Adds a block that was written at `now`. Returns true if a note is due.
    pub(super) fn written(&mut self, now: Duration, block: Subtree) -> bool {
        if self.blocks.len() >= MAX_BLOCKS {
            self.blocks.clear();
        }
        self.blocks.push(block);
        now.saturating_sub(self.noted) >= NOTE_INTERVAL
    }

    /// Takes the blocks to be noted at `now`.
    pub(super) fn take(&mut self, now: Duration) -> Vec<Subtree> {
        self.noted = now;
        std::mem::take(&mut self.blocks)
    }

    /// Puts back blocks that could not be noted, for the next time.
    pub(super) fn put_back(&mut self, mut blocks: Vec<Subtree>) {
        blocks.append(&mut self.blocks);
        self.blocks = blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: u64) -> Subtree {
        Subtree {
            offset: n << 10,
            level: 10,
            chaining_value: [0; 32],
        }
    }

    #[test]
    fn notes_are_due_by_age_and_waiting_blocks_are_bounded() {
        let mut notes = Notes::default();
        assert!(!notes.written(NOTE_INTERVAL - Duration::from_millis(1), block(0)));
        assert!(notes.written(NOTE_INTERVAL, block(1)));
        assert_eq!(notes.take(NOTE_INTERVAL), [block(0), block(1)]);
        assert!(!notes.written(NOTE_INTERVAL, block(2)));
        notes.put_back(vec![block(1)]);
        assert_eq!(notes.take(NOTE_INTERVAL * 3), [block(1), block(2)]);
        for n in 0..3 * MAX_BLOCKS as u64 {
            notes.written(NOTE_INTERVAL * 3, block(n));
            assert!(notes.blocks.len() <= MAX_BLOCKS);
        }
    }
}
