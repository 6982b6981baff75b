//! The end of a file that came in blocks: put in its place, or given up; whoever asked is answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ArrivingFile;
use crate::error::{Failure, FailureKind};
use crate::lock::Locked;
use crate::manifest::Record;
use crate::receive::receiver::{Receiver, Reply};
use crate::tree_hash::Hash;
use crate::wire::{Frame, Written};

impl Receiver {
    /// All blocks are in and the hash is known: compare, and put the file in its place.
    pub(super) fn conclude_file(&self, file: &ArrivingFile) {
        let (ours, theirs) = {
            let blocks = file.blocks.locked();
            (blocks.tree.root(), blocks.end)
        };
        let outcome = match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours == theirs => {
                self.place_file(file, &ours).map(|written| (written, ours))
            }
            _ => Err(Failure::new(FailureKind::Verification)),
        };
        let hash = outcome.as_ref().ok().map(|(_, hash)| *hash);
        self.answer_file(file, outcome.map(|(written, _)| written), hash);
    }

    fn place_file(&self, file: &ArrivingFile, hash: &Hash) -> Result<Written, Failure> {
        self.temp_of(file)?;
        // Every block is in and none is being written: the last holder is here.
        let temp = file.temp.locked().take().and_then(Arc::into_inner);
        let temp = temp.ok_or(Failure::with(FailureKind::Io, "a block is still being written"))?;
        self.destination.finish(temp, &file.meta, file.size, hash)
    }

    pub(super) fn fail_file(&self, file: &ArrivingFile, failure: Failure, asked: Vec<Reply>, ack: Frame) {
        let first = file.blocks.locked().outcome.is_none();
        if first {
            self.answer_file(file, Err(failure.clone()), None);
        }
        for reply in asked {
            let result = Frame::Result {
                id: file.head.id,
                outcome: Err(failure.clone()),
            };
            reply.send((ack.clone(), Some(result)));
        }
    }

    fn answer_file(&self, file: &ArrivingFile, outcome: Result<Written, Failure>, hash: Option<Hash>) {
        let asked = {
            let mut blocks = file.blocks.locked();
            if blocks.outcome.is_some() {
                return;
            }
            blocks.outcome = Some(outcome.clone());
            std::mem::take(&mut blocks.end_asked)
        };
        match outcome {
            Ok(_) => file.release(),
            Err(_) => self.discard(file),
        }
        let record = match (&outcome, &hash) {
            (Ok(_), Some(hash)) => Record::File {
                size: file.size,
                hash,
            },
            _ => Record::Failed,
        };
        self.record(
            &file.head,
            record,
            outcome.as_ref(),
            hash.map(|hash| (file.size, hash)),
        );
        self.take_file(file.head.id);
        for reply in asked {
            reply.send((
                Frame::Result {
                    id: file.head.id,
                    outcome: outcome.clone(),
                },
                None,
            ));
        }
    }

    /// A file whose sender has given it up.
    pub(in crate::receive::receiver) fn abandon(
        &self,
        file: &ArrivingFile,
        outcome: &Result<Written, Failure>,
    ) {
        file.blocks.locked().outcome = Some(outcome.clone());
        self.discard(file);
    }

    /// Removes what was written of a file that failed.
    fn discard(&self, file: &ArrivingFile) {
        file.temp.locked().take();
        file.release();
        self.progress
            .bytes_done
            .fetch_sub(file.counted.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}
