//! Selects what goes together into one buffer of a stream.

use std::sync::Arc;
use std::time::Duration;

use super::Schedule;
use super::blocks::Blocks;
use super::entry::{FirstStep, SendStage, SourceEntry, TrackedEntry};
use super::work::{StreamId, StreamWork, Subject, SubjectPart};

/// Maximum number of bytes of entries in a batch for one buffer.
const MAX_BATCH_BYTES: u64 = 512 * 1024;
/// Maximum number of bytes of blocks in one buffer: the largest block.
const MAX_BLOCK_BATCH_BYTES: u64 = 1 << 20;
/// Size up to which a batch may always be filled: a connection's first flight (ten segments: RFC
/// 6928). A batch is at most this large, or as large as everything that its stream has delivered.
/// Until slow start is over, other streams may carry the work sooner.
const MIN_BATCH_BYTES: u64 = 14_600;
/// A batch is at most this fraction of the stream's share of what is left. One batch is being
/// written, one waits, and one is being filled. When losses cut the stream's window, no other
/// stream carries them.
const BATCHES_OF_SHARE: u64 = 16;
/// Assumed size of the first block of a file that is not open yet, in bytes.
const FIRST_BLOCK_BYTES: u64 = 1 << 18;

/// Work that may be added to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchContent {
    /// The batch is empty.
    Anything,
    /// The batch has blocks.
    Blocks,
    /// The batch has other work than blocks.
    Entries,
}

impl Schedule {
    /// Takes a batch of at most `room` items for `stream`. Returns `None` if the stream already
    /// carries its share of what is left.
    pub(super) fn batch(
        &mut self,
        stream: StreamId,
        now: Duration,
        room: usize,
    ) -> Option<Vec<StreamWork>> {
        self.offers.give_up_late_questions(now);
        let unsent = self.unsent_bytes();
        let share = self.in_flight.share(stream, unsent, now);
        if share == 0
            && unsent > 0
            && self.in_flight.count_on(stream) > 0
            && self.returned.is_empty()
        {
            return None;
        }
        let largest = (share / BATCHES_OF_SHARE)
            .min(self.in_flight.answered(stream))
            .max(MIN_BATCH_BYTES);
        let mut batch = Vec::new();
        let mut bytes = 0u64;
        let mut follows = BatchContent::Anything;
        while batch.len() < room {
            let most = match follows {
                BatchContent::Blocks => largest.min(MAX_BLOCK_BATCH_BYTES),
                _ => largest.min(MAX_BATCH_BYTES),
            };
            if bytes >= most {
                break;
            }
            let Some((subject, work)) = self.pick(follows, most - bytes) else {
                break;
            };
            // A file that is being opened has nothing to repeat yet.
            let repeatable = !matches!(work, StreamWork::Open { .. });
            let in_flight = self.bytes_of(subject, &work);
            self.in_flight
                .add(subject, stream, now, repeatable, in_flight);
            bytes = bytes.saturating_add(work.batch_bytes().max(in_flight.into()));
            follows = match work {
                StreamWork::Block { .. } => BatchContent::Blocks,
                _ => BatchContent::Entries,
            };
            let is_alone = matches!(work, StreamWork::Open { .. });
            batch.push(work);
            if is_alone {
                break;
            }
        }
        Some(batch)
    }

    /// Picks the next work. A file to be opened goes alone. Only blocks follow blocks, and only of
    /// at most `fits` bytes.
    fn pick(&mut self, follows: BatchContent, fits: u64) -> Option<(Subject, StreamWork)> {
        let first = follows == BatchContent::Anything;
        while let Some(&subject) = self.returned.first() {
            let work = self.work_of(subject);
            let may_follow = match &work {
                Some(StreamWork::Block { .. }) if follows == BatchContent::Blocks => {
                    self.block_len(subject) <= fits
                }
                Some(work) => first || (follows == BatchContent::Entries && !work.is_block()),
                None => true,
            };
            if !may_follow {
                return None;
            }
            self.returned.remove(&subject);
            if let Some(work) = work {
                return Some((subject, work));
            }
        }
        let may_cut = |file: &u64| self.offers.may_cut(*file) && self.may_take_before_answer(*file);
        let ready = self.cutting.iter().copied().filter(may_cut);
        let (file, is_held_back) = self.first_within_limits(ready);
        self.is_held_back = is_held_back;
        if let Some(file) = file {
            let may_follow = match follows {
                BatchContent::Anything => true,
                BatchContent::Blocks => self.next_block_len(file) <= fits,
                BatchContent::Entries => false,
            };
            return may_follow.then(|| self.take_block(file)).flatten();
        }
        if follows == BatchContent::Blocks {
            return None;
        }
        let may_open = first && self.may_open();
        if may_open && let Some(id) = self.unopened.pop_first() {
            let subject = Subject::block(id, 0);
            return self.work_of(subject).map(|work| (subject, work));
        }
        let offers = &self.offers;
        let may_begin = |entry: &mut Arc<SourceEntry>| match offers.first_step(entry) {
            FirstStep::Waits => false,
            FirstStep::Offered(_) | FirstStep::Linked => true,
            FirstStep::Sent | FirstStep::OfferedAndSent => may_open || !entry.goes_in_blocks(),
        };
        if let Some(entry) = self.queued.pop_front_if(may_begin) {
            self.queued_bytes = self.queued_bytes.saturating_sub(entry.unsent_bytes());
            let (id, begins) = (entry.head.id, self.offers.first_step(&entry));
            let is_offered = matches!(begins, FirstStep::Offered(_) | FirstStep::Linked);
            let subject = match entry.goes_in_blocks() && !is_offered {
                true => Subject::block(id, 0),
                false => Subject::whole(id),
            };
            self.offers.begun(&entry, begins);
            self.tracked.insert(id, TrackedEntry::new(entry, begins));
            return self.work_of(subject).map(|work| (subject, work));
        }
        if self.queued.is_empty()
            && self.found.complete
            && !self.end_taken
            && self.their_manifest.is_none()
        {
            self.end_taken = true;
            return self.work_of(Subject::END).map(|work| (Subject::END, work));
        }
        None
    }

    /// Returns true if another block may be taken of a file of which the receiver may have a part
    /// and has not reported it. There is one block for each stream. The report takes one round
    /// trip, but a block takes several on a new connection (LH-COPY-36).
    fn may_take_before_answer(&self, file: u64) -> bool {
        let taken = self
            .open_blocks(file)
            .map_or(0, Blocks::taken_before_answer);
        taken <= self.in_flight.streams()
    }

    /// Returns the bytes of files that no stream has taken: queued files, and the rest of open
    /// ones.
    fn unsent_bytes(&self) -> u64 {
        let open = self.cutting.iter().filter_map(|id| self.open_blocks(*id));
        let cut: u64 = open.map(Blocks::unsent_bytes).sum();
        self.queued_bytes.saturating_add(cut)
    }

    pub(super) fn open_blocks(&self, id: u64) -> Option<&Blocks> {
        match &self.tracked.get(&id)?.stage {
            SendStage::Blocks(blocks) => blocks.as_deref(),
            _ => None,
        }
    }

    /// Returns the size of the block `subject`, or 0 if it is no block of an open file.
    fn block_len(&self, subject: Subject) -> u64 {
        match (self.open_blocks(subject.entry), subject.part) {
            (Some(blocks), SubjectPart::Block(offset)) => blocks.len_at(offset),
            _ => 0,
        }
    }

    /// Returns the size of the next block of the file.
    fn next_block_len(&self, id: u64) -> u64 {
        self.open_blocks(id).map_or(0, Blocks::next_len)
    }

    /// Returns the bytes of file data that this work puts in flight.
    fn bytes_of(&self, subject: Subject, work: &StreamWork) -> u32 {
        let bytes = match work {
            StreamWork::Entry(entry) => entry.size(),
            StreamWork::Open { file, .. } => file.size().min(FIRST_BLOCK_BYTES),
            StreamWork::Block { .. } => self.block_len(subject),
            _ => 0,
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Returns true if another file may be opened. That may have to wait until another file is
    /// closed. One stream is therefore left to send what this requires: returned or repeated work.
    fn may_open(&self) -> bool {
        let opening = self.in_flight.unrepeatable();
        opening < self.in_flight.streams().saturating_sub(1).max(1)
            && self.openable.is_none_or(|files| opening < files)
    }

    /// Takes the next block of an open file.
    fn take_block(&mut self, id: u64) -> Option<(Subject, StreamWork)> {
        let tracked = self.tracked.get_mut(&id)?;
        let file = tracked.entry.clone();
        let blocks = tracked.blocks()?;
        let before = blocks.memory();
        let offset = blocks.take()?;
        self.offers.count_sent(blocks.len_at(offset));
        self.file_bytes = self.file_bytes - before + blocks.memory();
        if !blocks.has_unsent() {
            self.cutting.remove(&id);
        }
        Some((
            Subject::block(id, offset),
            StreamWork::Block { file, offset },
        ))
    }
}
