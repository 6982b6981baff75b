//! Files that are offered before they are sent: compared with what is there, by one thread for each.

use super::{Action, Ledger, Parts, result};
use crate::error::Failure;
use crate::manifest::Record;
use crate::store::Comparison;
use crate::wire::{Frame, Offer, Written};

impl<P: Parts> Ledger<P> {
    /// OFFER. Whether the file is to be compared, and [`Self::compared`] to be said after; otherwise who asked is answered, or
    /// will be with those who asked before.
    pub(crate) fn offered(&mut self, offer: &Offer, asker: P::Asker, out: &mut Vec<Action<P>>) -> bool {
        let id = offer.head.id;
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

    /// What came of comparing a file. If it is there, what has arrived of it meanwhile is dropped.
    pub(crate) fn compared(
        &mut self,
        offer: &Offer,
        compared: Result<Comparison, Failure>,
        out: &mut Vec<Action<P>>,
    ) {
        let (id, head) = (offer.head.id, &offer.head);
        // What is being given its name is what becomes of it.
        let is_being_placed = self.files.get(&id).is_some_and(|file| file.is_being_placed());
        let concluded = match compared {
            _ if self.recorded(id).is_some() || is_being_placed => None,
            Ok(Comparison::Wanted) => None,
            Ok(Comparison::Unchanged) => Some(Ok(Written::Unchanged)),
            Err(failure) => Some(Err(failure)),
        };
        if let Some(outcome) = concluded {
            if outcome.is_ok() {
                out.push(Action::Count(offer.size as i64));
            }
            let outcome = self.record(head, record_of(offer), outcome, out);
            self.give_up(id, &outcome, out);
        }
        let answer = match self.recorded(id) {
            Some(outcome) => result(id, outcome),
            // LH-COPY-41.
            None => Frame::Want { id },
        };
        for asker in self.being_compared.remove(&id).unwrap_or_default() {
            out.push(Action::Answer(asker, (answer.clone(), None)));
        }
        self.conclude(out);
    }
}

/// What the manifest says of a file that is there as it was offered (LH-COPY-42).
fn record_of(offer: &Offer) -> Record<'_> {
    match &offer.hash {
        Some(hash) => Record::File {
            size: offer.size,
            hash,
        },
        None => Record::Unchanged {
            size: offer.size,
            mtime: offer.meta.mtime,
        },
    }
}
