//! The schedule of what is sent: which stream sends what next, what is in flight, and when all is
//! answered.
//!
//! Entries come in from the walk, in order; a large file is cut into blocks; a stream takes what is
//! next when it has room, so a fast path carries more. What a stream has taken is *in flight* until
//! the receiver answers; when the stream is lost, it comes back and is taken first. When nothing is
//! left to take, an idle stream sends again what has long been in flight elsewhere and carries it
//! from then on, so stalled paths can't hold up the end.
//!
//! It decides and does nothing: events are its methods, what they lead to is in the answers and in
//! [`Schedule::actions`], and the time is an argument, counted from any moment. It does not know
//! where files come from. No event takes more than a logarithm of what is in flight, but for those
//! that end many at once (a stream lost, a file answered for while its blocks are in flight), which
//! pay for each. Taking work looks at each stream ([`share`]), so that all finish together.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::manifest::Manifest;
use crate::path::RelPath;
use crate::tree_hash::Hash;
use crate::wire::{Head, Meta};

mod answers;
mod batch;
mod blocks;
mod entry;
mod in_flight;
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

pub(crate) use entry::{Entry, Found, entry_memory};
use entry::{Offered, Stage, Tracked};
use in_flight::InFlight;
pub(crate) use links::Inode;
use links::Links;
use offers::Offers;
pub(crate) use offers::Presence;
use window::BlockLimits;
pub(crate) use work::{Actions, EntryResult, Memory, Next, Resumed, Say, StreamId, Wake, Work};
use work::{Part, Subject};

/// Entries that the walk may be ahead of the streams: bounds memory to a few MiB.
const MAX_QUEUED_ENTRIES: usize = 8192;
/// Work that one stream may have in flight: enough for files of 1 KiB at 1 Gbit/s over 200 ms.
const MAX_IN_FLIGHT_PER_STREAM: usize = 32 * 1024;
/// Entries from which on a batch for one buffer is full.
pub(crate) const MAX_BATCH_ENTRIES: usize = 256;
/// A stream that already carries its share of what is left, or too much to repeat anything, asks
/// again after this: by then more may have been delivered.
const SHARE_PAUSE: Duration = Duration::from_millis(20);
/// How long work must at least have been in flight before an idle stream repeats it, when nothing
/// else is left to send; longer each time it is repeated. Just above Linux's shortest
/// retransmission timeout (200 ms): what waits for one at the end of a copy came late on some other
/// stream.
const MIN_AGE_TO_REPEAT: Duration = Duration::from_millis(250);
/// The same where no answer has come yet; how long a stream that takes no more work waits before it
/// looks again; and how long answers to offers are waited for.
const MAX_ANSWER_WAIT: Duration = Duration::from_secs(2);
/// How many times as long as the answers of the idle stream take (as the longest of all, if it has
/// none yet), if that is longer: streams of one bottleneck only get in each other's way.
const MIN_ANSWER_TIMES_TO_REPEAT: u32 = 3;
/// Bytes of memory for what is in flight or came back, and for a record that waits in the manifest.
pub(crate) const IN_FLIGHT_BYTES: u64 = 216;
const WAITING_BYTES: u64 = 64;
/// An idle stream repeats nothing while what it carries takes it longer than this to deliver: that
/// would only stand behind it, and take the path from what it repeats.
const MAX_BACKLOG_TO_REPEAT: Duration = Duration::from_millis(500);
/// How long an idle stream waits at least.
const MIN_WAIT: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Default)]
pub(crate) struct Schedule {
    /// Found and not handed out.
    queued: VecDeque<Arc<Entry>>,
    /// Bytes of files in there.
    queued_bytes: u64,
    /// Handed out and without a result.
    tracked: HashMap<u64, Tracked>,
    /// Came back, to be taken first. Nothing is in here and in flight.
    returned: BTreeSet<Subject>,
    /// Files that go in blocks, were handed out, and are to be opened by whoever comes next.
    unopened: BTreeSet<u64>,
    /// Open files with blocks that nobody has taken yet.
    cutting: BTreeSet<u64>,
    in_flight: InFlight,
    offers: Offers,
    links: Links,
    found: Totals,
    end_taken: bool,
    manifest: Manifest,
    their_manifest: Option<Hash>,
    agreed: Option<bool>,
    closed: bool,
    bytes_done: u64,
    /// Memory of entries and of open files.
    entry_bytes: u64,
    file_bytes: u64,
    /// A stream found no room for more in flight.
    starved: bool,
    /// Files that may be opened beside those that are open. `None` where there is no limit but the
    /// account.
    openable: Option<usize>,
    block_limits: BlockLimits,
    /// The limits on blocks held back one that could have been taken last.
    is_held_back: bool,
    actions: Actions,
}

/// What the walk has found so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Whether the walk is over.
    pub complete: bool,
}

/// The walk.
impl Schedule {
    /// Whether there is room for another entry.
    pub(crate) fn wants_entries(&self) -> bool {
        self.queued.len() + self.links.waiting() < MAX_QUEUED_ENTRIES
    }

    /// The walk found an entry: `path` beneath the source of this number.
    pub(crate) fn found(&mut self, source: u32, path: RelPath, meta: Meta, found: Found) {
        let entry = self.number(source, path, meta, found);
        self.queue(entry);
    }

    /// The same of a file that has several `names`.
    pub(crate) fn found_linked(
        &mut self,
        source: u32,
        path: RelPath,
        meta: Meta,
        size: u64,
        (inode, names): (Inode, u64),
    ) {
        let entry = self.number(source, path, meta, Found::File { size });
        if let Some(entry) = self.links.found(inode, names, entry) {
            self.queue(entry);
        }
    }

    /// Names of one file are to be names of one file at the receiver, too, if it understands that.
    pub(crate) fn keep_links(&mut self) {
        self.links.keep();
    }

    /// The receiver understands HARD_LINK.
    pub(crate) fn links_understood(&mut self) {
        self.links.understood();
    }

    fn number(&mut self, source: u32, path: RelPath, meta: Meta, found: Found) -> Entry {
        let id = self.found.entries;
        let entry = Entry {
            head: Head { id, source, path },
            meta,
            found,
            first: None,
        };
        self.found.entries += 1;
        self.found.bytes = self.found.bytes.saturating_add(entry.size());
        self.entry_bytes += entry.memory();
        entry
    }

    fn queue(&mut self, entry: Entry) {
        self.queued_bytes = self.queued_bytes.saturating_add(entry.unsent_bytes());
        self.queued.push_back(Arc::new(entry));
        self.wake(Wake::One);
    }

    /// The walk is over; `complete` if nothing stopped it.
    pub(crate) fn walk_ended(&mut self, complete: bool) {
        self.found.complete = complete;
        self.links.all_found();
        self.conclude();
        self.wake(Wake::All);
    }

    pub(crate) fn totals(&self) -> Totals {
        self.found
    }
}

/// Streams.
impl Schedule {
    pub(crate) fn add_stream(&mut self, stream: StreamId) {
        self.in_flight.add_stream(stream);
        // One more may open a file.
        self.wake(Wake::All);
    }

    /// The stream is gone: what it carried comes back (LH-COPY-27).
    pub(crate) fn remove_stream(&mut self, stream: StreamId) {
        let back = self.in_flight.remove_stream(stream);
        self.offers.forget_questions();
        if !back.is_empty() {
            for subject in back {
                self.come_back(subject);
            }
            self.wake(Wake::All);
        }
    }

    /// The stream takes no more work, and is over once all that it carries is answered. END goes to
    /// another stream: it is answered no sooner than the copy is over.
    pub(crate) fn retire(&mut self, stream: StreamId) {
        if self.in_flight.retire(stream) && self.in_flight.carrier(Subject::END) == Some(stream) {
            self.in_flight.forget(Subject::END);
            self.returned.insert(Subject::END);
        }
        self.wake(Wake::All);
    }

    /// What `stream` does next, if there is memory for `room` more pieces of work in flight.
    pub(crate) fn next(&mut self, stream: StreamId, now: Duration, room: usize) -> Next {
        if self.closed || self.agreed.is_some() || !self.in_flight.has_stream(stream) {
            return Next::Over;
        }
        let in_flight = self.in_flight.of(stream);
        if self.in_flight.is_retiring(stream) {
            return match in_flight {
                0 => Next::Over,
                _ => Next::Wait {
                    until: now.saturating_add(MAX_ANSWER_WAIT),
                },
            };
        }
        let room = room
            .min(MAX_BATCH_ENTRIES)
            .min(MAX_IN_FLIGHT_PER_STREAM.saturating_sub(in_flight));
        self.starved |= room == 0;
        let Some(batch) = self.batch(stream, now, room) else {
            return Next::Wait {
                until: now.saturating_add(SHARE_PAUSE),
            };
        };
        self.actions.wake_walk |= self.queued.len() < MAX_QUEUED_ENTRIES / 2;
        if batch.is_empty() {
            let next = self.repeat(stream, now);
            return match next {
                // Many blocks are in flight when the limits are reached: a pause leaves no stream
                // idle.
                Next::Wait { until } if self.is_held_back => Next::Wait {
                    until: until.min(now.saturating_add(SHARE_PAUSE)),
                },
                next => next,
            };
        }
        Next::Send(batch)
    }

    /// From now on, so many files may be opened beside those that are open. A single stream that
    /// waited for a file to be closed could not send what closes it.
    pub(crate) fn set_openable(&mut self, files: usize) {
        self.openable = Some(files);
    }

    /// What was in flight is to be sent by another stream.
    fn come_back(&mut self, subject: Subject) {
        let unopened = self
            .tracked
            .get(&subject.entry)
            .is_some_and(|tracked| matches!(tracked.stage, Stage::Blocks(None)));
        match unopened {
            true => self.unopened.insert(subject.entry),
            false => self.returned.insert(subject),
        };
    }

    /// What is to be sent for `subject`, as its entry stands now.
    fn work_of(&self, subject: Subject) -> Option<Work> {
        if subject == Subject::END {
            let Totals { entries, bytes, .. } = self.found;
            return Some(Work::End { entries, bytes });
        }
        let tracked = self.tracked.get(&subject.entry)?;
        let entry = tracked.entry.clone();
        match (&tracked.stage, subject.part) {
            (Stage::Whole, Part::Whole) => Some(Work::Entry(entry)),
            (Stage::Failed(failure), Part::Whole) => Some(Work::Failed(entry, failure.clone())),
            (Stage::Offered, Part::Whole) => Some(self.offers.work(entry, &tracked.offered)),
            (Stage::Blocks(None), Part::Block(0)) => Some(Work::Open {
                file: entry,
                offered: matches!(tracked.offered, Offered::WithData),
            }),
            (Stage::Blocks(Some(_)), Part::Block(offset)) => Some(Work::Block {
                file: entry,
                offset,
            }),
            (Stage::Blocks(blocks), Part::Whole) => match tracked.content {
                Some((_, hash)) => Some(Work::FileEnd { file: entry, hash }),
                None => {
                    let hash = blocks.as_ref()?.root()?;
                    Some(Work::Complete { file: entry, hash })
                }
            },
            _ => None,
        }
    }

    /// What has long been in flight on another stream, for an idle one to send too; or when to look
    /// again.
    fn repeat(&mut self, stream: StreamId, now: Duration) -> Next {
        let own = self.in_flight.answer_time(stream);
        let oldest = self.in_flight.oldest_elsewhere(stream);
        let usual = if own.is_zero() {
            self.in_flight.longest_answer_time()
        } else {
            own
        };
        let age = match usual.is_zero() {
            // Nobody knows how long an answer takes.
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
            return Next::Send(vec![work]);
        }
        // What others take from now on is not due before that, either.
        let since = oldest.map_or(now, |(since, _)| since.min(now));
        let pause = if is_idle { MIN_WAIT } else { SHARE_PAUSE };
        let until = since.saturating_add(age).max(now.saturating_add(pause));
        Next::Wait { until }
    }
}

/// The end, and what there is to know.
impl Schedule {
    /// Ends it all: the walk stops and streams find no more work.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.actions.wake_walk = true;
        self.wake(Wake::All);
    }

    /// Whether a stream carries something.
    pub(crate) fn carries(&self, stream: StreamId) -> bool {
        self.in_flight.of(stream) > 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the receiver has said that everything is in place.
    pub(crate) fn is_completed(&self) -> bool {
        self.their_manifest.is_some()
    }

    /// Once everything is in place: whether both sides agree on what that is.
    pub(crate) fn agreed(&self) -> Option<bool> {
        self.agreed
    }

    /// The hash over all entries, once done.
    pub(crate) fn manifest(&self) -> Hash {
        self.manifest.hash()
    }

    /// Bytes of files that are written, as far as the receiver has said.
    pub(crate) fn bytes_done(&self) -> u64 {
        self.bytes_done
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> Memory {
        let work_items = self.in_flight.len() + self.returned.len() + self.unopened.len();
        let in_flight = work_items as u64 * IN_FLIGHT_BYTES;
        let waiting = self.manifest.waiting() as u64 * WAITING_BYTES;
        Memory {
            entries: self.entry_bytes + self.links.bytes(),
            work: in_flight + waiting + self.file_bytes,
        }
    }

    /// What is to be done since this was last asked.
    pub(crate) fn actions(&mut self) -> Actions {
        if self.in_flight.take_drained() {
            self.wake(Wake::All);
        }
        std::mem::take(&mut self.actions)
    }

    fn wake(&mut self, wake: Wake) {
        self.actions.wake = self.actions.wake.max(wake);
    }

    fn drop_subject(&mut self, subject: Subject) {
        self.in_flight.forget(subject);
        self.returned.remove(&subject);
    }

    /// Nothing of an entry is to be sent any more.
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

    /// Compares both sides' accounts as soon as both are complete.
    fn conclude(&mut self) {
        if let Some(theirs) = self.their_manifest
            && self.agreed.is_none()
            && self.found.complete
            && self.manifest.len() == self.found.entries
        {
            self.agreed = Some(self.manifest.hash() == theirs);
            self.wake(Wake::All);
        }
    }

    /// There is room for more in flight.
    fn freed(&mut self) {
        if std::mem::take(&mut self.starved) {
            self.wake(Wake::All);
        }
    }
}
