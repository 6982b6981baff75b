//! What streams report of their reading, passed on to the schedule.

use std::sync::Arc;

use super::WorkQueue;
use crate::delta::Signature;
use crate::send::read::{FollowUp, OpenSourceFile, ReadReport, ReadReports};
use crate::send::schedule::{Schedule, SourceEntry, StreamId, StreamWork, WholeFileMessage};

impl WorkQueue {
    /// Counts an opened file that has extended attributes of these names and does not keep them.
    fn note_attributes(&self, names: &[u8]) {
        let kept = self.sources.metadata().kept();
        self.reporter.progress.not_kept.note_attributes(names, kept);
    }

    /// Keeps a file that has been opened, unless another stream opened it before. Returns false if
    /// the file need not be sent any more.
    fn opened(&self, id: u64, file: OpenSourceFile) -> bool {
        let mut state = self.state.lock();
        let (size, has_identity) = (file.announced_size(), file.identity.is_some());
        if state
            .schedule
            .opened(id, size, file.block_log2, has_identity)
        {
            state.open_files.insert(id, Arc::new(file));
        }
        let is_open = state.open_files.contains_key(&id);
        self.perform(state);
        is_open
    }
}

impl ReadReports for WorkQueue {
    fn open_file(&self, id: u64) -> Option<Arc<OpenSourceFile>> {
        self.state.lock().open_files.get(&id).cloned()
    }

    fn is_over(&self) -> bool {
        self.state.lock().schedule.is_closed()
    }

    fn signature(&self, id: u64) -> Option<Arc<Signature>> {
        self.signatures.get(id)
    }

    fn take_report(
        &self,
        stream: StreamId,
        entry: &Arc<SourceEntry>,
        report: ReadReport,
    ) -> FollowUp {
        let (id, file) = (entry.head.id, entry.clone());
        let next = match report {
            ReadReport::Opened(open, attributes) => {
                self.note_attributes(&attributes);
                let is_open = self.opened(id, open);
                if is_open {
                    self.reporter.began(&entry.head);
                }
                is_open.then_some(StreamWork::Block { file, offset: 0 })
            }
            ReadReport::Block { offset, hash } => {
                let root = self.handle(|schedule, _| schedule.block_read(id, offset, hash));
                root.map(|hash| StreamWork::Complete { file, hash })
            }
            ReadReport::File { size, hash } => {
                let ends =
                    |schedule: &mut Schedule, now| schedule.file_read(stream, id, size, hash, now);
                self.handle(ends)
                    .then_some(StreamWork::FileEnd { file, hash })
            }
            ReadReport::Whole {
                size,
                hash,
                attributes,
            } => {
                self.note_attributes(&attributes);
                let read =
                    |schedule: &mut Schedule, now| schedule.whole_read(stream, id, size, hash, now);
                return follow_whole(file, self.handle(read));
            }
            ReadReport::Grew => {
                let grown = self.handle(|schedule, now| schedule.grew(stream, id, now));
                return follow_whole(file, grown);
            }
            ReadReport::Hashed(Some((size, hash))) => {
                let offered = self.handle(|schedule, _| schedule.offer_read(id, size, hash));
                offered.map(|content| StreamWork::Offer {
                    file,
                    content: Some(content),
                })
            }
            // The file must be sent at once, and is checked again meanwhile.
            ReadReport::Hashed(None) => {
                self.wanted(id);
                None
            }
            ReadReport::Failed(failure) => {
                self.handle(|schedule, now| schedule.failed(stream, id, &failure, now));
                Some(StreamWork::Failed(file, failure))
            }
        };
        next.map_or(FollowUp::Nothing, FollowUp::Work)
    }
}

/// Returns what follows after a file was read in one piece.
fn follow_whole(file: Arc<SourceEntry>, message: WholeFileMessage) -> FollowUp {
    match message {
        WholeFileMessage::File => FollowUp::Nothing,
        WholeFileMessage::Nothing => FollowUp::Instead(None),
        WholeFileMessage::Failure(failure) => {
            FollowUp::Instead(Some(StreamWork::Failed(file, failure)))
        }
    }
}
