//! Files that the receiver may have already: when each is offered before it is sent (LH-COPY-39 to
//! LH-COPY-41).
//!
//! A client that pushes does not know whether there is anything, and does not wait for the report:
//! it begins with data, no more of it than a first round trip can carry, and offers everything else
//! once the server has said that there may be some of it. So a copy to an empty place costs
//! nothing, and one that was made before moves next to nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::entry::{Entry, Found, Offered, Stage};
use super::work::{Subject, Wake, Work};
use super::{MAX_ANSWER_WAIT, Schedule};
use crate::tree_hash::Hash;
use crate::wire::{Compare, Written};

/// Bytes of files that may be handed out before the receiver has said whether there may be some of
/// them: more than the first windows of a connection, as long as nobody has set them a hundred
/// times as large as RFC 6928 has them.
pub(super) const MAX_BYTES_BEFORE_ANSWER: u64 = 1 << 20;

/// What the receiver may have of what is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Presence {
    /// It has not reported.
    Unknown,
    /// Nothing.
    #[default]
    Nothing,
    /// Some of it: every file is offered first.
    Something,
}

/// What is known of what the receiver has, and how files are compared.
#[derive(Default)]
pub(super) struct Offers {
    presence: Presence,
    compare: Compare,
    /// Bytes of files that were handed out before it was known.
    before_answer: u64,
    /// Files that were offered with data behind it, and not answered for. Few: each counts among
    /// those bytes.
    questions: BTreeSet<u64>,
    /// When the receiver reported.
    reported_at: Option<Duration>,
}

/// How a file goes its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// Not yet.
    Waits,
    /// It is sent.
    Sent,
    /// It is offered, and sent without waiting for the answer.
    OfferedAndSent,
    /// It is offered, to be compared so, and sent if the receiver wants it.
    Offered(Compare),
    /// It is said to be another name of a file, and sent if the receiver wants it.
    Linked,
}

impl Offers {
    /// How an entry that nobody has taken yet begins.
    pub(super) fn begins(&self, entry: &Entry) -> Begins {
        if !matches!(entry.found, Found::File { .. }) {
            return Begins::Sent;
        }
        if entry.first.is_some() {
            return Begins::Linked;
        }
        match (self.presence, self.compare) {
            (Presence::Nothing, _) => Begins::Sent,
            (Presence::Something, compare) => Begins::Offered(compare),
            // Its hash is needed for an offer, and whoever asks for that can wait.
            (Presence::Unknown, Compare::Content) => Begins::Waits,
            (Presence::Unknown, Compare::SizeAndTime) if !self.may_send() => Begins::Waits,
            // What travels at once is there as soon as the answer would be.
            (Presence::Unknown, Compare::SizeAndTime) if !entry.goes_in_blocks() => Begins::Sent,
            (Presence::Unknown, Compare::SizeAndTime) => Begins::OfferedAndSent,
        }
    }

    /// Whether more of files may be handed out.
    fn may_send(&self) -> bool {
        self.presence != Presence::Unknown || self.before_answer < MAX_BYTES_BEFORE_ANSWER
    }

    /// Whether more of this one may be, which has been begun.
    pub(super) fn may_cut(&self, file: u64) -> bool {
        let waits = self.presence == Presence::Something && self.questions.contains(&file);
        self.may_send() && !waits
    }

    /// An entry was taken.
    pub(super) fn begun(&mut self, entry: &Entry, begins: Begins) {
        match begins {
            Begins::OfferedAndSent => {
                self.questions.insert(entry.head.id);
            }
            Begins::Sent if !entry.goes_in_blocks() => self.sent(entry.size()),
            _ => {}
        }
    }

    /// A file that was offered with data behind it was answered for, or need not be. Whether it was
    /// waited for.
    pub(super) fn answered(&mut self, file: u64) -> bool {
        self.questions.remove(&file)
    }

    /// A stream is gone, and what was asked there: nobody waits for the answers any more.
    pub(super) fn forget_questions(&mut self) {
        self.questions.clear();
    }

    /// Answers that have not come by now are waited for no longer: the stream that asked may have
    /// stalled.
    pub(super) fn give_up_late_questions(&mut self, now: Duration) {
        if self
            .reported_at
            .is_some_and(|reported| now.saturating_sub(reported) >= MAX_ANSWER_WAIT)
        {
            self.questions.clear();
        }
    }

    /// So many bytes of files were handed out.
    pub(super) fn sent(&mut self, bytes: u64) {
        if self.presence == Presence::Unknown {
            self.before_answer = self.before_answer.saturating_add(bytes);
        }
    }

    /// What is sent for an entry that is offered, given what was said of it before.
    pub(super) fn work(&self, entry: std::sync::Arc<Entry>, offered: &Offered) -> Work {
        if entry.first.is_some() {
            return Work::Link(entry);
        }
        match (offered, self.compare) {
            (Offered::Content(content), _) => Work::Offer {
                file: entry,
                content: Some(**content),
            },
            (_, Compare::SizeAndTime) => Work::Offer {
                file: entry,
                content: None,
            },
            (_, Compare::Content) => Work::ReadOffer(entry),
        }
    }
}

impl Schedule {
    /// What the receiver has, as far as it is known before it reports, and how files are compared.
    /// To be said first.
    pub(crate) fn expect(&mut self, presence: Presence, compare: Compare) {
        self.offers = Offers {
            presence,
            compare,
            ..Offers::default()
        };
    }

    /// The receiver has reported whether there may be some of what is to be sent. The first word
    /// counts.
    pub(crate) fn reported_presence(&mut self, something: bool, now: Duration) {
        if self.offers.presence == Presence::Unknown {
            self.offers.reported_at = Some(now);
            self.offers.presence = match something {
                true => Presence::Something,
                false => Presence::Nothing,
            };
            self.wake(Wake::All);
        }
    }

    /// A file that is to be offered has been read: what is to be said of it. None if it need not be
    /// offered any more.
    pub(crate) fn offer_read(&mut self, id: u64, size: u64, hash: Hash) -> Option<(u64, Hash)> {
        let tracked = self.tracked.get_mut(&id)?;
        if !matches!(tracked.stage, Stage::Offered) {
            return None;
        }
        // Another stream may have been faster; it always says the same.
        if let Offered::Content(content) = &tracked.offered {
            return Some(**content);
        }
        tracked.offered = Offered::Content(Box::new((size, hash)));
        Some((size, hash))
    }

    /// The receiver wants a file that was offered; or it turned out that there is nothing to be
    /// offered.
    pub(crate) fn wanted(&mut self, id: u64, now: Duration) {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return;
        };
        if !matches!(tracked.stage, Stage::Offered) {
            if self.offers.answered(id) {
                self.wake(Wake::All);
            }
            return;
        }
        tracked.stage = Stage::first_of(&tracked.entry);
        let whole = Subject::whole(id);
        if !self.in_flight.settle(whole, now) {
            self.returned.remove(&whole);
        }
        self.come_back(whole);
        self.freed();
        self.wake(Wake::All);
    }
}

/// Size, and hash if it is known, of a file that is in place; none of what is no file.
pub(super) fn in_place(
    written: Written,
    entry: &Entry,
    offered: &Offered,
    content: Option<(u64, Hash)>,
) -> Option<(u64, Option<Hash>)> {
    match (written, offered) {
        (Written::Unchanged, Offered::Content(content)) => Some((content.0, Some(content.1))),
        (Written::Unchanged | Written::Linked, _) => Some((entry.size(), None)),
        (Written::New | Written::Same, _) => content.map(|(size, hash)| (size, Some(hash))),
    }
}

#[cfg(test)]
impl Offers {
    pub(super) fn questions(&self) -> &BTreeSet<u64> {
        &self.questions
    }
}
