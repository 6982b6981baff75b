//! Makes journaled data durable on a thread of its own, so that no writer of any file waits for the
//! disk.
//!
//! There is one thread per destination, started with the first file that has data at risk. It
//! sleeps until a flush is due, and indefinitely while nothing is at risk. If no thread can be
//! started, files are made durable when they are finished or left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::error::Failure;
use crate::store::journal::{Action, Journal};
use crate::tree_hash::Subtree;

/// A journal, and the state that its writer and the flusher share.
pub(super) struct Journaled {
    pub journal: Journal,
    /// True if the flusher knows that the file has data at risk.
    is_scheduled: AtomicBool,
    /// Failure of the file, set when written data may never have reached the disk.
    lost: OnceLock<Failure>,
}

impl Journaled {
    pub(super) fn new(journal: Journal) -> Arc<Self> {
        Arc::new(Self {
            journal,
            is_scheduled: AtomicBool::new(false),
            lost: OnceLock::new(),
        })
    }

    /// Writes to the data file.
    ///
    /// # Errors
    /// Those of the operating system, including those of earlier writes that did not reach the
    /// disk.
    pub(super) fn write(&self, data: &[u8], offset: u64) -> Result<(), Failure> {
        match self.lost.get() {
            Some(failure) => Err(failure.clone()),
            None => self.journal.write_at(data, offset),
        }
    }
}

/// Thread that flushes the journals of one destination.
pub(super) struct Flusher {
    started: Instant,
    thread: OnceLock<Option<Sender<Weak<Journaled>>>>,
}

impl Flusher {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            thread: OnceLock::new(),
        }
    }

    /// Notes that a block of `file` was written, which will be durable in about a second.
    pub(super) fn written(&self, file: &Arc<Journaled>, block: Subtree) {
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

fn start(started: Instant) -> Option<Sender<Weak<Journaled>>> {
    let (sender, files) = mpsc::channel();
    let thread = std::thread::Builder::new().name("flush".into());
    thread.spawn(move || run(started, &files)).ok()?;
    Some(sender)
}

fn run(started: Instant, files: &mpsc::Receiver<Weak<Journaled>>) {
    let mut at_risk: Vec<Weak<Journaled>> = Vec::new();
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
fn flush_due(file: &Journaled, started: Instant) -> Option<Duration> {
    let journal = &file.journal;
    loop {
        match journal.poll(started.elapsed()) {
            Action::WaitUntil(due) => return Some(due),
            Action::Flush => {
                if let Err(failure) = journal.flush(|| started.elapsed()) {
                    let _ = file.lost.set(failure);
                }
            }
            Action::Nothing => {
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
