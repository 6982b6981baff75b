//! Makes durable what is written through journals, on a thread of its own, so that no writer of any
//! file waits for the disk.
//!
//! One thread for a destination, started with the first file that has something at risk; it sleeps
//! until a flush is due, and without a limit while nothing is at risk. If no thread can be had,
//! files are made durable when they are finished or left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::error::Failure;
use crate::store::journal::{Action, Journal};
use crate::tree_hash::Subtree;

/// A journal, and what its writer and the flusher report to each other.
pub(super) struct Journaled {
    pub journal: Journal,
    /// The flusher knows that something of it is at risk.
    is_scheduled: AtomicBool,
    /// What was written may never have reached the disk: the file has to fail.
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
    /// Those of the operating system, also for what was written earlier and has not reached the
    /// disk.
    pub(super) fn write(&self, data: &[u8], offset: u64) -> Result<(), Failure> {
        match self.lost.get() {
            Some(failure) => Err(failure.clone()),
            None => self.journal.write_at(data, offset),
        }
    }
}

/// See the module.
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

    /// A block of `file` was written: it will be durable a second from now.
    pub(super) fn written(&self, file: &Arc<Journaled>, block: Subtree) {
        let now = self.started.elapsed();
        if file.journal.written(now, block) {
            file.journal.note(now);
        }
        if file.is_scheduled.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(thread) = self.thread.get_or_init(|| start(self.started)) {
            // It ends with this flusher, and not before.
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

/// Flushes a file if that is due. When to look again; none if nothing of it is at risk.
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
                // Something may have been written before that was said.
                let is_safe = journal.at_risk(started.elapsed()).bytes == 0;
                if is_safe || file.is_scheduled.swap(true, Ordering::SeqCst) {
                    return None;
                }
            }
        }
    }
}
