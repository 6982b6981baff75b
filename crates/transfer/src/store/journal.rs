//! Never starting again: a file that is being copied in blocks, and beside it the account of what
//! of it is durable.
//!
//! Blocks are written to a data file with a temporary name. At most about a second later
//! ([`MAX_AGE_AT_RISK`]) they are synced to disk, and only then does a record in the journal say
//! so, with the BLAKE3 chaining values of what it speaks of. The journal is synced in its turn. So
//! whatever ends the copy, be it `kill -9` or a power cut, what the journal says is on disk *is* on
//! disk: the same copy finds the journal by its name, goes on with what is missing, and hashes none
//! of that again.
//!
//! - Between two flushes the journal notes what was written, without a sync. Of that, the next copy
//!   keeps what it finds on the disk, read back and hashed: all of it after a `kill -9`, any part
//!   after a power cut.
//! - A file of one block, and one that is whole before its first flush is due, never has a journal.
//! - The journal is locked by whoever writes it. A second copy of the same source to the same
//!   target at the same time writes a data file of its own, without a journal.
//! - Once one of them has finished the file, there is nothing that the other's would be gone on
//!   with for, and it goes with it.
//! - A journal that another user made, a link, or anything but a regular file, is never opened.
//! - What the journal does not speak of is cleared before the copy goes on: nothing that may be
//!   torn stays, even where the source has a hole.
//!
//! The parts: `format` is the bytes, `flush` decides when to sync and `notes` when to note, `names`
//! says what the files are called, `log` writes the journal, [`Storage`] is the disk, and
//! [`leftovers()`] finds what nobody goes on with.

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
pub use flush::{AtRisk, MAX_AGE_AT_RISK};
pub use identity::Identity;
pub use leftovers::{Leftover, LeftoverUse, MAX_LEFTOVERS, leftovers, remove_leftover};
pub use storage::{DirStorage, Found, Named, Storage};

use crate::error::{Failure, FailureKind};
use crate::tree_hash::TreeHash;
use flush::FlushPolicy;
use format::Header;
use log::{Log, Recorded};
use names::Names;
pub(crate) use names::is_name;
use notes::Notes;

/// A file being copied, and its journal. Dropped before [`Self::finish`], it leaves the data file
/// if there is a journal that speaks of it, and removes it otherwise.
///
/// All of it may be called from several threads at once. Times are the time since any moment that
/// the caller chose, the same one for all calls. What is marked as blocking waits for the disk;
/// nothing else waits for what is.
pub struct Journal<S: Storage = DirStorage> {
    storage: S,
    names: Names,
    header: Header,
    data: S::File,
    data_name: OsString,
    target: OsString,
    /// What had the target's name when this copy began.
    replaces: Option<Named>,
    is_contested: bool,
    pace: Mutex<Pace>,
    /// Held by whoever waits for the disk; taken before `disk`.
    syncing: Mutex<()>,
    /// Held while the journal is written, and not while the data is synced, which may take long;
    /// taken before `pace`.
    disk: Mutex<Disk<S::File>>,
}

/// What was written and is not recorded yet.
#[derive(Debug)]
struct Pace {
    policy: FlushPolicy,
    notes: Notes,
    /// Written since the last flush was asked for.
    batch: TreeHash,
    /// What the flush that was asked for is to record.
    flushing: Option<TreeHash>,
    /// Whether there is a journal to record it in, or may come to be one.
    recording: bool,
}

struct Disk<F> {
    log: Log<F>,
    /// Some of what was written to the data file may never have reached the disk.
    data_lost: Option<Failure>,
    /// The data file has its target's name, or has been removed.
    data_gone: bool,
}

/// What is durable of a file that an earlier copy began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResumePoint {
    /// In the order of the file, disjoint, as few as there can be: all that its hash needs of what
    /// is there.
    pub subtrees: Vec<Subtree>,
    /// Bytes of the whole file.
    pub size: u64,
}

/// What [`Journal::poll`] says is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing before more is written, or before the flush under way has ended.
    Nothing,
    /// Nothing before this time.
    WaitUntil(Duration),
    /// Call [`Journal::flush`] now, from a thread that may wait.
    Flush,
}

/// What came of a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flushed {
    /// All that was written before it is durable, and the journal says so.
    Recorded,
    /// The data is durable, but the journal could not be written. If the disk is full, or what was
    /// written lies too scattered, this is tried again; otherwise, nothing more of this file is
    /// recorded.
    Unrecorded(Failure),
    /// There was nothing to flush, or this copy has no journal.
    Nothing,
}

impl<S: Storage> Journal<S> {
    /// Writes to the data file. Blocking, as writes to a file are.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Failure> {
        Ok(self.storage.write_at(&self.data, data, offset)?)
    }

    /// The data file, for permissions and times before it is finished.
    pub fn data(&self) -> &S::File {
        &self.data
    }

    /// Whether what is written is recorded, or will be: not in a file of one block, beside another
    /// copy of the same, or after the journal could not be written.
    pub fn is_recording(&self) -> bool {
        self.pace.lock().recording
    }

    /// Whether nothing is recorded because another copy of the same has the journal.
    pub fn is_contested(&self) -> bool {
        self.is_contested
    }

    /// A block, or a larger subtree, was handed to the operating system as a whole (its holes
    /// excepted), by calls to [`Self::write_at`] that have returned. Whether it is time for
    /// [`Self::note`].
    pub fn written(&self, now: Duration, subtree: Subtree) -> bool {
        let mut pace = self.pace.lock();
        if !pace.recording || !pace.batch.insert_subtree(subtree) {
            return false;
        }
        let bytes = subtree.end(self.header.size) - subtree.offset;
        pace.policy.written(now, bytes);
        pace.notes.written(now, subtree)
    }

    /// Notes what was written since the last time, where there is a journal already: after a
    /// `kill -9` the next copy finds it by that. It waits for nothing: not for the disk, and not
    /// for another that writes to the journal. Whether it was noted.
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

    /// What is to be done at `now`. To be asked after something was written, at the time it names,
    /// and after a flush.
    pub fn poll(&self, now: Duration) -> Action {
        let mut pace = self.pace.lock();
        match pace.policy.due() {
            _ if !pace.recording => Action::Nothing,
            None => Action::Nothing,
            Some(due) if now < due => Action::WaitUntil(due),
            Some(_) => {
                pace.policy.begin(now);
                pace.flushing = Some(self.take_batch(&mut pace));
                Action::Flush
            }
        }
    }

    /// Makes durable what was written before [`Self::poll`] asked for it, and records it. `clock`
    /// gives the time when that is done. Blocking.
    ///
    /// # Errors
    /// What was written may not have reached the disk and cannot be trusted: the file has to fail.
    /// What was recorded before still holds, and the next copy goes on from there.
    pub fn flush(&self, clock: impl FnOnce() -> Duration) -> Result<Flushed, Failure> {
        let _syncing = self.syncing.lock();
        let Some(batch) = self.pace.lock().flushing.take() else {
            return Ok(Flushed::Nothing);
        };
        self.sync_data()?;
        let mut disk = self.disk.lock();
        let flushed = self.record(&mut disk, &batch);
        let mut pace = self.pace.lock();
        match &flushed {
            Flushed::Unrecorded(_) if pace.recording => {
                for subtree in batch.subtrees() {
                    pace.batch.insert_subtree(subtree);
                }
                pace.policy.failed(clock());
            }
            _ => pace.policy.flushed(clock()),
        }
        Ok(flushed)
    }

    /// What would be lost if the power failed now; nothing if nothing is recorded
    /// ([`Self::is_recording`]).
    pub fn at_risk(&self, now: Duration) -> AtRisk {
        self.pace.lock().policy.at_risk(now)
    }

    /// Syncs what was written if there is a journal, so that [`Self::finish`] takes less time.
    /// Permissions are set in between: no copy resumes a file that others may write to. Without a
    /// journal, there will be none from now on. Returns whether there is one; otherwise the caller
    /// flushes the data file before [`Self::finish`]. Blocking.
    ///
    /// # Errors
    /// As for [`Self::flush`].
    pub fn settle(&self) -> Result<bool, Failure> {
        let _syncing = self.syncing.lock();
        let has_journal = matches!(self.disk.lock().log, Log::Open(_));
        if has_journal {
            self.sync_data()?;
        } else {
            self.stop_recording();
        }
        Ok(has_journal)
    }

    /// The file is whole and its hash is right: it takes its target's name, and the journal goes.
    /// With a journal, the file is synced before it is renamed, and the directory before the
    /// journal goes, so that there is one or the other at any moment. Without one, nothing is
    /// synced here: the caller has flushed the data file. `replace`: what has the target's name is
    /// replaced. Blocking.
    ///
    /// # Errors
    /// [`FailureKind::Exists`] if there is something and `replace` was not said, or what the
    /// operating system says. Unless it was the directory that could not be synced, all is left as
    /// it was: to be tried again, or given up with [`Self::discard`].
    pub fn finish(&self, replace: bool) -> Result<(), Failure> {
        let _syncing = self.syncing.lock();
        let mut disk = self.disk.lock();
        if let Some(failure) = &disk.data_lost {
            return Err(failure.clone());
        }
        let has_journal = matches!(disk.log, Log::Open(_));
        if has_journal {
            if let Err(errno) = self.storage.sync_all(&self.data) {
                return Err(self.lose_data(&mut disk, errno));
            }
            let batch = self.stop_recording();
            // If it is not recorded, it travels again should the power fail right here.
            let _ = self.record(&mut disk, &batch);
        }
        self.storage
            .rename(&self.data_name, &self.target, replace)
            .map_err(|errno| Failure::for_name(errno, &self.header.target))?;
        disk.data_gone = true;
        // A flush that was asked for before would make a journal now, and leave it.
        self.stop_recording();
        if has_journal {
            self.storage.sync_dir()?;
        }
        match disk.log {
            Log::Stale(_) | Log::Open(_) => disk.log.remove(&self.storage, &self.names),
            Log::Off | Log::Absent => self.remove_superseded(),
        }
        Ok(())
    }

    /// Leaves what is there for the next copy to go on with, also if it was never flushed. Nothing
    /// is recorded afterwards. Blocking.
    ///
    /// # Errors
    /// As for [`Self::flush`].
    pub fn leave(&self) -> Result<Flushed, Failure> {
        let _syncing = self.syncing.lock();
        let batch = self.stop_recording();
        if batch.held() == 0 || self.disk.lock().data_gone {
            return Ok(Flushed::Nothing);
        }
        self.sync_data()?;
        Ok(self.record(&mut self.disk.lock(), &batch))
    }

    /// [`Self::leave`], and lets go of the files: another copy may go on with them from now on, and
    /// this one does nothing more. Blocking.
    ///
    /// # Errors
    /// As for [`Self::flush`].
    pub fn let_go(&self) -> Result<Flushed, Failure> {
        let left = self.leave();
        let _syncing = self.syncing.lock();
        self.close(&mut self.disk.lock());
        left
    }

    /// Removes the data file and the journal: what is there is wrong, or nobody wants it. Blocking.
    pub fn discard(&self) {
        let _syncing = self.syncing.lock();
        let mut disk = self.disk.lock();
        self.stop_recording();
        disk.log.remove(&self.storage, &self.names);
        self.remove_data(&mut disk);
    }

    /// Ends this copy's hold on the files: what the journal speaks of stays, anything else is
    /// removed.
    fn close(&self, disk: &mut Disk<S::File>) {
        if matches!(disk.log, Log::Open(_)) {
            // It gives up the lock, and only then looks: whoever has finished the file looks for
            // the lock afterwards.
            disk.log = Log::Off;
            disk.data_gone = true;
            if self.is_superseded() {
                self.remove_superseded();
            }
        } else {
            disk.log.remove(&self.storage, &self.names);
            self.remove_data(disk);
        }
    }

    /// Called with `syncing`, and without `disk`.
    fn sync_data(&self) -> Result<(), Failure> {
        let synced = self.storage.sync_data(&self.data);
        synced.map_err(|errno| self.lose_data(&mut self.disk.lock(), errno))
    }

    /// The kernel reports a failed write once; a later sync that succeeds says nothing of it
    /// (fsync(2)).
    fn lose_data(&self, disk: &mut Disk<S::File>, errno: Errno) -> Failure {
        self.stop_recording();
        disk.data_lost.insert(errno.into()).clone()
    }

    fn record(&self, disk: &mut Disk<S::File>, batch: &TreeHash) -> Flushed {
        let recorded = disk
            .log
            .record(&self.storage, &self.names, &self.header, batch);
        // Room may come back, and what is scattered becomes whole.
        let again = matches!(
            recorded,
            Ok(Recorded::TooScattered) | Err(Errno::NOSPC | Errno::DQUOT)
        );
        if !again && !matches!(recorded, Ok(Recorded::All)) {
            self.stop_recording();
        }
        match recorded {
            Ok(Recorded::All) => Flushed::Recorded,
            Ok(Recorded::AnotherCopy) => Flushed::Nothing,
            Ok(Recorded::TooScattered) => Flushed::Unrecorded(Failure::with(
                FailureKind::Limit,
                "its blocks come too scattered",
            )),
            Err(errno) => Flushed::Unrecorded(errno.into()),
        }
    }

    /// Nothing that is written from now on is recorded. What was written before and is not yet, is
    /// returned.
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

    fn take_batch(&self, pace: &mut Pace) -> TreeHash {
        std::mem::replace(&mut pace.batch, self.header.tree())
    }

    fn remove_data(&self, disk: &mut Disk<S::File>) {
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
    /// What need not travel again: ranges of bytes, in order; neighbours are one range.
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

    /// How many bytes that is.
    pub fn bytes(&self) -> u64 {
        self.ranges()
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }
}
