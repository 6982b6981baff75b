//! Offers of files that the receiver may have already, and their timing (LH-COPY-39 to LH-COPY-41).
//!
//! A client that pushes does not know whether the receiver has any files, and does not wait for the
//! report. It begins with data, at most as much as the first round trip can carry. It offers
//! everything else once the server has reported that it may have some. A copy to an empty
//! destination thus costs nothing extra, and a repeated copy moves next to nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::entry::{FirstStep, FoundEntry, OfferForm, SendStage, SourceEntry};
use super::work::{StreamWork, Subject, WakeTarget};
use super::{MAX_ANSWER_WAIT, Schedule};
use crate::tree_hash::Hash;
use crate::wire::{Compare, EntryOutcome};

/// Maximum number of bytes of files sent before the receiver has reported whether it may have any.
/// It exceeds the initial windows of a connection, unless they are a hundred times as large as RFC
/// 6928 sets them.
pub(super) const MAX_BYTES_BEFORE_ANSWER: u64 = 1 << 20;

/// The receiver's state before the copy, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Presence {
    /// The receiver has not reported.
    Unknown,
    /// The receiver has nothing.
    #[default]
    Nothing,
    /// The receiver may have some of it, so every file is offered first.
    Something,
}

/// Knowledge of what the receiver has, and the method of comparison.
#[derive(Default)]
pub(super) struct OfferState {
    presence: Presence,
    compare: Compare,
    /// Bytes of files sent before it was known.
    before_answer: u64,
    /// Files that were offered together with data, and not answered yet. They are few, as each
    /// counts among the bytes above.
    questions: BTreeSet<u64>,
    /// Time when the receiver reported.
    reported_at: Option<Duration>,
}

impl OfferState {
    /// Returns the first step for an entry that no stream has taken yet.
    pub(super) fn first_step(&self, entry: &SourceEntry) -> FirstStep {
        if !matches!(entry.found, FoundEntry::File { .. }) || entry.is_late() {
            return FirstStep::Sent;
        }
        if entry.first.is_some() {
            return FirstStep::Linked;
        }
        match (self.presence, self.compare) {
            (Presence::Nothing, _) => FirstStep::Sent,
            (Presence::Something, compare) => FirstStep::Offered(compare),
            // An offer needs its hash, and a user who requests that can wait.
            (Presence::Unknown, Compare::Content) => FirstStep::Waits,
            (Presence::Unknown, Compare::SizeAndTime) if !self.may_send() => FirstStep::Waits,
            // Data that travels at once arrives as soon as the answer would.
            (Presence::Unknown, Compare::SizeAndTime) if !entry.goes_in_blocks() => FirstStep::Sent,
            (Presence::Unknown, Compare::SizeAndTime) => FirstStep::OfferedAndSent,
        }
    }

    /// Returns true if more data of files may be sent.
    fn may_send(&self) -> bool {
        self.presence != Presence::Unknown || self.before_answer < MAX_BYTES_BEFORE_ANSWER
    }

    /// Returns true if more data of `file`, which has been begun, may be sent.
    pub(super) fn may_cut(&self, file: u64) -> bool {
        let waits = self.presence == Presence::Something && self.questions.contains(&file);
        self.may_send() && !waits
    }

    /// Notes that an entry was taken.
    pub(super) fn begun(&mut self, entry: &SourceEntry, begins: FirstStep) {
        match begins {
            FirstStep::OfferedAndSent => {
                self.questions.insert(entry.head.id);
            }
            FirstStep::Sent if !entry.goes_in_blocks() => self.count_sent(entry.size()),
            _ => {}
        }
    }

    /// Notes that a file offered together with data was answered, or needs no answer. Returns true
    /// if the answer was awaited.
    pub(super) fn answered(&mut self, file: u64) -> bool {
        self.questions.remove(&file)
    }

    /// Stops waiting for answers, as the stream that asked is gone.
    pub(super) fn forget_questions(&mut self) {
        self.questions.clear();
    }

    /// Stops waiting for late answers, as the stream that asked may have stalled.
    pub(super) fn give_up_late_questions(&mut self, now: Duration) {
        if self
            .reported_at
            .is_some_and(|reported| now.saturating_sub(reported) >= MAX_ANSWER_WAIT)
        {
            self.questions.clear();
        }
    }

    /// Counts bytes of files that were sent.
    pub(super) fn count_sent(&mut self, bytes: u64) {
        if self.presence == Presence::Unknown {
            self.before_answer = self.before_answer.saturating_add(bytes);
        }
    }

    /// Returns the work for an entry that is offered, given how it was offered before.
    pub(super) fn work(
        &self,
        entry: std::sync::Arc<SourceEntry>,
        offered: &OfferForm,
    ) -> StreamWork {
        if entry.first.is_some() {
            return StreamWork::Link(entry);
        }
        match (offered, self.compare) {
            (OfferForm::Content(content), _) => StreamWork::Offer {
                file: entry,
                content: Some(**content),
            },
            (_, Compare::SizeAndTime) => StreamWork::Offer {
                file: entry,
                content: None,
            },
            (_, Compare::Content) => StreamWork::ReadOffer(entry),
        }
    }
}

impl Schedule {
    /// Sets what is known of the receiver's files before it reports, and how files are compared.
    /// Must be called first.
    pub(crate) fn expect(&mut self, presence: Presence, compare: Compare) {
        self.offers = OfferState {
            presence,
            compare,
            ..OfferState::default()
        };
    }

    /// Sends no file before the receiver has reported.
    pub(crate) fn hold_until_reported(&mut self) {
        self.offers.before_answer = MAX_BYTES_BEFORE_ANSWER;
    }

    /// Notes the receiver's report whether it may have some of what is to be sent. Only the first
    /// report counts.
    pub(crate) fn reported_presence(&mut self, something: bool, now: Duration) {
        if self.offers.presence == Presence::Unknown {
            self.offers.reported_at = Some(now);
            self.offers.presence = match something {
                true => Presence::Something,
                false => Presence::Nothing,
            };
            self.wake(WakeTarget::All);
        }
    }

    /// Notes that a file was read for an offer. Returns what to offer, or `None` if it need not be
    /// offered any more.
    pub(crate) fn offer_read(&mut self, id: u64, size: u64, hash: Hash) -> Option<(u64, Hash)> {
        let tracked = self.tracked.get_mut(&id)?;
        if !matches!(tracked.stage, SendStage::Offered) {
            return None;
        }
        // Another stream may have been faster. The offer is always the same.
        if let OfferForm::Content(content) = &tracked.offered {
            return Some(**content);
        }
        tracked.offered = OfferForm::Content(Box::new((size, hash)));
        Some((size, hash))
    }

    /// Notes that the receiver wants a file that was offered, or that there is nothing to be
    /// offered.
    pub(crate) fn wanted(&mut self, id: u64, now: Duration) {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return;
        };
        if !matches!(tracked.stage, SendStage::Offered) {
            if self.offers.answered(id) {
                self.wake(WakeTarget::All);
            }
            return;
        }
        tracked.stage = SendStage::initial(&tracked.entry);
        let whole = Subject::whole(id);
        if !self.in_flight.settle(whole, now) {
            self.returned.remove(&whole);
        }
        self.return_work(whole);
        self.wake_starved();
        self.wake(WakeTarget::All);
    }
}

/// Returns the size of a file in place, and its hash if known. `None` for other entries.
pub(super) fn in_place(
    written: EntryOutcome,
    entry: &SourceEntry,
    offered: &OfferForm,
    content: Option<(u64, Hash)>,
) -> Option<(u64, Option<Hash>)> {
    match (written, offered) {
        (EntryOutcome::Unchanged, OfferForm::Content(content)) => {
            Some((content.0, Some(content.1)))
        }
        (EntryOutcome::Unchanged | EntryOutcome::Linked, _) => Some((entry.size(), None)),
        (EntryOutcome::New | EntryOutcome::Same, _) => {
            content.map(|(size, hash)| (size, Some(hash)))
        }
    }
}

#[cfg(test)]
impl OfferState {
    pub(super) fn questions(&self) -> &BTreeSet<u64> {
        &self.questions
    }
}
