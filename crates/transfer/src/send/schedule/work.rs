//! The words of the schedule: what a stream is to send, what an answer is about, and what the
//! schedule wants done.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use crate::error::Failure;
use crate::tree_hash::Hash;
use crate::wire::{NO_ENTRY, Written};

/// Which stream, within one copy.
pub(crate) type StreamId = u32;

/// What the receiver's answer will be about: the unit that is in flight, comes back, and is
/// repeated. Ordered as the walk found the entries, a file's blocks before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    /// The entry's number.
    pub entry: u64,
    pub part: Part,
}

/// Which part of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The block at this offset.
    Block(u64),
    /// The entry as a whole: its one frame, its end or its failure. Answered by its result.
    Whole,
}

impl Subject {
    /// That the walk is over; answered by the receiver's hash over everything.
    pub(super) const END: Self = Self::whole(NO_ENTRY);

    pub(super) const fn whole(entry: u64) -> Self {
        Self {
            entry,
            part: Part::Whole,
        }
    }

    pub(super) const fn block(entry: u64, offset: u64) -> Self {
        Self {
            entry,
            part: Part::Block(offset),
        }
    }

    pub(super) const fn is_block(&self) -> bool {
        matches!(self.part, Part::Block(_))
    }
}

/// What a stream is to send next.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// A whole entry in one frame.
    Entry(Arc<Entry>),
    /// Offer a file, with this size and hash or else as the walk found it.
    Offer {
        file: Arc<Entry>,
        content: Option<(u64, Hash)>,
    },
    /// Say that a file is another name of one that is in place.
    Link(Arc<Entry>),
    /// Read a file for its hash, and offer it.
    ReadOffer(Arc<Entry>),
    /// Open the file, report its size, and send its first block; `offered` before that, as the walk
    /// found it.
    Open { file: Arc<Entry>, offered: bool },
    /// The block of an open file at `offset`.
    Block { file: Arc<Entry>, offset: u64 },
    /// All of the file is at the receiver, which had some of it: whether it is unchanged, and then
    /// its hash.
    Complete { file: Arc<Entry>, hash: Hash },
    /// The hash of a file all of which was read.
    FileEnd { file: Arc<Entry>, hash: Hash },
    /// That an entry failed.
    Failed(Arc<Entry>, Failure),
    /// That the walk is over, with all that it found.
    End { entries: u64, bytes: u64 },
}

impl Work {
    /// Whether it is file data in blocks, which nothing else goes with.
    pub(super) fn is_block(&self) -> bool {
        matches!(self, Work::Open { .. } | Work::Block { .. })
    }

    /// Bytes that it adds to a batch.
    pub(super) fn batch_bytes(&self) -> u64 {
        match self {
            Work::Entry(entry) | Work::ReadOffer(entry) => entry.batch_bytes(),
            Work::Offer { file, .. } | Work::Link(file) => file.offer_bytes(),
            _ => 0,
        }
    }
}

/// What a stream does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this.
    Send(Vec<Work>),
    /// Nothing; ask again when woken, and not later than this.
    Wait { until: Duration },
    /// Nothing ever again.
    Over,
}

/// What is to be said of a file that has been read whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// It, as it was read.
    File,
    /// That it failed.
    Failure(Failure),
    /// Nothing: it goes in blocks by now, or has its result.
    Nothing,
}

/// Which streams to wake.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wake {
    #[default]
    None,
    One,
    All,
}

/// What the schedule wants done after an event.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    pub wake: Wake,
    /// The walk may go on.
    pub wake_walk: bool,
    /// This file need not be open any more.
    pub close: Option<u64>,
    /// An entry has its result, for the observer.
    pub result: Option<EntryResult>,
    /// The receiver has reported what it had of a file, for the observer.
    pub resumed: Option<Resumed>,
}

/// What an earlier copy had left of a file.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub entry: Arc<Entry>,
    /// Bytes that were there, and of the whole file.
    pub bytes: u64,
    pub size: u64,
}

/// What became of an entry.
#[derive(Debug)]
pub(crate) struct EntryResult {
    pub entry: Arc<Entry>,
    /// Size of a file that is in place, and its hash if that is known.
    pub content: Option<(u64, Option<Hash>)>,
    pub outcome: Result<Written, Failure>,
}

/// Bytes of memory that a schedule takes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// For entries without a result.
    pub entries: u64,
    /// For work in flight, open files, and records that wait in the manifest.
    pub work: u64,
}
