//! Entries that arrive in one frame: SMALL, DIRECTORY, SYMLINK, SPECIAL, FAILED.

use super::{CopyLedger, Directory, LedgerAction, LedgerTypes, result};
use crate::error::{Failure, FailureKind};
use crate::manifest::ManifestRecord;
use crate::store::MadeDir;
use crate::wire::{EntryHead, EntryOutcome, Meta};

/// Maximum memory for directories that are kept until the end, when permissions and times are set
/// (LH-COPY-30).
const MAX_DIRECTORY_BYTES: u64 = 64 * 1024 * 1024;

impl<P: LedgerTypes> CopyLedger<P> {
    /// Handles an entry in one frame. `directory` is the metadata of a directory. Returns true if
    /// it must be written, followed by [`Self::entry_written`]. Otherwise the requester is answered
    /// now, or together with earlier ones.
    pub(crate) fn entry(
        &mut self,
        head: &EntryHead,
        directory: Option<&Meta>,
        asker: P::Asker,
        out: &mut Vec<LedgerAction<P>>,
    ) -> bool {
        if let Some(outcome) = self.recorded(head.id) {
            out.push(LedgerAction::Answer(
                asker,
                (result(head.id, outcome), None),
            ));
            return false;
        }
        if let Some(askers) = self.being_written.get_mut(&head.id) {
            askers.push(asker);
            return false;
        }
        if let Some(meta) = directory
            && let Err(failure) = self.reserve(head, meta)
        {
            let outcome = self.record(head, ManifestRecord::Directory, Err(failure), out);
            out.push(LedgerAction::Answer(
                asker,
                (result(head.id, outcome), None),
            ));
            self.conclude(out);
            return false;
        }
        self.being_written.insert(head.id, vec![asker]);
        true
    }

    /// Reserves memory for a directory.
    fn reserve(&mut self, head: &EntryHead, meta: &Meta) -> Result<(), Failure> {
        let cost = directory_bytes(head, meta);
        if self.memory.directories + cost > MAX_DIRECTORY_BYTES {
            return Err(Failure::with_detail(
                FailureKind::Limit,
                "too many directories in one copy",
            ));
        }
        self.check_room(cost)?;
        self.memory.directories += cost;
        Ok(())
    }

    /// Notes the outcome of a file in one frame, or a link.
    pub(crate) fn entry_written(
        &mut self,
        head: &EntryHead,
        record: ManifestRecord<'_>,
        outcome: Result<EntryOutcome, Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        if self.recorded(head.id).is_none()
            && let (Ok(_), ManifestRecord::File { size, .. }) = (&outcome, record)
        {
            out.push(LedgerAction::Count(size as i64));
        }
        self.settle(head, record, outcome, out);
    }

    /// Notes the outcome of a directory. With `finish`, it must be finished when everything is
    /// written.
    pub(crate) fn directory_made(
        &mut self,
        head: &EntryHead,
        meta: Meta,
        made: Result<MadeDir, Failure>,
        finish: bool,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        let cost = directory_bytes(head, &meta);
        match made {
            Ok(made) if finish => self.directories.push(Directory {
                head: head.clone(),
                meta,
                made,
            }),
            _ => self.memory.directories = self.memory.directories.saturating_sub(cost),
        }
        let outcome = made.map(|made| match made {
            MadeDir::New => EntryOutcome::New,
            MadeDir::Earlier | MadeDir::Overwritten | MadeDir::Kept => EntryOutcome::Same,
        });
        self.settle(head, ManifestRecord::Directory, outcome, out);
    }

    /// Handles FAILED: the sender could not read an entry. A file that had begun to arrive in
    /// blocks fails too, unless it is being committed, which then decides the outcome (LH-COPY-23).
    pub(crate) fn failed(
        &mut self,
        head: &EntryHead,
        failure: Failure,
        asker: P::Asker,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        if let Some(askers) = self.being_written.get_mut(&head.id) {
            askers.push(asker);
            return;
        }
        if let Some(file) = self.files.get_mut(&head.id)
            && file.is_being_committed()
        {
            file.end_asked.push(asker);
            return;
        }
        if let Some(outcome) = self.recorded(head.id) {
            out.push(LedgerAction::Answer(
                asker,
                (result(head.id, outcome), None),
            ));
            return;
        }
        // The sender knows the reason, so only the kind is returned.
        let answer = Failure::new(failure.kind);
        self.being_written.insert(head.id, vec![asker]);
        self.settle_as(
            head,
            ManifestRecord::Failed,
            Err(failure),
            Some(answer),
            out,
        );
    }

    fn settle(
        &mut self,
        head: &EntryHead,
        record: ManifestRecord<'_>,
        outcome: Result<EntryOutcome, Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        self.settle_as(head, record, outcome, None, out);
    }

    /// Records an entry and answers its requesters, with `reported` instead of the failure if
    /// given.
    fn settle_as(
        &mut self,
        head: &EntryHead,
        record: ManifestRecord<'_>,
        outcome: Result<EntryOutcome, Failure>,
        reported: Option<Failure>,
        out: &mut Vec<LedgerAction<P>>,
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
            out.push(LedgerAction::Answer(
                asker,
                (result(head.id, answer.clone()), None),
            ));
        }
        self.conclude(out);
    }
}

/// Returns the memory of a directory until it is finished, in bytes.
fn directory_bytes(head: &EntryHead, meta: &Meta) -> u64 {
    let own = head.path.as_bytes().len() + size_of::<Directory>();
    own as u64 + meta.attribute_bytes()
}
