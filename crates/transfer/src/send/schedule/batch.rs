//! What goes together into one buffer of a stream.

use std::sync::Arc;
use std::time::Duration;

use super::Schedule;
use super::blocks::Blocks;
use super::entry::{Entry, Stage, Tracked};
use super::offers::Begins;
use super::work::{Part, StreamId, Subject, Work};

/// Bytes of entries from which on a batch for one buffer is full.
const MAX_BATCH_BYTES: u64 = 512 * 1024;
/// Bytes of blocks that go in one buffer: the largest block.
const MAX_BLOCK_BATCH_BYTES: u64 = 1 << 20;
/// Bytes up to which a batch may always be filled: a connection's first flight (ten segments: RFC
/// 6928). A batch is no larger than that or than all that its stream has delivered so far: until
/// slow start is over, others may carry it sooner.
const MIN_BATCH_BYTES: u64 = 14_600;
/// No batch is larger than this part of what the stream is to take of all that is left: one is
/// being written, one waits, and one is being filled, and when losses cut the stream's window,
/// nobody else carries them.
const BATCHES_OF_SHARE: u64 = 16;
/// Bytes that a file which is yet to be opened is taken to have in its first block.
const FIRST_BLOCK_BYTES: u64 = 1 << 18;

/// What may come next in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows {
    /// It is empty.
    Anything,
    /// Blocks are in it.
    Blocks,
    /// What is no block is in it.
    Entries,
}

impl Schedule {
    /// What `stream` takes, `room` of them at most; nothing at all if it already carries its share
    /// of what is left.
    pub(super) fn batch(
        &mut self,
        stream: StreamId,
        now: Duration,
        room: usize,
    ) -> Option<Vec<Work>> {
        self.offers.give_up_late_questions(now);
        let unsent = self.unsent_bytes();
        let share = self.in_flight.share(stream, unsent, now);
        if share == 0 && unsent > 0 && self.in_flight.of(stream) > 0 && self.returned.is_empty() {
            return None;
        }
        let largest = (share / BATCHES_OF_SHARE)
            .min(self.in_flight.answered(stream))
            .max(MIN_BATCH_BYTES);
        let mut batch = Vec::new();
        let mut bytes = 0u64;
        let mut follows = Follows::Anything;
        while batch.len() < room {
            let most = match follows {
                Follows::Blocks => largest.min(MAX_BLOCK_BATCH_BYTES),
                _ => largest.min(MAX_BATCH_BYTES),
            };
            if bytes >= most {
                break;
            }
            let Some((subject, work)) = self.pick(follows, most - bytes) else {
                break;
            };
            // A file that is being opened has nothing to repeat yet.
            let repeatable = !matches!(work, Work::Open { .. });
            let in_flight = self.bytes_of(subject, &work);
            self.in_flight
                .add(subject, stream, now, repeatable, in_flight);
            bytes = bytes.saturating_add(work.batch_bytes().max(in_flight.into()));
            follows = match work {
                Work::Block { .. } => Follows::Blocks,
                _ => Follows::Entries,
            };
            let is_alone = matches!(work, Work::Open { .. });
            batch.push(work);
            if is_alone {
                break;
            }
        }
        Some(batch)
    }

    /// What is to be taken next. What is opened goes alone, and blocks only follow each other, of
    /// no more than `fits` bytes.
    fn pick(&mut self, follows: Follows, fits: u64) -> Option<(Subject, Work)> {
        let first = follows == Follows::Anything;
        while let Some(&subject) = self.returned.first() {
            let work = self.work_of(subject);
            let may_follow = match &work {
                Some(Work::Block { .. }) if follows == Follows::Blocks => {
                    self.block_len(subject) <= fits
                }
                Some(work) => first || (follows == Follows::Entries && !work.is_block()),
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
                Follows::Anything => true,
                Follows::Blocks => self.next_block_len(file) <= fits,
                Follows::Entries => false,
            };
            return may_follow.then(|| self.cut(file)).flatten();
        }
        if follows == Follows::Blocks {
            return None;
        }
        let may_open = first && self.may_open();
        if may_open && let Some(id) = self.unopened.pop_first() {
            let subject = Subject::block(id, 0);
            return self.work_of(subject).map(|work| (subject, work));
        }
        let offers = &self.offers;
        let may_begin = |entry: &mut Arc<Entry>| match offers.begins(entry) {
            Begins::Waits => false,
            Begins::Offered(_) | Begins::Linked => true,
            Begins::Sent | Begins::OfferedAndSent => may_open || !entry.goes_in_blocks(),
        };
        if let Some(entry) = self.queued.pop_front_if(may_begin) {
            self.queued_bytes = self.queued_bytes.saturating_sub(entry.unsent_bytes());
            let (id, begins) = (entry.head.id, self.offers.begins(&entry));
            let is_offered = matches!(begins, Begins::Offered(_) | Begins::Linked);
            let subject = match entry.goes_in_blocks() && !is_offered {
                true => Subject::block(id, 0),
                false => Subject::whole(id),
            };
            self.offers.begun(&entry, begins);
            self.tracked.insert(id, Tracked::new(entry, begins));
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

    /// Whether another block of a file may be taken of which the receiver may have some and has not
    /// reported it: one for each stream. It reports within a round trip, and a block takes several
    /// while a connection is new (LH-COPY-36).
    fn may_take_before_answer(&self, file: u64) -> bool {
        let taken = self
            .open_blocks(file)
            .map_or(0, Blocks::taken_before_answer);
        taken <= self.in_flight.streams()
    }

    /// Bytes of files that nobody has taken: those that wait, and the rest of those that are being
    /// cut.
    fn unsent_bytes(&self) -> u64 {
        let open = self.cutting.iter().filter_map(|id| self.open_blocks(*id));
        let cut: u64 = open.map(Blocks::unsent_bytes).sum();
        self.queued_bytes.saturating_add(cut)
    }

    pub(super) fn open_blocks(&self, id: u64) -> Option<&Blocks> {
        match &self.tracked.get(&id)?.stage {
            Stage::Blocks(blocks) => blocks.as_deref(),
            _ => None,
        }
    }

    /// Bytes of the block that `subject` is; none if it is no block of an open file.
    fn block_len(&self, subject: Subject) -> u64 {
        match (self.open_blocks(subject.entry), subject.part) {
            (Some(blocks), Part::Block(offset)) => blocks.len_at(offset),
            _ => 0,
        }
    }

    /// Bytes of the block of the file that is taken next.
    fn next_block_len(&self, id: u64) -> u64 {
        self.open_blocks(id).map_or(0, Blocks::next_len)
    }

    /// Bytes of file data that are in flight with this.
    fn bytes_of(&self, subject: Subject, work: &Work) -> u32 {
        let bytes = match work {
            Work::Entry(entry) => entry.size(),
            Work::Open { file, .. } => file.size().min(FIRST_BLOCK_BYTES),
            Work::Block { .. } => self.block_len(subject),
            _ => 0,
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Whether another file may be opened. One who opens may have to wait until another file is
    /// closed, so one stream is left to send what that takes: what came back, or is repeated.
    fn may_open(&self) -> bool {
        let opening = self.in_flight.unrepeatable();
        opening < self.in_flight.streams().saturating_sub(1).max(1)
            && self.openable.is_none_or(|files| opening < files)
    }

    /// The next block of an open file.
    fn cut(&mut self, id: u64) -> Option<(Subject, Work)> {
        let tracked = self.tracked.get_mut(&id)?;
        let file = tracked.entry.clone();
        let blocks = tracked.blocks()?;
        let before = blocks.memory();
        let offset = blocks.take()?;
        self.offers.sent(blocks.len_at(offset));
        self.file_bytes = self.file_bytes - before + blocks.memory();
        if !blocks.has_unsent() {
            self.cutting.remove(&id);
        }
        Some((Subject::block(id, offset), Work::Block { file, offset }))
    }
}
