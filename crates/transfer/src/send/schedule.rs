//! The schedule of what is sent: which stream sends what next, what is in flight, and when
//! everything is answered.
//!
//! The walk adds entries in order, and a large file is cut into blocks. A stream takes the next
//! work when it has room, so a fast path carries more. Work that a stream has taken is *in flight*
//! until the receiver answers. When the stream is lost, the work returns and is taken first. When
//! no work is left, an idle stream repeats what has been in flight elsewhere for long, and carries
//! it from then on. Stalled paths therefore cannot delay the end.
//!
//! The schedule has no side effects. Events are its methods, and their results are the return
//! values and [`Schedule::actions`]. The time is an argument, relative to any moment. The schedule
//! does not know where files come from. An event takes at most logarithmic time in the number of
//! items in flight. Events that end many items at once are exceptions and pay for each: a lost
//! stream, or an answer to a file whose blocks are in flight. Taking work looks at each stream
//! ([`share`]), so that all finish together.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::manifest::{Manifest, ManifestObserver};
use crate::path::RelPath;
use crate::tree_hash::Hash;
use crate::wire::{EntryHead, Meta};

mod answers;
mod batch;
mod blocks;
mod entry;
mod in_flight;
mod late;
mod links;
#[cfg(test)]
mod model;
mod offers;
mod reading;
mod share;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod together_tests;
mod window;
mod work;

pub(crate) use entry::{FoundEntry, SourceEntry, entry_memory};
use entry::{OfferForm, SendStage, TrackedEntry};
use in_flight::InFlight;
use late::LateFile;
use links::Links;
pub(crate) use links::SourceInode;
use offers::OfferState;
pub(crate) use offers::Presence;
use window::BlockLimits;
pub(crate) use work::{
    EntryResult, NextStep, ResumedReport, ScheduleActions, ScheduleMemory, StreamId, StreamWork,
    WakeTarget, WholeFileMessage,
};
use work::{Subject, SubjectPart};

/// Maximum number of entries by which the walk may be ahead of the streams. It bounds memory to a
/// few MiB.
const MAX_QUEUED_ENTRIES: usize = 8192;
/// Maximum memory of entries that the walk has found and that have no result, in bytes. Only
/// entries with many extended attributes need more than a few MiB.
const MAX_ENTRY_BYTES: u64 = 64 << 20;
/// Maximum number of items that one stream may have in flight: enough for files of 1 KiB at 1
/// Gbit/s over 200 ms.
const MAX_IN_FLIGHT_PER_STREAM: usize = 32 * 1024;
/// Maximum number of entries in a batch for one buffer.
pub(crate) const MAX_BATCH_ENTRIES: usize = 256;
/// Pause of a stream that already carries its share of what is left, or too much to repeat
/// anything. More may have been delivered by then.
const SHARE_PAUSE: Duration = Duration::from_millis(20);
/// Minimum time in flight before an idle stream repeats work, when nothing else is left to send. It
/// grows with each repetition. It is just above Linux's minimum retransmission timeout (200 ms).
/// Work that waits for such a timeout at the end of a copy would arrive late on another stream.
const MIN_AGE_TO_REPEAT: Duration = Duration::from_millis(250);
/// Minimum time in flight before a repetition if no answer has arrived yet. Also the pause of a
/// retiring stream before it checks again, and the time limit for answers to offers.
const MAX_ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Minimum time in flight before a repetition, as a multiple of the idle stream's answer time, or
/// of the longest one if it has none. Without it, streams of one bottleneck would hinder each
/// other.
const MIN_ANSWER_TIMES_TO_REPEAT: u32 = 3;
/// Memory of an item that is in flight or has returned, and of a record that waits in the manifest,
/// in bytes.
pub(crate) const IN_FLIGHT_BYTES: u64 = 216;
const WAITING_BYTES: u64 = 64;
/// Maximum delivery time of the data that an idle stream carries if it is to repeat work. With
/// more, the repeated data would wait behind it, and take capacity from the original.
const MAX_BACKLOG_TO_REPEAT: Duration = Duration::from_millis(500);
/// Minimum pause of an idle stream.
const MIN_IDLE_PAUSE: Duration = Duration::from_millis(1);

/// The schedule of one copy.
#[derive(Default)]
pub(crate) struct Schedule {
    /// Entries that were found and not taken.
    queued: VecDeque<Arc<SourceEntry>>,
    /// Bytes of the queued files.
    queued_bytes: u64,
    /// Entries that were taken and have no result.
    tracked: HashMap<u64, TrackedEntry>,
    /// Work that has returned and is taken first. None of it is in flight.
    returned: BTreeSet<Subject>,
    /// Files that are sent in blocks and were taken, and that the next stream must open.
    unopened: BTreeSet<u64>,
    /// Open files with blocks that no stream has taken yet.
    cutting: BTreeSet<u64>,
    in_flight: InFlight,
    offers: OfferState,
    links: Links,
    found: WalkTotals,
    late: Option<LateFile>,
    end_taken: bool,
    manifest: Manifest,
    their_manifest: Option<Hash>,
    agreed: Option<bool>,
    closed: bool,
    bytes_done: u64,
    /// Memory of entries, and of open files.
    entry_bytes: u64,
    file_bytes: u64,
    /// True if a stream found no room for more in flight.
    starved: bool,
    /// Number of further files that may be opened. `None` if only the account limits it.
    openable: Option<usize>,
    block_limits: BlockLimits,
    /// True if the block limits held back a block at the last attempt.
    is_held_back: bool,
    actions: ScheduleActions,
}

/// Totals of the walk so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkTotals {
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// True once the walk is over.
    pub complete: bool,
}

/// Methods for the walk.
impl Schedule {
    /// Returns true if there is room for another entry.
    pub(crate) fn wants_entries(&self) -> bool {
        self.queued.len() + self.links.waiting() < MAX_QUEUED_ENTRIES
            && self.entry_bytes < MAX_ENTRY_BYTES
    }

    /// Adds an entry that the walk found: `path` beneath the source of this number.
    pub(crate) fn found(&mut self, source: u32, path: RelPath, meta: Meta, found: FoundEntry) {
        let entry = self.number(source, path, meta, found);
        self.queue(entry);
    }

    /// Adds a file that has several `names`.
    pub(crate) fn found_linked(
        &mut self,
        source: u32,
        path: RelPath,
        meta: Meta,
        size: u64,
        (inode, names): (SourceInode, u64),
    ) {
        let entry = self.number(source, path, meta, FoundEntry::File { size });
        if let Some(entry) = self.links.found(inode, names, entry) {
            self.queue(entry);
        }
    }

    /// Keeps names of one file together at the receiver, if it understands that.
    pub(crate) fn keep_links(&mut self) {
        self.links.enable();
    }

    /// Notes that the receiver understands HARD_LINK.
    pub(crate) fn links_understood(&mut self) {
        self.links.set_understood();
    }

    fn number(&mut self, source: u32, path: RelPath, meta: Meta, found: FoundEntry) -> SourceEntry {
        let id = self.found.entries;
        let entry = SourceEntry {
            head: EntryHead { id, source, path },
            meta,
            found,
            first: None,
        };
        self.found.entries += 1;
        self.found.bytes = self.found.bytes.saturating_add(entry.known_bytes());
        self.entry_bytes += entry.memory();
        entry
    }

    fn queue(&mut self, entry: SourceEntry) {
        self.queued_bytes = self.queued_bytes.saturating_add(entry.unsent_bytes());
        self.queued.push_back(Arc::new(entry));
        self.wake(WakeTarget::One);
    }

    /// Ends the walk. `complete` is true if nothing stopped it.
    pub(crate) fn walk_ended(&mut self, complete: bool) {
        self.found.complete = complete;
        self.links.all_found();
        self.conclude();
        self.wake(WakeTarget::All);
    }

    pub(crate) fn totals(&self) -> WalkTotals {
        self.found
    }
}

/// Methods for streams.
impl Schedule {
    pub(crate) fn add_stream(&mut self, stream: StreamId) {
        self.in_flight.add_stream(stream);
        // One more stream may open a file.
        self.wake(WakeTarget::All);
    }

    /// Returns the number of streams.
    pub(crate) fn streams(&self) -> usize {
        self.in_flight.streams()
    }

    /// Removes a stream. What it carried returns (LH-COPY-27).
    pub(crate) fn remove_stream(&mut self, stream: StreamId) {
        let back = self.in_flight.remove_stream(stream);
        self.offers.forget_questions();
        if !back.is_empty() {
            for subject in back {
                self.return_work(subject);
            }
            self.wake(WakeTarget::All);
        }
    }

    /// Gives the stream no more work. It is over once all that it carries is answered. END goes to
    /// another stream, as it is answered no sooner than the end of the copy.
    pub(crate) fn retire(&mut self, stream: StreamId) {
        if self.in_flight.retire(stream) && self.in_flight.carrier(Subject::END) == Some(stream) {
            self.in_flight.forget(Subject::END);
            self.returned.insert(Subject::END);
        }
        self.wake(WakeTarget::All);
    }

    /// Returns the next work of `stream`, if there is memory for `room` more items in flight.
    pub(crate) fn next_step(&mut self, stream: StreamId, now: Duration, room: usize) -> NextStep {
        if self.closed || self.agreed.is_some() || !self.in_flight.has_stream(stream) {
            return NextStep::Over;
        }
        let in_flight = self.in_flight.count_on(stream);
        if self.in_flight.is_retiring(stream) {
            return match in_flight {
                0 => NextStep::Over,
                _ => NextStep::Wait {
                    until: now.saturating_add(MAX_ANSWER_WAIT),
                },
            };
        }
        let room = room
            .min(MAX_BATCH_ENTRIES)
            .min(MAX_IN_FLIGHT_PER_STREAM.saturating_sub(in_flight));
        self.starved |= room == 0;
        let Some(batch) = self.batch(stream, now, room) else {
            return NextStep::Wait {
                until: now.saturating_add(SHARE_PAUSE),
            };
        };
        self.actions.wake_walk |= self.queued.len() < MAX_QUEUED_ENTRIES / 2;
        if batch.is_empty() {
            let next = self.repeat(stream, now);
            return match next {
                // Many blocks are in flight when the limits are reached, so a pause leaves no
                // stream idle.
                NextStep::Wait { until } if self.is_held_back => NextStep::Wait {
                    until: until.min(now.saturating_add(SHARE_PAUSE)),
                },
                next => next,
            };
        }
        NextStep::Send(batch)
    }

    /// Sets the number of further files that may be opened. A single stream that waited for a file
    /// to be closed could not send what closes it.
    pub(crate) fn set_openable(&mut self, files: usize) {
        self.openable = Some(files);
    }

    /// Returns work that was in flight, for another stream to send.
    fn return_work(&mut self, subject: Subject) {
        let unopened = self
            .tracked
            .get(&subject.entry)
            .is_some_and(|tracked| matches!(tracked.stage, SendStage::Blocks(None)));
        match unopened {
            true => self.unopened.insert(subject.entry),
            false => self.returned.insert(subject),
        };
    }

    /// Returns the work for `subject` in the current state of its entry.
    fn work_of(&self, subject: Subject) -> Option<StreamWork> {
        if subject == Subject::END {
            let WalkTotals { entries, bytes, .. } = self.found;
            return Some(StreamWork::End { entries, bytes });
        }
        let tracked = self.tracked.get(&subject.entry)?;
        let entry = tracked.entry.clone();
        match (&tracked.stage, subject.part) {
            (SendStage::Whole, SubjectPart::Whole) => Some(StreamWork::Entry(entry)),
            (SendStage::Failed(failure), SubjectPart::Whole) => {
                Some(StreamWork::Failed(entry, failure.clone()))
            }
            (SendStage::Offered, SubjectPart::Whole) => {
                Some(self.offers.work(entry, &tracked.offered))
            }
            (SendStage::Blocks(None), SubjectPart::Block(0)) => Some(StreamWork::Open {
                file: entry,
                offered: matches!(tracked.offered, OfferForm::WithData),
            }),
            (SendStage::Blocks(Some(_)), SubjectPart::Block(offset)) => Some(StreamWork::Block {
                file: entry,
                offset,
            }),
            (SendStage::Blocks(blocks), SubjectPart::Whole) => match tracked.content {
                Some((_, hash)) => Some(StreamWork::FileEnd { file: entry, hash }),
                None => {
                    let hash = blocks.as_ref()?.root()?;
                    Some(StreamWork::Complete { file: entry, hash })
                }
            },
            _ => None,
        }
    }

    /// Returns work that has long been in flight on another stream, to be repeated by this idle
    /// one. Otherwise returns when to check again.
    fn repeat(&mut self, stream: StreamId, now: Duration) -> NextStep {
        let own = self.in_flight.answer_time(stream);
        let oldest = self.in_flight.oldest_elsewhere(stream);
        let usual = if own.is_zero() {
            self.in_flight.longest_answer_time()
        } else {
            own
        };
        let age = match usual.is_zero() {
            // The answer time is unknown.
            true => MAX_ANSWER_WAIT,
            false => MIN_AGE_TO_REPEAT.max(usual * MIN_ANSWER_TIMES_TO_REPEAT),
        };
        let is_idle = self
            .in_flight
            .delivers_within(stream, MAX_BACKLOG_TO_REPEAT);
        if let Some((since, subject)) = oldest
            && is_idle
            && now.saturating_sub(since) >= age
            && let Some(work) = self.work_of(subject)
        {
            self.in_flight.repeat(subject, stream, now, age);
            return NextStep::Send(vec![work]);
        }
        // Work that others take from now on is not due earlier.
        let since = oldest.map_or(now, |(since, _)| since.min(now));
        let pause = if is_idle { MIN_IDLE_PAUSE } else { SHARE_PAUSE };
        let until = since.saturating_add(age).max(now.saturating_add(pause));
        NextStep::Wait { until }
    }
}

/// Methods for the end, and for information.
impl Schedule {
    /// Ends the copy: the walk stops and streams find no more work.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.actions.wake_walk = true;
        self.wake(WakeTarget::All);
    }

    /// Returns true if the stream carries anything.
    pub(crate) fn carries(&self, stream: StreamId) -> bool {
        self.in_flight.count_on(stream) > 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns true if the receiver has reported that everything is in place.
    pub(crate) fn is_completed(&self) -> bool {
        self.their_manifest.is_some()
    }

    /// Returns whether both sides agree on the result, once everything is in place.
    pub(crate) fn agreed(&self) -> Option<bool> {
        self.agreed
    }

    /// Returns the hash over all entries, once everything is in place.
    pub(crate) fn manifest(&self) -> Hash {
        self.manifest.hash()
    }

    /// Returns the bytes of files that the receiver has reported as written.
    pub(crate) fn bytes_done(&self) -> u64 {
        self.bytes_done
    }

    /// Returns the memory that the schedule uses.
    pub(crate) fn memory(&self) -> ScheduleMemory {
        let work_items = self.in_flight.len() + self.returned.len() + self.unopened.len();
        let in_flight = work_items as u64 * IN_FLIGHT_BYTES;
        let waiting = self.manifest.waiting_records() as u64 * WAITING_BYTES;
        ScheduleMemory {
            entries: self.entry_bytes + self.links.bytes(),
            work: in_flight + waiting + self.file_bytes,
        }
    }

    /// Returns the actions that are due since the last call.
    pub(crate) fn actions(&mut self) -> ScheduleActions {
        if self.in_flight.take_drained() {
            self.wake(WakeTarget::All);
        }
        std::mem::take(&mut self.actions)
    }

    fn wake(&mut self, wake: WakeTarget) {
        self.actions.wake = self.actions.wake.max(wake);
    }

    fn drop_subject(&mut self, subject: Subject) {
        self.in_flight.forget(subject);
        self.returned.remove(&subject);
    }

    /// Drops all work of an entry.
    fn drop_entry(&mut self, id: u64) {
        self.in_flight.forget_entry(id);
        self.offers.answered(id);
        self.cutting.remove(&id);
        self.unopened.remove(&id);
        let of_entry = Subject::block(id, 0)..=Subject::whole(id);
        while let Some(&subject) = self.returned.range(of_entry.clone()).next() {
            self.returned.remove(&subject);
        }
    }

    /// Reports all records to `observer`. Must be called before the walk.
    pub(crate) fn observe(&mut self, observer: Arc<dyn ManifestObserver>) {
        self.manifest.observe(observer);
    }

    /// Compares both sides' manifests as soon as both are complete.
    fn conclude(&mut self) {
        if let Some(theirs) = self.their_manifest
            && self.agreed.is_none()
            && self.found.complete
            && self.manifest.len() == self.found.entries
        {
            self.agreed = Some(self.manifest.hash() == theirs);
            self.wake(WakeTarget::All);
        }
    }

    /// Wakes streams, as there is room for more in flight.
    fn wake_starved(&mut self) {
        if std::mem::take(&mut self.starved) {
            self.wake(WakeTarget::All);
        }
    }
}
