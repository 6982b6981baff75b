//! Performs the ledger's actions: writes blocks, commits files, sends answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Actions, Carried, Receiver};
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::progress::Event;
use crate::receive::ledger::{Action, BlockWrite, Directory, Placement, Report};
use crate::store::{OnCommit, Store};
use crate::wire::{Head, NO_ENTRY, Written};

impl<S: Store> Receiver<S> {
    /// Performs actions and those that follow from them. Blocking, except for answers, reports and
    /// counts.
    pub(super) fn perform(self: &Arc<Self>, actions: Actions<S>) {
        let mut ahead = VecDeque::from(actions);
        while let Some(action) = ahead.pop_front() {
            match action {
                Action::Answer(reply, answer) => {
                    reply.send(answer);
                }
                Action::Write(write) => ahead.extend(self.write(write)),
                Action::Place(placement) => self.commit(placement),
                Action::Discard { file, keep } => {
                    match file.file {
                        Some(open) if !keep => self.store.discard(open),
                        open => drop(open),
                    }
                    ahead.extend(self.event(|ledger, out| ledger.discarded(out)).1);
                }
                Action::Report(report) => self.report(report),
                Action::Count(bytes) => {
                    let (done, count) = (&self.progress.bytes_done, bytes.unsigned_abs());
                    match bytes < 0 {
                        true => done.fetch_sub(count, Ordering::Relaxed),
                        false => done.fetch_add(count, Ordering::Relaxed),
                    };
                }
                Action::Finish(directories) => {
                    let failed = self.finish_directories(directories);
                    // If not, the copy is being ended.
                    if self.store.is_in_place() {
                        self.event(|ledger, _| ledger.finished(failed));
                        self.done.notify_waiters();
                    }
                }
            }
        }
    }

    fn write(&self, write: BlockWrite<Carried<S>>) -> Actions<S> {
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
        self.event(|ledger, out| ledger.block_written(block.id, block.offset, file, written, out))
            .1
    }

    /// Commits a file. The ledger is told when it is committed, which may be later.
    fn commit(self: &Arc<Self>, placement: Placement<Carried<S>>) {
        let Placement {
            announced,
            hash,
            file,
        } = placement;
        let (open, permit) = file.map_or((None, None), |file| (file.file, Some(file._place)));
        let (receiver, id) = (self.clone(), announced.head.id);
        let done: OnCommit = Box::new(move |committed| {
            drop(permit);
            let committed = committed.map_err(Failure::at_destination);
            let (_, actions) = receiver.event(|ledger, out| ledger.file_placed(id, committed, out));
            receiver.perform(actions);
        });
        match open.map_or_else(|| self.store.create(&announced), Ok) {
            Ok(file) => {
                self.store
                    .commit(file, &announced.meta, announced.size, &hash, done);
            }
            Err(failure) => done(Err(failure)),
        }
    }

    /// Finishes directories. Returns the failures, with the entry of each.
    fn finish_directories(&self, directories: Vec<Directory>) -> Vec<(Head, Failure)> {
        let mut failed = Vec::new();
        for Directory { head, meta, made } in directories {
            if let Err(failure) = self.store.finish_dir(&head, made, &meta) {
                let failure = match failure.kind {
                    FailureKind::Metadata => failure,
                    _ => Failure::with(FailureKind::Metadata, failure.to_string()),
                };
                failed.push((head, failure));
            }
        }
        let whole = Head {
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
            self.failed(head, failure.clone());
        }
        failed
    }

    fn report(&self, report: Report) {
        let Report {
            head,
            outcome,
            content,
        } = report;
        self.progress.entries_done.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(written) => {
                if content.is_some() {
                    self.progress.files_done.fetch_add(1, Ordering::Relaxed);
                }
                let (bytes, hash) = content.unzip();
                self.progress.in_place(written, bytes.unwrap_or(0));
                self.observer.event(Event::Done {
                    path: (self.label)(&head),
                    bytes,
                    hash: hash.flatten(),
                    same: written != Written::New,
                });
            }
            Err(failure) => self.failed(&head, failure),
        }
    }

    fn failed(&self, head: &Head, failure: Failure) {
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
        self.observer.event(Event::Failed {
            path: (self.label)(head),
            failure,
        });
    }
}
