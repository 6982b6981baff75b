//! Entries as the walk finds them, and the state of each until its result.

use std::sync::Arc;

use super::blocks::Blocks;
use crate::attributes::SpecialFile;
use crate::error::Failure;
use crate::late_size::is_late;
use crate::manifest::ManifestRecord;
use crate::path::RelPath;
use crate::tree_hash::{Hash, Subtree};
use crate::wire::{Compare, EntryHead, EntryOutcome, MAX_SMALL_BYTES, Meta};

/// Memory of an entry from its discovery until its result, besides its names, in bytes.
const ENTRY_BYTES: u64 = 448;
/// A hash table may be half empty, and the offered content is stored separately.
const _: () = assert!(
    size_of::<SourceEntry>() + 2 * size_of::<(u64, TrackedEntry)>() + 2 * size_of::<(u64, Hash)>()
        <= ENTRY_BYTES as usize
);

/// Size of OFFER without the path, in bytes.
const OFFER_BYTES: u64 = 80;

/// Entry at a path, as the walk found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FoundEntry {
    /// A file of `size` bytes. Its size may differ when it is opened.
    File {
        size: u64,
    },
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    /// A device, FIFO or socket.
    Special(SpecialFile),
    /// An entry that cannot be copied.
    Failed(Failure),
}

impl FoundEntry {
    /// Returns the memory that it uses besides its own size, in bytes.
    fn bytes(&self) -> u64 {
        match self {
            FoundEntry::File { .. } | FoundEntry::Directory | FoundEntry::Special(_) => 0,
            FoundEntry::Symlink { target } => target.len() as u64,
            FoundEntry::Failed(failure) => failure.detail.len() as u64,
        }
    }
}

/// An entry of the sources, as the walk found it.
#[derive(Debug)]
pub(crate) struct SourceEntry {
    pub head: EntryHead,
    pub meta: Meta,
    pub found: FoundEntry,
    /// Name of the same file that is in place, if this entry must be announced as a link to it.
    pub first: Option<Arc<SourceName>>,
}

impl SourceEntry {
    /// Returns the size of the file as the walk found it, or 0 for other entries.
    pub(super) fn size(&self) -> u64 {
        match self.found {
            FoundEntry::File { size } => size,
            _ => 0,
        }
    }

    /// Returns true if its size is told at its end.
    pub(super) fn is_late(&self) -> bool {
        is_late(self.size())
    }

    /// Returns the bytes that the walk has found. More of a file of late size follow.
    pub(super) fn known_bytes(&self) -> u64 {
        match self.is_late() {
            true => 0,
            false => self.size(),
        }
    }

    /// Returns the bytes of it that must be sent.
    pub(super) fn unsent_bytes(&self) -> u64 {
        match self.first {
            None => self.size(),
            Some(_) => 0,
        }
    }

    /// Returns true if the file is too large for one frame.
    pub(super) fn goes_in_blocks(&self) -> bool {
        self.size() > MAX_SMALL_BYTES
    }

    /// Returns the bytes that it adds to a batch: its data and its names.
    pub(super) fn batch_bytes(&self) -> u64 {
        let names = self.head.path.as_bytes().len() as u64 + self.found.bytes();
        self.size() + names + self.meta.attribute_bytes()
    }

    /// Returns the bytes that its offer or its link adds to a batch.
    pub(super) fn offer_bytes(&self) -> u64 {
        let first = self
            .first
            .as_ref()
            .map_or(0, |first| first.path.as_bytes().len());
        let names = (self.head.path.as_bytes().len() + first) as u64;
        OFFER_BYTES + names + self.meta.attribute_bytes()
    }

    pub(super) fn memory(&self) -> u64 {
        entry_memory(&self.head.path, &self.meta, &self.found)
    }
}

/// Returns the memory of an entry from its discovery until its result, in bytes.
pub(crate) fn entry_memory(path: &RelPath, meta: &Meta, found: &FoundEntry) -> u64 {
    // Its path is also in a frame for a while.
    ENTRY_BYTES + 2 * path.as_bytes().len() as u64 + found.bytes() + meta.attribute_bytes()
}

/// An entry that was taken and has no result yet.
pub(super) struct TrackedEntry {
    pub entry: Arc<SourceEntry>,
    /// Size and hash of a file, once all of it has been read.
    pub content: Option<(u64, Hash)>,
    pub stage: SendStage,
    pub offered: OfferForm,
    /// Bytes of blocks that the receiver has acknowledged.
    pub acknowledged: u64,
}

/// Form in which a file was offered.
pub(super) enum OfferForm {
    /// Not offered.
    Not,
    /// With the size and modification time that the walk found, followed by its data.
    WithData,
    /// With the size and modification time that the walk found, without data.
    AsFound,
    /// With this size and hash.
    Content(Box<(u64, Hash)>),
}

/// Form in which an entry is being sent.
pub(super) enum SendStage {
    /// Not yet. The receiver is asked whether it has the file, or links it to another name.
    Offered,
    /// In one frame.
    Whole,
    /// In blocks. `None` until it has been opened.
    Blocks(Option<Box<Blocks>>),
    /// Not at all. The receiver gets a report of the failure.
    Failed(Failure),
}

impl SendStage {
    /// Returns the first stage of an entry.
    pub(super) fn initial(entry: &SourceEntry) -> Self {
        match &entry.found {
            FoundEntry::Failed(failure) => Self::Failed(failure.clone()),
            _ if entry.goes_in_blocks() => Self::Blocks(None),
            _ => Self::Whole,
        }
    }
}

impl TrackedEntry {
    pub(super) fn new(entry: Arc<SourceEntry>, begins: FirstStep) -> Self {
        let stage = match begins {
            FirstStep::Offered(_) | FirstStep::Linked => SendStage::Offered,
            _ => SendStage::initial(&entry),
        };
        let offered = match begins {
            FirstStep::OfferedAndSent => OfferForm::WithData,
            FirstStep::Offered(Compare::SizeAndTime) => OfferForm::AsFound,
            // Nothing can be sent before it is read.
            FirstStep::Offered(Compare::Content)
            | FirstStep::Linked
            | FirstStep::Waits
            | FirstStep::Sent => OfferForm::Not,
        };
        Self {
            entry,
            content: None,
            stage,
            offered,
            acknowledged: 0,
        }
    }

    /// Returns the file's blocks, if it is sent in blocks and open.
    pub(super) fn blocks(&mut self) -> Option<&mut Blocks> {
        match &mut self.stage {
            SendStage::Blocks(Some(blocks)) => Some(blocks),
            _ => None,
        }
    }

    /// Returns the coarse subtrees of a file that is sent in blocks, if they are kept.
    fn parts(&self) -> &[Subtree] {
        match &self.stage {
            SendStage::Blocks(Some(blocks)) => blocks.coarse(),
            _ => &[],
        }
    }

    /// Returns the outcome that the receiver's answer means, or `None` if nothing was sent that it
    /// could be about.
    pub(super) fn outcome(
        &self,
        theirs: Result<EntryOutcome, Failure>,
    ) -> Option<Result<EntryOutcome, Failure>> {
        let is_file = matches!(self.entry.found, FoundEntry::File { .. });
        match (&self.stage, theirs) {
            // The receiver has the file as it was offered, even if it has changed since.
            (_, Ok(EntryOutcome::Unchanged)) => match self.offered {
                OfferForm::Not => None,
                OfferForm::WithData | OfferForm::AsFound | OfferForm::Content(_) => {
                    Some(Ok(EntryOutcome::Unchanged))
                }
            },
            // This holds even if the file has changed since it was announced as a link.
            (_, Ok(EntryOutcome::Linked)) => self
                .entry
                .first
                .is_some()
                .then_some(Ok(EntryOutcome::Linked)),
            // The file was written and verified before the failure arrived.
            (SendStage::Failed(_), Ok(written)) if self.content.is_some() => Some(Ok(written)),
            (SendStage::Failed(own), _) => Some(Err(own.clone())),
            (_, Ok(_)) if is_file && self.content.is_none() => None,
            (_, theirs) => Some(theirs),
        }
    }

    /// Returns the record of the entry in the manifest.
    pub(super) fn record(&self, outcome: &Result<EntryOutcome, Failure>) -> ManifestRecord<'_> {
        match (outcome, &self.entry.found, &self.content) {
            (Ok(EntryOutcome::Unchanged), FoundEntry::File { size }, _) => match &self.offered {
                OfferForm::Content(content) => ManifestRecord::File {
                    size: content.0,
                    hash: &content.1,
                    mtime: self.entry.meta.mtime,
                    parts: &[],
                },
                _ => ManifestRecord::Unchanged {
                    size: *size,
                    mtime: self.entry.meta.mtime,
                },
            },
            (Ok(EntryOutcome::Linked), ..) => match &self.entry.first {
                Some(first) => ManifestRecord::HardLink {
                    size: self.entry.size(),
                    source: first.source,
                    path: &first.path,
                },
                None => ManifestRecord::Failed,
            },
            (Ok(_), FoundEntry::File { .. }, Some((size, hash))) => ManifestRecord::File {
                size: *size,
                hash,
                mtime: self.entry.meta.mtime,
                parts: self.parts(),
            },
            (Ok(_), FoundEntry::Directory, _) => ManifestRecord::Directory,
            (Ok(_), FoundEntry::Symlink { target }, _) => ManifestRecord::Symlink { target },
            (Ok(_), FoundEntry::Special(special), _) => ManifestRecord::Special(*special),
            _ => ManifestRecord::Failed,
        }
    }
}

/// A name of a file: the number of its source, and the path beneath it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceName {
    pub source: u32,
    pub path: RelPath,
}

/// The first step of sending a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstStep {
    /// It waits.
    Waits,
    /// It is sent.
    Sent,
    /// It is offered, and sent without waiting for the answer.
    OfferedAndSent,
    /// It is offered for this comparison, and sent if the receiver wants it.
    Offered(Compare),
    /// It is announced as a link, and sent if the receiver wants it.
    Linked,
}
