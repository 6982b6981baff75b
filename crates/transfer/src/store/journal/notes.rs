//! Which blocks were written and are not noted yet: what a journal says of them before they are durable.
//!
//! Pure: time is what the caller says, as the time since any moment it chose.

use std::time::Duration;

use crate::tree_hash::Subtree;

/// Written blocks are noted this long after the last note was made: what a `kill -9` costs beside what was on its way.
const NOTE_INTERVAL: Duration = Duration::from_millis(50);

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
