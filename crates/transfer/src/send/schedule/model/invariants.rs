//! Invariants after every event.

use std::collections::BTreeSet;

use super::super::*;

impl Schedule {
    /// Checks all invariants.
    pub(crate) fn check(&self) {
        self.in_flight.check();
        let outstanding = |subject: Subject| {
            let (flies, back) = (
                self.in_flight.carries(subject),
                self.returned.contains(&subject),
            );
            assert!(!(flies && back), "{subject:?} is in flight and came back");
            flies || back
        };
        let mut subjects = usize::from(outstanding(Subject::END));
        let end = self.in_flight.carrier(Subject::END);
        assert!(
            end.is_none_or(|stream| !self.in_flight.is_retiring(stream)),
            "a stream that retires would wait for the end of the copy"
        );
        let (mut entry_bytes, mut file_bytes, mut acknowledged, mut unopened) = (0, 0, 0, 0);
        for (id, tracked) in &self.tracked {
            entry_bytes += tracked.entry.memory();
            acknowledged += tracked.acknowledged;
            let whole = outstanding(Subject::whole(*id));
            let blocks = self.blocks_out(*id);
            subjects += usize::from(whole) + blocks.len();
            match &tracked.stage {
                Stage::Offered | Stage::Whole | Stage::Failed(_) => {
                    assert!(whole && blocks.is_empty(), "{id} is lost")
                }
                Stage::Blocks(None) => {
                    unopened += usize::from(self.unopened.contains(id));
                    let waits = self.unopened.contains(id) && blocks.is_empty();
                    assert!(
                        !whole && (waits || blocks == [0]),
                        "{id} is lost before it is open"
                    );
                }
                Stage::Blocks(Some(open)) => {
                    open.check();
                    let out: u64 = blocks.iter().map(|offset| open.len_at(*offset)).sum();
                    assert_eq!(
                        out + open.unsent_bytes() + tracked.acknowledged,
                        open.size()
                    );
                    assert!(whole || tracked.content.is_none());
                    assert!(!whole || tracked.content.is_some() || open.root().is_some());
                    assert_eq!(self.cutting.contains(id), open.has_unsent());
                    file_bytes += open.memory();
                }
            }
        }
        let queued_bytes: u64 = self.queued.iter().map(|entry| entry.unsent_bytes()).sum();
        assert_eq!(self.queued_bytes, queued_bytes);
        entry_bytes += self.queued.iter().map(|entry| entry.memory()).sum::<u64>();
        entry_bytes += self.links.all_waiting().map(Entry::memory).sum::<u64>();
        let waiting = self.links.all_waiting().count();
        assert_eq!(self.links.waiting(), waiting);
        assert_eq!(
            (self.entry_bytes, self.file_bytes),
            (entry_bytes, file_bytes)
        );
        assert_eq!(
            self.in_flight.len() + self.returned.len(),
            subjects,
            "of no entry"
        );
        assert_eq!(self.unopened.len(), unopened);
        assert!(self.cutting.iter().all(|id| self.tracked.contains_key(id)));
        let questions = self.offers.questions();
        assert!(questions.iter().all(|id| self.tracked.contains_key(id)));
        assert!(self.bytes_done >= acknowledged);
        let known = (self.queued.len() + self.tracked.len() + waiting) as u64 + self.manifest.len();
        assert_eq!(known, self.found.entries, "an entry is lost");
    }

    /// Returns the offsets of the blocks of a file that are in flight or have returned.
    fn blocks_out(&self, id: u64) -> Vec<u64> {
        let back = self
            .returned
            .iter()
            .filter_map(|subject| match subject.part {
                Part::Block(offset) if subject.entry == id => Some(offset),
                _ => None,
            });
        let all: BTreeSet<u64> = back.chain(self.in_flight.blocks_of(id)).collect();
        all.into_iter().collect()
    }
}
