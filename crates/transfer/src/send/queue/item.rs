//! Entries, files and pieces of work, as the queue hands them out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::account::Held;
use crate::error::Failure;
use crate::send::read::OpenedFile;
use crate::send::walk::Found;
use crate::tree_hash::Hash;
use crate::wire::{Head, Meta};

/// One entry of the sources.
pub(crate) struct Entry {
    pub head: Head,
    pub meta: Meta,
    pub found: Found,
    /// Size and hash of a file, once it has been read.
    pub content: OnceLock<(u64, Hash)>,
    /// The memory it takes.
    pub _held: Held,
}

/// A file that goes in blocks.
pub(crate) struct BlockFile {
    pub entry: Arc<Entry>,
    pub opened: OnceLock<OpenedFile>,
    /// Its place among the open files.
    pub held: OnceLock<Held>,
    /// Answered or given up: its remaining blocks needn't be sent.
    pub finished: AtomicBool,
    /// Bytes the receiver has acknowledged.
    pub acknowledged: AtomicU64,
}

impl BlockFile {
    pub(super) fn new(entry: Arc<Entry>) -> Arc<Self> {
        Arc::new(Self {
            entry,
            opened: OnceLock::new(),
            held: OnceLock::new(),
            finished: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
        })
    }
}

/// A piece of work for one stream.
#[derive(Clone)]
pub(crate) enum Item {
    /// A whole entry in one frame.
    Entry(Arc<Entry>),
    /// Open the file, then send its first block.
    Open(Arc<BlockFile>),
    /// One block of an open file.
    Block(Arc<BlockFile>, u64),
    /// The hash, again, of a file all of which was sent.
    FileEnd(Arc<BlockFile>),
    /// An entry that failed while it was being read.
    Failed(Arc<Entry>, Failure),
    /// That the walk is over.
    End,
}

/// What the receiver's answer will be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Entry(u64),
    Block(u64, u64),
    End,
}

impl Item {
    pub(super) fn key(&self) -> Key {
        match self {
            Item::Entry(entry) | Item::Failed(entry, _) => Key::Entry(entry.head.id),
            Item::FileEnd(file) => Key::Entry(file.entry.head.id),
            Item::Open(file) => Key::Block(file.entry.head.id, 0),
            Item::Block(file, offset) => Key::Block(file.entry.head.id, *offset),
            Item::End => Key::End,
        }
    }

    /// Bytes of its names, as far as a batch counts them.
    pub(super) fn head_bytes(&self) -> u64 {
        match self {
            Item::Entry(entry) => entry.head.path.as_bytes().len() as u64 + entry.found.bytes(),
            _ => 0,
        }
    }

    /// Its file has been answered for: sending it is pointless.
    pub(super) fn pointless(&self) -> bool {
        matches!(self, Item::Open(f) | Item::Block(f, _) | Item::FileEnd(f) if f.finished.load(Ordering::Relaxed))
    }
}

/// Bytes as the walk found them; none for what is no file.
pub(super) fn size_of(entry: &Entry) -> u64 {
    match entry.found {
        Found::File { size } => size,
        _ => 0,
    }
}
