//! Turns work into bytes. On a blocking thread, it reads, hashes and frames what a stream is to
//! send, in one buffer that then goes to the stream unchanged.
//!
//! The reader is told what to read, and reports the result. The answer is what the stream does next
//! ([`ReadReports`]). Data passes through memory twice: it is read from the file, and hashed while
//! it is still in the processor's cache.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::account::ResourcePermit;
use crate::error::{Failure, FailureKind};
use crate::send::packing::PackingPlan;
use crate::send::schedule::{FoundEntry, SourceEntry, StreamId, StreamWork};
use crate::send::source::{Source, SourceFile};
use crate::tree_hash::{BlockHash, BlockHasher, Hash};
use crate::wire::{Block, FileOffer, Frame, HardLink, MAX_SMALL_BYTES, Meta};

mod frame_buffer;
mod open_file;
mod packed;
mod patch;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use frame_buffer::FrameBuffer;
pub(crate) use open_file::OpenSourceFile;
use packed::PackRange;
pub(crate) use packed::StreamPacking;
pub(crate) use report::{FollowUp, ReadReport, ReadReports};

/// Number of files for which a stream remembers that it has sent FILE. For a forgotten file it
/// sends FILE again.
const MAX_ANNOUNCED_FILES: usize = 128;
/// Number of bytes that are read before they are hashed. They fit a core's second-level cache.
const READ_PART_BYTES: usize = 128 * 1024;

/// Files for which one stream has sent FILE.
#[derive(Default)]
pub(crate) struct AnnouncedFiles(VecDeque<u64>);

impl AnnouncedFiles {
    /// Returns true if FILE must be sent now.
    fn is_new(&mut self, id: u64) -> bool {
        if self.0.contains(&id) {
            return false;
        }
        if self.0.len() == MAX_ANNOUNCED_FILES {
            self.0.pop_front();
        }
        self.0.push_back(id);
        true
    }

    fn forget(&mut self, id: u64) {
        self.0.retain(|announced| *announced != id);
    }
}

/// Reader for one stream.
pub(crate) struct Reader<'a> {
    pub source: &'a dyn Source,
    pub reports: &'a dyn ReadReports,
    pub stream: StreamId,
    /// If true, a later copy may resume files if this one ends early.
    pub resume: bool,
    /// If true, the data of blocks travels in plaintext (LH-COPY-43).
    pub clear: bool,
    /// Compression of what the stream sends, if the other end understands it.
    pub packing: Option<&'a mut StreamPacking>,
    /// If true, the other end understands PACK (LH-COPY-75).
    pub packs: bool,
    /// Files for which FILE was sent on the stream.
    pub announced: &'a mut AnnouncedFiles,
    pub out: &'a mut FrameBuffer,
    /// Bytes of file data that compression and existing files have kept off the network.
    pub saved: u64,
}

/// Result of one piece of work: the number of bytes of file data, and a report.
type WorkResult = (u64, Option<(Arc<SourceEntry>, ReadReport)>);

impl Reader<'_> {
    /// Reads, hashes and frames `work`, and what follows from it; files are opened with the permit
    /// `place`. Returns the number of bytes of file data. Blocking.
    pub(crate) fn fill(&mut self, work: Vec<StreamWork>, mut place: Option<ResourcePermit>) -> u64 {
        let mut data = 0;
        let mut files = work.iter().filter_map(|work| match work {
            StreamWork::Entry(entry) if matches!(entry.found, FoundEntry::File { .. }) => {
                Some(&entry.head)
            }
            _ => None,
        });
        self.source.prepare(&mut files);
        let mut pack: Option<PackRange> = None;
        for work in work {
            let mut next = Some(work);
            while let Some(work) = next.take() {
                let (end, is_packed) = (self.out.len(), !work.is_block());
                let ends =
                    |pack: &mut PackRange| !is_packed || pack.is_full(end, work.batch_bytes());
                if let Some(ended) = pack.take_if(ends) {
                    self.pack_frames(&ended, data);
                }
                let start = self.out.len();
                if is_packed {
                    pack.get_or_insert_with(|| PackRange::new(start, data));
                }
                let (read, report) = self.perform(work, &mut place);
                data += read;
                let Some((entry, report)) = report else {
                    continue;
                };
                match self.reports.take_report(self.stream, &entry, report) {
                    FollowUp::Nothing => {}
                    FollowUp::Work(work) => next = Some(work),
                    FollowUp::Instead(work) => {
                        self.out.truncate(start);
                        data -= read;
                        next = work;
                    }
                }
            }
        }
        if let Some(ended) = pack {
            self.pack_frames(&ended, data);
        }
        data
    }

    fn perform(&mut self, work: StreamWork, place: &mut Option<ResourcePermit>) -> WorkResult {
        match work {
            StreamWork::Entry(entry) => return self.entry(entry),
            StreamWork::Offer { file, content } => self.offer(&file, content),
            StreamWork::Link(file) => self.link(&file),
            StreamWork::ReadOffer(file) => {
                let report = match self.hash(&file) {
                    Ok(content) => ReadReport::Hashed(content),
                    Err(failure) => ReadReport::Failed(failure),
                };
                return (0, Some((file, report)));
            }
            StreamWork::Open { file, offered } => {
                if offered {
                    self.offer(&file, None);
                }
                let report = match self.source.open(&file.head) {
                    Ok(open) => {
                        let attributes = open.attribute_names();
                        let open = OpenSourceFile::new(open, self.resume, place.take());
                        ReadReport::Opened(open, attributes)
                    }
                    Err(failure) => ReadReport::Failed(failure),
                };
                return (0, Some((file, report)));
            }
            StreamWork::Block { file, offset } => {
                if let Some(open) = self.reports.open_file(file.head.id) {
                    let (data, report) = self.block(&file, &open, offset);
                    return (data, report.map(|report| (file, report)));
                }
            }
            StreamWork::Complete { file, hash } => {
                if let Some(open) = self.reports.open_file(file.head.id) {
                    self.announce(&file, &open);
                    return (0, Some((file, report_end(&open, hash))));
                }
            }
            StreamWork::FileEnd { file, hash } => self.file_end(&file, hash),
            StreamWork::Failed(entry, failure) => self.send_failed(&entry, failure),
            StreamWork::End { entries, bytes } => self.out.put(&Frame::End { entries, bytes }),
        }
        (0, None)
    }

    fn entry(&mut self, entry: Arc<SourceEntry>) -> WorkResult {
        let (head, meta) = (entry.head.clone(), entry.meta.clone());
        match &entry.found {
            FoundEntry::Directory => self.out.put(&Frame::Directory { head, meta }),
            FoundEntry::Symlink { target } => {
                let target = target.clone();
                self.out.put(&Frame::Symlink { head, meta, target });
            }
            FoundEntry::Special(special) => {
                let special = *special;
                self.out.put(&Frame::Special {
                    head,
                    meta,
                    special,
                });
            }
            FoundEntry::Failed(failure) => self.send_failed(&entry, failure.clone()),
            FoundEntry::File { .. } => {
                let (data, report) = self.whole_file(&entry);
                return (data, Some((entry, report)));
            }
        }
        (0, None)
    }

    /// Sends OFFER (LH-COPY-40). It is the same every time.
    fn offer(&mut self, entry: &SourceEntry, content: Option<(u64, Hash)>) {
        let (size, hash) = match (content, &entry.found) {
            (Some((size, hash)), _) => (size, Some(hash)),
            (None, FoundEntry::File { size }) => (*size, None),
            (None, _) => return,
        };
        self.out.put(&Frame::Offer(FileOffer {
            head: entry.head.clone(),
            meta: entry.meta.clone(),
            size,
            hash,
        }));
    }

    /// Sends HARD_LINK (LH-COPY-45). It is the same every time.
    fn link(&mut self, entry: &SourceEntry) {
        if let (FoundEntry::File { size }, Some(first)) = (&entry.found, &entry.first) {
            self.out.put(&Frame::HardLink(HardLink {
                head: entry.head.clone(),
                size: *size,
                first: (first.source, first.path.clone()),
            }));
        }
    }

    /// Returns the size and hash of a file, or `None` if it changes meanwhile.
    fn hash(&self, entry: &SourceEntry) -> Result<Option<(u64, Hash)>, Failure> {
        let file = self.source.open(&entry.head)?;
        let size = file.size();
        let mut part = vec![0; READ_PART_BYTES.min(size as usize + 1)];
        let (mut hasher, mut read) = (blake3::Hasher::new(), 0);
        while !self.reports.is_over() {
            let got = file.read_at(&mut part, read)?;
            hasher.update(part.get(..got).unwrap_or_default());
            read += got as u64;
            if got < part.len() || read > size {
                break;
            }
        }
        let is_whole = read == size && file.is_unchanged()?;
        Ok(is_whole.then(|| (size, *hasher.finalize().as_bytes())))
    }

    /// Sends a file as one SMALL frame. Returns the bytes of its data.
    fn whole_file(&mut self, entry: &SourceEntry) -> (u64, ReadReport) {
        let start = self.out.len();
        let report = match self.read_whole(entry) {
            Ok(Some(report)) => return report,
            Ok(None) => ReadReport::Grew,
            Err(failure) => ReadReport::Failed(failure),
        };
        self.out.truncate(start);
        (0, report)
    }

    /// Reads a file in one piece. Returns `None` if it has grown too large for one frame or for the
    /// buffer.
    fn read_whole(&mut self, entry: &SourceEntry) -> Result<Option<(u64, ReadReport)>, Failure> {
        let file = self.source.open(&entry.head)?;
        let attributes = file.attribute_names();
        let size = file.size();
        let small = self.out.begin_small(&entry.head, &file.meta());
        // One extra byte detects growth.
        let room = size as usize + 1;
        if size > MAX_SMALL_BYTES || !self.out.fits(room) {
            return Ok(None);
        }
        let got = file.read_at(self.out.spare(room), 0)?;
        if got as u64 != size || !file.is_unchanged()? {
            return Err(Failure::new(FailureKind::Changed));
        }
        self.out.advance(got);
        let hash = *blake3::hash(self.out.data(&small)).as_bytes();
        self.out.finish_small(&small, &hash);
        let report = ReadReport::Whole {
            size,
            hash,
            attributes,
        };
        Ok(Some((size, report)))
    }

    /// Sends one block. Returns the bytes of its data.
    fn block(
        &mut self,
        entry: &SourceEntry,
        open: &OpenSourceFile,
        offset: u64,
    ) -> (u64, Option<ReadReport>) {
        let (id, start) = (entry.head.id, self.out.len());
        self.announce(entry, open);
        let len = (1 << open.block_log2).min(open.size().saturating_sub(offset));
        if len == 0 {
            return (0, Some(report_end(open, *blake3::hash(b"").as_bytes())));
        }
        match self.read_block(&*open.file, id, offset, len) {
            Ok((hash, data)) => (data, Some(ReadReport::Block { offset, hash })),
            Err(failure) => {
                self.out.truncate(start);
                self.announced.forget(id);
                // It was to be repeated, and the receiver has it by now.
                let is_needless = open.file.is_released(offset);
                (0, (!is_needless).then_some(ReadReport::Failed(failure)))
            }
        }
    }

    fn read_block(
        &mut self,
        file: &dyn SourceFile,
        id: u64,
        offset: u64,
        len: u64,
    ) -> Result<(BlockHash, u64), Failure> {
        let block = Block {
            id,
            offset,
            len: len as u32,
            extents: file.extents(offset, len as u32)?,
        };
        let data = block.data_len() as u64;
        if let Some(signature) = self.reports.signature(id).filter(|_| block.is_all_data()) {
            let hash = self.read_patch_block(file, &block, &signature)?;
            return Ok((hash, data));
        }
        let plan = self.packing.as_ref().map(|packing| packing.plan());
        if plan == Some(PackingPlan::Pack) && data > 0 {
            let hash = self.read_packed_block(file, &block)?;
            return Ok((hash, data));
        }
        let started = Instant::now();
        self.out.put(&match self.clear {
            true => Frame::ClearBlock(block.clone(), BlockHash::from_bytes([0; 32])),
            false => Frame::Block(block.clone()),
        });
        let begin = self.out.len();
        let mut hasher = BlockHasher::new(offset, len, file.size());
        let mut hashed = 0;
        for extent in &block.extents {
            hasher.update_zeros(u64::from(extent.offset.saturating_sub(hashed)));
            hashed = extent.offset + extent.len;
            let room = self.out.spare(extent.len as usize);
            let mut at = offset + u64::from(extent.offset);
            for part in room.chunks_mut(READ_PART_BYTES) {
                read_and_hash(file, part, at, &mut hasher)?;
                at += part.len() as u64;
            }
            self.out.advance(extent.len as usize);
        }
        hasher.update_zeros(len.saturating_sub(u64::from(hashed)));
        let hash = hasher.finish();
        if let (Some(packing), Some(plan)) = (&mut self.packing, plan) {
            let first = self.out.since(begin);
            packing.plain_block_read(plan, data, started.elapsed(), first);
        }
        if self.clear {
            self.out.finish_clear_block(begin, hash);
        }
        Ok((hash, data))
    }

    /// Sends FILE_END (LH-COPY-15), or LATE_END (LH-COPY-81).
    fn file_end(&mut self, entry: &SourceEntry, hash: Hash) {
        let id = entry.head.id;
        if let Some(open) = self.reports.open_file(id) {
            self.announce(entry, &open);
            self.out.put(&match open.has_late_size {
                true => Frame::LateEnd {
                    id,
                    size: open.size(),
                    hash,
                },
                false => Frame::FileEnd { id, hash },
            });
        }
    }

    /// Sends FILE, unless the stream has sent it (LH-COPY-13).
    fn announce(&mut self, entry: &SourceEntry, open: &OpenSourceFile) {
        if self.announced.is_new(entry.head.id) {
            let meta: Meta = open.file.meta();
            self.out.put(&Frame::File {
                head: entry.head.clone(),
                meta,
                size: open.announced_size(),
                block_log2: open.block_log2,
                identity: open.identity,
            });
        }
    }

    fn send_failed(&mut self, entry: &SourceEntry, failure: Failure) {
        let head = entry.head.clone();
        self.out.put(&Frame::Failed { head, failure });
    }
}

/// Fills a part of a block from `offset`, and hashes it while it is in the processor's cache.
fn read_and_hash(
    file: &dyn SourceFile,
    part: &mut [u8],
    offset: u64,
    hasher: &mut BlockHasher,
) -> Result<(), Failure> {
    if file.read_at(part, offset)? != part.len() {
        return Err(Failure::new(FailureKind::Changed));
    }
    hasher.update(part);
    Ok(())
}

/// Returns the report on a file whose blocks have all been read, if it is unchanged.
fn report_end(open: &OpenSourceFile, hash: Hash) -> ReadReport {
    let size = open.size();
    match open.file.is_unchanged_with(hash) {
        Ok(true) => ReadReport::File { size, hash },
        Ok(false) => ReadReport::Failed(Failure::new(FailureKind::Changed)),
        Err(failure) => ReadReport::Failed(failure),
    }
}
