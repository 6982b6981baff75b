//! Entries as the walk finds them, and what is known of each until its result.

use std::sync::Arc;

use super::blocks::Blocks;
use super::links::Name;
use super::offers::Begins;
use crate::error::Failure;
use crate::manifest::Record;
use crate::path::RelPath;
use crate::tree_hash::Hash;
use crate::wire::{Compare, Head, Meta, SMALL_MAX, Written};

/// Bytes of memory that an entry takes from when it is found until its result, beside its names.
const ENTRY_BYTES: u64 = 448;
/// A hash table may be half empty, and the content that was offered is beside it.
const _: () = assert!(
    size_of::<Entry>() + 2 * size_of::<(u64, Tracked)>() + 2 * size_of::<(u64, Hash)>()
        <= ENTRY_BYTES as usize
);

/// Bytes of OFFER beside the path.
const OFFER_BYTES: u64 = 80;

/// What the walk found at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// A file of `size` bytes; it may have another size when it is opened.
    File {
        size: u64,
    },
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    /// Something that can't be copied.
    Failed(Failure),
}

impl Found {
    /// Bytes of memory that it takes beside its own size.
    fn bytes(&self) -> u64 {
        match self {
            Found::File { .. } | Found::Directory => 0,
            Found::Symlink { target } => target.len() as u64,
            Found::Failed(failure) => failure.detail.len() as u64,
        }
    }
}

/// One entry of the sources, as the walk found it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub head: Head,
    pub meta: Meta,
    pub found: Found,
    /// The name in place that this one is another name of the same file of, if it is to be said to
    /// be that.
    pub first: Option<Arc<Name>>,
}

impl Entry {
    /// Bytes of the file as the walk found it; none for what is no file.
    pub(super) fn size(&self) -> u64 {
        match self.found {
            Found::File { size } => size,
            _ => 0,
        }
    }

    /// Bytes of it that are to be sent.
    pub(super) fn unsent_bytes(&self) -> u64 {
        match self.first {
            None => self.size(),
            Some(_) => 0,
        }
    }

    /// Whether it is too large to go whole in one frame.
    pub(super) fn goes_in_blocks(&self) -> bool {
        self.size() > SMALL_MAX
    }

    /// Bytes that it adds to a batch: its data and its names.
    pub(super) fn batch_bytes(&self) -> u64 {
        self.size() + self.head.path.as_bytes().len() as u64 + self.found.bytes()
    }

    /// Bytes that its offer adds to a batch, or that it is another name of a file.
    pub(super) fn offer_bytes(&self) -> u64 {
        let first = self
            .first
            .as_ref()
            .map_or(0, |first| first.path.as_bytes().len());
        OFFER_BYTES + (self.head.path.as_bytes().len() + first) as u64
    }

    pub(super) fn memory(&self) -> u64 {
        entry_memory(&self.head.path, &self.found)
    }
}

/// Bytes of memory that an entry takes from when it is found until its result.
pub(crate) fn entry_memory(path: &RelPath, found: &Found) -> u64 {
    // Its path is in a frame, too, for a while.
    ENTRY_BYTES + 2 * path.as_bytes().len() as u64 + found.bytes()
}

/// An entry that was handed out and has no result yet.
pub(super) struct Tracked {
    pub entry: Arc<Entry>,
    /// Size and hash of a file, once all of it has been read.
    pub content: Option<(u64, Hash)>,
    pub stage: Stage,
    pub offered: Offered,
    /// Bytes of blocks that the receiver has acknowledged.
    pub acknowledged: u64,
}

/// As what a file was offered.
pub(super) enum Offered {
    /// It was not.
    Not,
    /// With the size and the time of modification that the walk found, and its data behind it.
    WithData,
    /// The same, alone.
    AsFound,
    /// With this size and hash.
    Content(Box<(u64, Hash)>),
}

/// How an entry is being sent.
pub(super) enum Stage {
    /// Not yet: the receiver is asked whether it has it, or makes it another name of a file.
    Offered,
    /// Whole, in one frame.
    Whole,
    /// In blocks; none until it has been opened.
    Blocks(Option<Box<Blocks>>),
    /// Not at all: the receiver gets a report that it failed.
    Failed(Failure),
}

impl Stage {
    /// As what an entry is sent first.
    pub(super) fn first_of(entry: &Entry) -> Self {
        match &entry.found {
            Found::Failed(failure) => Self::Failed(failure.clone()),
            _ if entry.goes_in_blocks() => Self::Blocks(None),
            _ => Self::Whole,
        }
    }
}

impl Tracked {
    pub(super) fn new(entry: Arc<Entry>, begins: Begins) -> Self {
        let stage = match begins {
            Begins::Offered(_) | Begins::Linked => Stage::Offered,
            _ => Stage::first_of(&entry),
        };
        let offered = match begins {
            Begins::OfferedAndSent => Offered::WithData,
            Begins::Offered(Compare::SizeAndTime) => Offered::AsFound,
            // Nothing can be said before it is read.
            Begins::Offered(Compare::Content) | Begins::Linked | Begins::Waits | Begins::Sent => {
                Offered::Not
            }
        };
        Self {
            entry,
            content: None,
            stage,
            offered,
            acknowledged: 0,
        }
    }

    /// The file's blocks, if it goes in blocks and is open.
    pub(super) fn blocks(&mut self) -> Option<&mut Blocks> {
        match &mut self.stage {
            Stage::Blocks(Some(blocks)) => Some(blocks),
            _ => None,
        }
    }

    /// What the receiver's word comes to; none if nothing was sent that it could be about.
    pub(super) fn outcome(
        &self,
        theirs: Result<Written, Failure>,
    ) -> Option<Result<Written, Failure>> {
        let is_file = matches!(self.entry.found, Found::File { .. });
        match (&self.stage, theirs) {
            // It is as it was offered, whatever has become of it since.
            (_, Ok(Written::Unchanged)) => match self.offered {
                Offered::Not => None,
                Offered::WithData | Offered::AsFound | Offered::Content(_) => {
                    Some(Ok(Written::Unchanged))
                }
            },
            // Whatever has become of it since it was said to be that.
            (_, Ok(Written::Linked)) => self.entry.first.is_some().then_some(Ok(Written::Linked)),
            // It was written and verified after all, before the failure arrived.
            (Stage::Failed(_), Ok(written)) if self.content.is_some() => Some(Ok(written)),
            (Stage::Failed(own), _) => Some(Err(own.clone())),
            (_, Ok(_)) if is_file && self.content.is_none() => None,
            (_, theirs) => Some(theirs),
        }
    }

    /// What the manifest says of it.
    pub(super) fn record(&self, outcome: &Result<Written, Failure>) -> Record<'_> {
        match (outcome, &self.entry.found, &self.content) {
            (Ok(Written::Unchanged), Found::File { size }, _) => match &self.offered {
                Offered::Content(content) => Record::File {
                    size: content.0,
                    hash: &content.1,
                },
                _ => Record::Unchanged {
                    size: *size,
                    mtime: self.entry.meta.mtime,
                },
            },
            (Ok(Written::Linked), ..) => match &self.entry.first {
                Some(first) => Record::HardLink {
                    size: self.entry.size(),
                    source: first.source,
                    path: &first.path,
                },
                None => Record::Failed,
            },
            (Ok(_), Found::File { .. }, Some((size, hash))) => Record::File { size: *size, hash },
            (Ok(_), Found::Directory, _) => Record::Directory,
            (Ok(_), Found::Symlink { target }, _) => Record::Symlink { target },
            _ => Record::Failed,
        }
    }
}
