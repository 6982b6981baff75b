//! The receiver's answers. One about what was not sent is ignored.

use std::time::Duration;

use super::Schedule;
use super::work::{EntryResult, Subject};
use crate::error::Failure;
use crate::tree_hash::Hash;
use crate::wire::Written;

impl Schedule {
    /// A block is written.
    pub(crate) fn acknowledged(&mut self, id: u64, offset: u64, now: Duration) {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return;
        };
        let Some(len) = tracked
            .blocks()
            .and_then(|blocks| blocks.was_read(offset).then(|| blocks.len_at(offset)))
        else {
            return;
        };
        let subject = Subject::block(id, offset);
        if self.in_flight.settle(subject, now) || self.returned.remove(&subject) {
            tracked.acknowledged += len;
            self.bytes_done += len;
            self.freed();
        }
    }

    /// What became of an entry.
    pub(crate) fn answered(&mut self, id: u64, outcome: Result<Written, Failure>, now: Duration) {
        let Some(outcome) = self.tracked.get(&id).and_then(|tracked| tracked.outcome(outcome)) else {
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
        let size = tracked
            .content
            .filter(|_| outcome.is_ok())
            .map_or(0, |(size, _)| size);
        self.bytes_done = self.bytes_done + size - tracked.acknowledged;
        let head = &tracked.entry.head;
        self.manifest
            .record(id, head.source, &head.path, tracked.record(&outcome));
        self.actions.result = Some(EntryResult {
            entry: tracked.entry,
            content: tracked.content,
            outcome,
        });
        // A walk may wait for the memory.
        self.actions.wake_walk = true;
        self.freed();
        self.conclude();
    }

    /// LH-COPY-26: everything is in place, with the receiver's hash over everything. Answers on other streams may still be on their way; they
    /// are waited for.
    pub(crate) fn completed(&mut self, manifest: Hash) {
        self.their_manifest = Some(manifest);
        self.drop_subject(Subject::END);
        self.conclude();
    }
}
