//! What became of every entry, for streams that ask again: an answer may be lost with its stream
//! long after it was given.
//!
//! Most entries are written anew, and of those nothing is kept. Of the others a byte is, in pages
//! of consecutive entries, so that what is remembered is bounded by the number of entries and not
//! by a number of failures; the words of a failure are kept for the first [`MAX_DETAILS`].

use std::collections::HashMap;

use crate::error::{Failure, FailureKind};
use crate::wire::Written;

/// Reasons in words that are kept; beyond, the kind alone.
const MAX_DETAILS: usize = 1024;
/// Entries of a page.
const PAGE_ENTRIES: usize = 256;
/// Bytes that a page takes whatever is in it, and that a reason takes beside its words.
const PAGE_BYTES: u64 = 64;
const DETAIL_BYTES: u64 = 64;
/// The outcome of most, as a byte.
const NEW: u8 = Written::New.code();

/// See the module.
#[derive(Default)]
pub(super) struct Outcomes {
    pages: HashMap<u64, Page>,
    /// Pages among them that have a byte for each entry.
    mixed: u64,
    details: HashMap<u64, String>,
    detail_bytes: u64,
}

enum Page {
    /// All its entries came to this.
    Uniform(u8),
    /// What each of its entries came to, and how many came to something else than [`NEW`].
    Mixed(Box<[u8; PAGE_ENTRIES]>, usize),
}

impl Outcomes {
    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES + self.mixed * PAGE_ENTRIES as u64 + self.detail_bytes
    }

    /// What became of entry `id`, of which nothing was said before.
    pub(super) fn insert(&mut self, id: u64, outcome: &Result<Written, Failure>) {
        let code = match outcome {
            Ok(Written::New) => return,
            Ok(written) => written.code(),
            Err(failure) => failure.kind as u8,
        };
        let (number, at) = split(id);
        let page = self.pages.entry(number).or_insert_with(|| {
            self.mixed += 1;
            Page::Mixed(Box::new([NEW; PAGE_ENTRIES]), 0)
        });
        if let Page::Mixed(codes, known) = page
            && let Some(place) = codes.get_mut(at)
        {
            *place = code;
            *known += 1;
            if *known == PAGE_ENTRIES && codes.iter().all(|other| *other == code) {
                *page = Page::Uniform(code);
                self.mixed -= 1;
            }
        }
        if let Err(Failure { detail, .. }) = outcome
            && !detail.is_empty()
            && self.details.len() < MAX_DETAILS
        {
            self.detail_bytes += DETAIL_BYTES + detail.len() as u64;
            self.details.insert(id, detail.clone());
        }
    }

    /// What became of entry `id`, which has been recorded.
    pub(super) fn of(&self, id: u64) -> Result<Written, Failure> {
        let (number, at) = split(id);
        let code = match self.pages.get(&number) {
            None => NEW,
            Some(Page::Uniform(code)) => *code,
            Some(Page::Mixed(codes, _)) => codes.get(at).copied().unwrap_or(NEW),
        };
        match Written::from_code(code) {
            Some(written) => Ok(written),
            None => Err(Failure::with(
                FailureKind::from_code(code).unwrap_or(FailureKind::Io),
                self.details.get(&id).cloned().unwrap_or_default(),
            )),
        }
    }
}

/// The page of an entry, and its place there.
fn split(id: u64) -> (u64, usize) {
    (
        id / PAGE_ENTRIES as u64,
        (id % PAGE_ENTRIES as u64) as usize,
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome() -> impl Strategy<Value = Result<Written, Failure>> {
        let failure = (1u8..=15, "[a-z]{0,9}").prop_map(|(code, detail)| {
            Err(Failure::with(FailureKind::from_code(code).unwrap(), detail))
        });
        prop_oneof![
            3 => Just(Ok(Written::New)),
            3 => Just(Ok(Written::Same)),
            2 => Just(Ok(Written::Unchanged)),
            1 => Just(Ok(Written::Linked)),
            2 => failure
        ]
    }

    proptest! {
        /// What was put in comes out again, words included as long as there are few.
        #[test]
        fn every_outcome_is_remembered(list in prop::collection::hash_map(0u64..2000, outcome(), 0..600)) {
            let mut outcomes = Outcomes::default();
            for (id, outcome) in &list {
                outcomes.insert(*id, outcome);
            }
            for (id, outcome) in &list {
                prop_assert_eq!(&outcomes.of(*id), outcome);
            }
            prop_assert!(outcomes.bytes() <= 8 * (PAGE_BYTES + 256) + 600 * (DETAIL_BYTES + 9));
        }
    }

    #[test]
    fn memory_follows_the_number_of_entries_and_not_of_failures() {
        let mut outcomes = Outcomes::default();
        let failure = |id: u64| Failure::with(FailureKind::Exists, format!("no {id}"));
        for id in 0..1_000_000 {
            outcomes.insert(id, &Err(failure(id)));
        }
        assert!(outcomes.bytes() < 512 * 1024, "{}", outcomes.bytes());
        assert_eq!(outcomes.of(5), Err(failure(5)));
        // Without words, but never as something else than it was.
        assert_eq!(outcomes.of(999_999), Err(Failure::new(FailureKind::Exists)));
        let mut alternating = Outcomes::default();
        for id in (0..1_000_000).step_by(2) {
            alternating.insert(id, &Err(Failure::new(FailureKind::Vanished)));
        }
        assert!(alternating.bytes() < 2_000_000);
        assert_eq!(alternating.of(3), Ok(Written::New));
    }
}
