//! Which blocks were written and are not noted yet: what a journal says of them before they are
//! durable.
//!
//! Pure: time is what the caller says, as the time since any moment it chose.

use std::time::Duration;

use crate::tree_hash::Subtree;

/// Written blocks are noted this long after the last note was made: what a `kill -9` costs beside
/// what was on its way.
const NOTE_INTERVAL: Duration = Duration::from_millis(50);
/// Blocks that wait to be noted, at most: where no note can be made, because the disk is full or
/// there is no journal yet, the next flush records them.
const MAX_BLOCKS: usize = 1 << 14;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// As they were written, and not merged: one that is torn costs no other.
    blocks: Vec<Subtree>,
    noted: Duration,
}

impl Notes {
    /// A block was written at `now`. Whether it is time to note what was.
    pub(super) fn written(&mut self, now: Duration, block: Subtree) -> bool {
        if self.blocks.len() >= MAX_BLOCKS {
            self.blocks.clear();
        }
        self.blocks.push(block);
        now.saturating_sub(self.noted) >= NOTE_INTERVAL
    }

    /// What is to be noted, at `now`.
    pub(super) fn take(&mut self, now: Duration) -> Vec<Subtree> {
        self.noted = now;
        std::mem::take(&mut self.blocks)
    }

    /// They were not noted: they are the next time.
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
    fn it_is_time_when_the_last_note_is_old_and_nothing_waits_without_end() {
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
