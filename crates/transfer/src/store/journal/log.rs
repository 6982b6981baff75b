//! The journal's file: created with the first record, appended to, and rewritten when most of it is
//! superseded.

use rustix::io::Errno;

use super::Storage;
use super::format::{Durability, Encoder, Header, MAX_JOURNAL_BYTES, MAX_SUBTREES, compact_bytes};
use super::names::Names;
use crate::tree_hash::{Subtree, TreeHash};

/// Minimum size of a journal that is rewritten. It takes five seconds of blocks of 256 KiB at 10
/// Gbit/s to note as much.
const MIN_BYTES_TO_COMPACT: u64 = if cfg!(test) { 64 * 1024 } else { 1024 * 1024 };
/// Maximum ratio of a journal's size to the size after rewriting.
const MAX_SUPERSEDED: u64 = 4;

/// State of the journal's file.
pub(super) enum Log<F> {
    /// This copy has no journal, and will have none.
    Off,
    /// The journal did not exist when the copy began.
    Absent,
    /// A journal exists that does not describe this data file. It is locked, so this copy may
    /// replace it.
    Stale(F),
    /// The journal describes the data file.
    Open(OpenLog<F>),
}

pub(super) struct OpenLog<F> {
    pub file: F,
    /// Number of its bytes that are known to be valid.
    pub end: u64,
    pub encoder: Encoder,
    /// Recorded subtrees.
    pub tree: TreeHash,
}

/// Result of recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Everything is on disk.
    All,
    /// Another copy created the journal first.
    AnotherCopy,
    /// The journal would have too many separate subtrees, until the gaps between them are filled.
    TooScattered,
}

impl<F> Log<F> {
    /// Records `batch`, which has been synced already. After an error, earlier records are kept,
    /// and the call may be repeated.
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
                // Another copy may have found the file and locked it in between.
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

    /// Notes written blocks without waiting for the disk. Returns false if there is no journal yet,
    /// or no longer.
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

    /// Removes the journal, if it belongs to this copy.
    pub(super) fn remove<S: Storage<File = F>>(&mut self, storage: &S, names: &Names) {
        if matches!(self, Self::Stale(_) | Self::Open(_)) {
            let _ = storage.remove(&names.journal());
        }
        *self = Self::Off;
    }
}

impl<F> OpenLog<F> {
    /// Encodes the next records. Also returns the encoder of later ones, and the end of the
    /// journal.
    fn encoded(&self, subtrees: &[Subtree], durability: Durability) -> (Vec<u8>, Encoder, u64) {
        let (mut bytes, mut encoder) = (Vec::new(), self.encoder.clone());
        encoder.encode(subtrees, durability, &mut bytes);
        let end = self.end + bytes.len() as u64;
        (bytes, encoder, end)
    }

    fn note<S: Storage<File = F>>(&mut self, storage: &S, blocks: &[Subtree]) -> bool {
        let (bytes, encoder, end) = self.encoded(blocks, Durability::Noted);
        // Records need room behind the notes.
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
            // Everything is recorded already, so compacting can wait.
            let _ = self.compact(storage, names, header);
        }
        Ok(Recorded::All)
    }

    /// Returns true if the recorded subtrees, merged with `batch`, are few enough for a journal.
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

    /// Rewrites the journal in the blocks of `header`. Recorded blocks that are smaller and do not
    /// make up a whole one are omitted.
    pub(super) fn in_other_blocks<S: Storage<File = F>>(
        self,
        storage: &S,
        names: &Names,
        header: &Header,
    ) -> Result<Self, Errno> {
        let mut tree = header.tree();
        for subtree in self.tree.subtrees() {
            // Refused if it is smaller than a block.
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

/// Writes a journal under another name and renames it over the existing one, which belongs to this
/// copy.
fn replace<S: Storage>(
    storage: &S,
    names: &Names,
    header: &Header,
    subtrees: impl Iterator<Item = Subtree>,
) -> Result<OpenLog<S::File>, Errno> {
    let name = names.new_journal();
    // An earlier holder of the lock, which this copy holds now, may have left a file there.
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

/// State of a journal after writing it to an empty file.
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
