//! The end of a file that arrived in blocks: it is committed or given up, and its requesters are
//! answered.

use super::{UNDESCRIBED, Writer, answers, block_answer};
use crate::error::{Failure, FailureKind};
use crate::manifest::Record;
use crate::receive::ledger::{
    Action, Ledger, Parts, Placement, Rejected, is_worth_keeping, result,
};
use crate::tree_hash::Hash;
use crate::wire::Written;

impl<P: Parts> Ledger<P> {
    /// Handles FILE_END, the sender's hash of a file.
    ///
    /// # Errors
    /// [`Rejected::Protocol`] if the file was not described.
    pub(crate) fn file_end(
        &mut self,
        id: u64,
        hash: Hash,
        asker: P::Asker,
        out: &mut Vec<Action<P>>,
    ) -> Result<(), Rejected> {
        let Some(file) = self.files.get_mut(&id) else {
            let outcome = self.recorded(id).ok_or(UNDESCRIBED)?;
            out.push(Action::Answer(asker, (result(id, outcome), None)));
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

    /// Checks that FILE_END is valid for an entry.
    pub(crate) fn is_described(&self, id: u64) -> Result<(), Rejected> {
        match self.files.contains_key(&id) || self.manifest.has(id) {
            true => Ok(()),
            false => Err(UNDESCRIBED),
        }
    }

    /// Compares the hashes if all blocks are in and the sender's is known, and requests the commit
    /// (LH-COPY-22).
    pub(super) fn conclude_file(&mut self, id: u64, out: &mut Vec<Action<P>>) {
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
        let place = match std::mem::replace(&mut file.writer, Writer::Placing) {
            Writer::Idle(place) => Some(place),
            Writer::Unopened | Writer::Refused(_) => None,
            Writer::Writing => {
                file.writer = Writer::Writing;
                return;
            }
            Writer::Placing => return,
        };
        out.push(Action::Place(Placement {
            announced: file.announced.clone(),
            hash: ours,
            file: place,
        }));
    }

    /// Notes the outcome of committing a file.
    pub(crate) fn file_placed(
        &mut self,
        id: u64,
        placed: Result<Written, Failure>,
        out: &mut Vec<Action<P>>,
    ) {
        let Some(file) = self.files.get(&id) else {
            return;
        };
        let (announced, root) = (file.announced.clone(), file.tree.root());
        let record = match &root {
            Some(hash) => Record::File {
                size: announced.size,
                hash,
            },
            None => Record::Failed,
        };
        let outcome = self.record(&announced.head, record, placed, out);
        self.forget(id, &outcome, out);
    }

    /// Fails a file, unless it is being committed, which then decides the outcome.
    pub(super) fn fail_file(&mut self, id: u64, failure: Failure, out: &mut Vec<Action<P>>) {
        let Some(file) = self.files.get(&id).filter(|file| !file.is_being_placed()) else {
            return;
        };
        let announced = file.announced.clone();
        let outcome = self.record(&announced.head, Record::Failed, Err(failure), out);
        self.forget(id, &outcome, out);
    }

    /// Gives up a file that is recorded without having been committed.
    pub(in crate::receive::ledger) fn give_up(
        &mut self,
        id: u64,
        outcome: &Result<Written, Failure>,
        out: &mut Vec<Action<P>>,
    ) {
        if self
            .files
            .get(&id)
            .is_some_and(|file| !file.is_being_placed())
        {
            self.forget(id, outcome, out);
        }
    }

    /// Answers everything that waits for a file, removes what was written of it unless it is
    /// committed, and forgets it.
    fn forget(&mut self, id: u64, outcome: &Result<Written, Failure>, out: &mut Vec<Action<P>>) {
        let Some(file) = self.files.remove(&id) else {
            return;
        };
        self.memory.files = self.memory.files.saturating_sub(file.bytes());
        let kept = file.is_being_placed() && outcome.is_ok();
        if !kept && file.counted > 0 {
            out.push(Action::Count(-(file.counted as i64)));
        }
        let failure = outcome.as_ref().err();
        match file.writer {
            Writer::Idle(place) => {
                self.unremoved += 1;
                let keep = failure.is_some_and(is_worth_keeping);
                out.push(Action::Discard { file: place, keep });
            }
            // The writer returns the file later, and is then told what to do with it.
            Writer::Writing => self.unremoved += 1,
            Writer::Unopened | Writer::Refused(_) | Writer::Placing => {}
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
