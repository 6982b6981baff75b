//! The receiver's answers. An answer about something that was not sent is ignored.

use std::time::Duration;

use super::Schedule;
use super::offers::in_place;
use super::work::{EntryResult, Part, Resumed, Subject, Wake};
use crate::error::Failure;
use crate::tree_hash::{Hash, Subtree};
use crate::wire::Written;

impl Schedule {
    /// Notes that a block has been written.
    pub(crate) fn acknowledged(&mut self, id: u64, offset: u64, now: Duration) {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return;
        };
        let Some((len, is_first)) = tracked
            .blocks()
            .filter(|blocks| blocks.was_read(offset))
            .map(|blocks| (blocks.len_at(offset), blocks.answered()))
        else {
            return;
        };
        let subject = Subject::block(id, offset);
        if self.in_flight.settle(subject, now) || self.returned.remove(&subject) {
            tracked.acknowledged += len;
            self.bytes_done += len;
            self.freed();
        }
        if is_first {
            self.wake(Wake::All);
        }
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
        let (before, mut bytes) = (blocks.memory(), 0);
        let fits = subtrees.iter().all(|subtree| {
            let new = blocks.have(*subtree);
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
                        Part::Block(offset) => Some(offset),
                        Part::Whole => None,
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
            self.wake(Wake::All);
        }
        self.actions.resumed = reported.map(|bytes| Resumed { entry, bytes, size });
        fits
    }

    /// Notes the outcome of an entry.
    pub(crate) fn answered(&mut self, id: u64, outcome: Result<Written, Failure>, now: Duration) {
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
        self.freed();
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
