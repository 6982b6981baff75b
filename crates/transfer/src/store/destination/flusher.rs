//! Makes journaled data durable on a thread of its own, so that no writer of any file waits for the
//! disk.
//!
//! There is one thread per destination, started with the first file that has data at risk. It
//! sleeps until a flush is due, and indefinitely while nothing is at risk. If no thread can be
//! started, files are made durable when they are finished or left.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::kept_file::KeptFile;
use crate::store::journal::JournalAction;
use crate::tree_hash::Subtree;

/// Thread that flushes the journals of one destination.
pub(super) struct Flusher {
    started: Instant,
    thread: OnceLock<Option<Sender<Weak<KeptFile>>>>,
}

impl Flusher {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            thread: OnceLock::new(),
        }
    }

    /// Notes that a block of `file` was written, which will be durable in about a second.
    pub(super) fn written(&self, file: &Arc<KeptFile>, block: Subtree) {
        let now = self.started.elapsed();
        if file.journal.written(now, block) {
            file.journal.note(now);
        }
        if file.is_scheduled.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(thread) = self.thread.get_or_init(|| start(self.started)) {
            // The thread ends with this flusher, and not before.
            let _ = thread.send(Arc::downgrade(file));
        }
    }
}

fn start(started: Instant) -> Option<Sender<Weak<KeptFile>>> {
    let (sender, files) = mpsc::channel();
    let thread = std::thread::Builder::new().name("flush".into());
    thread.spawn(move || run(started, &files)).ok()?;
    Some(sender)
}

fn run(started: Instant, files: &mpsc::Receiver<Weak<KeptFile>>) {
    let mut at_risk: Vec<Weak<KeptFile>> = Vec::new();
    loop {
        let mut next: Option<Duration> = None;
        at_risk.retain(|file| {
            let due = file.upgrade().and_then(|file| flush_due(&file, started));
            next = next.into_iter().chain(due).min();
            due.is_some()
        });
        let file = match next {
            None => files.recv().map_err(RecvTimeoutError::from),
            Some(due) => files.recv_timeout(due.saturating_sub(started.elapsed())),
        };
        match file {
            Ok(file) => at_risk.push(file),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Flushes a file if that is due. Returns when to check again, or `None` if nothing is at risk.
fn flush_due(file: &KeptFile, started: Instant) -> Option<Duration> {
    let journal = &file.journal;
    loop {
        match journal.poll(started.elapsed()) {
            JournalAction::WaitUntil(due) => return Some(due),
            JournalAction::Flush => {
                if let Err(failure) = journal.flush(|| started.elapsed()) {
                    let _ = file.lost.set(failure);
                }
            }
            JournalAction::Nothing => {
                file.is_scheduled.store(false, Ordering::SeqCst);
                // Data may have been written just before the flag was cleared.
                let is_safe = journal.at_risk(started.elapsed()).bytes == 0;
                if is_safe || file.is_scheduled.swap(true, Ordering::SeqCst) {
                    return None;
                }
            }
        }
    }
}
