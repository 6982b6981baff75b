//! The journal's file: made when there is first something to record, appended to, and written anew
//! when most of it is superseded.

use rustix::io::Errno;

use super::Storage;
use super::format::{Durability, Encoder, Header, MAX_JOURNAL_BYTES, MAX_SUBTREES, compact_bytes};
use super::names::Names;
use crate::tree_hash::{Subtree, TreeHash};

/// A journal of fewer bytes than this is never written anew: blocks of 256 KiB that come at 10
/// Gbit/s are noted for five seconds before.
const MIN_BYTES_TO_COMPACT: u64 = if cfg!(test) { 64 * 1024 } else { 1024 * 1024 };
/// How many times larger a journal may be than what it comes to.
const MAX_SUPERSEDED: u64 = 4;

/// How the journal's file stands.
pub(super) enum Log<F> {
    /// There is none for this copy, nor will be.
    Off,
    /// There was none of that name when the copy began.
    Absent,
    /// There is one which says nothing of this data file. It is locked, so it is this copy's to
    /// replace.
    Stale(F),
    /// It speaks of the data file.
    Open(OpenLog<F>),
}

pub(super) struct OpenLog<F> {
    pub file: F,
    /// Bytes of it that are known to be good.
    pub end: u64,
    pub encoder: Encoder,
    /// What is recorded.
    pub tree: TreeHash,
}

/// What came of recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// It is on disk.
    All,
    /// Another copy was faster to make the journal.
    AnotherCopy,
    /// With it there would be too many separate subtrees for a journal, until what is between them
    /// is there.
    TooScattered,
}

impl<F> Log<F> {
    /// Records what is in `batch`, all of it synced already. On an error nothing that was recorded
    /// is lost, and it may be tried again.
    pub(super) fn record<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        names: &Names,
        header: &Header,
        batch: &TreeHash,
    ) -> Result<Recorded, Errno> {
        match self {
            Self::Off => Ok(Recorded::AnotherCopy),
            Self::Absent => {
                let file = match storage.create_new(&names.journal()) {
                    Err(Errno::EXIST) => return self.switch_off(),
                    file => file?,
                };
                // Someone may have found it in between and locked it.
                if !storage.lock(&file).unwrap_or(false) {
                    return self.switch_off();
                }
                match write_new(storage, header, &file, batch.subtrees()) {
                    Ok(written) => *self = Self::Open(written.with(file)),
                    Err(errno) => {
                        *self = Self::Stale(file);
                        return Err(errno);
                    }
                }
                storage.sync_dir()?;
                Ok(Recorded::All)
            }
            Self::Stale(_) => {
                *self = Self::Open(replace(storage, names, header, batch.subtrees())?);
                storage.sync_dir()?;
                Ok(Recorded::All)
            }
            Self::Open(log) => log.record(storage, names, header, batch),
        }
    }

    /// Notes that these were written, without waiting for the disk. False where there is no journal
    /// for it, yet or any more.
    pub(super) fn note<S: Storage<File = F>>(&mut self, storage: &S, blocks: &[Subtree]) -> bool {
        match self {
            Self::Open(log) => log.note(storage, blocks),
            Self::Off | Self::Absent | Self::Stale(_) => false,
        }
    }

    fn switch_off(&mut self) -> Result<Recorded, Errno> {
        *self = Self::Off;
        Ok(Recorded::AnotherCopy)
    }

    /// Removes the journal, if it is this copy's.
    pub(super) fn remove<S: Storage<File = F>>(&mut self, storage: &S, names: &Names) {
        if matches!(self, Self::Stale(_) | Self::Open(_)) {
            let _ = storage.remove(&names.journal());
        }
        *self = Self::Off;
    }
}

impl<F> OpenLog<F> {
    /// Records that come next; what writes those behind them, and where they end.
    fn encoded(&self, subtrees: &[Subtree], durability: Durability) -> (Vec<u8>, Encoder, u64) {
        let (mut bytes, mut encoder) = (Vec::new(), self.encoder.clone());
        encoder.encode(subtrees, durability, &mut bytes);
        let end = self.end + bytes.len() as u64;
        (bytes, encoder, end)
    }

    fn note<S: Storage<File = F>>(&mut self, storage: &S, blocks: &[Subtree]) -> bool {
        let (bytes, encoder, end) = self.encoded(blocks, Durability::Noted);
        // What is recorded has to find room behind it.
        let has_room = end <= MAX_JOURNAL_BYTES as u64 / 2;
        if !has_room || storage.write_at(&self.file, &bytes, self.end).is_err() {
            return false;
        }
        (self.encoder, self.end) = (encoder, end);
        true
    }

    pub(super) fn record<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        names: &Names,
        header: &Header,
        batch: &TreeHash,
    ) -> Result<Recorded, Errno> {
        if !self.has_room_for(batch) {
            return Ok(Recorded::TooScattered);
        }
        let subtrees: Vec<Subtree> = batch.subtrees().collect();
        let (bytes, encoder, end) = self.encoded(&subtrees, Durability::Durable);
        if end > MAX_JOURNAL_BYTES as u64 {
            self.compact(storage, names, header)?;
            return self.record(storage, names, header, batch);
        }
        storage.write_at(&self.file, &bytes, self.end)?;
        storage.sync_data(&self.file)?;
        (self.encoder, self.end) = (encoder, end);
        for subtree in subtrees {
            self.tree.insert_subtree(subtree);
        }
        let header_bytes = header.encode().len();
        if end > MIN_BYTES_TO_COMPACT
            && end > MAX_SUPERSEDED * compact_bytes(header_bytes, self.tree.held())
        {
            // All is recorded already; the next time is as good.
            let _ = self.compact(storage, names, header);
        }
        Ok(Recorded::All)
    }

    /// Returns true if what is recorded, with `batch` merged into it, is few enough subtrees for a
    /// journal.
    fn has_room_for(&self, batch: &TreeHash) -> bool {
        if self.tree.held() + batch.held() <= MAX_SUBTREES {
            return true;
        }
        if batch.held() > 2 * MAX_SUBTREES {
            // A journal that was just compacted has no room for it.
            return false;
        }
        let mut merged = self.tree.clone();
        for subtree in batch.subtrees() {
            merged.insert_subtree(subtree);
        }
        merged.held() <= MAX_SUBTREES
    }

    /// The same in the blocks of `header`, written anew: what was recorded of smaller ones that
    /// make no whole one is left out.
    pub(super) fn in_other_blocks<S: Storage<File = F>>(
        self,
        storage: &S,
        names: &Names,
        header: &Header,
    ) -> Result<Self, Errno> {
        let mut tree = header.tree();
        for subtree in self.tree.subtrees() {
            // Refused where it is smaller than a block.
            let _ = tree.insert_subtree(subtree);
        }
        let log = replace(storage, names, header, tree.subtrees())?;
        storage.sync_dir()?;
        Ok(log)
    }

    fn compact<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        names: &Names,
        header: &Header,
    ) -> Result<(), Errno> {
        *self = replace(storage, names, header, self.tree.subtrees())?;
        storage.sync_dir()
    }
}

/// Writes a journal under another name and has it take the place of the one there is, which is this
/// copy's.
fn replace<S: Storage>(
    storage: &S,
    names: &Names,
    header: &Header,
    subtrees: impl Iterator<Item = Subtree>,
) -> Result<OpenLog<S::File>, Errno> {
    let name = names.new_journal();
    // Whoever left one there held the lock that is this copy's now.
    let _ = storage.remove(&name);
    let file = storage.create_new(&name)?;
    let written = storage
        .lock(&file)
        .and_then(|locked| if locked { Ok(()) } else { Err(Errno::BUSY) })
        .and_then(|()| write_new(storage, header, &file, subtrees))
        .and_then(|written| {
            storage
                .rename(&name, &names.journal(), true)
                .map(|()| written)
        });
    match written {
        Ok(written) => Ok(written.with(file)),
        Err(errno) => {
            let _ = storage.remove(&name);
            Err(errno)
        }
    }
}

/// What was written to an empty file.
struct Written {
    end: u64,
    encoder: Encoder,
    tree: TreeHash,
}

impl Written {
    fn with<F>(self, file: F) -> OpenLog<F> {
        OpenLog {
            file,
            end: self.end,
            encoder: self.encoder,
            tree: self.tree,
        }
    }
}

/// Writes and syncs a whole journal.
fn write_new<S: Storage>(
    storage: &S,
    header: &Header,
    file: &S::File,
    subtrees: impl Iterator<Item = Subtree>,
) -> Result<Written, Errno> {
    let (mut bytes, mut encoder, mut tree) = (header.encode(), Encoder::new(header), header.tree());
    let subtrees: Vec<Subtree> = subtrees.collect();
    encoder.encode(&subtrees, Durability::Durable, &mut bytes);
    storage.write_at(file, &bytes, 0)?;
    storage.sync_data(file)?;
    for subtree in subtrees {
        tree.insert_subtree(subtree);
    }
    Ok(Written {
        end: bytes.len() as u64,
        encoder,
        tree,
    })
}
