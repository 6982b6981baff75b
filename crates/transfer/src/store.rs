//! Storage of a copy's files: directories that no path escapes, and files that get their names once
//! they are complete.

pub mod confine;
mod contest;
mod destination;
mod durability;
pub mod journal;
pub mod quota;

use std::time::Duration;

use crate::attributes::SpecialFile;
use crate::error::{Failure, FailureKind};
use crate::progress::NotKeptCounts;
use crate::tree_hash::{BlockHash, Hash, Subtree};
use crate::wire::{
    Block, ChangedKind, EntryHead, EntryOutcome, FileOffer, HardLink, Meta, SourceIdentity,
};

pub(crate) use contest::Rival;
pub(crate) use destination::RivalCheck;
pub use destination::{AttributeSettings, CopyDestination, TEMP_PREFIX, WriteOptions};

/// Returns true if `name` is one that a copy gives to an unfinished file.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    journal::is_name(name) || destination::is_temp_name(name)
}

/// Storage for the files of a copy, such as a local tree ([`CopyDestination`]).
///
/// All methods may block. Several threads may call them at once, but only one per file.
pub(crate) trait FileStore: Send + Sync + 'static {
    /// An unfinished file, invisible under its final name. On drop it is removed, or kept for a
    /// later copy to resume.
    type File: Send + 'static;

    /// Returns the number of sources of the copy.
    fn sources(&self) -> usize;

    /// Returns true if it can write files whose size is known only at their end (LH-COPY-79).
    fn takes_late_sizes(&self) -> bool {
        true
    }

    /// Returns the number of bytes in the names of the sources.
    fn name_bytes(&self) -> u64;

    /// Returns whether an earlier copy may have left a part of this file. Quick.
    fn may_resume(&self, _announced: &AnnouncedFile) -> Resumption<()> {
        Resumption::Nothing
    }

    /// Resumes a file that an earlier copy began, if possible, and returns the parts that need not
    /// travel again.
    ///
    /// # Errors
    /// The existing file cannot be read.
    fn resume(
        &self,
        _announced: &AnnouncedFile,
    ) -> Result<Resumption<ResumedFile<Self::File>>, Failure> {
        Ok(Resumption::Nothing)
    }

    /// Compares an offered file with the existing one. The existing file is read only if the offer
    /// has a hash, and only while `is_waiting` returns true.
    ///
    /// # Errors
    /// The existing file cannot be replaced, or it is the same and its permissions or time cannot
    /// be set.
    fn compare(
        &self,
        _offer: &FileOffer,
        _is_waiting: &dyn Fn() -> bool,
    ) -> Result<Comparison, Failure> {
        Ok(Comparison::Wanted)
    }

    /// Opens the regular file that an offered one replaces, if the copy may read it. Returns it
    /// with its size in bytes.
    fn existing_file(&self, _head: &EntryHead) -> Option<(std::fs::File, u64)> {
        None
    }

    /// Gives a file in place another name, that of `link`. Returns [`Comparison::Wanted`] if it is
    /// another file or cannot have the name, so that it must be sent.
    ///
    /// # Errors
    /// The file cannot be put there at all.
    fn link(&self, _link: &HardLink) -> Result<Comparison, Failure> {
        Ok(Comparison::Wanted)
    }

    /// Creates a file. Ranges that are not written are holes.
    fn create(&self, announced: &AnnouncedFile) -> Result<Self::File, Failure>;

    /// Writes a block that hashes to `hash`. `data` is the concatenated data of its extents.
    fn write(
        &self,
        file: &Self::File,
        block: &Block,
        data: &[u8],
        hash: BlockHash,
    ) -> Result<(), Failure>;

    /// Removes an unfinished file, so that no later copy resumes it.
    fn discard(&self, file: Self::File) {
        drop(file);
    }

    /// Makes the content of a complete, verified file durable and gives it its name. Calls `done`
    /// with the outcome, before it returns or later from another thread.
    fn commit(&self, file: Self::File, meta: &Meta, size: u64, hash: &Hash, done: OnCommit);

    /// Writes a whole file and commits it as [`Self::commit`] does. `data` has been verified.
    fn write_small(&self, head: &EntryHead, meta: &Meta, data: &[u8], hash: &Hash, done: OnCommit);

    /// Creates a symbolic link with any target. The target is written, never followed.
    fn write_symlink(
        &self,
        head: &EntryHead,
        meta: &Meta,
        target: &[u8],
    ) -> Result<EntryOutcome, Failure>;

    /// Creates a device, FIFO or socket.
    ///
    /// # Errors
    /// It cannot be created, or this copy may not create it.
    fn make_special(
        &self,
        _head: &EntryHead,
        _meta: &Meta,
        _special: SpecialFile,
    ) -> Result<EntryOutcome, Failure> {
        Err(Failure::new(FailureKind::NotRegular))
    }

    /// Changes the metadata of an entry as the user asks for.
    fn change(&self, _meta: &mut Meta, _kind: ChangedKind) {}

    /// Returns the number of entries so far of which the copy could not keep what it was to keep.
    fn not_kept(&self) -> NotKeptCounts {
        NotKeptCounts::default()
    }

    /// Creates a directory that `meta` describes. [`Self::finish_dir`] sets its permissions and
    /// time.
    fn make_dir(&self, head: &EntryHead, meta: &Meta) -> Result<MadeDir, Failure>;

    /// Returns true if the directory needs [`Self::finish_dir`] at the end.
    fn finishes(&self, made: MadeDir) -> bool;

    /// Sets a directory's permissions and time, as far as the copy may, after all its content is
    /// written.
    fn finish_dir(&self, head: &EntryHead, made: MadeDir, meta: &Meta) -> Result<(), Failure>;

    /// Returns true if everything, once written, is where the peer expects it. Otherwise the copy
    /// does not conclude.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Leaves a directory for a later copy to finish, as this copy ends early.
    fn leave_dir(&self, head: &EntryHead, made: MadeDir, meta: &Meta);

    /// Forces the remaining data to disk, before the end of the copy is reported. Returns the
    /// failures, each with its path in the detail.
    fn finish(&self) -> Vec<Failure>;
}

/// Callback that receives the outcome of a commit, exactly once.
pub(crate) type OnCommit = Box<dyn FnOnce(Result<EntryOutcome, Failure>) + Send>;

/// Result of comparing an offered file with the existing one, or of linking one in place to another
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The file is in place.
    InPlace,
    /// The file must be sent.
    Wanted,
}

/// Remains of a file from an earlier copy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resumption<T> {
    /// There are no remains that this copy can use.
    Nothing,
    Some(T),
    /// Another copy may be about to release it. Ask again after this time.
    AskAgain(Duration),
}

/// A resumed file, and the subtrees of it that exist.
pub(crate) type ResumedFile<F> = (F, Vec<Subtree>);

/// A file as described by FILE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnnouncedFile {
    pub head: EntryHead,
    pub meta: Meta,
    pub size: u64,
    pub block_log2: u32,
    /// Identity by which a later copy recognises the same file, if the sender gives one.
    pub identity: Option<SourceIdentity>,
}

/// State of a directory in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeDir {
    /// Created by this copy, or by an earlier one that did not finish it.
    New,
    /// Existed before, and was finished by an earlier copy. It is restored if this copy puts
    /// anything into it.
    Earlier,
    /// Existed before. It takes the permissions and time of its source, since the copy overwrites.
    Overwritten,
    /// Existed before. It is filled, and keeps its permissions and time.
    Kept,
}
