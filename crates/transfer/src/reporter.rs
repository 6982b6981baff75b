//! Counts the entries of one copy, and reports them to its observer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Failure;
use crate::progress::{Observer, TransferEvent, TransferProgress};
use crate::tree_hash::Hash;
use crate::wire::{EntryHead, EntryOutcome};

/// Function that names entries for the observer.
pub(crate) type EntryLabels = Box<dyn Fn(&EntryHead) -> String + Send + Sync>;

/// Counters of a copy, and the observer of its entries.
pub(crate) struct CopyReporter {
    pub progress: Arc<TransferProgress>,
    pub observer: Arc<dyn Observer>,
    pub labels: EntryLabels,
}

impl CopyReporter {
    /// Returns the name of an entry.
    pub(crate) fn label(&self, head: &EntryHead) -> String {
        (self.labels)(head)
    }

    /// Notes that the transfer of a large file begins.
    pub(crate) fn began(&self, head: &EntryHead) {
        self.progress.set_current_file(self.label(head));
    }

    /// Reports the result of an entry, once per entry. `content` is the size of a file in place,
    /// and its hash if known.
    pub(crate) fn ended(
        &self,
        head: &EntryHead,
        outcome: Result<EntryOutcome, Failure>,
        content: Option<(u64, Option<Hash>)>,
    ) {
        let progress = &self.progress;
        progress.entries_done.fetch_add(1, Ordering::Relaxed);
        let written = match outcome {
            Ok(written) => written,
            Err(failure) => return self.failed(head, failure),
        };
        if content.is_some() {
            progress.files_done.fetch_add(1, Ordering::Relaxed);
        }
        let (bytes, hash) = content.unzip();
        progress.count_in_place(written, bytes.unwrap_or(0));
        self.observer.event(TransferEvent::Done {
            path: self.label(head),
            bytes,
            hash: hash.flatten(),
            same: written != EntryOutcome::New,
        });
    }

    /// Reports a failure.
    pub(crate) fn failed(&self, head: &EntryHead, failure: Failure) {
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
        let path = self.label(head);
        self.observer.event(TransferEvent::Failed { path, failure });
    }

    /// Reports that `bytes` of a file of `size` bytes need not be sent.
    pub(crate) fn resumed(&self, head: &EntryHead, bytes: u64, size: u64) {
        self.progress.count_resumed(bytes);
        let path = self.label(head);
        self.observer
            .event(TransferEvent::Resumed { path, bytes, size });
    }
}
