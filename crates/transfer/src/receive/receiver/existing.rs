//! Existing files from which blocks are put together (LH-COPY-62 to LH-COPY-64).

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{BlockData, Receiver};
use crate::account::{Resource, ResourcePermit};
use crate::delta::{MIN_DELTA_BYTES, SignedChunk, chunk_log2, chunks, hash_chunk};
use crate::frame_io::MissingRange;
use crate::send::block_log2;
use crate::store::FileStore;
use crate::wire::{FileOffer, Frame, MAX_SIGNED_CHUNKS};

/// Files that are being replaced, by the numbers of their entries.
#[derive(Default)]
pub(super) struct ExistingFiles {
    /// True if the other end understands SIGNATURE.
    enabled: AtomicBool,
    files: Mutex<HashMap<u64, ExistingFile>>,
}

/// A file that is being replaced, and its permit among the open files.
struct ExistingFile {
    file: Arc<File>,
    _permit: ResourcePermit,
}

impl ExistingFiles {
    /// Closes the file that this entry replaces.
    pub(super) fn close(&self, id: u64) {
        if self.enabled.load(Ordering::Relaxed) {
            self.files.lock().remove(&id);
        }
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
    /// Blocks may be put together from existing files from now on: the other end understands it.
    pub(crate) fn enable_delta(&self) {
        self.existing.enabled.store(true, Ordering::Relaxed);
    }

    /// Sends the signature of the file that an offered one replaces, if it is worth it. Blocking.
    pub(super) fn sign_existing(&self, offer: &FileOffer, lane: &AnswerLane<'_>) {
        if !self.existing.enabled.load(Ordering::Relaxed) || offer.size < MIN_DELTA_BYTES {
            return;
        }
        let Some((file, size)) = self.store.existing_file(&offer.head) else {
            return;
        };
        let (Some(log2), Ok(permit)) = (
            chunk_log2(size),
            self.account.take(Resource::OpenFiles, 1),
        ) else {
            return;
        };
        // As for comparing: a server reads one file at a time for one key.
        let comparing = self.account.comparing.as_ref();
        let _one_at_a_time = comparing.map(|comparing| comparing.lock());
        let id = offer.head.id;
        let frame = |chunks: &mut Vec<SignedChunk>, more| Frame::Signature {
            id,
            chunk_log2: log2,
            more,
            chunks: std::mem::take(chunks),
        };
        let mut signed = Vec::new();
        let mut block = vec![0; 1 << block_log2(offer.size)];
        let mut at = 0;
        loop {
            // Without its last frame, a signature is not used.
            let Ok(len) = read_block(&file, &mut block, at) else {
                return;
            };
            for chunk in chunks(block.get(..len).unwrap_or_default(), log2) {
                if signed.len() == MAX_SIGNED_CHUNKS
                    && !(lane.send_before)(frame(&mut signed, true))
                {
                    return;
                }
                signed.push(SignedChunk {
                    len: chunk.len() as u32,
                    hash: hash_chunk(chunk),
                });
            }
            at += len as u64;
            if len < block.len() {
                break;
            }
            if !(lane.is_waiting)() {
                return;
            }
        }
        let existing = ExistingFile {
            file: Arc::new(file),
            _permit: permit,
        };
        self.existing.files.lock().insert(id, existing);
        (lane.send_before)(frame(&mut signed, false));
    }

    /// Reads from the existing file what a patch lacks. What cannot be read stays as it is, so that
    /// the block has another hash than the sender's. Blocking.
    pub(crate) fn fill_missing(&self, id: u64, missing: &[MissingRange], data: &mut BlockData) {
        let file = self.existing.files.lock().get(&id).map(|it| it.file.clone());
        let Some(file) = file else {
            return;
        };
        for range in missing {
            let part = data.buffer.get_mut(range.at..range.at.saturating_add(range.len));
            // The hash tells.
            let _ = part.map(|part| file.read_exact_at(part, range.offset));
        }
    }
}

/// Reads until `block` is full or the file ends. Returns the number of bytes.
fn read_block(file: &File, block: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
