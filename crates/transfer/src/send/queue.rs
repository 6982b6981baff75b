//! The sender's queue, from which all streams of a copy take their work.
//!
//! The [`Schedule`] decides what goes where. The queue holds it under a lock, gives it the time,
//! accounts for its memory and open files, wakes waiting tasks, and reports to the observer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::Stat;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::account::{Account, Resource, ResourceExhausted, ResourcePermit};
use crate::error::{Error, Failure};
use crate::path::RelPath;
use crate::progress::{NotKeptCounts, Observer, TransferEvent, TransferProgress};
use crate::send::read::{OpenSourceFile, ReadReports};
use crate::send::schedule::{
    EntryResult, FoundEntry, IN_FLIGHT_BYTES, MAX_BATCH_ENTRIES, NextStep, Presence, ResumedReport,
    Schedule, SourceInode, StreamId, StreamWork, WakeTarget, WholeFileMessage, entry_memory,
};
use crate::send::source::Sources;
use crate::send::walk::WalkSink;
use crate::tree_hash::{BlockHash, Hash, Subtree};
use crate::wire::{Compare, CopyInstance, EntryHead, EntryOutcome, Frame, Meta, Placement};

#[cfg(test)]
mod tests;

/// Interval at which a walk or stream that waits for memory checks for it.
const MEMORY_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Memory reserved for work, in bytes. It is enough for one full batch, so that the walk cannot use
/// up all memory.
const WORK_RESERVE: u64 = MAX_BATCH_ENTRIES as u64 * IN_FLIGHT_BYTES;

/// The queue of one copy.
pub(crate) struct WorkQueue {
    state: Mutex<WorkQueueState>,
    /// The walk waits here for room.
    room: Condvar,
    /// Streams wait here for work, and everyone for the end.
    work: Notify,
    started: Instant,
    /// Instance of the copy at the other end, once reported.
    instance: OnceLock<CopyInstance>,
    /// Placement of the sources at the receiver, once reported.
    placement: OnceLock<Placement>,
    pub sources: Arc<Sources>,
    /// If true, a later copy may resume files if this one ends early.
    pub resume: bool,
    pub account: Arc<Account>,
    /// True if the receiver understands NOT_KEPT.
    reports_not_kept: AtomicBool,
    pub progress: Arc<TransferProgress>,
    pub observer: Arc<dyn Observer>,
    /// Function that names entries for the observer.
    pub label: Box<dyn Fn(&EntryHead) -> String + Send + Sync>,
}

struct WorkQueueState {
    schedule: Schedule,
    open_files: HashMap<u64, Arc<OpenSourceFile>>,
    /// Memory of the schedule.
    held: ResourcePermit,
}

impl WorkQueueState {
    /// Accounts for the memory of the schedule, and for additional bytes of entries and pieces of
    /// work.
    fn account(&mut self, entry_bytes: u64, work_items: u64) -> Result<(), ResourceExhausted> {
        let memory = self.schedule.memory();
        let work = memory
            .work
            .saturating_add(work_items * IN_FLIGHT_BYTES)
            .max(WORK_RESERVE);
        let entries = memory.entries.saturating_add(entry_bytes);
        self.held.set_in_steps(entries.saturating_add(work))
    }

    /// Returns the number of further pieces of work for which there is memory.
    fn room(&mut self) -> usize {
        let full = MAX_BATCH_ENTRIES;
        let fits = [full, 1]
            .into_iter()
            .find(|&work_items| self.account(0, work_items as u64).is_ok());
        fits.unwrap_or(0)
    }
}

/// Result of a stream's request for work.
pub(crate) enum TakeResult {
    Work(Vec<StreamWork>),
    /// There is no work now. Ask again when woken, or after this time.
    Nothing(Duration),
    /// The queue is over.
    Over,
}

impl WorkQueue {
    /// Creates a queue for what is found beneath `sources`. Its memory and open files are on
    /// `account`. With `resume`, a later copy may resume its files.
    ///
    /// # Errors
    /// [`Error::Limit`] if the account has no memory left.
    pub(crate) fn new(
        sources: impl Into<Arc<Sources>>,
        resume: bool,
        account: Arc<Account>,
        progress: Arc<TransferProgress>,
        observer: Arc<dyn Observer>,
        label: Box<dyn Fn(&EntryHead) -> String + Send + Sync>,
    ) -> Result<Arc<Self>, Error> {
        let mut state = WorkQueueState {
            schedule: Schedule::default(),
            open_files: HashMap::new(),
            held: account.take(Resource::Bookkeeping, 1)?,
        };
        state.account(0, 0)?;
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            room: Condvar::new(),
            work: Notify::new(),
            started: Instant::now(),
            instance: OnceLock::new(),
            placement: OnceLock::new(),
            sources: sources.into(),
            resume,
            account,
            reports_not_kept: AtomicBool::new(false),
            progress,
            observer,
            label,
        }))
    }

    /// Sets what is known of the receiver's files before it reports, and how files are compared.
    /// Must be called before there are streams.
    pub(crate) fn set_presence(&self, presence: Presence, compare: Compare) {
        self.handle(|schedule, _| schedule.expect(presence, compare));
    }

    /// Keeps names of one file together at the receiver, if it understands that or `understood` is
    /// true. Must be called before the walk.
    pub(crate) fn keep_links(&self, understood: bool) {
        self.handle(|schedule, _| {
            schedule.keep_links();
            if understood {
                schedule.links_understood();
            }
        });
    }

    /// Enables reports to the receiver on what the copy does not keep of its sources (LH-COPY-54).
    pub(crate) fn report_not_kept(&self) {
        self.reports_not_kept.store(true, Ordering::Relaxed);
    }

    /// Returns the counts of what is not kept, if they must be reported and differ from `reported`.
    pub(crate) fn not_kept_since(&self, reported: &mut NotKeptCounts) -> Option<NotKeptCounts> {
        let counts = self.progress.not_kept.counts();
        let is_due = self.reports_not_kept.load(Ordering::Relaxed) && counts != *reported;
        is_due.then(|| {
            *reported = counts;
            counts
        })
    }

    /// Sets how many blocks of a file may be sent from the first unanswered one.
    #[cfg(test)]
    pub(crate) fn set_blocks_ahead(&self, blocks: u64) {
        self.handle(|schedule, _| schedule.set_blocks_ahead(blocks));
    }

    /// Walks all sources into the queue. Blocking; returns early when the queue is closed.
    pub(crate) fn walk(&self) {
        let complete = self.sources.walk(self);
        let mut state = self.state.lock();
        state.schedule.walk_ended(complete);
        let found = state.schedule.totals();
        self.progress
            .set_found(found.entries, found.bytes, complete);
        self.perform(state);
    }

    /// Starts the walk on one of the runtime's blocking threads. It runs until its end, or until
    /// the queue is closed.
    pub(crate) fn start_walk(self: &Arc<Self>) -> JoinHandle<()> {
        let queue = self.clone();
        tokio::task::spawn_blocking(move || {
            let _close = CloseOnPanic(&queue);
            queue.walk();
        })
    }

    pub(crate) fn add_stream(&self, stream: StreamId) {
        self.handle(|schedule, _| schedule.add_stream(stream));
    }

    /// Gives the stream no more work. [`Self::take`] returns [`TakeResult::Over`] once all that it
    /// carries is answered.
    pub(crate) fn retire(&self, stream: StreamId) {
        self.handle(|schedule, _| schedule.retire(stream));
    }

    /// Removes a stream. What only it carried returns to the queue, to be taken first.
    pub(crate) fn remove_stream(&self, stream: StreamId) {
        self.handle(|schedule, _| schedule.remove_stream(stream));
    }

    /// Returns true if the stream carries unanswered work.
    pub(crate) fn carries(&self, stream: StreamId) -> bool {
        self.state.lock().schedule.carries(stream)
    }

    /// Returns work for `stream`.
    pub(crate) fn take(&self, stream: StreamId) -> TakeResult {
        let mut state = self.state.lock();
        let now = self.started.elapsed();
        let room = state.room();
        if let Some(most) = self.account.max_open_files() {
            let open = state.open_files.len();
            state.schedule.set_openable(most.saturating_sub(open));
        }
        let next = state.schedule.next_step(stream, now, room);
        self.perform(state);
        match next {
            NextStep::Send(work) => TakeResult::Work(work),
            // Other copies may release memory, which is not notified.
            NextStep::Wait { .. } if room == 0 => TakeResult::Nothing(MEMORY_POLL_INTERVAL),
            NextStep::Wait { until } => TakeResult::Nothing(until.saturating_sub(now)),
            NextStep::Over => TakeResult::Over,
        }
    }

    /// Waits until there may be work, or the queue is over. Must be created before the call of
    /// [`Self::take`].
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.work.notified()
    }

    /// Notes that the receiver has written a block.
    pub(crate) fn acknowledged(&self, id: u64, offset: u64) {
        self.handle(|schedule, now| schedule.acknowledged(id, offset, now));
    }

    /// Notes that the receiver had these parts of a file before. It reports `more`, or has reported
    /// all.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the file has no such parts.
    pub(crate) fn have(&self, id: u64, subtrees: &[Subtree], more: bool) -> Result<(), Error> {
        match self.handle(|schedule, _| schedule.have(id, subtrees, more)) {
            true => Ok(()),
            false => Err(Error::Protocol(
                "it claims parts that the file does not have".into(),
            )),
        }
    }

    /// Notes that the other end has accepted a stream. It may report the instance of the copy. It
    /// also reports whether some files may exist, and whether it understands HARD_LINK.
    ///
    /// # Errors
    /// [`Error::CopyLost`] if the instance differs from before, as the answers of that instance do
    /// not apply to this one (LH-COPY-38).
    pub(crate) fn accepted(
        &self,
        instance: Option<CopyInstance>,
        present: bool,
        hard_links: bool,
    ) -> Result<(), Error> {
        if let Some(instance) = instance
            && *self.instance.get_or_init(|| instance) != instance
        {
            return Err(Error::restarted_copy());
        }
        self.handle(|schedule, now| {
            schedule.reported_presence(present, now);
            if hard_links {
                schedule.links_understood();
            }
        });
        Ok(())
    }

    /// Notes where the receiver puts the sources.
    pub(crate) fn set_placement(&self, placement: Option<Placement>) {
        if let Some(placement) = placement {
            // The receiver reports the same on every stream.
            let _ = self.placement.set(placement);
        }
    }

    /// Returns where the receiver puts the sources, once reported.
    pub(crate) fn placement(&self) -> Option<Placement> {
        self.placement.get().copied()
    }

    /// Notes that the receiver wants a file that was offered.
    pub(crate) fn wanted(&self, id: u64) {
        self.handle(|schedule, now| schedule.wanted(id, now));
    }

    /// Notes the receiver's outcome of an entry.
    pub(crate) fn answered(&self, id: u64, outcome: Result<EntryOutcome, Failure>) {
        // A failure of this end comes back unchanged.
        let outcome = outcome.map_err(Failure::at_destination);
        self.handle(|schedule, now| schedule.answered(id, outcome, now));
    }

    /// Notes that everything is in place, with the receiver's hash over it. Answers on other
    /// streams may still be on their way, and are waited for.
    pub(crate) fn completed(&self, manifest: Hash) {
        self.handle(|schedule, _| schedule.completed(manifest));
    }

    /// Ends the copy: the walk stops and streams find no more work.
    pub(crate) fn close(&self) {
        self.handle(|schedule, _| schedule.close());
    }

    /// Returns true if the receiver has reported that everything is in place.
    pub(crate) fn is_reported_done(&self) -> bool {
        self.state.lock().schedule.is_completed()
    }

    /// Returns whether both sides agree on the result, once everything is in place.
    pub(crate) fn conclusion(&self) -> Option<bool> {
        self.state.lock().schedule.agreed()
    }

    /// Returns the hash over all entries, once everything is in place.
    pub(crate) fn manifest(&self) -> Hash {
        self.state.lock().schedule.manifest()
    }

    /// Returns the totals of the walk so far.
    pub(crate) fn totals(&self) -> Frame {
        let found = self.state.lock().schedule.totals();
        Frame::Totals {
            entries: found.entries,
            bytes: found.bytes,
            complete: found.complete,
        }
    }

    /// Passes an event to the schedule, and performs what follows.
    fn handle<T>(&self, event: impl FnOnce(&mut Schedule, Duration) -> T) -> T {
        let mut state = self.state.lock();
        let answer = event(&mut state.schedule, self.started.elapsed());
        self.perform(state);
        answer
    }

    /// Performs the schedule's actions, most of them without the lock.
    fn perform(&self, mut state: MutexGuard<'_, WorkQueueState>) {
        let actions = state.schedule.actions();
        let closed = actions.close.and_then(|id| state.open_files.remove(&id));
        // A stream may be waiting for this file to close before it opens another.
        let wake = match closed {
            Some(_) => actions.wake.max(WakeTarget::One),
            None => actions.wake,
        };
        // If the memory has grown and is not available, the next work must wait.
        let _ = state.account(0, 0);
        let done = state.schedule.bytes_done();
        // Another copy may have replaced this one, and counts from zero.
        let is_counted = !state.schedule.is_closed();
        if is_counted {
            self.progress.bytes_done.store(done, Ordering::Relaxed);
        }
        drop(state);
        drop(closed);
        if let Some(result) = actions.result.filter(|_| is_counted) {
            self.report(result);
        }
        if let Some(ResumedReport { entry, bytes, size }) = actions.resumed.filter(|_| is_counted) {
            self.progress.count_resumed(bytes);
            let path = (self.label)(&entry.head);
            self.observer
                .event(TransferEvent::Resumed { path, bytes, size });
        }
        match wake {
            WakeTarget::None => {}
            WakeTarget::One => self.work.notify_one(),
            WakeTarget::All => self.work.notify_waiters(),
        }
        if actions.wake_walk {
            self.room.notify_all();
        }
    }

    /// Reports a result to the observer, once per entry.
    fn report(&self, result: EntryResult) {
        self.progress.entries_done.fetch_add(1, Ordering::Relaxed);
        let path = (self.label)(&result.entry.head);
        match result.outcome {
            Ok(written) => {
                if matches!(result.entry.found, FoundEntry::File { .. }) {
                    self.progress.files_done.fetch_add(1, Ordering::Relaxed);
                }
                let (bytes, hash) = result.content.unzip();
                self.progress.count_in_place(written, bytes.unwrap_or(0));
                self.observer.event(TransferEvent::Done {
                    path,
                    bytes,
                    hash: hash.flatten(),
                    same: written != EntryOutcome::New,
                });
            }
            Err(failure) => {
                let at_destination =
                    failure.at_destination && !matches!(result.entry.found, FoundEntry::Failed(_));
                self.report_failure(
                    path,
                    Failure {
                        at_destination,
                        ..failure
                    },
                );
            }
        }
    }

    /// Reports a failure to the observer.
    pub(crate) fn report_failure(&self, path: String, failure: Failure) {
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
        self.observer.event(TransferEvent::Failed { path, failure });
    }
}

/// Closes the queue if its walk panics, as streams would wait forever for more entries.
pub(crate) struct CloseOnPanic<'a>(pub &'a WorkQueue);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

impl WalkSink for WorkQueue {
    fn hold(&self) -> Option<ResourcePermit> {
        self.account.take(Resource::Bookkeeping, 1).ok()
    }

    fn note_stat(&self, stat: &Stat) {
        self.progress.not_kept.note_entry(stat);
    }

    fn found(&self, source: u32, path: RelPath, meta: Meta, found: FoundEntry) -> bool {
        let cost = entry_memory(&path, &found);
        self.add_entry(cost, |schedule| schedule.found(source, path, meta, found))
    }

    fn found_linked(
        &self,
        source: u32,
        path: RelPath,
        meta: Meta,
        size: u64,
        (inode, names): (SourceInode, u64),
    ) -> bool {
        let cost = entry_memory(&path, &FoundEntry::File { size });
        self.add_entry(cost, |schedule| {
            schedule.found_linked(source, path, meta, size, (inode, names));
        })
    }
}

impl WorkQueue {
    /// Adds what the walk found, and waits until there are `cost` bytes of memory for it. Returns
    /// false if the queue is closed.
    fn add_entry(&self, cost: u64, event: impl FnOnce(&mut Schedule)) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.schedule.is_closed() {
                return false;
            }
            if state.schedule.wants_entries() && state.account(cost, 0).is_ok() {
                break;
            }
            // Other copies may release memory, which is not notified.
            self.room.wait_for(&mut state, MEMORY_POLL_INTERVAL);
        }
        event(&mut state.schedule);
        let found = state.schedule.totals();
        self.progress.set_found(found.entries, found.bytes, false);
        self.perform(state);
        true
    }
}

impl ReadReports for WorkQueue {
    fn open_file(&self, id: u64) -> Option<Arc<OpenSourceFile>> {
        self.state.lock().open_files.get(&id).cloned()
    }

    fn opened(&self, id: u64, file: OpenSourceFile) -> Option<Arc<OpenSourceFile>> {
        let mut state = self.state.lock();
        let file = Arc::new(file);
        if state
            .schedule
            .opened(id, file.size(), file.block_log2, file.identity.is_some())
        {
            state.open_files.insert(id, file.clone());
        }
        let counts = state.open_files.get(&id).cloned();
        self.perform(state);
        counts
    }

    fn block_read(&self, id: u64, offset: u64, hash: BlockHash) -> Option<Hash> {
        self.handle(|schedule, _| schedule.block_read(id, offset, hash))
    }

    fn file_read(&self, stream: StreamId, id: u64, size: u64, hash: Hash) -> bool {
        self.handle(|schedule, now| schedule.file_read(stream, id, size, hash, now))
    }

    fn whole_read(&self, stream: StreamId, id: u64, size: u64, hash: Hash) -> WholeFileMessage {
        self.handle(|schedule, now| schedule.whole_read(stream, id, size, hash, now))
    }

    fn offer_read(&self, id: u64, size: u64, hash: Hash) -> Option<(u64, Hash)> {
        self.handle(|schedule, _| schedule.offer_read(id, size, hash))
    }

    fn has_attributes(&self, names: &[u8]) {
        self.progress.not_kept.note_attributes(names);
    }

    fn is_over(&self) -> bool {
        self.state.lock().schedule.is_closed()
    }

    fn not_offered(&self, id: u64) {
        self.handle(|schedule, now| schedule.wanted(id, now));
    }

    fn file_grew(&self, stream: StreamId, id: u64) -> WholeFileMessage {
        self.handle(|schedule, now| schedule.grew(stream, id, now))
    }

    fn failed(&self, stream: StreamId, id: u64, failure: &Failure) {
        self.handle(|schedule, now| schedule.failed(stream, id, failure, now));
    }
}
