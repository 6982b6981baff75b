//! Commits files once their content is durable, so that a power failure at any moment leaves no
//! incomplete file under its final name (LH-COPY-22).
//!
//! Flushing each file alone would make small files wait for the disk one by one. Instead, complete
//! files wait in a queue. One worker takes all that wait, flushes them together, and commits them.
//! Meanwhile the next ones are written. Workers belong to the runtime's blocking threads.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_platform::fs;
use parking_lot::Mutex;

use super::compare::is_same;
use super::directories::reopen_finished;
use super::in_place::may_replace;
use super::names_in_place::NamesInPlace;
use super::new_file::NewFile;
use super::open_dirs::OpenDirs;
use crate::error::{Failure, FailureKind};
use crate::store::OnCommit;
use crate::store::durability::{self, Durability};
use crate::tree_hash::Hash;
use crate::wire::EntryOutcome;

/// Maximum number of files that wait while a flush is in progress, and of files in one flush. A
/// killed copy leaves as many temporary files.
const MAX_GROUP_FILES: usize = 256;
/// Number of bytes in one flush after which no more files join it.
const MAX_GROUP_BYTES: u64 = 64 << 20;

/// A complete, verified file, and what is needed to commit it.
pub(super) struct CompleteFile {
    pub file: NewFile,
    pub size: u64,
    pub hash: Hash,
    /// Result of setting the file's permissions and time.
    pub metadata: Result<(), Failure>,
    /// If true, an existing file of that name is replaced.
    pub overwrite: bool,
    /// If true, the client may learn that a file with the same content exists.
    pub may_compare: bool,
    /// If true, a file system that cannot flush is an error.
    pub fsync: bool,
    pub open_dirs: Arc<OpenDirs>,
    pub names_in_place: Arc<NamesInPlace>,
    pub done: OnCommit,
}

impl CompleteFile {
    /// Flushes the file alone and commits it.
    fn commit_alone(self) {
        let flushed = self.flush();
        self.finish(flushed);
    }

    /// Flushes the file, or its whole file system if the file can no longer be opened.
    fn flush(&self) -> Result<(), Failure> {
        match self.file.open_to_flush() {
            Ok(file) => Ok(durability::flush(&file, self.fsync)?),
            Err(_) => Ok(fs::syncfs(&*self.file.parent.dir)?),
        }
    }

    /// Commits the file, unless flushing failed, and reports the outcome.
    pub(super) fn finish(mut self, flushed: Result<(), Failure>) {
        let outcome = flushed.and_then(|()| self.give_name());
        // The remains of a failed file are removed before the failure is reported.
        drop(self.file);
        (self.done)(outcome);
    }

    fn give_name(&mut self) -> Result<EntryOutcome, Failure> {
        let names = self.names_in_place.clone();
        let reserved = match names.reserve(self.file.parent.entry()) {
            Ok(reserved) => reserved,
            Err(failure) => {
                self.file.discard();
                return Err(failure);
            }
        };
        // LH-COPY-24.
        if let Err(failure) = give_own_name(&mut self.file, self.overwrite) {
            // The lock is released while the existing file is read.
            drop(reserved);
            let exists = failure.kind == FailureKind::Exists;
            let may_be_same = exists || failure.kind == FailureKind::PermissionDenied;
            let same = may_be_same
                && self.may_compare
                && is_same(&self.file.parent, self.size, &self.hash);
            // The name is not available at any other time either.
            if exists
                || matches!(
                    failure.kind,
                    FailureKind::WrongKind | FailureKind::RefusedPath
                )
            {
                self.file.discard();
            }
            if !same {
                return Err(failure);
            }
            let entry = self.file.parent.entry();
            names.reserve(entry)?.confirm(entry);
            return Ok(EntryOutcome::Same);
        }
        let parent = &self.file.parent;
        reserved.confirm(parent.entry());
        self.open_dirs.changed(&parent.path, &parent.dir);
        self.metadata.clone().map(|()| EntryOutcome::New)
    }
}

/// Renames a file to its final name, unless something exists there that must not be replaced.
fn give_own_name(file: &mut NewFile, overwrite: bool) -> Result<(), Failure> {
    if overwrite {
        may_replace(&file.parent)?;
    }
    match file.finish(overwrite) {
        Err(denied)
            if denied.kind == FailureKind::PermissionDenied && reopen_finished(&file.parent) =>
        {
            file.finish(overwrite)
        }
        finished => finished,
    }
}

/// Commits the files of one destination.
#[derive(Default)]
pub(super) struct Committer {
    queue: Arc<FlushQueue>,
    /// Durability of the file systems so far, by device number.
    file_systems: Mutex<HashMap<u64, Durability>>,
}

/// A queued file, and the device number of its file system.
struct QueuedFile {
    whole: CompleteFile,
    device: u64,
}

impl Committer {
    /// Commits a file once it is durable. Blocking.
    pub(super) fn commit(&self, mut whole: CompleteFile) {
        match self.prepare(&mut whole) {
            Err(failure) => whole.finish(Err(failure)),
            Ok((Durability::Volatile, _)) => whole.finish(Ok(())),
            Ok((Durability::Single, _)) => whole.commit_alone(),
            Ok((Durability::Grouped, device)) => {
                self.queue.clone().push(QueuedFile { whole, device })
            }
        }
    }

    /// Returns how to make a file durable, and its device number. Closes the file if it is flushed
    /// together with others.
    fn prepare(&self, whole: &mut CompleteFile) -> Result<(Durability, u64), Failure> {
        let device = fs::fstat(whole.file.fd()?)?.st_dev;
        let known = self.file_systems.lock().get(&device).copied();
        let durability = match known {
            Some(durability) => durability,
            None => {
                let found = Durability::from_file(whole.file.fd()?)?;
                self.file_systems.lock().insert(device, found);
                found
            }
        };
        if durability == Durability::Grouped {
            whole.file.close()?;
        }
        Ok((durability, device))
    }
}

/// Files that wait for a flush.
#[derive(Default)]
struct FlushQueue {
    state: Mutex<QueueState>,
    costs: Mutex<FlushCosts>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<QueuedFile>,
    /// True while a thread is committing groups.
    has_worker: bool,
}

impl FlushQueue {
    /// Adds a file, and starts a worker unless one is running. If a whole group waits, commits that
    /// group here, so that a fast sender waits for the disk.
    fn push(self: Arc<Self>, queued: QueuedFile) {
        let mut state = self.state.lock();
        state.waiting.push_back(queued);
        if state.waiting.len() >= MAX_GROUP_FILES {
            let group = state.take_group();
            drop(state);
            self.commit_group(group);
        } else if !state.has_worker {
            state.has_worker = true;
            drop(state);
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || self.run())),
                Err(_) => self.run(),
            }
        }
    }

    /// Commits groups until none is left.
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            let group = state.take_group();
            state.has_worker = !group.is_empty();
            drop(state);
            if group.is_empty() {
                return;
            }
            self.commit_group(group);
        }
    }

    fn commit_group(&self, mut group: Vec<QueuedFile>) {
        group.sort_by_key(|queued| queued.device);
        let results: Vec<_> = group
            .chunk_by(|a, b| a.device == b.device)
            .flat_map(|files| flush_group(files, &self.costs))
            .collect();
        for (queued, flushed) in group.into_iter().zip(results) {
            queued.whole.finish(flushed);
        }
    }
}

impl QueueState {
    fn take_group(&mut self) -> Vec<QueuedFile> {
        let (mut group, mut bytes) = (Vec::new(), 0u64);
        while group.len() < MAX_GROUP_FILES && bytes < MAX_GROUP_BYTES {
            let Some(next) = self.waiting.pop_front() else {
                break;
            };
            bytes = bytes.saturating_add(next.whole.size);
            group.push(next);
        }
        group
    }
}

/// Flushes files of one file system. Returns one result per file.
fn flush_group(files: &[QueuedFile], costs: &Mutex<FlushCosts>) -> Vec<Result<(), Failure>> {
    let each = || files.iter().map(|queued| queued.whole.flush()).collect();
    let started = Instant::now();
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    let prefers_each = costs.lock().prefers_each(count);
    if prefers_each {
        let flushed = each();
        costs.lock().note_each(count, started.elapsed());
        return flushed;
    }
    let synced = files
        .first()
        .map_or(Ok(()), |queued| fs::syncfs(&*queued.whole.file.parent.dir));
    costs.lock().note_whole(started.elapsed());
    match synced {
        Ok(()) => files.iter().map(|_| Ok(())).collect(),
        // The error may concern any file of the file system, so each file is flushed by itself to
        // find out.
        Err(_) => each(),
    }
}

/// Measured durations of the two methods to flush a group: each file by itself, or the whole file
/// system, where data of other programs may also be written.
#[derive(Debug, Clone, Copy)]
struct FlushCosts {
    each: Duration,
    whole: Duration,
}

impl Default for FlushCosts {
    fn default() -> Self {
        Self {
            each: Duration::from_millis(4),
            whole: Duration::from_millis(16),
        }
    }
}

impl FlushCosts {
    /// Returns true if flushing `count` files one by one is expected to be faster.
    fn prefers_each(&self, count: u32) -> bool {
        self.each.saturating_mul(count) <= self.whole
    }

    /// Records the duration of flushing `count` files one by one. The other method becomes more
    /// attractive, so that it is eventually tried again.
    fn note_each(&mut self, count: u32, took: Duration) {
        self.each = (self.each + took / count.max(1)) / 2;
        self.whole = self.whole * 7 / 8;
    }

    /// Records the duration of flushing the file system.
    fn note_whole(&mut self, took: Duration) {
        self.whole = (self.whole + took) / 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_are_flushed_alone_and_many_together() {
        let costs = FlushCosts::default();
        assert!(costs.prefers_each(1));
        assert!(!costs.prefers_each(100));
    }

    #[test]
    fn busy_file_system_flush_is_avoided_for_a_while() {
        let mut costs = FlushCosts::default();
        costs.note_whole(Duration::from_secs(20));
        assert!(costs.prefers_each(100), "10 s of others' data, or 0.4 s");
        let mut tries = 0;
        while costs.prefers_each(100) {
            costs.note_each(100, Duration::from_millis(400));
            tries += 1;
        }
        assert!((5..60).contains(&tries), "{tries}");
    }
}
