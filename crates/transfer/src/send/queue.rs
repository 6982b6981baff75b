//! The sender's queue, from which all streams of a copy take their work.
//!
//! The [`Schedule`] decides what goes where. The queue holds it under a lock, gives it the time,
//! accounts for its memory and open files, wakes waiting tasks, and reports to the observer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul_platform::fs::Stat;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::account::{Account, Resource, ResourceExhausted, ResourcePermit};
use crate::delta::SignedChunk;
use crate::error::{Error, Failure};
use crate::path::RelPath;
use crate::progress::{NotKeptCounts, Observer, TransferProgress};
use crate::receipt::ReceiptRole;
use crate::reporter::{CopyReporter, EntryLabels};
use crate::send::read::OpenSourceFile;
use crate::send::schedule::{
    EntryResult, FoundEntry, IN_FLIGHT_BYTES, MAX_BATCH_ENTRIES, NextStep, Presence, ResumedReport,
    Schedule, SourceInode, StreamId, StreamWork, WakeTarget, entry_memory,
};
use crate::send::source::Sources;
use crate::send::walk::{Growth, LateSizes, WalkSink};
use crate::tree_hash::{Hash, Subtree};
use crate::wire::{Acceptance, Compare, CopyInstance, EntryOutcome, Frame, Meta, Placement};

mod late;
mod reading;
mod signatures;
#[cfg(test)]
mod tests;

use signatures::Signatures;

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
    pub reporter: CopyReporter,
    signatures: Signatures,
    /// This end's part in the receipt, if there is one.
    pub receipt: OnceLock<ReceiptRole>,
}

struct WorkQueueState {
    schedule: Schedule,
    /// True if the receiver takes files of late size, once reported.
    takes_late_sizes: Option<bool>,
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
        labels: EntryLabels,
    ) -> Result<Arc<Self>, Error> {
        let mut state = WorkQueueState {
            schedule: Schedule::default(),
            takes_late_sizes: None,
            open_files: HashMap::new(),
            held: account.take(Resource::Bookkeeping, 1)?,
        };
        state.account(0, 0)?;
        let sources: Arc<Sources> = sources.into();
        sources.metadata().report_to(progress.clone());
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            room: Condvar::new(),
            work: Notify::new(),
            started: Instant::now(),
            instance: OnceLock::new(),
            placement: OnceLock::new(),
            sources,
            resume,
            account,
            reports_not_kept: AtomicBool::new(false),
            signatures: Signatures::default(),
            reporter: CopyReporter {
                progress,
                observer,
                labels,
            },
            receipt: OnceLock::new(),
        }))
    }

    /// Gives this end a part in the receipt. Must be called before the walk.
    pub(crate) fn keep_receipt(&self, role: ReceiptRole) {
        if let Some(recorder) = role.recorder() {
            recorder.restart();
            self.handle(|schedule, _| schedule.observe(recorder.clone()));
        }
        let _ = self.receipt.set(role);
    }

    /// Returns the frame that ends each stream after the receiver's DONE, if there is one
    /// (LH-COPY-59).
    pub(crate) fn closing_frame(&self) -> Option<Frame> {
        let ReceiptRole::Signs(signer) = self.receipt.get()? else {
            return None;
        };
        let state = self.state.lock();
        let (entries, manifest) = (state.schedule.totals().entries, state.schedule.manifest());
        drop(state);
        signer.sign(entries, &manifest).map(Frame::Receipt)
    }

    /// Sets what is known of the receiver's files before it reports, and how files are compared.
    /// Must be called before there are streams.
    pub(crate) fn set_presence(&self, presence: Presence, compare: Compare) {
        self.handle(|schedule, _| schedule.expect(presence, compare));
    }

    /// Sends no file before the receiver has reported whether it may have some. Must be called
    /// after [`Self::set_presence`].
    pub(crate) fn hold_until_reported(&self) {
        self.handle(|schedule, _| schedule.hold_until_reported());
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

    /// Notes that the receiver understands attributes and special files. Must be called before the
    /// walk.
    pub(crate) fn keep_understood(&self) {
        self.sources.metadata().set_understood(true);
    }

    /// Enables reports to the receiver on what the copy does not keep of its sources (LH-COPY-54).
    pub(crate) fn report_not_kept(&self) {
        self.reports_not_kept.store(true, Ordering::Relaxed);
    }

    /// Returns the counts of what is not kept, if they must be reported and differ from `reported`.
    pub(crate) fn not_kept_since(&self, reported: &mut NotKeptCounts) -> Option<NotKeptCounts> {
        let counts = self.reporter.progress.not_kept.own_counts();
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
        self.wait_until_settled();
        let complete = self.sources.walk(self);
        let mut state = self.state.lock();
        state.schedule.walk_ended(complete);
        let found = state.schedule.totals();
        self.reporter
            .progress
            .set_found(found.entries, found.bytes, complete);
        self.perform(state);
    }

    /// Waits until it is known what of the metadata the receiver understands (LH-COPY-66), or the
    /// queue is closed.
    fn wait_until_settled(&self) {
        let mut state = self.state.lock();
        while !self.sources.metadata().is_settled() && !state.schedule.is_closed() {
            self.room.wait(&mut state);
        }
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

    /// Returns the number of streams.
    pub(crate) fn streams(&self) -> usize {
        self.state.lock().schedule.streams()
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
        if self.handle(|schedule, now| schedule.acknowledged(id, offset, now)) {
            let open = self.state.lock().open_files.get(&id).cloned();
            if let Some(open) = open {
                open.release(offset);
            }
        }
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

    /// Notes that the other end has accepted a stream.
    ///
    /// # Errors
    /// [`Error::CopyLost`] if the instance differs from before, as the answers of that instance do
    /// not apply to this one (LH-COPY-38).
    pub(crate) fn accepted(&self, accepted: &Acceptance) -> Result<(), Error> {
        ReceiptRole::check(&self.receipt, accepted.receipt)?;
        if let Some(placement) = accepted.placement {
            // The receiver reports the same on every stream.
            let _ = self.placement.set(placement);
        }
        self.settle_metadata(accepted)?;
        if let Some(instance) = accepted.instance
            && *self.instance.get_or_init(|| instance) != instance
        {
            return Err(Error::restarted_copy());
        }
        self.handle(|schedule, now| {
            schedule.reported_presence(accepted.present, now);
            if accepted.hard_links {
                schedule.links_understood();
            }
        });
        self.settle_late_sizes(accepted.late_sizes);
        Ok(())
    }

    /// Notes whether the receiver understands attributes (LH-COPY-65).
    ///
    /// # Errors
    /// [`Error::Refused`] if it does not, and the user asks for another owner.
    fn settle_metadata(&self, accepted: &Acceptance) -> Result<(), Error> {
        let metadata = self.sources.metadata();
        let is_understood = !accepted.keep.is_empty();
        if !is_understood && metadata.needs_attributes() && !metadata.is_settled() {
            return Err(Error::Refused(
                "it is of an earlier release and cannot set owners and set-ID bits: upgrade it, \
                 or leave out --chown and --chmod"
                    .into(),
            ));
        }
        // The lock is taken so that the walk does not miss it.
        let state = self.state.lock();
        metadata.set_understood(is_understood);
        drop(state);
        self.room.notify_all();
        Ok(())
    }

    /// Returns where the receiver puts the sources, once reported.
    pub(crate) fn placement(&self) -> Option<Placement> {
        self.placement.get().copied()
    }

    /// Notes that the receiver wants a file that was offered.
    pub(crate) fn wanted(&self, id: u64) {
        self.handle(|schedule, now| schedule.wanted(id, now));
    }

    /// Takes chunks of the existing file that an offered one replaces. The first is at `offset`. If
    /// `more`, others follow.
    pub(crate) fn signed(
        &self,
        id: u64,
        chunk_log2: u32,
        offset: u64,
        chunks: &[SignedChunk],
        more: bool,
    ) {
        self.signatures
            .extend(&self.account, id, chunk_log2, offset, chunks, more);
    }

    /// Puts blocks together only from what is at the same offset of the existing file, as the
    /// receiver overwrites it in place (LH-COPY-74). Must be called before any signature arrives.
    pub(crate) fn patch_in_place(&self) {
        self.signatures.set_in_place();
    }

    /// Notes the receiver's outcome of an entry.
    pub(crate) fn answered(&self, id: u64, outcome: Result<EntryOutcome, Failure>) {
        // A failure of this end comes back unchanged.
        let outcome = outcome.map_err(Failure::at_destination);
        self.signatures.remove(id);
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
            self.reporter
                .progress
                .bytes_done
                .store(done, Ordering::Relaxed);
        }
        drop(state);
        drop(closed);
        if let Some(result) = actions.result.filter(|_| is_counted) {
            self.report(result);
        }
        if let Some(ResumedReport { entry, bytes, size }) = actions.resumed.filter(|_| is_counted) {
            self.reporter.resumed(&entry.head, bytes, size);
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
        let is_found = !matches!(result.entry.found, FoundEntry::Failed(_));
        let outcome = result.outcome.map_err(|failure| Failure {
            at_destination: failure.at_destination && is_found,
            ..failure
        });
        self.reporter
            .ended(&result.entry.head, outcome, result.content);
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
        let kept = self.sources.metadata().kept();
        self.reporter.progress.not_kept.note_entry(stat, kept);
    }

    fn found(&self, source: u32, path: RelPath, meta: Meta, found: FoundEntry) -> bool {
        let cost = entry_memory(&path, &meta, &found);
        self.add_entry(cost, |schedule| schedule.found(source, path, meta, found))
    }

    fn late_sizes(&self) -> LateSizes {
        self.wait_for_late_sizes()
    }

    fn found_late(&self, source: u32, path: RelPath, meta: Meta, available: u64) -> bool {
        let cost = entry_memory(&path, &meta, &FoundEntry::Directory);
        self.add_entry(cost, |schedule| {
            schedule.found_late(source, path, meta, available);
        })
    }

    fn grown(&self, available: u64, is_whole: bool) -> Growth {
        self.add_available(available, is_whole)
    }

    fn is_over(&self) -> bool {
        self.state.lock().schedule.is_closed()
    }

    fn found_linked(
        &self,
        source: u32,
        path: RelPath,
        meta: Meta,
        size: u64,
        (inode, names): (SourceInode, u64),
    ) -> bool {
        let cost = entry_memory(&path, &meta, &FoundEntry::File { size });
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
        self.reporter
            .progress
            .set_found(found.entries, found.bytes, false);
        self.perform(state);
        true
    }
}
