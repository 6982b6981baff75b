//! The file of late size: more of it can be sent as its source reads on (LH-COPY-80).

use super::entry::TrackedEntry;
use super::work::WakeTarget;
use super::{FoundEntry, Schedule};
use crate::late_size::LATE_SIZE;
use crate::path::RelPath;
use crate::wire::Meta;

/// Bytes that are assumed to follow while the end is not known: enough to be worth several streams.
pub(super) const EXPECTED_BYTES: u64 = 1 << 30;

/// Progress of the source in reading a file of late size.
#[derive(Debug, Clone, Copy)]
pub(super) struct LateFile {
    pub id: u64,
    /// Bytes that can be sent: whole blocks, or all of the file.
    pub available: u64,
    /// True once `available` is the size of the file.
    pub is_whole: bool,
}

impl Schedule {
    /// Adds a file of late size, of which `available` bytes can be sent, at least one block. A
    /// copy has one such file.
    pub(crate) fn found_late(&mut self, source: u32, path: RelPath, meta: Meta, available: u64) {
        let entry = self.number(source, path, meta, FoundEntry::File { size: LATE_SIZE });
        self.late = Some(LateFile {
            id: entry.head.id,
            available: 0,
            is_whole: false,
        });
        self.grown(available, false);
        self.queue(entry);
    }

    /// Notes that `available` bytes of the file of late size can be sent. If `is_whole`, that is
    /// all of it, and more than before. Returns false if the file has its result already.
    pub(crate) fn grown(&mut self, available: u64, is_whole: bool) -> bool {
        let Some(late) = self.late.as_mut() else {
            return false;
        };
        if self.manifest.contains(late.id) {
            return false;
        }
        if late.is_whole || (available <= late.available && !is_whole) {
            return true;
        }
        let more = available.saturating_sub(late.available);
        (late.available, late.is_whole) = (late.available.max(available), is_whole);
        let late = *late;
        self.found.bytes = self.found.bytes.saturating_add(more);
        let tracked = self.tracked.get_mut(&late.id);
        if let Some(blocks) = tracked.and_then(TrackedEntry::blocks) {
            let before = blocks.memory();
            blocks.grow(late.available, is_whole);
            self.file_bytes = self.file_bytes - before + blocks.memory();
            if blocks.has_unsent() {
                self.cutting.insert(late.id);
            }
        }
        self.wake(match is_whole {
            true => WakeTarget::All,
            false => WakeTarget::One,
        });
        true
    }

    /// Returns the number of bytes that are assumed to be found later.
    pub(crate) fn expected_bytes(&self) -> u64 {
        match self.late {
            Some(late) if !late.is_whole => EXPECTED_BYTES,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::*;
    use crate::late_size::{LATE_BLOCK_LOG2, LATE_SIZE};
    use crate::tree_hash::BlockHash;
    use crate::wire::Compare;

    const BLOCK: u64 = 1 << LATE_BLOCK_LOG2;
    const NOW: Duration = Duration::from_secs(1);

    fn take(schedule: &mut Schedule) -> Vec<u64> {
        let NextStep::Send(work) = schedule.next_step(0, NOW, MAX_BATCH_ENTRIES) else {
            return Vec::new();
        };
        let offset = |work: &StreamWork| match work {
            StreamWork::Open { offered, .. } => {
                assert!(!offered);
                Some(0)
            }
            StreamWork::Block { offset, .. } => Some(*offset),
            _ => None,
        };
        work.iter().filter_map(offset).collect()
    }

    #[test]
    fn lh_copy_80_late_file_is_sent_as_it_is_read() {
        let mut schedule = Schedule::default();
        // Nothing is offered, whatever the receiver has.
        schedule.expect(Presence::Something, Compare::Content);
        schedule.add_stream(0);
        schedule.found_late(0, RelPath::root(), Meta::default(), BLOCK);
        assert_eq!(schedule.totals().bytes, BLOCK);
        assert!(schedule.expected_bytes() > 0);
        assert_eq!(take(&mut schedule), [0]);
        assert!(schedule.opened(0, LATE_SIZE, LATE_BLOCK_LOG2, false));
        let hash = BlockHash::from_bytes([1; 32]);
        assert_eq!(schedule.block_read(0, 0, hash), None);
        assert!(schedule.acknowledged(0, 0, NOW), "the source may drop it");
        assert!(take(&mut schedule).is_empty(), "nothing more has been read");
        schedule.grown(3 * BLOCK, false);
        assert_eq!(take(&mut schedule), [BLOCK]);
        assert_eq!(take(&mut schedule), [2 * BLOCK]);
        assert!(!schedule.acknowledged(0, BLOCK, NOW), "it was not read yet");
        assert_eq!(schedule.block_read(0, BLOCK, hash), None);
        schedule.grown(3 * BLOCK + 5, true);
        schedule.walk_ended(true);
        assert_eq!(schedule.expected_bytes(), 0);
        assert_eq!(schedule.totals().bytes, 3 * BLOCK + 5);
        assert_eq!(take(&mut schedule), [3 * BLOCK]);
        assert_eq!(schedule.block_read(0, 3 * BLOCK, hash), None);
        assert!(schedule.block_read(0, 2 * BLOCK, hash).is_some());
    }
}
