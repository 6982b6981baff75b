//! The end of a file that arrived in blocks: it is committed or given up, and its requesters are
//! answered.

use super::{UNDESCRIBED, WriterState, answers, block_answer};
use crate::error::{Failure, FailureKind};
use crate::late_size::is_late;
use crate::manifest::ManifestRecord;
use crate::receive::ledger::{
    CopyLedger, FileCommit, LedgerAction, LedgerTypes, Rejection, is_worth_keeping, result,
};
use crate::tree_hash::{Hash, TreeHash};
use crate::wire::EntryOutcome;

impl<P: LedgerTypes> CopyLedger<P> {
    /// Handles FILE_END, the sender's hash of a file.
    ///
    /// # Errors
    /// [`Rejection::Protocol`] if the file was not described.
    pub(crate) fn file_end(
        &mut self,
        id: u64,
        hash: Hash,
        asker: P::Asker,
        out: &mut Vec<LedgerAction<P>>,
    ) -> Result<(), Rejection> {
        let Some(file) = self.files.get_mut(&id) else {
            let outcome = self.recorded(id).ok_or(UNDESCRIBED)?;
            out.push(LedgerAction::Answer(asker, (result(id, outcome), None)));
            return Ok(());
        };
        file.end_asked.push(asker);
        if *file.end.get_or_insert(hash) == hash {
            self.conclude_file(id, out);
        } else {
            // LH-COPY-15.
            self.fail_file(id, Failure::new(FailureKind::Verification), out);
        }
        Ok(())
    }

    /// Handles the size in LATE_END, which [`Self::file_end`] follows with its hash (LH-COPY-81).
    pub(crate) fn late_size(&mut self, id: u64, size: u64, out: &mut Vec<LedgerAction<P>>) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        if is_late(file.size) && file.may_have_size(size) {
            file.size = size;
            let empty = TreeHash::new(size, file.announced.block_log2);
            file.tree = std::mem::replace(&mut file.tree, empty).with_size(size);
        }
        if file.size != size {
            self.fail_file(id, Failure::new(FailureKind::Verification), out);
        }
    }

    /// Checks that an entry may end with FILE_END, or with LATE_END of this size.
    ///
    /// # Errors
    /// [`Rejection::Protocol`] if it was not described, or its FILE requires the other frame.
    pub(crate) fn admit_end(&self, id: u64, late: Option<u64>) -> Result<(), Rejection> {
        self.is_described(id)?;
        let Some(file) = self.files.get(&id) else {
            return Ok(());
        };
        let fits = match late {
            None => !is_late(file.announced.size),
            Some(size) => is_late(file.announced.size) && size > 1u64 << file.announced.block_log2,
        };
        match fits {
            true => Ok(()),
            false => Err(Rejection::Protocol("the end does not fit its file")),
        }
    }

    /// Checks that an entry was described.
    pub(crate) fn is_described(&self, id: u64) -> Result<(), Rejection> {
        match self.files.contains_key(&id) || self.manifest.contains(id) {
            true => Ok(()),
            false => Err(UNDESCRIBED),
        }
    }

    /// Compares the hashes if all blocks are in and the sender's is known, and requests the commit
    /// (LH-COPY-22).
    pub(super) fn conclude_file(&mut self, id: u64, out: &mut Vec<LedgerAction<P>>) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        let (Some(ours), Some(theirs)) = (file.tree.root(), file.end) else {
            return;
        };
        if ours != theirs {
            self.fail_file(id, Failure::new(FailureKind::Verification), out);
            return;
        }
        let place = match std::mem::replace(&mut file.writer, WriterState::Committing) {
            WriterState::Idle(place) => Some(place),
            WriterState::Unopened | WriterState::Refused(_) => None,
            WriterState::Writing => {
                file.writer = WriterState::Writing;
                return;
            }
            WriterState::Committing => return,
        };
        out.push(LedgerAction::Commit(FileCommit {
            announced: file.announced.clone(),
            size: file.size,
            hash: ours,
            file: place,
        }));
    }

    /// Notes the outcome of committing a file.
    pub(crate) fn file_committed(
        &mut self,
        id: u64,
        placed: Result<EntryOutcome, Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        let Some(file) = self.files.get(&id) else {
            return;
        };
        let (announced, size, root) = (file.announced.clone(), file.size, file.tree.root());
        let parts = file.tree.coarse().to_vec();
        let record = match &root {
            Some(hash) => ManifestRecord::File {
                size,
                hash,
                mtime: announced.meta.mtime,
                parts: &parts,
            },
            None => ManifestRecord::Failed,
        };
        let outcome = self.record(&announced.head, record, placed, out);
        self.forget(id, &outcome, out);
    }

    /// Fails a file, unless it is being committed, which then decides the outcome.
    pub(super) fn fail_file(&mut self, id: u64, failure: Failure, out: &mut Vec<LedgerAction<P>>) {
        let Some(file) = self
            .files
            .get(&id)
            .filter(|file| !file.is_being_committed())
        else {
            return;
        };
        let announced = file.announced.clone();
        let outcome = self.record(&announced.head, ManifestRecord::Failed, Err(failure), out);
        self.forget(id, &outcome, out);
    }

    /// Gives up a file that is recorded without having been committed.
    pub(in crate::receive::ledger) fn give_up(
        &mut self,
        id: u64,
        outcome: &Result<EntryOutcome, Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        if self
            .files
            .get(&id)
            .is_some_and(|file| !file.is_being_committed())
        {
            self.forget(id, outcome, out);
        }
    }

    /// Answers everything that waits for a file, removes what was written of it unless it is
    /// committed, and forgets it.
    fn forget(
        &mut self,
        id: u64,
        outcome: &Result<EntryOutcome, Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        let Some(file) = self.files.remove(&id) else {
            return;
        };
        self.memory.files = self.memory.files.saturating_sub(file.bytes());
        let kept = file.is_being_committed() && outcome.is_ok();
        if !kept && file.counted > 0 {
            out.push(LedgerAction::Count(-(file.counted as i64)));
        }
        let failure = outcome.as_ref().err();
        match file.writer {
            WriterState::Idle(place) => {
                self.unremoved += 1;
                let keep = failure.is_some_and(is_worth_keeping);
                out.push(LedgerAction::Discard { file: place, keep });
            }
            // The writer returns the file later, and is then told what to do with it.
            WriterState::Writing => self.unremoved += 1,
            WriterState::Unopened | WriterState::Refused(_) | WriterState::Committing => {}
        }
        for (offset, in_flight) in file.in_flight {
            let answer = block_answer(id, offset, failure.cloned());
            out.extend(answers(in_flight.askers, &answer));
        }
        out.extend(answers(
            file.end_asked,
            &(result(id, outcome.clone()), None),
        ));
        self.conclude(out);
    }
}
