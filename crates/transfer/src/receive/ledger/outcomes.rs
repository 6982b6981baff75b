//! Outcomes of all entries, for streams that ask again. An answer may be lost with its stream long
//! after it was given.
//!
//! Nothing is kept for most entries, which are newly written. Of the others a byte is kept, in
//! pages of consecutive entries. Memory is thus bounded by the number of entries, not by the number
//! of failures. The details of failures are kept for the first [`MAX_DETAILS`].

use std::collections::HashMap;

use crate::error::{Failure, FailureKind};
use crate::wire::EntryOutcome;

/// Maximum number of detailed reasons. For further failures, only the kind is kept.
const MAX_DETAILS: usize = 1024;
/// Number of entries in a page.
const PAGE_ENTRIES: usize = 256;
/// Memory overhead of a page, and of a reason, in bytes.
const PAGE_BYTES: u64 = 64;
const DETAIL_BYTES: u64 = 64;
/// The most frequent outcome, as a byte.
const NEW_CODE: u8 = EntryOutcome::New as u8;

/// Outcomes of all entries.
#[derive(Default)]
pub(super) struct Outcomes {
    pages: HashMap<u64, Page>,
    /// Number of pages that have a byte for each entry.
    mixed: u64,
    details: HashMap<u64, String>,
    detail_bytes: u64,
}

enum Page {
    /// All its entries have this outcome.
    Uniform(u8),
    /// Outcome of each entry, and the number of entries whose outcome is not [`NEW_CODE`].
    Mixed(Box<[u8; PAGE_ENTRIES]>, usize),
}

impl Outcomes {
    /// Returns the memory that the outcomes use, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES + self.mixed * PAGE_ENTRIES as u64 + self.detail_bytes
    }

    /// Inserts the outcome of entry `id`, which has none yet.
    pub(super) fn insert(&mut self, id: u64, outcome: &Result<EntryOutcome, Failure>) {
        let code = match outcome {
            Ok(EntryOutcome::New) => return,
            Ok(written) => *written as u8,
            Err(failure) => failure.kind as u8,
        };
        let (number, at) = page_of(id);
        let page = self.pages.entry(number).or_insert_with(|| {
            self.mixed += 1;
            Page::Mixed(Box::new([NEW_CODE; PAGE_ENTRIES]), 0)
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

    /// Returns the outcome of entry `id`, which must be recorded.
    pub(super) fn get(&self, id: u64) -> Result<EntryOutcome, Failure> {
        let (number, at) = page_of(id);
        let code = match self.pages.get(&number) {
            None => NEW_CODE,
            Some(Page::Uniform(code)) => *code,
            Some(Page::Mixed(codes, _)) => codes.get(at).copied().unwrap_or(NEW_CODE),
        };
        match EntryOutcome::from_repr(code) {
            Some(written) => Ok(written),
            None => Err(Failure::with_detail(
                FailureKind::from_repr(code).unwrap_or(FailureKind::Io),
                self.details.get(&id).cloned().unwrap_or_default(),
            )),
        }
    }
}

/// Returns the page of an entry, and its index there.
fn page_of(id: u64) -> (u64, usize) {
    (
        id / PAGE_ENTRIES as u64,
        (id % PAGE_ENTRIES as u64) as usize,
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome() -> impl Strategy<Value = Result<EntryOutcome, Failure>> {
        let failure = (1u8..=15, "[a-z]{0,9}").prop_map(|(code, detail)| {
            Err(Failure::with_detail(
                FailureKind::from_repr(code).unwrap(),
                detail,
            ))
        });
        prop_oneof![
            3 => Just(Ok(EntryOutcome::New)),
            3 => Just(Ok(EntryOutcome::Same)),
            2 => Just(Ok(EntryOutcome::Unchanged)),
            1 => Just(Ok(EntryOutcome::Linked)),
            2 => failure
        ]
    }

    proptest! {
        /// Outcomes are returned as they were inserted, with details as long as there are few.
        #[test]
        fn every_outcome_is_remembered(
            list in prop::collection::hash_map(0u64..2000, outcome(), 0..600),
        ) {
            let mut outcomes = Outcomes::default();
            for (id, outcome) in &list {
                outcomes.insert(*id, outcome);
            }
            for (id, outcome) in &list {
                prop_assert_eq!(&outcomes.get(*id), outcome);
            }
            prop_assert!(outcomes.bytes() <= 8 * (PAGE_BYTES + 256) + 600 * (DETAIL_BYTES + 9));
        }
    }

    #[test]
    fn memory_depends_on_entries_and_not_on_failures() {
        let mut outcomes = Outcomes::default();
        let failure = |id: u64| Failure::with_detail(FailureKind::Exists, format!("no {id}"));
        for id in 0..1_000_000 {
            outcomes.insert(id, &Err(failure(id)));
        }
        assert!(outcomes.bytes() < 512 * 1024, "{}", outcomes.bytes());
        assert_eq!(outcomes.get(5), Err(failure(5)));
        // The detail is lost, but never the kind.
        assert_eq!(
            outcomes.get(999_999),
            Err(Failure::new(FailureKind::Exists))
        );
        let mut alternating = Outcomes::default();
        for id in (0..1_000_000).step_by(2) {
            alternating.insert(id, &Err(Failure::new(FailureKind::Vanished)));
        }
        assert!(alternating.bytes() < 2_000_000);
        assert_eq!(alternating.get(3), Ok(EntryOutcome::New));
    }
}
