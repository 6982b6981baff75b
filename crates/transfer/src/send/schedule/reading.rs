//! Results of reading files. A report may be late: from a stream that is gone, or about an entry
//! that has its result.

use std::time::Duration;

use super::Schedule;
use super::blocks::Blocks;
use super::entry::SendStage;
use super::work::{StreamId, Subject, WakeTarget, WholeFileMessage};
use crate::error::{Failure, FailureKind};
use crate::late_size::is_late;
use crate::tree_hash::{BlockHash, Hash};

impl Schedule {
    /// Notes that a file has been opened: `size` bytes, in blocks of `1 << block_log2` bytes. The
    /// receiver may have kept a part if it `has_identity`. Returns true if this opening counts, as
    /// a file may be opened twice if the first stream to open it is lost meanwhile.
    pub(crate) fn opened(
        &mut self,
        id: u64,
        size: u64,
        block_log2: u32,
        has_identity: bool,
    ) -> bool {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return false;
        };
        if !matches!(tracked.stage, SendStage::Blocks(None)) {
            return false;
        }
        let late = self.late.filter(|late| is_late(size) && late.id == id);
        let mut blocks = Box::new(match late {
            Some(late) => {
                let mut blocks = Blocks::late(block_log2);
                blocks.grow(late.available, late.is_whole);
                blocks
            }
            None => Blocks::new(size, block_log2, has_identity),
        });
        if self.manifest.is_observed() {
            blocks.keep_coarse();
        }
        let first = Subject::block(id, 0);
        let unopened = self.unopened.remove(&id);
        match blocks.take() {
            // It was opened by a stream that is gone.
            Some(_) if unopened => {
                self.returned.insert(first);
            }
            Some(_) => self.in_flight.allow_repeat(first),
            None => self.drop_subject(first),
        }
        self.file_bytes += blocks.memory();
        self.offers.count_sent(blocks.len_at(0));
        if blocks.has_unsent() {
            self.cutting.insert(id);
        }
        if let Some(tracked) = self.tracked.get_mut(&id) {
            tracked.stage = SendStage::Blocks(Some(blocks));
        }
        self.wake(WakeTarget::All);
        true
    }

    /// Notes that a block has been read. After the last block, returns the file's hash for
    /// [`Self::file_read`], which requires that the file is unchanged.
    pub(crate) fn block_read(&mut self, id: u64, offset: u64, hash: BlockHash) -> Option<Hash> {
        let tracked = self.tracked.get_mut(&id)?;
        let blocks = tracked.blocks()?;
        let before = blocks.memory();
        let root = blocks.read(offset, hash);
        self.file_bytes = self.file_bytes - before + blocks.memory();
        root.filter(|_| tracked.content.is_none())
    }

    /// Notes that all blocks of a file have been read and it is unchanged. Returns true if its end
    /// must be sent now, on `stream`.
    pub(crate) fn file_read(
        &mut self,
        stream: StreamId,
        id: u64,
        size: u64,
        hash: Hash,
        now: Duration,
    ) -> bool {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return false;
        };
        if tracked.content.is_some() || tracked.blocks().is_none() {
            return false;
        }
        tracked.content = Some((size, hash));
        self.carry_whole(id, stream, now);
        true
    }

    /// Notes that a file has been read in one piece. Returns what to send on `stream`.
    pub(crate) fn whole_read(
        &mut self,
        stream: StreamId,
        id: u64,
        size: u64,
        hash: Hash,
        now: Duration,
    ) -> WholeFileMessage {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return WholeFileMessage::Nothing;
        };
        match (&tracked.stage, &tracked.content) {
            (SendStage::Blocks(_), _) => WholeFileMessage::Nothing,
            (_, None) => {
                tracked.content = Some((size, hash));
                WholeFileMessage::File
            }
            (_, Some(before)) if *before == (size, hash) => WholeFileMessage::File,
            // It was read a second time for another stream, and has changed.
            _ => {
                let failure = Failure::new(FailureKind::Changed);
                self.failed(stream, id, &failure, now);
                WholeFileMessage::Failure(failure)
            }
        }
    }

    /// Notes that a file has grown too large for one frame. It is sent in blocks, unless it was
    /// read in one piece before. Returns what to send on `stream`.
    pub(crate) fn grew(&mut self, stream: StreamId, id: u64, now: Duration) -> WholeFileMessage {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return WholeFileMessage::Nothing;
        };
        if !matches!(tracked.stage, SendStage::Whole) {
            return WholeFileMessage::Nothing;
        }
        if tracked.content.is_some() {
            // The receiver may have the earlier version already.
            let failure = Failure::new(FailureKind::Changed);
            self.failed(stream, id, &failure, now);
            return WholeFileMessage::Failure(failure);
        }
        tracked.stage = SendStage::Blocks(None);
        self.drop_subject(Subject::whole(id));
        self.unopened.insert(id);
        self.wake(WakeTarget::One);
        WholeFileMessage::Nothing
    }

    /// Notes that an entry cannot be read, which is sent on `stream`. The first failure counts.
    pub(crate) fn failed(&mut self, stream: StreamId, id: u64, failure: &Failure, now: Duration) {
        let Some(tracked) = self.tracked.get_mut(&id) else {
            return;
        };
        if let Some(blocks) = tracked.blocks() {
            self.file_bytes -= blocks.memory();
            self.actions.close = Some(id);
        }
        if !matches!(tracked.stage, SendStage::Failed(_)) {
            tracked.stage = SendStage::Failed(failure.clone());
        }
        self.drop_entry(id);
        // There may be room for more in flight, and another file may be opened.
        self.wake(WakeTarget::All);
        self.carry_whole(id, stream, now);
    }

    /// Puts the end or the failure of an entry in flight on `stream`, or returns it to the queue if
    /// there is no such stream.
    fn carry_whole(&mut self, id: u64, stream: StreamId, now: Duration) {
        let whole = Subject::whole(id);
        self.returned.remove(&whole);
        if !self.in_flight.add(whole, stream, now, true, 0) {
            // Another stream's check whether the file is complete is no longer needed.
            self.in_flight.forget(whole);
            self.returned.insert(whole);
            self.wake(WakeTarget::All);
        }
    }
}
