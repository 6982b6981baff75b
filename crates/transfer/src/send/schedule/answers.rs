//! The receiver's answers. An answer about something that was not sent is ignored.

use std::time::Duration;

use super::Schedule;
use super::offers::in_place;
use super::work::{EntryResult, ResumedReport, Subject, SubjectPart, WakeTarget};
use crate::error::Failure;
use crate::tree_hash::{Hash, Subtree};
use crate::wire::EntryOutcome;

impl Schedule {
    /// Notes that a block has been written. Returns true if it is of a file of late size, whose
    /// source need not keep the block any more.
    pub(crate) fn acknowledged(&mut self, id: u64, offset: u64, now: Duration) -> bool {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return false;
        };
        let Some((len, is_first, is_late)) = tracked
            .blocks()
            .filter(|blocks| blocks.was_read(offset))
            .map(|blocks| {
                let len = blocks.len_at(offset);
                (len, blocks.answered(), blocks.has_late_size())
            })
        else {
            return false;
        };
        let subject = Subject::block(id, offset);
        if self.in_flight.settle(subject, now) || self.returned.remove(&subject) {
            tracked.acknowledged += len;
            self.bytes_done += len;
            self.wake_starved();
        }
        if is_first {
            self.wake(WakeTarget::All);
        }
        is_late
    }

    /// Handles HAVE: the receiver has these parts of a file, or none. It has reported everything
    /// unless `more` follow. Blocks in flight remain to be answered. Returns false if the file has
    /// no such parts.
    pub(crate) fn have(&mut self, id: u64, subtrees: &[Subtree], more: bool) -> bool {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return true;
        };
        let entry = tracked.entry.clone();
        let Some(blocks) = tracked.blocks() else {
            return true;
        };
        // Nobody has a part of a file of late size, as it has no identity (LH-COPY-80).
        if blocks.has_late_size() && !subtrees.is_empty() {
            return false;
        }
        let (before, mut bytes) = (blocks.memory(), 0);
        let fits = subtrees.iter().all(|subtree| {
            let new = blocks.mark_present(*subtree);
            bytes += new.unwrap_or(0);
            new.is_some()
        });
        let size = blocks.size();
        let is_first = blocks.answered();
        let reported = if more { None } else { blocks.reported_all() };
        let (after, is_sent, root) = (blocks.memory(), !blocks.has_unsent(), blocks.root());
        // Work that returned from a lost stream need not be sent again either.
        let in_file = subtrees.iter().filter(|subtree| subtree.offset < size);
        let back: Vec<u64> = in_file
            .flat_map(|subtree| {
                let range =
                    Subject::block(id, subtree.offset)..Subject::block(id, subtree.end(size));
                self.returned
                    .range(range)
                    .filter_map(|subject| match subject.part {
                        SubjectPart::Block(offset) => Some(offset),
                        SubjectPart::Whole => None,
                    })
            })
            .collect();
        for offset in back {
            self.returned.remove(&Subject::block(id, offset));
            bytes += blocks.len_at(offset);
        }
        tracked.acknowledged += bytes;
        let is_complete = root.is_some() && tracked.content.is_none();
        self.bytes_done += bytes;
        self.file_bytes = self.file_bytes - before + after;
        if is_sent {
            self.cutting.remove(&id);
        }
        let whole = Subject::whole(id);
        let is_to_conclude =
            is_complete && !self.in_flight.carries(whole) && self.returned.insert(whole);
        if is_first || is_to_conclude {
            self.wake(WakeTarget::All);
        }
        self.actions.resumed = reported.map(|bytes| ResumedReport { entry, bytes, size });
        fits
    }

    /// Notes the outcome of an entry.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        outcome: Result<EntryOutcome, Failure>,
        now: Duration,
    ) {
        let Some(outcome) = self
            .tracked
            .get(&id)
            .and_then(|tracked| tracked.outcome(outcome))
        else {
            return;
        };
        self.in_flight.settle(Subject::whole(id), now);
        self.drop_entry(id);
        let Some(mut tracked) = self.tracked.remove(&id) else {
            return;
        };
        if let Some(blocks) = tracked.blocks() {
            self.file_bytes -= blocks.memory();
            self.actions.close = Some(id);
        }
        self.entry_bytes -= tracked.entry.memory();
        let written = outcome.as_ref().ok();
        let is_in_place = written.is_some();
        let content = written.and_then(|written| {
            in_place(*written, &tracked.entry, &tracked.offered, tracked.content)
        });
        let size = content.map_or(0, |(size, _)| size);
        self.bytes_done = self.bytes_done + size - tracked.acknowledged;
        let head = &tracked.entry.head;
        self.manifest
            .record(id, head.source, &head.path, tracked.record(&outcome));
        self.actions.result = Some(EntryResult {
            entry: tracked.entry,
            content,
            outcome,
        });
        for entry in self.links.answered(id, is_in_place) {
            self.queue(entry);
        }
        // A walk may be waiting for the memory.
        self.actions.wake_walk = true;
        self.wake_starved();
        self.conclude();
    }

    /// Notes that everything is in place, with the receiver's hash over it (LH-COPY-26). Answers on
    /// other streams may still be on their way, and are waited for.
    pub(crate) fn completed(&mut self, manifest: Hash) {
        self.their_manifest = Some(manifest);
        self.drop_subject(Subject::END);
        self.conclude();
    }
}
