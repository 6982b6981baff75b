//! Where the files of a copy are: folders that nothing leads out of, and files that take their names once they are whole.

pub mod confine;
mod destination;
pub mod journal;

use crate::error::Failure;
use crate::tree_hash::{Hash, Subtree};
use crate::wire::{Block, Head, Meta, Written};

pub use destination::{Destination, TEMP_PREFIX, WriteOptions};

/// Where the files of a copy go. A local tree ([`Destination`]) is one such place.
///
/// All of it may block, and be called from several threads at once; for one file, by one at a time.
pub(crate) trait Store: Send + Sync + 'static {
    /// A file in the making: nobody sees it under its name, and it is gone when this is dropped.
    type File: Send + 'static;

    /// How many sources the copy has.
    fn sources(&self) -> usize;

    /// Bytes of their names.
    fn name_bytes(&self) -> u64;

    /// What an earlier copy of the same file has left of it that need not travel again. The one thing here that must not block:
    /// it is asked where streams are read.
    fn known_subtrees(&self, _head: &Head, _meta: &Meta, _size: u64) -> Vec<Subtree> {
        Vec::new()
    }

    /// A subtree of a file is written, and what it hashes to is known. It may hold some that were told before. Another thread
    /// may tell of a larger one first, or give the file its name.
    fn subtree_written(&self, _head: &Head, _subtree: &Subtree) {}

    /// Begins a file of `size` bytes. What is not written of it is a hole.
    fn create(&self, head: &Head, size: u64) -> Result<Self::File, Failure>;

    /// Writes a block; `data` is that of its pieces, one behind the other.
    fn write(&self, file: &Self::File, block: &Block, data: &[u8]) -> Result<(), Failure>;

    /// A file that is whole and verified takes its name.
    fn place(&self, file: Self::File, meta: &Meta, size: u64, hash: &Hash) -> Result<Written, Failure>;

    /// Writes a file whole; `data` has been verified.
    fn write_small(&self, head: &Head, meta: &Meta, data: &[u8], hash: &Hash) -> Result<Written, Failure>;

    /// Makes a symbolic link, pointing wherever it points: it is written, never followed.
    fn write_symlink(&self, head: &Head, meta: &Meta, target: &[u8]) -> Result<Written, Failure>;

    /// Makes a directory; its permissions and time come with [`Self::finish_dir`].
    fn make_dir(&self, head: &Head) -> Result<MadeDir, Failure>;

    /// Whether there is anything to be done with a directory at the end.
    fn finishes(&self, made: MadeDir) -> bool;

    /// When all in it is written: a directory's permissions and time, if this copy made it.
    fn finish_dir(&self, head: &Head, made: MadeDir, meta: &Meta) -> Result<(), Failure>;

    /// When not all in it could be written: its permissions, if this copy made it.
    fn leave_dir(&self, head: &Head, made: MadeDir, meta: &Meta);

    /// When everything is in place and before anybody is told so: what is still to be forced to disk. What failed, each with
    /// what it was in its detail.
    fn finish(&self) -> Vec<Failure>;
}

/// What became of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeDir {
    /// Made by this copy.
    New,
    /// There before: it is filled, and keeps its permissions and time.
    Kept,
}
