//! Existing files from which blocks are put together (LH-COPY-62 to LH-COPY-64).

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{BlockData, Receiver};
use crate::account::{Resource, ResourcePermit};
use crate::block_size::block_log2;
use crate::delta::{MAX_SIGNATURES, SignedChunk, chunk_log2, chunks, hash_chunk};
use crate::frame_io::MissingRange;
use crate::full_read::read_full_at;
use crate::store::FileStore;
use crate::wire::{EntryHead, FileOffer, Frame, MAX_SIGNED_CHUNKS, MAX_SMALL_BYTES};

/// Memory of an [`ExistingFile`] without its path, in bytes.
const EXISTING_FILE_BYTES: u64 = 128;

/// Files that are being replaced, by the numbers of their entries. They are opened for each block,
/// so they take no permits among the open files from those that are written.
#[derive(Default)]
pub(super) struct ExistingFiles {
    /// True if the client asked for it. Without that, a server learns nothing of its files.
    requested: AtomicBool,
    /// True if the other end understands SIGNATURE.
    understood: AtomicBool,
    files: Mutex<HashMap<u64, ExistingFile>>,
}

/// A file whose signature was sent.
struct ExistingFile {
    head: EntryHead,
    /// Memory of the entry.
    _permit: ResourcePermit,
}

impl ExistingFiles {
    /// Forgets the file that this entry replaces.
    pub(super) fn forget(&self, id: u64) {
        if self.is_enabled() {
            self.files.lock().remove(&id);
        }
    }

    fn is_enabled(&self) -> bool {
        self.requested.load(Ordering::Relaxed) && self.understood.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.files.lock().len() >= MAX_SIGNATURES
    }
}

/// The stream on which an entry is answered.
pub(crate) struct AnswerLane<'a> {
    /// Returns true if someone waits for the answer.
    pub is_waiting: &'a dyn Fn() -> bool,
    /// Sends a frame before the answer. Returns false if the stream is closed.
    pub send_before: &'a dyn Fn(Frame) -> bool,
}

impl<S: FileStore> Receiver<S> {
    /// Allows blocks to be put together from existing files, once the other end says that it
    /// understands that.
    pub(crate) fn request_delta(&self) {
        self.existing.requested.store(true, Ordering::Relaxed);
    }

    /// Notes that the other end understands SIGNATURE.
    pub(crate) fn delta_understood(&self) {
        self.existing.understood.store(true, Ordering::Relaxed);
    }

    /// Sends the signature of the file that an offered one replaces, if it is worth it. Blocking.
    pub(super) fn sign_existing(&self, offer: &FileOffer, lane: &AnswerLane<'_>) {
        // Files that go in one frame are never put together.
        let is_large = offer.size > MAX_SMALL_BYTES;
        if !is_large || !self.existing.is_enabled() || self.existing.is_full() {
            return;
        }
        let head = &offer.head;
        let memory = EXISTING_FILE_BYTES + head.path.as_bytes().len() as u64;
        let Some((file, size)) = self.store.existing_file(head) else {
            return;
        };
        let (Some(log2), Ok(permit)) = (
            chunk_log2(size),
            self.account.take(Resource::Bookkeeping, memory),
        ) else {
            return;
        };
        // As for comparing: a server reads one file at a time for one key.
        let comparing = self.account.comparing.as_ref();
        let _one_at_a_time = comparing.map(|comparing| comparing.lock());
        let frame = |offset, chunks: &mut Vec<SignedChunk>, more| Frame::Signature {
            id: head.id,
            chunk_log2: log2,
            more,
            offset,
            chunks: std::mem::take(chunks),
        };
        // The next chunks to be sent, the offset of the first one, and the offset behind the last.
        let (mut signed, mut first, mut at) = (Vec::new(), 0, 0);
        let mut block = vec![0u8; 1 << block_log2(offer.size)];
        // A file that grows meanwhile is signed up to its first size.
        while at < size {
            // Without its last frame, a signature is not used.
            let Ok(len) = read_full_at(&file, &mut block, at) else {
                return;
            };
            if len == 0 {
                break;
            }
            for chunk in chunks(block.get(..len).unwrap_or_default(), log2) {
                if signed.len() == MAX_SIGNED_CHUNKS {
                    if !(lane.send_before)(frame(first, &mut signed, true)) {
                        return;
                    }
                    first = at;
                }
                signed.push(SignedChunk {
                    len: chunk.len() as u32,
                    hash: hash_chunk(chunk),
                });
                at += chunk.len() as u64;
            }
            if !(lane.is_waiting)() {
                return;
            }
        }
        let existing = ExistingFile {
            head: head.clone(),
            _permit: permit,
        };
        self.existing.files.lock().insert(head.id, existing);
        (lane.send_before)(frame(first, &mut signed, false));
    }

    /// Reads from the existing file what a patch lacks. Blocking.
    ///
    /// What cannot be read becomes zeros, so that the block has another hash than the sender's. The
    /// buffer has data of other copies, about which a guessed hash must tell nothing.
    pub(crate) fn fill_missing(&self, id: u64, missing: &[MissingRange], data: &mut BlockData) {
        if missing.is_empty() {
            return;
        }
        let head = self
            .existing
            .files
            .lock()
            .get(&id)
            .map(|it| it.head.clone());
        let file = head.and_then(|head| self.store.existing_file(&head));
        for range in missing {
            let end = range.at.saturating_add(range.len);
            let Some(part) = data.buffer.get_mut(range.at..end) else {
                continue;
            };
            let read = file
                .as_ref()
                .map(|(file, _)| file.read_exact_at(part, range.offset));
            if !matches!(read, Some(Ok(()))) {
                part.fill(0);
            }
        }
    }
}
