//! What a reader reports, and what it is told to do next.

use std::sync::Arc;

use super::open_file::OpenSourceFile;
use crate::delta::Signature;
use crate::error::Failure;
use crate::send::schedule::{SourceEntry, StreamId, StreamWork};
use crate::tree_hash::{BlockHash, Hash};

/// Report on an entry that was read.
pub(crate) enum ReadReport {
    /// A file was opened to be sent in blocks. It has these extended attributes.
    Opened(OpenSourceFile, AttributeNames),
    /// The block at `offset` was read.
    Block { offset: u64, hash: BlockHash },
    /// All blocks of a file of `size` bytes have been read, and it is unchanged.
    File { size: u64, hash: Hash },
    /// A file was read in one piece. It has these extended attributes.
    Whole {
        size: u64,
        hash: Hash,
        attributes: AttributeNames,
    },
    /// A file has grown too large for one frame.
    Grew,
    /// A file was read to be offered with this size and hash, or changed meanwhile.
    Hashed(Option<(u64, Hash)>),
    /// The entry cannot be read.
    Failed(Failure),
}

/// Names of the extended attributes of a file, each terminated by NUL.
pub(crate) type AttributeNames = Vec<u8>;

/// What a stream does after a report.
pub(crate) enum FollowUp {
    /// Nothing more.
    Nothing,
    /// This work.
    Work(StreamWork),
    /// This work, if any. The frames of the reported work are not sent.
    Instead(Option<StreamWork>),
}

/// Receiver of the reports of a reader.
pub(crate) trait ReadReports {
    /// Returns the file of this entry, if it is open and still to be sent.
    fn open_file(&self, id: u64) -> Option<Arc<OpenSourceFile>>;
    /// Returns true if nothing must be sent any more.
    fn is_over(&self) -> bool;
    /// Returns the chunks that the receiver has of this entry's file, if it sent them.
    fn signature(&self, id: u64) -> Option<Arc<Signature>>;
    /// Takes the report on `entry`, which was read for `stream`.
    fn take_report(
        &self,
        stream: StreamId,
        entry: &Arc<SourceEntry>,
        report: ReadReport,
    ) -> FollowUp;
}
