//! Where the files of a copy are: folders that nothing leads out of, and files that take their
//! names once they are whole.

pub mod confine;
mod contest;
mod destination;
mod durability;
pub mod journal;

use std::time::Duration;

use crate::error::Failure;
use crate::tree_hash::{BlockHash, Hash, Subtree};
use crate::wire::{Block, HardLink, Head, Meta, Offer, SourceIdentity, Written};

pub(crate) use contest::Rival;
pub(crate) use destination::Rivals;
pub use destination::{Destination, TEMP_PREFIX, WriteOptions};

/// Whether `name` is one that a copy gives to what is not finished.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    journal::is_name(name) || destination::is_temp_name(name)
}

/// Where the files of a copy go. A local tree ([`Destination`]) is one such place.
///
/// All of it may block, and be called from several threads at once; for one file, by one at a time.
pub(crate) trait Store: Send + Sync + 'static {
    /// A file in the making: nobody sees it under its name. When this is dropped it is gone, or
    /// kept for a later copy to go on with.
    type File: Send + 'static;

    /// How many sources the copy has.
    fn sources(&self) -> usize;

    /// Bytes of their names.
    fn name_bytes(&self) -> u64;

    /// Whether an earlier copy may have left some of this file. Quick.
    fn may_resume(&self, _announced: &Announced) -> Resumption<()> {
        Resumption::Nothing
    }

    /// Goes on with a file that an earlier copy began, if it can be: with what of it need not
    /// travel again.
    ///
    /// # Errors
    /// What there is cannot be read.
    fn resume(&self, _announced: &Announced) -> Result<Resumption<Resumed<Self::File>>, Failure> {
        Ok(Resumption::Nothing)
    }

    /// Whether a file that is offered is there already; what is there is read only if the offer has
    /// a hash, and as long as somebody `is_waiting`.
    ///
    /// # Errors
    /// What is there can't be replaced, so that the file fails; or it is the same, and can't be
    /// given its permissions or time.
    fn compare(
        &self,
        _offer: &Offer,
        _is_waiting: &dyn Fn() -> bool,
    ) -> Result<Comparison, Failure> {
        Ok(Comparison::Wanted)
    }

    /// Gives a file in place another name: that of `link`. One that is another file, or can't be
    /// given the name, is to be sent.
    ///
    /// # Errors
    /// The file can't be put there at all.
    fn link(&self, _link: &HardLink) -> Result<Comparison, Failure> {
        Ok(Comparison::Wanted)
    }

    /// Begins a file. What is not written of it is a hole.
    fn create(&self, announced: &Announced) -> Result<Self::File, Failure>;

    /// Writes a block that hashes to `hash`; `data` is that of its extents, one behind the other.
    fn write(
        &self,
        file: &Self::File,
        block: &Block,
        data: &[u8],
        hash: BlockHash,
    ) -> Result<(), Failure>;

    /// Removes a file in the making: no later copy is to go on with it.
    fn discard(&self, file: Self::File) {
        drop(file);
    }

    /// Gives a file that is whole and verified its name, once its content is durable. Calls `done`
    /// with the outcome: before it returns, or later from another thread.
    fn commit(&self, file: Self::File, meta: &Meta, size: u64, hash: &Hash, done: OnCommit);

    /// Writes a whole file and commits it as [`Self::commit`] does. `data` has been verified.
    fn write_small(&self, head: &Head, meta: &Meta, data: &[u8], hash: &Hash, done: OnCommit);

    /// Makes a symbolic link, pointing wherever it points: it is written, never followed.
    fn write_symlink(&self, head: &Head, meta: &Meta, target: &[u8]) -> Result<Written, Failure>;

    /// Makes a directory that `meta` describes; its permissions and time come with
    /// [`Self::finish_dir`].
    fn make_dir(&self, head: &Head, meta: &Meta) -> Result<MadeDir, Failure>;

    /// Whether there is anything to be done with a directory at the end.
    fn finishes(&self, made: MadeDir) -> bool;

    /// When all in it is written: a directory's permissions and time, as far as they are the copy's
    /// to set.
    fn finish_dir(&self, head: &Head, made: MadeDir, meta: &Meta) -> Result<(), Failure>;

    /// When all is written: returns whether it is where the peer expects it. If not, the copy does
    /// not conclude.
    fn is_in_place(&self) -> bool {
        true
    }

    /// When the copy ends early: leaves a directory for a later copy to finish.
    fn leave_dir(&self, head: &Head, made: MadeDir, meta: &Meta);

    /// When everything is in place and before it is reported: what is still to be forced to disk.
    /// What failed, each with what it was in its detail.
    fn finish(&self) -> Vec<Failure>;
}

/// Receives the outcome of a commit, exactly once.
pub(crate) type OnCommit = Box<dyn FnOnce(Result<Written, Failure>) + Send>;

/// What came of comparing a file that is offered with what is there, or of giving one in place
/// another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The file is in place.
    InPlace,
    /// It is to be sent.
    Wanted,
}

/// What an earlier copy has left of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resumption<T> {
    /// Nothing that this copy can have.
    Nothing,
    Some(T),
    /// Another copy may be letting go of it: to be asked again after this.
    AskAgain(Duration),
}

/// A file that is gone on with, and what of it is there.
pub(crate) type Resumed<F> = (F, Vec<Subtree>);

/// A file as FILE describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announced {
    pub head: Head,
    pub meta: Meta,
    pub size: u64,
    pub block_log2: u32,
    /// What a later copy of the same is known by, if the sender says that.
    pub identity: Option<SourceIdentity>,
}

/// What became of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeDir {
    /// Made by this copy, or by an earlier one that did not finish it.
    New,
    /// There before, and finished by an earlier copy: it is restored if this one puts anything into
    /// it.
    Earlier,
    /// There before: it takes the permissions and time of its source, since the copy overwrites.
    Overwritten,
    /// There before: it is filled, and keeps its permissions and time.
    Kept,
}
