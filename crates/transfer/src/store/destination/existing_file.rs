//! An existing file that stays in its place.

use std::os::fd::OwnedFd;

use super::EntryLocation;
use super::compare::is_same;
use crate::error::Failure;
use crate::tree_hash::Hash;
use crate::wire::EntryOutcome;

/// An existing file that stays. Data that arrives for it is not written.
pub(super) struct InPlace {
    pub(super) parent: EntryLocation,
    pub(super) fd: OwnedFd,
    /// Failure of the entry, unless it has the same content.
    pub(super) failure: Failure,
}

impl InPlace {
    /// Returns the outcome for data that hashes to `hash`.
    pub(super) fn conclude(&self, size: u64, hash: &Hash) -> Result<EntryOutcome, Failure> {
        match is_same(&self.parent, size, hash) {
            true => Ok(EntryOutcome::Same),
            false => Err(self.failure.clone()),
        }
    }
}
