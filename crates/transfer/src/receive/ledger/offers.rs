//! Files that may not need to travel: they are offered before they are sent, or announced as links.
//! The receiver checks each on a thread.

use super::{CopyLedger, LedgerAction, LedgerTypes, result};
use crate::error::Failure;
use crate::manifest::ManifestRecord;
use crate::store::Comparison;
use crate::wire::{EntryHead, EntryOutcome, FileOffer, Frame, HardLink};

/// The sender's reason why a file need not travel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SkipClaim<'a> {
    /// The receiver may have the file.
    Offer(&'a FileOffer),
    /// It is another name of a file in place.
    Link(&'a HardLink),
}

impl SkipClaim<'_> {
    fn head(&self) -> &EntryHead {
        match self {
            Self::Offer(offer) => &offer.head,
            Self::Link(link) => &link.head,
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Offer(offer) => offer.size,
            Self::Link(link) => link.size,
        }
    }

    /// Returns the outcome of the file if it need not be sent.
    fn written(&self) -> EntryOutcome {
        match self {
            Self::Offer(_) => EntryOutcome::Unchanged,
            Self::Link(_) => EntryOutcome::Linked,
        }
    }

    /// Returns the record for the manifest in that case (LH-COPY-42, LH-COPY-47).
    fn record(&self) -> ManifestRecord<'_> {
        match self {
            Self::Offer(FileOffer {
                size,
                hash: Some(hash),
                meta,
                ..
            }) => ManifestRecord::File {
                size: *size,
                hash,
                mtime: meta.mtime,
                parts: &[],
            },
            Self::Offer(FileOffer { size, meta, .. }) => ManifestRecord::Unchanged {
                size: *size,
                mtime: meta.mtime,
            },
            Self::Link(link) => ManifestRecord::HardLink {
                size: link.size,
                source: link.first.0,
                path: &link.first.1,
            },
        }
    }
}

impl<P: LedgerTypes> CopyLedger<P> {
    /// Handles OFFER or HARD_LINK. Returns true if it must be checked, followed by
    /// [`Self::claim_checked`]. Otherwise the requester is answered now, or together with earlier
    /// ones.
    pub(crate) fn handle_claim(
        &mut self,
        claim: SkipClaim<'_>,
        asker: P::Asker,
        out: &mut Vec<LedgerAction<P>>,
    ) -> bool {
        let id = claim.head().id;
        if let Some(outcome) = self.recorded(id) {
            out.push(LedgerAction::Answer(asker, (result(id, outcome), None)));
            return false;
        }
        if let Some(askers) = self.being_compared.get_mut(&id) {
            askers.push(asker);
            return false;
        }
        self.being_compared.insert(id, vec![asker]);
        true
    }

    /// Handles the result of the check. If the file is in place, data that has arrived since is
    /// dropped.
    pub(crate) fn claim_checked(
        &mut self,
        claim: SkipClaim<'_>,
        found: Result<Comparison, Failure>,
        out: &mut Vec<LedgerAction<P>>,
    ) {
        let id = claim.head().id;
        // A commit in progress decides the outcome.
        let is_being_placed = self
            .files
            .get(&id)
            .is_some_and(|file| file.is_being_committed());
        let concluded = match found {
            _ if self.recorded(id).is_some() || is_being_placed => None,
            Ok(Comparison::Wanted) => None,
            Ok(Comparison::InPlace) => Some(Ok(claim.written())),
            Err(failure) => Some(Err(failure)),
        };
        if let Some(outcome) = concluded {
            if outcome.is_ok() {
                out.push(LedgerAction::Count(claim.size() as i64));
            }
            let outcome = self.record(claim.head(), claim.record(), outcome, out);
            self.give_up(id, &outcome, out);
        }
        let answer = match self.recorded(id) {
            Some(outcome) => result(id, outcome),
            // LH-COPY-41, LH-COPY-46.
            None => Frame::Want { id },
        };
        for asker in self.being_compared.remove(&id).unwrap_or_default() {
            out.push(LedgerAction::Answer(asker, (answer.clone(), None)));
        }
        self.conclude(out);
    }
}
