//! Files that arrive in blocks: written where they belong as they come, concluded when the last one and the hash are in.

mod conclude;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{Receiver, Reply};
use crate::account::Held;
use crate::error::{Error, Failure, FailureKind};
use crate::hole_hash::hash_block;
use crate::lock::Locked;
use crate::path::RelPath;
use crate::store::TempFile;
use crate::tree_hash::{BlockHash, Hash, TreeHash};
use crate::wire::{Block, Frame, Head, Meta, Written};

/// Files in the making at once, at most.
const MAX_DESCRIBED_FILES: usize = 4096;
/// Separate runs of blocks of one file, at most: bounds what scattered blocks can make us remember.
const MAX_RUNS: usize = 64 * 1024;
/// Bytes that a described file takes beside its path, and each separate run of its blocks.
const FILE_BYTES: i64 = 1024;
const RUN_BYTES: i64 = 112;

/// A file that comes in blocks.
pub(super) struct ArrivingFile {
    head: Head,
    place: Result<RelPath, Failure>,
    meta: Meta,
    size: u64,
    block_log2: u32,
    temp: Mutex<Option<Arc<TempFile>>>,
    /// Its place among the open files of all, or why it has none.
    place_held: Mutex<Option<Result<Held, Failure>>>,
    /// Bytes counted as done so far.
    counted: AtomicU64,
    blocks: Mutex<Blocks>,
}

struct Blocks {
    tree: TreeHash,
    /// The most runs there were at once: what was allocated for them is kept.
    most_runs: i64,
    /// Blocks being written, and who asked for each.
    writing: HashMap<u64, Vec<Reply>>,
    /// The sender's hash, once said, and who asked for the outcome.
    end: Option<Hash>,
    end_asked: Vec<Reply>,
    outcome: Option<Result<Written, Failure>>,
    concluding: bool,
}

impl Receiver {
    /// FILE: a file that will come in blocks. Nothing is created yet.
    pub(crate) fn file(&self, head: Head, meta: Meta, size: u64, block_log2: u32) -> Result<(), Error> {
        let mut state = self.state.locked();
        if state.manifest.has(head.id) {
            return Ok(());
        }
        if let Some(file) = state.files.get(&head.id) {
            return match file.head == head && file.size == size && file.block_log2 == block_log2 {
                true => Ok(()),
                false => Err(Error::Protocol("it describes one file in two ways".into())),
            };
        }
        if state.files.len() >= MAX_DESCRIBED_FILES {
            return Err(Error::Protocol("it has too many files open at once".into()));
        }
        let blocks = Blocks {
            tree: TreeHash::new(size, block_log2),
            most_runs: 0,
            writing: HashMap::new(),
            end: None,
            end_asked: Vec::new(),
            outcome: None,
            concluding: false,
        };
        let place = self.destination.place(&head);
        let (temp, place_held, blocks) = (Mutex::default(), Mutex::default(), Mutex::new(blocks));
        let bytes = path_bytes(&head);
        state.file_bytes += bytes;
        if let Err(exhausted) = state.account() {
            state.file_bytes -= bytes;
            return Err(exhausted.into());
        }
        state.files.insert(
            head.id,
            Arc::new(ArrivingFile {
                head,
                place,
                meta,
                size,
                block_log2,
                temp,
                place_held,
                counted: AtomicU64::new(0),
                blocks,
            }),
        );
        Ok(())
    }

    pub(super) fn find(&self, id: u64) -> Result<Option<Arc<ArrivingFile>>, Error> {
        let state = self.state.locked();
        match state.files.get(&id) {
            Some(file) => Ok(Some(file.clone())),
            None if state.manifest.has(id) => Ok(None),
            None => Err(Error::Protocol(
                "it sends part of a file it has not described".into(),
            )),
        }
    }

    /// A file that is answered for, or takes no part any more.
    pub(super) fn take_file(&self, id: u64) -> Option<Arc<ArrivingFile>> {
        let mut state = self.state.locked();
        let file = state.files.remove(&id)?;
        state.file_bytes -= path_bytes(&file.head);
        drop(state);
        let runs = file.blocks.locked().most_runs;
        self.state.locked().file_bytes -= runs * RUN_BYTES;
        Some(file)
    }

    /// Whether a block is what its file's description allows, and if so how large the file is; none if it has been answered for
    /// already. Waits for the file's place among those open.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the block does not belong to the file.
    pub(crate) async fn expects(&self, block: &Block) -> Result<Option<u64>, Error> {
        let Some(file) = self.find(block.id)? else {
            return Ok(None);
        };
        self.fits(&file, block)?;
        if file.place_held.locked().is_none() {
            let held = self.account.open_file().await;
            // Another stream may have been faster.
            file.place_held.locked().get_or_insert(held);
        }
        Ok(Some(file.size))
    }

    fn fits(&self, file: &ArrivingFile, block: &Block) -> Result<(), Error> {
        let whole = 1u64 << file.block_log2;
        let fits = block.offset.is_multiple_of(whole)
            && block.offset < file.size
            && u64::from(block.len) == whole.min(file.size - block.offset);
        if fits {
            Ok(())
        } else {
            Err(Error::Protocol("a block does not fit its file".into()))
        }
    }

    /// BLOCK with its data, and its hash if that is known. Blocking.
    pub(crate) fn block(&self, block: &Block, data: &[u8], hash: Option<BlockHash>, reply: Reply) {
        let ack = Frame::Ack {
            id: block.id,
            offset: block.offset,
        };
        let Ok(Some(file)) = self.find(block.id) else {
            reply.send((ack, None));
            return;
        };
        {
            let mut blocks = file.blocks.locked();
            if blocks.outcome.is_some() || blocks.tree.covers(block.offset) {
                drop(blocks);
                reply.send((ack, None));
                return;
            }
            if let Some(asked) = blocks.writing.get_mut(&block.offset) {
                asked.push(reply);
                return;
            }
            blocks.writing.insert(block.offset, vec![reply]);
        }
        let written = self.write_block(&file, block, data);
        let written = written.map(|()| hash.unwrap_or_else(|| hash_block(block, data, file.size)));
        let mut blocks = file.blocks.locked();
        let asked = blocks.writing.remove(&block.offset).unwrap_or_default();
        match written {
            Ok(hash) if blocks.outcome.is_none() => {
                blocks.tree.insert(block.offset, hash);
                if let Err(failure) = self.account_runs(&mut blocks) {
                    drop(blocks);
                    return self.fail_file(&file, failure, asked, ack);
                }
                file.counted.fetch_add(u64::from(block.len), Ordering::Relaxed);
                self.progress
                    .bytes_done
                    .fetch_add(u64::from(block.len), Ordering::Relaxed);
                let complete = blocks.concludes();
                drop(blocks);
                for reply in asked {
                    reply.send((ack.clone(), None));
                }
                if complete {
                    self.conclude_file(&file);
                }
            }
            Ok(_) => {
                drop(blocks);
                for reply in asked {
                    reply.send((ack.clone(), None));
                }
            }
            Err(failure) => {
                drop(blocks);
                self.fail_file(&file, failure, asked, ack);
            }
        }
    }

    /// Accounts for the runs of blocks that are remembered.
    fn account_runs(&self, blocks: &mut Blocks) -> Result<(), Failure> {
        let runs = blocks.tree.held();
        if runs > MAX_RUNS {
            return Err(Failure::with(FailureKind::Limit, "its blocks come too scattered"));
        }
        let more = (runs as i64 - blocks.most_runs).max(0);
        if more == 0 {
            return Ok(());
        }
        blocks.most_runs += more;
        let mut state = self.state.locked();
        state.file_bytes += more * RUN_BYTES;
        Ok(state.account()?)
    }

    fn write_block(&self, file: &ArrivingFile, block: &Block, data: &[u8]) -> Result<(), Failure> {
        let temp = self.temp_of(file)?;
        let mut at = 0;
        for piece in &block.pieces {
            let end = at + piece.len as usize;
            let data = data.get(at..end).unwrap_or_default();
            temp.write(data, block.offset + u64::from(piece.offset))?;
            at = end;
        }
        Ok(())
    }

    fn temp_of(&self, file: &ArrivingFile) -> Result<Arc<TempFile>, Failure> {
        let mut temp = file.temp.locked();
        if let Some(temp) = &*temp {
            return Ok(temp.clone());
        }
        let place = file.place.as_ref().map_err(Clone::clone)?;
        if let Some(Err(failure)) = &*file.place_held.locked() {
            return Err(failure.clone());
        }
        let made = Arc::new(self.destination.create(file.head.id, place, file.size)?);
        made.set_size(file.size)?;
        Ok(temp.insert(made).clone())
    }

    /// FILE_END: the sender's hash. Blocking.
    pub(crate) fn file_end(&self, id: u64, hash: Hash, reply: Reply) {
        let Ok(Some(file)) = self.find(id) else {
            reply.send((self.recorded(id), None));
            return;
        };
        let mut blocks = file.blocks.locked();
        if let Some(outcome) = &blocks.outcome {
            reply.send((
                Frame::Result {
                    id,
                    outcome: outcome.clone(),
                },
                None,
            ));
            return;
        }
        blocks.end = Some(hash);
        blocks.end_asked.push(reply);
        let complete = blocks.concludes();
        drop(blocks);
        if complete {
            self.conclude_file(&file);
        }
    }
}

impl ArrivingFile {
    /// Gives back its place among the open files.
    fn release(&self) {
        // A file that was given no place stays without.
        let held = self.place_held.locked().take_if(|held| held.is_ok());
        drop(held);
    }
}

/// Bytes that a described file takes.
fn path_bytes(head: &Head) -> i64 {
    // Its path is kept twice: as it was said, and as its place.
    FILE_BYTES + 2 * head.path.as_bytes().len() as i64
}

impl Blocks {
    /// Whether this is the moment to conclude; true once only.
    fn concludes(&mut self) -> bool {
        let now =
            !self.concluding && self.end.is_some() && self.tree.root().is_some() && self.writing.is_empty();
        self.concluding |= now;
        now
    }
}
