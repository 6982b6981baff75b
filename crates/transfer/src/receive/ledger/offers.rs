//! Files that need not travel: offered before they are sent, or said to be other names of one. The
//! receiver looks whether that is so, one thread for each.

use super::{Action, Ledger, Parts, result};
use crate::error::Failure;
use crate::manifest::Record;
use crate::store::Comparison;
use crate::wire::{Frame, HardLink, Head, Offer, Written};

/// Why a file need not travel, as its sender has it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Claim<'a> {
    /// It may be there.
    Offer(&'a Offer),
    /// It is another name of a file in place.
    Link(&'a HardLink),
}

impl Claim<'_> {
    fn head(&self) -> &Head {
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

    /// What became of the file, if it need not be sent.
    fn written(&self) -> Written {
        match self {
            Self::Offer(_) => Written::Unchanged,
            Self::Link(_) => Written::Linked,
        }
    }

    /// What the manifest says of it then (LH-COPY-42, LH-COPY-47).
    fn record(&self) -> Record<'_> {
        match self {
            Self::Offer(Offer {
                size,
                hash: Some(hash),
                ..
            }) => Record::File { size: *size, hash },
            Self::Offer(Offer { size, meta, .. }) => Record::Unchanged {
                size: *size,
                mtime: meta.mtime,
            },
            Self::Link(link) => Record::HardLink {
                size: link.size,
                source: link.first.0,
                path: &link.first.1,
            },
        }
    }
}

impl<P: Parts> Ledger<P> {
    /// OFFER or HARD_LINK. Whether it is to be looked into, and [`Self::compared`] to be said
    /// after; otherwise who asked is answered, or will be with those who asked before.
    pub(crate) fn claimed(
        &mut self,
        claim: Claim<'_>,
        asker: P::Asker,
        out: &mut Vec<Action<P>>,
    ) -> bool {
        let id = claim.head().id;
        if let Some(outcome) = self.recorded(id) {
            out.push(Action::Answer(asker, (result(id, outcome), None)));
            return false;
        }
        if let Some(askers) = self.being_compared.get_mut(&id) {
            askers.push(asker);
            return false;
        }
        self.being_compared.insert(id, vec![asker]);
        true
    }

    /// What came of it. If the file is in place, what has arrived of it meanwhile is dropped.
    pub(crate) fn compared(
        &mut self,
        claim: Claim<'_>,
        found: Result<Comparison, Failure>,
        out: &mut Vec<Action<P>>,
    ) {
        let id = claim.head().id;
        // What is being given its name is what becomes of it.
        let is_being_placed = self
            .files
            .get(&id)
            .is_some_and(|file| file.is_being_placed());
        let concluded = match found {
            _ if self.recorded(id).is_some() || is_being_placed => None,
            Ok(Comparison::Wanted) => None,
            Ok(Comparison::InPlace) => Some(Ok(claim.written())),
            Err(failure) => Some(Err(failure)),
        };
        if let Some(outcome) = concluded {
            if outcome.is_ok() {
                out.push(Action::Count(claim.size() as i64));
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
            out.push(Action::Answer(asker, (answer.clone(), None)));
        }
        self.conclude(out);
    }
}
