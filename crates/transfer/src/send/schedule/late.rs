//! The file of late size: more of it can be sent as its source reads on (LH-COPY-80).

use super::entry::TrackedEntry;
use super::work::WakeTarget;
use super::{FoundEntry, Schedule};
use crate::late_size::{EXPECTED_BYTES, LATE_SIZE};
use crate::path::RelPath;
use crate::wire::Meta;

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

    use proptest::prelude::*;

    use super::super::*;
    use crate::late_size::{LATE_BLOCK_LOG2, LATE_SIZE};
    use crate::tree_hash::{BlockHash, BlockHasher, Subtree};
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

    #[test]
    fn lh_copy_80_receiver_has_no_part_of_a_late_file() {
        let mut schedule = Schedule::default();
        schedule.add_stream(0);
        schedule.found_late(0, RelPath::root(), Meta::default(), BLOCK);
        assert_eq!(take(&mut schedule), [0]);
        assert!(schedule.opened(0, LATE_SIZE, LATE_BLOCK_LOG2, false));
        let half = Subtree {
            offset: 0,
            level: 61,
            chaining_value: [1; 32],
        };
        assert!(!schedule.have(0, &[half], true));
        assert!(schedule.have(0, &[], false));
    }

    #[test]
    fn size_that_is_known_when_the_file_is_opened_stays() {
        const SIZE: u64 = 3 * BLOCK + 5;
        let mut schedule = Schedule::default();
        schedule.add_stream(0);
        schedule.found_late(0, RelPath::root(), Meta::default(), BLOCK);
        assert_eq!(take(&mut schedule), [0]);
        assert!(schedule.opened(0, SIZE, 20, false));
        schedule.grown(SIZE, true);
        assert_eq!(schedule.totals().bytes, SIZE);
        assert!(take(&mut schedule).is_empty(), "block 0 has everything");
        assert!(!schedule.acknowledged(0, 0, NOW), "nothing is dropped");
    }

    /// Size of a block in the tests with content.
    const KIB: u64 = 1024;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Grow,
        Take(StreamId),
        Read(StreamId),
        Answer(StreamId),
        Lose(StreamId),
    }

    fn step() -> impl Strategy<Value = Step> {
        let stream = || 0..2u32;
        prop_oneof![
            3 => Just(Step::Grow),
            3 => stream().prop_map(Step::Take),
            3 => stream().prop_map(Step::Read),
            3 => stream().prop_map(Step::Answer),
            1 => stream().prop_map(Step::Lose),
        ]
    }

    /// A late file of this content, and the blocks that two streams carry.
    struct World {
        data: Vec<u8>,
        schedule: Schedule,
        available: u64,
        taken: [VecDeque<u64>; 2],
        unanswered: [VecDeque<u64>; 2],
        root: Option<Hash>,
        now: Duration,
    }

    impl World {
        fn new(data: Vec<u8>) -> Self {
            let mut schedule = Schedule::default();
            (0..2).for_each(|stream| schedule.add_stream(stream));
            schedule.found_late(0, RelPath::root(), Meta::default(), KIB);
            Self {
                data,
                schedule,
                available: KIB,
                taken: Default::default(),
                unanswered: Default::default(),
                root: None,
                now: Duration::ZERO,
            }
        }

        fn size(&self) -> u64 {
            self.data.len() as u64
        }

        fn perform(&mut self, step: Step) {
            self.now += Duration::from_millis(10);
            match step {
                Step::Grow => {
                    self.available = (self.available + KIB).min(self.size());
                    let is_whole = self.available == self.size();
                    assert!(self.schedule.grown(self.available, is_whole));
                    assert!(self.schedule.totals().bytes <= self.size());
                }
                Step::Take(stream) => self.take(stream),
                Step::Read(stream) => {
                    let Some(offset) = self.taken[stream as usize].pop_front() else {
                        return;
                    };
                    self.unanswered[stream as usize].push_back(offset);
                    let end = self.size().min(offset + KIB);
                    assert!(end <= self.available);
                    let mut hasher = BlockHasher::new(offset, end - offset, LATE_SIZE);
                    hasher.update(&self.data[offset as usize..end as usize]);
                    let hash = hasher.finish();
                    if let Some(root) = self.schedule.block_read(0, offset, hash) {
                        let size = self.size();
                        assert!(self.schedule.file_read(stream, 0, size, root, self.now));
                        self.root = Some(root);
                    }
                }
                Step::Answer(stream) => {
                    if let Some(offset) = self.unanswered[stream as usize].pop_front() {
                        assert!(self.schedule.acknowledged(0, offset, self.now));
                    }
                }
                Step::Lose(stream) => {
                    self.taken[stream as usize].clear();
                    self.unanswered[stream as usize].clear();
                    self.schedule.remove_stream(stream);
                    self.schedule.add_stream(stream);
                }
            }
        }

        fn take(&mut self, stream: StreamId) {
            let next = self.schedule.next_step(stream, self.now, MAX_BATCH_ENTRIES);
            let NextStep::Send(work) = next else {
                return;
            };
            for work in work {
                let offset = match work {
                    StreamWork::Open { .. } => {
                        assert!(self.schedule.opened(0, LATE_SIZE, 10, false));
                        0
                    }
                    StreamWork::Block { offset, .. } => offset,
                    StreamWork::FileEnd { .. } => continue,
                    other => panic!("{other:?}"),
                };
                self.taken[stream as usize].push_back(offset);
            }
        }
    }

    proptest! {
        /// However reading, sending, answers and losses of streams mix, every block is sent.
        #[test]
        fn late_file_is_sent_whole(
            size in KIB + 1..40 * KIB,
            seed in any::<u64>(),
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let data: Vec<u8> = (0..size).map(|i| (i ^ seed).to_le_bytes()[0]).collect();
            let hash = *blake3::hash(&data).as_bytes();
            let mut world = World::new(data);
            for step in steps {
                world.perform(step);
            }
            for _ in 0..500 {
                world.perform(Step::Grow);
                for stream in 0..2 {
                    world.perform(Step::Take(stream));
                    world.perform(Step::Read(stream));
                    world.perform(Step::Answer(stream));
                }
            }
            prop_assert_eq!(world.root, Some(hash));
            prop_assert_eq!(world.schedule.bytes_done(), size);
        }
    }
}
