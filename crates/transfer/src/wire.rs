//! The copy protocol: the messages by which the two ends of a session copy a tree.
//!
//! A stream is a sequence of frames in each direction. A frame is a length (u32, little-endian like
//! every number here; it counts what follows it), a type byte and a body. The client's first frame
//! is HELLO. It continues without waiting for the server's ACCEPT, so agreement costs no round
//! trip. The *sender* holds the files: it is the client of a push or the server of a pull, and
//! sends FILE, SMALL, BLOCK, ... The *receiver* answers with ACK and RESULT, and at the end with
//! DONE. Every stream of one copy carries the same HELLO, whose token joins them.
//!
//! All sizes are bounded before anything is allocated; decoding never panics (property tests
//! below). The rules that the code cites (`LH-COPY-1`) are those of `docs/copy-protocol.md`.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::sync::Arc;

use bytes::{Buf, Bytes};
use drs::Limit;
use strum::FromRepr;

use crate::attributes::{Attributes, MAX_ATTRIBUTE_BYTES, SpecialFile};
use crate::delta::{CHUNK_LOG2, SignedChunk};
use crate::error::{Failure, FailureKind};
use crate::path::{PathError, RelPath};
use crate::progress::not_kept::NotKeptCounts;
use crate::receipt::ServerReceipt;
use crate::tree_hash::{BlockHash, Hash, Subtree};

mod accept;
mod attributes;
mod decode;
mod encode;
mod field_reader;
mod hello;
mod options;
#[cfg(test)]
mod tests;

pub(crate) use accept::Acceptance;
pub(crate) use decode::{BLOCK_FIXED, block_header_len, decode};
pub(crate) use encode::{begin_small, finish_clear_block, finish_frame_of_parts, finish_small};
pub use hello::{Compare, CopyRequest, CopyToken, Hello, Placement};

/// Version of the copy protocol that this release speaks (LH-COPY-6).
pub const VERSION: u16 = 4;
/// Smallest and largest block of a file, as powers of two: 64 KiB to 1 MiB.
pub(crate) const BLOCK_LOG2: std::ops::RangeInclusive<u32> = 16..=20;
/// Size of the largest file sent whole in one SMALL frame, in bytes.
pub(crate) const MAX_SMALL_BYTES: u64 = 256 * 1024;
/// Maximum size of HELLO, in bytes (LH-COPY-1). It bounds the number of sources of one pull.
pub(crate) const MAX_HELLO_BYTES: usize = 256 * 1024;
/// Maximum body of any frame but HELLO and BLOCK, in bytes (LH-COPY-1).
pub(crate) const MAX_BODY_BYTES: usize =
    MAX_SMALL_BYTES as usize + 16 * 1024 + MAX_ATTRIBUTE_BYTES + 1;
/// Maximum number of bytes of the frames in one PACK (LH-COPY-75).
pub(crate) const MAX_PACK_BYTES: usize = MAX_BODY_BYTES;
/// Maximum number of data extents in a block that has holes (LH-COPY-4).
pub(crate) const MAX_EXTENTS: usize = 256;
/// Maximum number of bytes of explanation in a frame (LH-COPY-3).
pub(crate) const MAX_DETAIL_BYTES: usize = 512;
/// Maximum number of subtrees in one HAVE (LH-COPY-36).
pub(crate) const MAX_HAVE_SUBTREES: usize = 1024;
/// Maximum number of chunks in one SIGNATURE (LH-COPY-63).
pub(crate) const MAX_SIGNED_CHUNKS: usize = 2048;
/// Maximum file size on the wire, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 62;
/// Flag among the permissions of an entry: its attributes follow (LH-COPY-66).
const ATTRIBUTES_FLAG: u32 = 1 << 31;
/// Bytes of a frame's length and type.
pub(crate) const FRAME_HEAD_BYTES: usize = 5;
/// Entry number of a failure that belongs to no numbered entry (LH-COPY-25).
pub(crate) const NO_ENTRY: u64 = u64::MAX;

/// Subject of a REFUSE. The number is its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub enum RefusalKind {
    /// The request itself.
    Request = 0,
    /// The key of the client.
    Key = 1,
    /// The time: a limit on what may be held at once was reached.
    Limit = 2,
    /// The token of the client. Only one that sent a token receives it (LH-COPY-71).
    Token = 3,
}

/// Frame type: the type byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
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
    Receipt = 28,
    Special = 29,
    PackedBlock = 30,
    Signature = 31,
    PatchBlock = 32,
    Pack = 33,
    LateEnd = 34,
}

/// Value that distinguishes one state of a source file from every other. The sender chooses it, and
/// the receiver only compares it (LH-COPY-33).
pub type SourceIdentity = [u8; 32];

/// Identifies a copy at a server. The server chooses another number each time it begins a copy
/// (LH-COPY-38).
pub(crate) type CopyInstance = [u8; 8];

/// Permissions, modification time, and further properties that a copy keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// Permission bits, at most 0o777. Set-ID and sticky bits are among the attributes.
    pub mode: u32,
    /// Modification time: seconds since 1970 and nanoseconds (under 1e9).
    pub mtime: (i64, u32),
    /// Further properties, if the copy keeps any (LH-COPY-66).
    pub attributes: Option<Arc<Attributes>>,
}

impl Meta {
    /// Creates metadata without attributes.
    pub const fn new(mode: u32, mtime: (i64, u32)) -> Self {
        Self {
            mode,
            mtime,
            attributes: None,
        }
    }

    /// Returns true if permissions and time are those of `other`.
    pub(crate) fn has_same_basics(&self, other: &Self) -> bool {
        (self.mode, self.mtime) == (other.mode, other.mtime)
    }

    /// Returns the memory of the attributes, in bytes.
    pub(crate) fn attribute_bytes(&self) -> u64 {
        self.attributes.as_ref().map_or(0, |some| some.bytes())
    }
}

/// The entry of the tree that a frame is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryHead {
    /// Number of the entry, from 0 in the order of the walk (LH-COPY-12).
    pub id: u64,
    /// Number of its source, from 0.
    pub source: u32,
    /// Path beneath that source, or the root for the source itself.
    pub path: RelPath,
}

/// A file as described by OFFER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileOffer {
    pub head: EntryHead,
    pub meta: Meta,
    /// Size in bytes.
    pub size: u64,
    /// BLAKE3 of its content, if content is compared. Otherwise size and modification time are.
    pub hash: Option<Hash>,
}

/// A file that is another name of one in place (LH-COPY-45).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HardLink {
    pub head: EntryHead,
    /// Size of the file, in bytes.
    pub size: u64,
    /// Name that is in place: the number of its source, and the path beneath it.
    pub first: (u32, RelPath),
}

/// A run of data in a block. The gaps between runs are holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Offset from the block's start, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// One block of a file, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Number of the file's entry.
    pub id: u64,
    /// Offset from the file's start, in bytes.
    pub offset: u64,
    /// Bytes of the file that this block covers, holes included.
    pub len: u32,
    /// Extents of its data, ascending.
    pub extents: Vec<Extent>,
}

impl Block {
    /// Returns the number of data bytes that follow the block's header.
    pub(crate) fn data_len(&self) -> usize {
        self.extents.iter().map(|p| p.len as usize).sum()
    }

    /// Returns true if the block has no hole.
    pub(crate) fn is_all_data(&self) -> bool {
        matches!(self.extents[..], [Extent { offset: 0, len }] if len == self.len)
    }
}

/// A frame of any type. The data of BLOCK is left on the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Client: its identity in this copy, and the request.
    Hello(Hello),
    /// Server: accepts.
    Accept(Acceptance),
    /// Server: refuses, with the reason.
    Refuse { kind: RefusalKind, detail: String },
    /// A file that comes in blocks. It precedes the first block of the file on each stream
    /// (LH-COPY-13). Its size may be [`LATE_SIZE`](crate::late_size::LATE_SIZE).
    File {
        head: EntryHead,
        meta: Meta,
        size: u64,
        block_log2: u32,
        /// `None` if the file must not be resumed later.
        identity: Option<SourceIdentity>,
    },
    /// A whole file.
    Small {
        head: EntryHead,
        meta: Meta,
        hash: Hash,
        data: Bytes,
    },
    /// A file that the receiver may have, with the data to check that (LH-COPY-40).
    Offer(FileOffer),
    /// Another name of a file that is in place (LH-COPY-45).
    HardLink(HardLink),
    /// Request for a file that was offered or announced as a link (LH-COPY-41, LH-COPY-46).
    Want { id: u64 },
    /// A directory. Its permissions and time are set when all is written.
    Directory { head: EntryHead, meta: Meta },
    /// A symbolic link itself.
    Symlink {
        head: EntryHead,
        meta: Meta,
        target: Vec<u8>,
    },
    /// A device, FIFO or socket (LH-COPY-67).
    Special {
        head: EntryHead,
        meta: Meta,
        special: SpecialFile,
    },
    /// A block of a file.
    Block(Block),
    /// A block whose data follows in plaintext, and its hash (LH-COPY-44).
    ClearBlock(Block, BlockHash),
    /// A block whose data follows in compressed parts (LH-COPY-61).
    PackedBlock(Block),
    /// A block whose data is put together from the parts that follow and the existing file. It has
    /// this hash (LH-COPY-64).
    PatchBlock(Block, BlockHash),
    /// Frames of a sender that together have `len` bytes, in compressed parts (LH-COPY-75).
    Pack { len: u32, parts: Bytes },
    /// Receiver: chunks of the existing file that an offered one replaces, cut to this average
    /// length, as a binary logarithm. The first one is at `offset`. If `more`, further frames
    /// follow (LH-COPY-63).
    Signature {
        id: u64,
        chunk_log2: u32,
        more: bool,
        offset: u64,
        chunks: Vec<SignedChunk>,
    },
    /// Hash of a file, once all of it has been read unchanged (LH-COPY-15).
    FileEnd { id: u64, hash: Hash },
    /// Size and hash of a file whose FILE left its size open (LH-COPY-81).
    LateEnd { id: u64, size: u64, hash: Hash },
    /// An entry that could not be read (LH-COPY-16). From the receiver, and without a number, a
    /// late failure of an entry that was written.
    Failed { head: EntryHead, failure: Failure },
    /// End of the walk, with the number of entries (LH-COPY-17).
    End { entries: u64, bytes: u64 },
    /// Totals of the walk so far.
    Totals {
        entries: u64,
        bytes: u64,
        complete: bool,
    },
    /// Counts so far of properties of its sources that the copy does not keep (LH-COPY-54).
    NotKept(NotKeptCounts),
    /// A block has been written.
    Ack { id: u64, offset: u64 },
    /// Parts of a file that are in place and need not be sent: by offset, disjoint. If `more`,
    /// further frames follow (LH-COPY-36).
    Have {
        id: u64,
        more: bool,
        subtrees: Vec<Subtree>,
    },
    /// An entry has been written and verified, was there already, or failed.
    Result {
        id: u64,
        outcome: Result<EntryOutcome, Failure>,
    },
    /// Everything is in place. The sender compares the hash over all entries (LH-COPY-26).
    Done { manifest: Hash },
    /// Server: its signature over the result of the copy (LH-COPY-58).
    Receipt(ServerReceipt),
    /// Sign of life.
    KeepAlive,
    /// Server: state of its end of this stream's connection (LH-COPY-29).
    Flow(FlowReport),
    /// Receiver of a pull (LH-COPY-32): asks the sender to assign no more work to this stream, and
    /// to close it once all that it carries is answered.
    Retire,
}

impl Frame {
    /// Returns the metadata of the entry that the frame describes, and the kind of the entry.
    pub(crate) fn meta_mut(&mut self) -> Option<(&mut Meta, ChangedKind)> {
        match self {
            Self::File { meta, .. }
            | Self::Small { meta, .. }
            | Self::Special { meta, .. }
            | Self::Offer(FileOffer { meta, .. }) => Some((meta, ChangedKind::File)),
            Self::Directory { meta, .. } => Some((meta, ChangedKind::Directory)),
            Self::Symlink { meta, .. } => Some((meta, ChangedKind::Symlink)),
            _ => None,
        }
    }
}

/// Kind of an entry, as far as changes of its metadata depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangedKind {
    /// A regular or special file.
    File,
    Directory,
    Symlink,
}

/// Limits of a stream's connection at the server's end, since the stream began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FlowReport {
    /// Time for which each limit held, in milliseconds, in the order of [`FLOW_LIMITS`].
    pub held_ms: [u32; FLOW_LIMITS.len()],
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Smoothed and minimum round-trip time, in microseconds.
    pub rtt_us: (u32, u32),
    /// Receive window of the peer, and the send buffer, in bytes.
    pub window: u64,
    pub send_buffer: u64,
    /// Advised number of streams, or 0 for no advice.
    pub streams: u16,
}

/// Order in which FLOW lists limits. It is part of the protocol.
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

/// Manner in which an entry came to be in place. The number is the byte that represents it where a
/// failure has its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub enum EntryOutcome {
    /// Written by this copy.
    New = 0,
    /// Another name of a file in place. Its content has not travelled a second time.
    Linked = 253,
    /// Existed before as it was offered. Its content has not travelled.
    Unchanged = 254,
    /// Existed before with the same content, which has travelled. It was left alone.
    Same = 255,
}

/// Reason why bytes are not a frame. The peer is broken or hostile, and the stream is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The frame ends within a field.
    #[error("a frame ends in the middle of a field")]
    Short,
    /// The frame goes on after its last field.
    #[error("a frame is longer than its fields")]
    Long,
    /// A length exceeds its bound.
    #[error("a length in a frame exceeds its limit")]
    Bound,
    /// The type byte is unknown.
    #[error("a frame of unknown type {0}")]
    Type(u8),
    /// A field has a meaningless value.
    #[error("a frame has an invalid {0}")]
    Value(&'static str),
    /// A mandatory option is not understood (LH-COPY-8).
    #[error(
        "the peer requires option {0} of the copy protocol, which this release does not know: use \
         a newer release"
    )]
    UnknownOption(u16),
    /// A path is not plain.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The two sides have no version in common.
    #[error(
        "the peer supports versions {0} to {1} of the copy protocol, this end {VERSION}: use the \
         same release at both ends"
    )]
    Version(u16, u16),
}
