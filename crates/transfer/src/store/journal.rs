//! Resuming: a file that is copied in blocks, and a journal that records which of it is durable.
//!
//! Blocks are written to a data file with a temporary name. At most about a second later
//! ([`MAX_AGE_AT_RISK`]) they are synced to disk. Only then does a record in the journal list them,
//! with their BLAKE3 chaining values. The journal is synced in its turn. Whatever ends the copy, be
//! it `kill -9` or a power cut, everything that the journal records *is* on disk. The same copy
//! finds the journal by its name, sends what is missing, and hashes none of the rest again.
//!
//! - Between two flushes, the journal notes written blocks without a sync. The next copy reads
//!   these back and hashes them, and keeps those that are on the disk: all after a `kill -9`, any
//!   part after a power cut.
//! - A file of one block, and one that is complete before its first flush is due, never has a
//!   journal.
//! - The writer locks the journal. A second copy of the same source to the same target at the same
//!   time writes a data file of its own, without a journal.
//! - Once one of them has finished the file, the other's data is of no more use, and is removed
//!   with it.
//! - A journal that another user created, a link, or anything but a regular file, is never opened.
//! - Ranges that the journal does not list are cleared before the copy continues. Thus no torn data
//!   stays, even where the source has a hole.
//!
//! The parts: `format` defines the bytes, `flush` decides when to sync and `notes` when to note,
//! `names` defines the file names, `log` writes the journal, [`Storage`] abstracts the disk, and
//! [`leftovers()`] finds files that no copy resumes.

mod flush;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod identity;
mod leftovers;
mod log;
mod names;
mod notes;
mod open;
mod storage;
mod superseded;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::ops::Range;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

pub use crate::tree_hash::Subtree;
pub use flush::{DataAtRisk, MAX_AGE_AT_RISK};
pub use identity::Identity;
pub use leftovers::{Leftover, LeftoverUse, MAX_LEFTOVERS, leftovers, remove_leftover};
pub(crate) use storage::write_all;
pub use storage::{DirStorage, FoundFile, NamedFile, Storage};

use crate::error::{Failure, FailureKind};
use crate::tree_hash::TreeHash;
use flush::FlushPolicy;
use format::Header;
use log::{JournalFile, RecordResult};
use names::JournalNames;
pub(crate) use names::is_name;
use notes::Notes;

/// A file being copied, and its journal. If it is dropped before [`Self::finish`], it leaves the
/// data file if a journal records it, and removes it otherwise.
///
/// All methods may be called from several threads at once. Times are relative to any moment that
/// the caller chose, the same one for all calls. Methods marked as blocking wait for the disk; no
/// other method waits for them.
pub struct Journal<S: Storage = DirStorage> {
    storage: S,
    names: JournalNames,
    header: Header,
    data: S::File,
    data_name: OsString,
    target: OsString,
    /// File that had the target's name when this copy began.
    replaces: Option<NamedFile>,
    is_contested: bool,
    pace: Mutex<RecordingState>,
    /// Held while waiting for the disk. Locked before `disk`.
    syncing: Mutex<()>,
    /// Held while the journal is written, but not while the data is synced, which may take long.
    /// Locked before `pace`.
    disk: Mutex<DiskState<S::File>>,
}

/// Data that was written and is not recorded yet.
#[derive(Debug)]
struct RecordingState {
    policy: FlushPolicy,
    notes: Notes,
    /// Data written since the last flush was requested.
    batch: TreeHash,
    /// Data that the requested flush will record.
    flushing: Option<TreeHash>,
    /// True if there is a journal to record it in, or may be one later.
    recording: bool,
}

struct DiskState<F> {
    log: JournalFile<F>,
    /// Failure that is set when written data may never have reached the disk.
    data_lost: Option<Failure>,
    /// True if the data file has its final name, or has been removed.
    data_gone: bool,
}

/// Durable parts of a file that an earlier copy began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResumePoint {
    /// Subtrees in file order, disjoint and merged as far as possible. They cover everything that
    /// the hash needs of the durable parts.
    pub subtrees: Vec<Subtree>,
    /// Size of the whole file, in bytes.
    pub size: u64,
}

/// Action that [`Journal::poll`] requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalAction {
    /// Wait until more is written, or the current flush has ended.
    Nothing,
    /// Wait until this time.
    WaitUntil(Duration),
    /// Call [`Journal::flush`] now, on a thread that may block.
    Flush,
}

/// Result of a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlushResult {
    /// Everything written before it is durable and recorded in the journal.
    Recorded,
    /// The data is durable, but the journal could not be written. It is tried again if the disk is
    /// full or the data is too scattered. Otherwise nothing more of this file is recorded.
    Unrecorded(Failure),
    /// There was nothing to flush, or this copy has no journal.
    Nothing,
}

impl<S: Storage> Journal<S> {
    /// Writes to the data file. Blocking, like any write to a file.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Failure> {
        Ok(self.storage.write_at(&self.data, data, offset)?)
    }

    /// Returns the data file, to set permissions and times before it is finished.
    pub fn data(&self) -> &S::File {
        &self.data
    }

    /// Returns true if written data is or will be recorded. It is not recorded in a file of one
    /// block, beside another copy of the same request, or after the journal could not be written.
    pub fn is_recording(&self) -> bool {
        self.pace.lock().recording
    }

    /// Returns true if nothing is recorded because another copy of the same request has the
    /// journal.
    pub fn is_contested(&self) -> bool {
        self.is_contested
    }

    /// Notes that a block, or a larger subtree, was handed to the operating system completely,
    /// except for its holes, by calls of [`Self::write_at`] that have returned. Returns true if
    /// [`Self::note`] is due.
    pub fn written(&self, now: Duration, subtree: Subtree) -> bool {
        let mut pace = self.pace.lock();
        if !pace.recording || !pace.batch.insert_subtree(subtree) {
            return false;
        }
        let bytes = subtree.end(self.header.size) - subtree.offset;
        pace.policy.written(now, bytes);
        pace.notes.written(now, subtree)
    }

    /// Notes what was written since the last note, if there is a journal already. After a
    /// `kill -9`, the next copy finds the data by this. It waits neither for the disk nor for
    /// another writer of the journal. Returns true if it was noted.
    pub fn note(&self, now: Duration) -> bool {
        let Some(mut disk) = self.disk.try_lock() else {
            return false;
        };
        let blocks = match self.pace.lock() {
            mut pace if pace.recording => pace.notes.take(now),
            _ => return false,
        };
        if disk.log.note(&self.storage, &blocks) {
            return true;
        }
        self.pace.lock().notes.put_back(blocks);
        false
    }

    /// Returns the action that is due at `now`. Must be called after a write, at the time that it
    /// returned, and after a flush.
    pub fn poll(&self, now: Duration) -> JournalAction {
        let mut pace = self.pace.lock();
        match pace.policy.due() {
            _ if !pace.recording => JournalAction::Nothing,
            None => JournalAction::Nothing,
            Some(due) if now < due => JournalAction::WaitUntil(due),
            Some(_) => {
                pace.policy.begin(now);
                pace.flushing = Some(self.take_batch(&mut pace));
                JournalAction::Flush
            }
        }
    }

    /// Makes durable and records what was written before [`Self::poll`] requested it. `clock`
    /// returns the time when that is done. Blocking.
    ///
    /// # Errors
    /// The data may not have reached the disk and cannot be trusted, so the file must fail. Earlier
    /// records remain valid, and the next copy resumes from them.
    pub fn flush(&self, clock: impl FnOnce() -> Duration) -> Result<FlushResult, Failure> {
        let _syncing = self.syncing.lock();
        let Some(batch) = self.pace.lock().flushing.take() else {
            return Ok(FlushResult::Nothing);
        };
        self.sync_data()?;
        let mut disk = self.disk.lock();
        let flushed = self.record(&mut disk, &batch);
        let mut pace = self.pace.lock();
        match &flushed {
            FlushResult::Unrecorded(_) if pace.recording => {
                for subtree in batch.subtrees() {
                    pace.batch.insert_subtree(subtree);
                }
                pace.policy.failed(clock());
            }
            _ => pace.policy.flushed(clock()),
        }
        Ok(flushed)
    }

    /// Returns what would be lost in a power failure now. Returns nothing if nothing is recorded
    /// ([`Self::is_recording`]).
    pub fn at_risk(&self, now: Duration) -> DataAtRisk {
        self.pace.lock().policy.at_risk(now)
    }

    /// Syncs the data if there is a journal, so that [`Self::finish`] takes less time. The caller
    /// sets permissions in between, as no copy resumes a file that others may write to. Without a
    /// journal, there will be none from now on. Returns true if there is one. Otherwise the caller
    /// must flush the data file before [`Self::finish`]. Blocking.
    ///
    /// # Errors
    /// As for [`Self::flush`].
    pub fn settle(&self) -> Result<bool, Failure> {
        let _syncing = self.syncing.lock();
        let has_journal = matches!(self.disk.lock().log, JournalFile::Open(_));
        if has_journal {
            self.sync_data()?;
        } else {
            self.stop_recording();
        }
        Ok(has_journal)
    }

    /// Renames the complete, verified file to its final name, and removes the journal. With a
    /// journal, the file is synced before it is renamed, and the directory before the journal is
    /// removed. One of the two thus exists at any moment. Without a journal, nothing is synced
    /// here, as the caller has flushed the data file. With `replace`, an existing file is replaced.
    /// Blocking.
    ///
    /// # Errors
    /// [`FailureKind::Exists`] if an entry of that name exists and `replace` is false, or those of
    /// the operating system. Unless syncing the directory failed, nothing has changed. The call may
    /// be repeated, or the file given up with [`Self::discard`].
    pub fn finish(&self, replace: bool) -> Result<(), Failure> {
        let _syncing = self.syncing.lock();
        let mut disk = self.disk.lock();
        if let Some(failure) = &disk.data_lost {
            return Err(failure.clone());
        }
        let has_journal = matches!(disk.log, JournalFile::Open(_));
        if has_journal {
            if let Err(errno) = self.storage.sync_all(&self.data) {
                return Err(self.lose_data(&mut disk, errno));
            }
            let batch = self.stop_recording();
            // If it cannot be recorded, it travels again after a power failure at this moment.
            let _ = self.record(&mut disk, &batch);
        }
        self.storage
            .rename(&self.data_name, &self.target, replace)
            .map_err(|errno| Failure::for_name(errno, &self.header.target))?;
        disk.data_gone = true;
        // A flush that was requested earlier would otherwise create a journal now, and leave it.
        self.stop_recording();
        if has_journal {
            self.storage.sync_dir()?;
        }
        match disk.log {
            JournalFile::Stale(_) | JournalFile::Open(_) => {
                disk.log.remove(&self.storage, &self.names)
            }
            JournalFile::Off | JournalFile::Absent => self.remove_superseded(),
        }
        Ok(())
    }

    /// Leaves the data for the next copy to resume, even if it was never flushed. Nothing is
    /// recorded afterwards. Blocking.
    ///
    /// # Errors
    /// As for [`Self::flush`].
    pub fn leave(&self) -> Result<FlushResult, Failure> {
        let _syncing = self.syncing.lock();
        let batch = self.stop_recording();
        if batch.subtree_count() == 0 || self.disk.lock().data_gone {
            return Ok(FlushResult::Nothing);
        }
        self.sync_data()?;
        Ok(self.record(&mut self.disk.lock(), &batch))
    }

    /// Leaves the data like [`Self::leave`], and releases the files. Another copy may resume them
    /// from now on, and this one does nothing more. Blocking.
    ///
    /// # Errors
    /// As for [`Self::flush`].
    pub fn release(&self) -> Result<FlushResult, Failure> {
        let left = self.leave();
        let _syncing = self.syncing.lock();
        self.close(&mut self.disk.lock());
        left
    }

    /// Removes the data file and the journal, as the data is wrong or not needed. Blocking.
    pub fn discard(&self) {
        let _syncing = self.syncing.lock();
        let mut disk = self.disk.lock();
        self.stop_recording();
        disk.log.remove(&self.storage, &self.names);
        self.remove_data(&mut disk);
    }

    /// Releases the files. Recorded data stays, anything else is removed.
    fn close(&self, disk: &mut DiskState<S::File>) {
        if matches!(disk.log, JournalFile::Open(_)) {
            // Release the lock before the check. Another copy that has finished the file checks the
            // lock afterwards.
            disk.log = JournalFile::Off;
            disk.data_gone = true;
            if self.is_superseded() {
                self.remove_superseded();
            }
        } else {
            disk.log.remove(&self.storage, &self.names);
            self.remove_data(disk);
        }
    }

    /// Must be called with `syncing` locked, and without `disk`.
    fn sync_data(&self) -> Result<(), Failure> {
        let synced = self.storage.sync_data(&self.data);
        synced.map_err(|errno| self.lose_data(&mut self.disk.lock(), errno))
    }

    /// The kernel reports a failed write only once. A later successful sync says nothing about it
    /// (fsync(2)).
    fn lose_data(&self, disk: &mut DiskState<S::File>, errno: Errno) -> Failure {
        self.stop_recording();
        disk.data_lost.insert(errno.into()).clone()
    }

    fn record(&self, disk: &mut DiskState<S::File>, batch: &TreeHash) -> FlushResult {
        let recorded = disk
            .log
            .record(&self.storage, &self.names, &self.header, batch);
        // Space may become available again, and scattered data becomes contiguous.
        let again = matches!(
            recorded,
            Ok(RecordResult::TooScattered) | Err(Errno::NOSPC | Errno::DQUOT)
        );
        if !again && !matches!(recorded, Ok(RecordResult::All)) {
            self.stop_recording();
        }
        match recorded {
            Ok(RecordResult::All) => FlushResult::Recorded,
            Ok(RecordResult::AnotherCopy) => FlushResult::Nothing,
            Ok(RecordResult::TooScattered) => FlushResult::Unrecorded(Failure::with_detail(
                FailureKind::Limit,
                "its blocks are too scattered",
            )),
            Err(errno) => FlushResult::Unrecorded(errno.into()),
        }
    }

    /// Stops recording. Returns the data that was written and is not recorded yet.
    fn stop_recording(&self) -> TreeHash {
        let mut pace = self.pace.lock();
        pace.recording = false;
        pace.policy = FlushPolicy::default();
        pace.notes = Notes::default();
        let mut batch = self.take_batch(&mut pace);
        for subtree in pace.flushing.take().iter().flat_map(TreeHash::subtrees) {
            batch.insert_subtree(subtree);
        }
        batch
    }

    fn take_batch(&self, pace: &mut RecordingState) -> TreeHash {
        std::mem::replace(&mut pace.batch, self.header.tree())
    }

    fn remove_data(&self, disk: &mut DiskState<S::File>) {
        if !disk.data_gone {
            let _ = self.storage.remove(&self.data_name);
            disk.data_gone = true;
        }
    }
}

impl<S: Storage> Drop for Journal<S> {
    fn drop(&mut self) {
        self.close(&mut self.disk.lock());
    }
}

impl ResumePoint {
    /// Returns the byte ranges that need not travel again, in order, with adjacent ones merged.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for subtree in &self.subtrees {
            let end = subtree.end(self.size);
            match ranges.last_mut() {
                Some(last) if last.end == subtree.offset => last.end = end,
                _ => ranges.push(subtree.offset..end),
            }
        }
        ranges
    }

    /// Returns the number of bytes in these ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges()
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }
}
