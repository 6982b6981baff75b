//! Entries that arrive in one frame: SMALL, DIRECTORY, SYMLINK, FAILED.

use super::{Action, Directory, Ledger, Parts, result};
use crate::error::{Failure, FailureKind};
use crate::manifest::Record;
use crate::store::MadeDir;
use crate::wire::{Head, Meta, Written};

/// Maximum memory for directories that are kept until the end, when permissions and times are set
/// (LH-COPY-30).
const MAX_DIRECTORY_BYTES: u64 = 64 * 1024 * 1024;

impl<P: Parts> Ledger<P> {
    /// Handles an entry in one frame. Returns true if it must be written, followed by
    /// [`Self::entry_written`]. Otherwise the requester is answered now, or together with earlier
    /// ones.
    pub(crate) fn entry(
        &mut self,
        head: &Head,
        is_directory: bool,
        asker: P::Asker,
        out: &mut Vec<Action<P>>,
    ) -> bool {
        if let Some(outcome) = self.recorded(head.id) {
            out.push(Action::Answer(asker, (result(head.id, outcome), None)));
            return false;
        }
        if let Some(askers) = self.being_written.get_mut(&head.id) {
            askers.push(asker);
            return false;
        }
        if is_directory && let Err(failure) = self.reserve(head) {
            let outcome = self.record(head, Record::Directory, Err(failure), out);
            out.push(Action::Answer(asker, (result(head.id, outcome), None)));
            self.conclude(out);
            return false;
        }
        self.being_written.insert(head.id, vec![asker]);
        true
    }

    /// Reserves memory for a directory.
    fn reserve(&mut self, head: &Head) -> Result<(), Failure> {
        let cost = directory_bytes(head);
        if self.memory.directories + cost > MAX_DIRECTORY_BYTES {
            return Err(Failure::with(
                FailureKind::Limit,
                "too many directories in one copy",
            ));
        }
        self.fits(cost)?;
        self.memory.directories += cost;
        Ok(())
    }

    /// Notes the outcome of a file in one frame, or a link.
    pub(crate) fn entry_written(
        &mut self,
        head: &Head,
        record: Record<'_>,
        outcome: Result<Written, Failure>,
        out: &mut Vec<Action<P>>,
    ) {
        if self.recorded(head.id).is_none()
            && let (Ok(_), Record::File { size, .. }) = (&outcome, record)
        {
            out.push(Action::Count(size as i64));
        }
        self.settle(head, record, outcome, out);
    }

    /// Notes the outcome of a directory. With `finish`, it must be finished when everything is
    /// written.
    pub(crate) fn directory_made(
        &mut self,
        head: &Head,
        meta: Meta,
        made: Result<MadeDir, Failure>,
        finish: bool,
        out: &mut Vec<Action<P>>,
    ) {
        match made {
            Ok(made) if finish => self.directories.push(Directory {
                head: head.clone(),
                meta,
                made,
            }),
            _ => {
                self.memory.directories = self
                    .memory
                    .directories
                    .saturating_sub(directory_bytes(head))
            }
        }
        let outcome = made.map(|made| match made {
            MadeDir::New => Written::New,
            MadeDir::Earlier | MadeDir::Overwritten | MadeDir::Kept => Written::Same,
        });
        self.settle(head, Record::Directory, outcome, out);
    }

    /// Handles FAILED: the sender could not read an entry. A file that had begun to arrive in
    /// blocks fails too, unless it is being committed, which then decides the outcome (LH-COPY-23).
    pub(crate) fn failed(
        &mut self,
        head: &Head,
        failure: Failure,
        asker: P::Asker,
        out: &mut Vec<Action<P>>,
    ) {
        if let Some(askers) = self.being_written.get_mut(&head.id) {
            askers.push(asker);
            return;
        }
        if let Some(file) = self.files.get_mut(&head.id)
            && file.is_being_placed()
        {
            file.end_asked.push(asker);
            return;
        }
        if let Some(outcome) = self.recorded(head.id) {
            out.push(Action::Answer(asker, (result(head.id, outcome), None)));
            return;
        }
        // The sender knows the reason, so only the kind is returned.
        let answer = Failure::new(failure.kind);
        self.being_written.insert(head.id, vec![asker]);
        self.settle_as(head, Record::Failed, Err(failure), Some(answer), out);
    }

    fn settle(
        &mut self,
        head: &Head,
        record: Record<'_>,
        outcome: Result<Written, Failure>,
        out: &mut Vec<Action<P>>,
    ) {
        self.settle_as(head, record, outcome, None, out);
    }

    /// Records an entry and answers its requesters, with `reported` instead of the failure if
    /// given.
    fn settle_as(
        &mut self,
        head: &Head,
        record: Record<'_>,
        outcome: Result<Written, Failure>,
        reported: Option<Failure>,
        out: &mut Vec<Action<P>>,
    ) {
        let outcome = self.record(head, record, outcome, out);
        // A file that had begun to arrive in blocks, and then came in one frame or failed at its
        // source.
        self.give_up(head.id, &outcome, out);
        let answer = match (outcome, reported) {
            (Err(_), Some(reported)) => Err(reported),
            (outcome, _) => outcome,
        };
        for asker in self.being_written.remove(&head.id).unwrap_or_default() {
            out.push(Action::Answer(
                asker,
                (result(head.id, answer.clone()), None),
            ));
        }
        self.conclude(out);
    }
}

/// Returns the memory of a directory until it is finished, in bytes.
fn directory_bytes(head: &Head) -> u64 {
    (head.path.as_bytes().len() + size_of::<Directory>()) as u64
}
