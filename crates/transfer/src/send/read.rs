//! Turns work into bytes. On a blocking thread, it reads, hashes and frames what a stream is to
//! send, in one buffer that then goes to the stream unchanged.
//!
//! The reader is told what to read, and reports the results ([`Reports`]). Data passes through
//! memory twice: it is read from the file, and hashed while it is still in the processor's cache.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::account::Held;
use crate::error::{Failure, FailureKind};
use crate::send::schedule::{Entry, Found, Say, StreamId, Work};
use crate::send::source::{Source, SourceFile};
use crate::tree_hash::{BlockHash, BlockHasher, Hash};
use crate::wire::{Block, Frame, HardLink, Meta, Offer, SMALL_MAX, SourceIdentity};

mod frame_buffer;
#[cfg(test)]
mod tests;

pub(crate) use frame_buffer::FrameBuffer;

/// Block sizes: files up to this many bytes have blocks of `1 << log2` bytes. Several streams thus
/// share a file and its end. A slow stream also loses little with a block that was incomplete when
/// the copy broke off.
const BLOCKS_BY_SIZE: [(u64, u32); 2] = [(64 << 20, 16), (64 << 30, 18)];
/// Block size of larger files, as a binary logarithm. Large blocks need fewer answers.
const LARGE_BLOCK_LOG2: u32 = 20;
/// Number of files for which a stream remembers that it has sent FILE. For a forgotten file it
/// sends FILE again.
const MAX_ANNOUNCED_FILES: usize = 128;
/// Number of bytes that are read before they are hashed. They fit a core's second-level cache.
const READ_PART_BYTES: usize = 128 * 1024;

/// A file that is open to be sent in blocks.
pub(crate) struct OpenFile {
    file: Box<dyn SourceFile>,
    pub block_log2: u32,
    /// Identity by which a later copy recognises the file, if it may be resumed.
    pub(crate) identity: Option<SourceIdentity>,
    /// Its permit among the open files.
    _place: Option<Held>,
}

impl OpenFile {
    fn new(file: Box<dyn SourceFile>, resume: bool, place: Option<Held>) -> Self {
        Self {
            identity: file.identity().filter(|_| resume),
            block_log2: block_log2(file.size()),
            file,
            _place: place,
        }
    }

    /// Returns the size in bytes when the file was opened.
    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }
}

/// Returns the binary logarithm of the block size for a file of `size` bytes. It depends on nothing
/// else, as a server that restarts during a pull must describe the file as before (LH-COPY-13).
fn block_log2(size: u64) -> u32 {
    let fits = BLOCKS_BY_SIZE.into_iter().find(|(most, _)| size <= *most);
    fits.map_or(LARGE_BLOCK_LOG2, |(_, log2)| log2)
}

/// Receiver of the results of reading.
pub(crate) trait Reports {
    /// Reports the names of the extended attributes of a file to be sent, each terminated by NUL.
    fn has_attributes(&self, _names: &[u8]) {}
    /// Returns the file of this entry, if it is open and still to be sent.
    fn open_file(&self, id: u64) -> Option<Arc<OpenFile>>;
    /// Reports an opened file. Returns the file to read from, as another stream may have opened it
    /// before, or `None` if it need not be sent any more.
    fn opened(&self, id: u64, file: OpenFile) -> Option<Arc<OpenFile>>;
    /// Reports a block that was read. Returns the hash of its file after the last block.
    fn block_read(&self, id: u64, offset: u64, hash: BlockHash) -> Option<Hash>;
    /// Reports a file that was read completely and unchanged. Returns true if its end must be sent.
    fn file_read(&self, stream: StreamId, id: u64, size: u64, hash: Hash) -> bool;
    /// Reports a file that was read for an offer. Returns the size and hash to offer, or `None` if
    /// it need not be offered.
    fn offer_read(&self, id: u64, size: u64, hash: Hash) -> Option<(u64, Hash)>;
    /// Reports that a file cannot be offered, so that it must be sent at once.
    fn not_offered(&self, id: u64);
    /// Returns true if nothing must be sent any more.
    fn is_over(&self) -> bool;
    /// Reports a file that was read in one piece. Returns what to send.
    fn whole_read(&self, stream: StreamId, id: u64, size: u64, hash: Hash) -> Say;
    /// Reports that a file has grown too large for one frame. Returns what to send.
    fn grew(&self, stream: StreamId, id: u64) -> Say;
    /// Reports that an entry cannot be read, which is sent on `stream`.
    fn failed(&self, stream: StreamId, id: u64, failure: &Failure);
}

/// Files for which one stream has sent FILE.
#[derive(Default)]
pub(crate) struct Announced(VecDeque<u64>);

impl Announced {
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
    pub reports: &'a dyn Reports,
    pub stream: StreamId,
    /// If true, a later copy may resume files if this one ends early.
    pub resume: bool,
    /// If true, the data of blocks travels in plaintext (LH-COPY-43).
    pub clear: bool,
    /// Files for which FILE was sent on the stream.
    pub announced: &'a mut Announced,
    pub out: &'a mut FrameBuffer,
}

impl Reader<'_> {
    /// Reads, hashes and frames `work`; files are opened with the permit `place`. Returns the
    /// number of bytes of file data. Blocking.
    pub(crate) fn fill(&mut self, work: Vec<Work>, mut place: Option<Held>) -> u64 {
        let mut data = 0;
        for work in work {
            data += match work {
                Work::Entry(entry) => self.entry(&entry),
                Work::Offer { file, content } => {
                    self.offer(&file, content);
                    0
                }
                Work::Link(file) => {
                    self.link(&file);
                    0
                }
                Work::ReadOffer(file) => {
                    self.read_offer(&file);
                    0
                }
                Work::Open { file, offered } => {
                    if offered {
                        self.offer(&file, None);
                    }
                    self.open(&file, place.take())
                }
                Work::Block { file, offset } => match self.reports.open_file(file.head.id) {
                    Some(open) => self.block(&file, &open, offset),
                    None => 0,
                },
                Work::Complete { file, hash } => {
                    self.complete(&file, hash);
                    0
                }
                Work::FileEnd { file, hash } => {
                    self.file_end(&file, hash);
                    0
                }
                Work::Failed(entry, failure) => {
                    self.say_failed(&entry, failure);
                    0
                }
                Work::End { entries, bytes } => {
                    self.out.put(&Frame::End { entries, bytes });
                    0
                }
            };
        }
        data
    }

    fn entry(&mut self, entry: &Entry) -> u64 {
        let (head, meta) = (entry.head.clone(), entry.meta);
        match &entry.found {
            Found::Directory => self.out.put(&Frame::Directory { head, meta }),
            Found::Symlink { target } => {
                let target = target.clone();
                self.out.put(&Frame::Symlink { head, meta, target });
            }
            Found::Failed(failure) => self.say_failed(entry, failure.clone()),
            Found::File { .. } => return self.whole_file(entry),
        }
        0
    }

    /// Sends OFFER (LH-COPY-40). It is the same every time.
    fn offer(&mut self, entry: &Entry, content: Option<(u64, Hash)>) {
        let (size, hash) = match (content, &entry.found) {
            (Some((size, hash)), _) => (size, Some(hash)),
            (None, Found::File { size }) => (*size, None),
            (None, _) => return,
        };
        self.out.put(&Frame::Offer(Offer {
            head: entry.head.clone(),
            meta: entry.meta,
            size,
            hash,
        }));
    }

    /// Sends HARD_LINK (LH-COPY-45). It is the same every time.
    fn link(&mut self, entry: &Entry) {
        if let (Found::File { size }, Some(first)) = (&entry.found, &entry.first) {
            self.out.put(&Frame::HardLink(HardLink {
                head: entry.head.clone(),
                size: *size,
                first: (first.source, first.path.clone()),
            }));
        }
    }

    fn read_offer(&mut self, entry: &Entry) {
        let id = entry.head.id;
        match self.hash(entry) {
            Ok(Some((size, hash))) => {
                if let Some(content) = self.reports.offer_read(id, size, hash) {
                    self.offer(entry, Some(content));
                }
            }
            // The file is checked again while it is sent.
            Ok(None) => self.reports.not_offered(id),
            Err(failure) => {
                self.reports.failed(self.stream, id, &failure);
                self.say_failed(entry, failure);
            }
        }
    }

    /// Returns the size and hash of a file, or `None` if it changes meanwhile.
    fn hash(&self, entry: &Entry) -> Result<Option<(u64, Hash)>, Failure> {
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

    /// Sends a file as one SMALL frame.
    fn whole_file(&mut self, entry: &Entry) -> u64 {
        let (id, start) = (entry.head.id, self.out.len());
        let said = match self.read_whole(entry) {
            Ok(Some((size, hash))) => match self.reports.whole_read(self.stream, id, size, hash) {
                Say::File => return size,
                said => said,
            },
            Ok(None) => self.reports.grew(self.stream, id),
            Err(failure) => {
                self.reports.failed(self.stream, id, &failure);
                Say::Failure(failure)
            }
        };
        self.out.truncate(start);
        if let Say::Failure(failure) = said {
            self.say_failed(entry, failure);
        }
        0
    }

    /// Reads a file in one piece. Returns its size and hash, or `None` if it has grown too large
    /// for one frame or for the buffer.
    fn read_whole(&mut self, entry: &Entry) -> Result<Option<(u64, Hash)>, Failure> {
        let file = self.source.open(&entry.head)?;
        self.reports.has_attributes(&file.attribute_names());
        let size = file.size();
        let small = self.out.begin_small(&entry.head, &file.meta());
        // One extra byte detects growth.
        let room = size as usize + 1;
        if size > SMALL_MAX || !self.out.fits(room) {
            return Ok(None);
        }
        let got = file.read_at(self.out.room(room), 0)?;
        if got as u64 != size || !file.is_unchanged()? {
            return Err(Failure::new(FailureKind::Changed));
        }
        self.out.advance(got);
        let hash = *blake3::hash(self.out.data(&small)).as_bytes();
        self.out.finish_small(&small, &hash);
        Ok(Some((size, hash)))
    }

    /// Opens a file and sends its first block.
    fn open(&mut self, entry: &Entry, place: Option<Held>) -> u64 {
        let id = entry.head.id;
        match self.source.open(&entry.head) {
            Ok(file) => {
                self.reports.has_attributes(&file.attribute_names());
                match self
                    .reports
                    .opened(id, OpenFile::new(file, self.resume, place))
                {
                    Some(open) => self.block(entry, &open, 0),
                    None => 0,
                }
            }
            Err(failure) => self.fail(entry, failure),
        }
    }

    /// Sends one block, and the file's end after the last block.
    fn block(&mut self, entry: &Entry, open: &OpenFile, offset: u64) -> u64 {
        let (id, start) = (entry.head.id, self.out.len());
        self.announce(entry, open);
        let len = (1 << open.block_log2).min(open.size().saturating_sub(offset));
        if len == 0 {
            self.all_read(entry, open, *blake3::hash(b"").as_bytes());
            return 0;
        }
        match self.read_block(&*open.file, id, offset, len) {
            Ok((hash, data)) => {
                if let Some(root) = self.reports.block_read(id, offset, hash) {
                    self.all_read(entry, open, root);
                }
                data
            }
            Err(failure) => {
                self.out.truncate(start);
                self.announced.forget(id);
                self.fail(entry, failure)
            }
        }
    }

    /// Ends a file whose blocks have all been read, if it is unchanged.
    fn all_read(&mut self, entry: &Entry, open: &OpenFile, hash: Hash) {
        let id = entry.head.id;
        match open.file.is_unchanged() {
            Ok(true) => {
                if self.reports.file_read(self.stream, id, open.size(), hash) {
                    self.out.put(&Frame::FileEnd { id, hash });
                }
            }
            Ok(false) => {
                self.fail(entry, Failure::new(FailureKind::Changed));
            }
            Err(failure) => {
                self.fail(entry, failure);
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
            let room = self.out.room(extent.len as usize);
            let mut at = offset + u64::from(extent.offset);
            for part in room.chunks_mut(READ_PART_BYTES) {
                if file.read_at(part, at)? != part.len() {
                    return Err(Failure::new(FailureKind::Changed));
                }
                hasher.update(part);
                at += part.len() as u64;
            }
            self.out.advance(extent.len as usize);
        }
        hasher.update_zeros(len.saturating_sub(u64::from(hashed)));
        let hash = hasher.finish();
        if self.clear {
            self.out.finish_clear_block(begin, hash);
        }
        Ok((hash, data))
    }

    /// Ends a file whose other blocks are at the receiver.
    fn complete(&mut self, entry: &Entry, hash: Hash) {
        if let Some(open) = self.reports.open_file(entry.head.id) {
            self.announce(entry, &open);
            self.all_read(entry, &open, hash);
        }
    }

    /// Sends FILE_END (LH-COPY-15).
    fn file_end(&mut self, entry: &Entry, hash: Hash) {
        let id = entry.head.id;
        if let Some(open) = self.reports.open_file(id) {
            self.announce(entry, &open);
            self.out.put(&Frame::FileEnd { id, hash });
        }
    }

    /// Sends FILE, unless the stream has sent it (LH-COPY-13).
    fn announce(&mut self, entry: &Entry, open: &OpenFile) {
        if self.announced.is_new(entry.head.id) {
            let meta: Meta = open.file.meta();
            self.out.put(&Frame::File {
                head: entry.head.clone(),
                meta,
                size: open.size(),
                block_log2: open.block_log2,
                identity: open.identity,
            });
        }
    }

    /// Reports that a file cannot be sent in blocks. Returns 0 bytes of data.
    fn fail(&mut self, entry: &Entry, failure: Failure) -> u64 {
        self.reports.failed(self.stream, entry.head.id, &failure);
        self.say_failed(entry, failure);
        0
    }

    fn say_failed(&mut self, entry: &Entry, failure: Failure) {
        let head = entry.head.clone();
        self.out.put(&Frame::Failed { head, failure });
    }
}
