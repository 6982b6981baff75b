//! Performs the ledger's actions: writes blocks, commits files, sends answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Actions, Receiver, ReceiverTypes};
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::receive::ledger::{BlockWrite, Directory, EntryReport, FileCommit, LedgerAction};
use crate::store::{FileStore, OnCommit};
use crate::wire::{EntryHead, NO_ENTRY};

impl<S: FileStore> Receiver<S> {
    /// Performs actions and those that follow from them. Blocking, except for answers, reports and
    /// counts.
    pub(super) fn perform(self: &Arc<Self>, actions: Actions<S>) {
        let mut ahead = VecDeque::from(actions);
        while let Some(action) = ahead.pop_front() {
            match action {
                LedgerAction::Answer(reply, answer) => {
                    reply.send(answer);
                }
                LedgerAction::Write(write) => ahead.extend(self.write(write)),
                LedgerAction::Commit(placement) => self.commit(placement),
                LedgerAction::Discard { file, keep } => {
                    match file.file {
                        Some(open) if !keep => self.store.discard(open),
                        open => drop(open),
                    }
                    ahead.extend(self.decide(0, |ledger, out| ledger.discarded(out)).1);
                }
                LedgerAction::Report(EntryReport {
                    head,
                    outcome,
                    content,
                }) => {
                    self.existing.forget(head.id);
                    self.reporter.ended(&head, outcome, content);
                }
                LedgerAction::Count(bytes) => {
                    let (done, count) = (&self.reporter.progress.bytes_done, bytes.unsigned_abs());
                    match bytes < 0 {
                        true => done.fetch_sub(count, Ordering::Relaxed),
                        false => done.fetch_add(count, Ordering::Relaxed),
                    };
                }
                LedgerAction::Finish(directories) => {
                    let failed = self.finish_directories(directories);
                    self.reporter.progress.not_kept.add(self.store.not_kept());
                    // If not, the copy is being ended.
                    if self.store.is_in_place() {
                        self.decide(0, |ledger, _| ledger.finished(failed));
                        self.done.notify_waiters();
                    }
                }
            }
        }
    }

    fn write(&self, write: BlockWrite<ReceiverTypes<S>>) -> Actions<S> {
        let BlockWrite {
            announced,
            mut file,
            block,
            hash,
            data,
        } = write;
        let written = match &file.file {
            Some(open) => self.store.write(open, &block, data.bytes(), hash),
            None => self.store.create(&announced).and_then(|open| {
                let open = file.file.insert(open);
                self.store.write(open, &block, data.bytes(), hash)
            }),
        };
        drop(data);
        let written = written.map_err(Failure::at_destination);
        let (id, offset) = (block.id, block.offset);
        self.decide(0, |ledger, out| {
            ledger.block_written(id, offset, file, written, out)
        })
        .1
    }

    /// Commits a file. The ledger is told when it is committed, which may be later.
    fn commit(self: &Arc<Self>, placement: FileCommit<ReceiverTypes<S>>) {
        let FileCommit {
            announced,
            size,
            hash,
            file,
        } = placement;
        let (open, permit) = file.map_or((None, None), |file| (file.file, Some(file._permit)));
        let (receiver, id) = (self.clone(), announced.head.id);
        let done: OnCommit = Box::new(move |committed| {
            drop(permit);
            let committed = committed.map_err(Failure::at_destination);
            receiver.event(|ledger, out| ledger.file_committed(id, committed, out));
        });
        match open.map_or_else(|| self.store.create(&announced), Ok) {
            Ok(file) => {
                self.store.commit(file, &announced.meta, size, &hash, done);
            }
            Err(failure) => done(Err(failure)),
        }
    }

    /// Finishes directories. Returns the failures, with the entry of each.
    fn finish_directories(&self, directories: Vec<Directory>) -> Vec<(EntryHead, Failure)> {
        let mut failed = Vec::new();
        for Directory { head, meta, made } in directories {
            if let Err(failure) = self.store.finish_dir(&head, made, &meta) {
                let failure = match failure.kind {
                    FailureKind::Metadata => failure,
                    _ => Failure::with_detail(FailureKind::Metadata, failure.to_string()),
                };
                failed.push((head, failure));
            }
        }
        let whole = EntryHead {
            id: NO_ENTRY,
            source: 0,
            path: RelPath::root(),
        };
        failed.extend(
            self.store
                .finish()
                .into_iter()
                .map(|failure| (whole.clone(), failure)),
        );
        for (head, failure) in &failed {
            self.reporter.failed(head, failure.clone());
        }
        failed
    }
}
