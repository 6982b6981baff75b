//! The copy protocol: what the two ends of a session say to each other to copy a tree.
//!
//! A stream is a sequence of frames each way. A frame is a length (u32, little-endian like every
//! number here; it counts what follows it), a type byte and a body. The client's first frame is
//! HELLO, and it sends on without waiting for the server's ACCEPT: no round trip is spent on
//! agreement. Whoever holds the files (the *sender*: the client of a push, the server of a pull)
//! says FILE, SMALL, BLOCK, ...; the *receiver* answers ACK and RESULT, and at the end DONE. Every
//! stream of one copy carries the same HELLO, whose token joins them.
//!
//! All sizes are bounded before anything is allocated; decoding never panics (property tests
//! below). The rules that the code cites (`LH-COPY-1`) are those of `docs/copy-protocol.md`.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use bytes::{Buf, Bytes};
use drs::Limit;

use crate::error::{Failure, FailureKind};
use crate::path::{PathError, RelPath};
use crate::progress::NotKeptCounts;
use crate::tree_hash::{BlockHash, Hash, Subtree};

mod decode;
mod encode;
mod hello;
mod options;
#[cfg(test)]
mod tests;

pub(crate) use decode::{BLOCK_FIXED, block_header_len, decode};
pub(crate) use encode::{begin_small, finish_clear_block, finish_small};
pub use hello::{Compare, Hello, Placement, Request, Token};

/// Version of the copy protocol spoken here (LH-COPY-6).
pub const VERSION: u16 = 4;
/// Smallest and largest block of a file, as powers of two: 64 KiB to 1 MiB.
pub(crate) const BLOCK_LOG2: std::ops::RangeInclusive<u32> = 16..=20;
/// Largest file sent whole in one SMALL frame, in bytes.
pub(crate) const SMALL_MAX: u64 = 256 * 1024;
/// Largest HELLO, in bytes (LH-COPY-1): bounds how many sources one pull can name.
pub(crate) const MAX_HELLO: usize = 256 * 1024;
/// Largest body of any frame but HELLO and BLOCK, in bytes (LH-COPY-1).
pub(crate) const MAX_BODY: usize = SMALL_MAX as usize + 16 * 1024;
/// Most extents of data in a block that has holes (LH-COPY-4).
pub(crate) const MAX_EXTENTS: usize = 256;
/// Most bytes of explanation in a frame (LH-COPY-3).
pub(crate) const MAX_DETAIL: usize = 512;
/// Most subtrees in one HAVE (LH-COPY-36).
pub(crate) const MAX_HAVE_SUBTREES: usize = 1024;
/// Largest file size on the wire, in bytes.
pub(crate) const MAX_FILE: u64 = 1 << 62;
/// Length and type of a frame.
pub(crate) const FRAME_HEAD: usize = 5;
/// A failure that belongs to no numbered entry carries this number (LH-COPY-25).
pub(crate) const NO_ENTRY: u64 = u64::MAX;

/// What a REFUSE is a question of. The number is its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RefusalKind {
    /// Of what is asked for.
    What = 0,
    /// Of who asks.
    WhoAsks = 1,
    /// Of when: a bound on what may be held at once is met.
    When = 2,
}

impl RefusalKind {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::What, Self::WhoAsks, Self::When]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// Which frame: the type byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameType {
    Hello = 1,
    Accept = 2,
    Refuse = 3,
    File = 4,
    Small = 5,
    Directory = 6,
    Symlink = 7,
    Block = 8,
    FileEnd = 9,
    Failed = 10,
    End = 11,
    Totals = 12,
    Ack = 13,
    Result = 14,
    Done = 15,
    KeepAlive = 16,
    Flow = 17,
    Retire = 18,
    Have = 19,
    Offer = 20,
    Want = 21,
    ClearBlock = 22,
    HardLink = 23,
    NotKept = 24,
}

impl FrameType {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        use FrameType::*;
        [
            Hello, Accept, Refuse, File, Small, Directory, Symlink, Block, FileEnd, Failed, End,
            Totals, Ack, Result, Done, KeepAlive, Flow, Retire, Have, Offer, Want, ClearBlock,
            HardLink, NotKept,
        ]
        .into_iter()
        .find(|t| *t as u8 == byte)
    }
}

/// What tells one state of a source file from every other: chosen by the sender, only compared by
/// the receiver (LH-COPY-33).
pub(crate) type SourceIdentity = [u8; 32];

/// Which copy a server takes a stream for: another number each time that it begins one
/// (LH-COPY-38).
pub(crate) type CopyInstance = [u8; 8];

/// Permissions and modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Meta {
    /// Permission bits, at most 0o777: set-id and sticky bits don't travel.
    pub mode: u32,
    /// Modification time: seconds since 1970 and nanoseconds (under 1e9).
    pub mtime: (i64, u32),
}

/// Which entry of the tree a frame is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Counted from 0 in the order of the walk (LH-COPY-12).
    pub id: u64,
    /// Which of the sources it belongs to, counted from 0.
    pub source: u32,
    /// Where beneath that source; the root for the source itself.
    pub path: RelPath,
}

/// A file as OFFER describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub head: Head,
    pub meta: Meta,
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of its content, if that is what is to be compared; otherwise its size and
    /// modification time are.
    pub hash: Option<Hash>,
}

/// A file that is another name of one that is in place (LH-COPY-45).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HardLink {
    pub head: Head,
    /// Bytes of the file.
    pub size: u64,
    /// The name that is in place: which of the sources it belongs to, and where beneath that.
    pub first: (u32, RelPath),
}

/// A run of data in a block; what lies between runs is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes from the block's start.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// One block of a file, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The file's entry.
    pub id: u64,
    /// Bytes from the file's start.
    pub offset: u64,
    /// Bytes of the file this block stands for, holes included.
    pub len: u32,
    /// Where its data goes, ascending.
    pub extents: Vec<Extent>,
}

impl Block {
    /// Bytes of data that follow the block's header.
    pub(crate) fn data_len(&self) -> usize {
        self.extents.iter().map(|p| p.len as usize).sum()
    }

    /// Whether it has no hole.
    pub(crate) fn is_all_data(&self) -> bool {
        matches!(self.extents[..], [Extent { offset: 0, len }] if len == self.len)
    }
}

/// Every frame, with BLOCK's data left on the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Client: who I am in this copy, and what is to be copied.
    Hello(Hello),
    /// Server: go on; at most so many streams in this copy (LH-COPY-9).
    Accept {
        version: u16,
        max_streams: u16,
        /// None from a server that does not report it.
        instance: Option<CopyInstance>,
        /// The data of blocks may travel in the clear (LH-COPY-43).
        clear: bool,
        /// Something is where the files of a push go: it may be some of them (LH-COPY-39).
        present: bool,
        /// HARD_LINK is understood, and may be said (LH-COPY-45).
        hard_links: bool,
        /// Of a push: where its sources go; `None` from a server that does not report it
        /// (LH-COPY-53).
        placement: Option<Placement>,
    },
    /// Server: no, and why.
    Refuse { kind: RefusalKind, detail: String },
    /// A file that comes in blocks; said on each stream before its first block there (LH-COPY-13).
    File {
        head: Head,
        meta: Meta,
        size: u64,
        block_log2: u32,
        /// None if the file is not to be gone on with later.
        identity: Option<SourceIdentity>,
    },
    /// A whole file.
    Small {
        head: Head,
        meta: Meta,
        hash: Hash,
        data: Bytes,
    },
    /// A file that the receiver may have: what shows whether it does (LH-COPY-40).
    Offer(Offer),
    /// Another name of a file that is in place (LH-COPY-45).
    HardLink(HardLink),
    /// A file that was offered, or said to be another name of one, is to be sent (LH-COPY-41,
    /// LH-COPY-46).
    Want { id: u64 },
    /// A directory; its permissions and time are set when all is written.
    Directory { head: Head, meta: Meta },
    /// A symbolic link, itself.
    Symlink {
        head: Head,
        meta: Meta,
        target: Vec<u8>,
    },
    /// Part of a file.
    Block(Block),
    /// The same, with its data in the clear behind the frame, and what that hashes to (LH-COPY-44).
    ClearBlock(Block, BlockHash),
    /// A file's hash, once all of it has been read unchanged (LH-COPY-15).
    FileEnd { id: u64, hash: Hash },
    /// An entry that could not be read (LH-COPY-16); or, from the receiver and without a number, an
    /// afterthought about one that was written.
    Failed { head: Head, failure: Failure },
    /// The walk is over: so many entries were numbered (LH-COPY-17).
    End { entries: u64, bytes: u64 },
    /// What the walk has found so far.
    Totals {
        entries: u64,
        bytes: u64,
        complete: bool,
    },
    /// Counts so far of what the copy does not keep of its sources (LH-COPY-54).
    NotKept(NotKeptCounts),
    /// A block is written.
    Ack { id: u64, offset: u64 },
    /// These parts of a file are in place and need not be sent; by offset, disjoint. `more` follow
    /// (LH-COPY-36).
    Have {
        id: u64,
        more: bool,
        subtrees: Vec<Subtree>,
    },
    /// An entry is written and verified, or was there already, or failed.
    Result {
        id: u64,
        outcome: Result<Written, Failure>,
    },
    /// Everything is in place; the hash over all entries for the sender to compare (LH-COPY-26).
    Done { manifest: Hash },
    /// I am alive.
    KeepAlive,
    /// Server: how this stream's connection does at my end (LH-COPY-29).
    Flow(FlowReport),
    /// Receiver of a pull (LH-COPY-32): take no more work for this stream, and close it once all
    /// that it carries is answered.
    Retire,
}

/// What limits a stream's connection at the server's end, since the stream began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FlowReport {
    /// For how long each limit held, in milliseconds, in the order of [`FLOW_LIMITS`].
    pub held_ms: [u32; FLOW_LIMITS.len()],
    /// Segments sent again.
    pub retransmits: u64,
    /// Smoothed round-trip time and the least one, in microseconds.
    pub rtt_us: (u32, u32),
    /// The window that the peer offers and the send buffer, in bytes.
    pub window: u64,
    pub send_buffer: u64,
    /// How many streams are advised; 0 for no advice.
    pub streams: u16,
}

/// The order in which FLOW counts limits; part of the protocol.
pub(crate) const FLOW_LIMITS: [Limit; 9] = [
    Limit::SendingApplication,
    Limit::ReceivingApplication,
    Limit::SendBuffer,
    Limit::ReceiveWindow,
    Limit::Pacing,
    Limit::Growing,
    Limit::Loss,
    Limit::Path,
    Limit::Sender,
];

/// How an entry came to be in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// Written by this copy.
    New,
    /// There before, with the same content, which has travelled; left alone.
    Same,
    /// There before, as it was offered; its content has not travelled.
    Unchanged,
    /// Another name of a file in place; its content has not travelled a second time.
    Linked,
}

impl Written {
    /// The byte that stands for it where a failure has its code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::New => 0,
            Self::Linked => 253,
            Self::Unchanged => 254,
            Self::Same => 255,
        }
    }

    /// None if that is no such byte.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::New, Self::Same, Self::Unchanged, Self::Linked]
            .into_iter()
            .find(|written| written.code() == code)
    }
}

/// Why bytes are not a frame: the peer is broken or hostile, and the stream is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The frame ends within a field.
    #[error("a frame ends in the middle of a field")]
    Short,
    /// The frame goes on after its last field.
    #[error("a frame is longer than its fields")]
    Long,
    /// A length above its bound.
    #[error("a length in a frame is over its bound")]
    Bound,
    /// A type byte nobody knows.
    #[error("a frame of unknown type {0}")]
    Type(u8),
    /// A field with a value that has no meaning.
    #[error("a frame has a meaningless {0}")]
    Value(&'static str),
    /// An option that must be understood and is not (LH-COPY-8).
    #[error(
        "the peer asks for option {0} of the copy protocol, which this release does not know: use a newer one"
    )]
    UnknownOption(u16),
    /// A path that isn't plain.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No version in common.
    #[error(
        "the peer speaks versions {0} to {1} of the copy protocol, this one {VERSION}: use a release that fits"
    )]
    Version(u16, u16),
}
