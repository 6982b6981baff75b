//! Existing files that travelled nevertheless, and entries that no file replaces.

use std::os::fd::OwnedFd;

use rustix::fs::{self, FileType, Mode, Stat};

use super::compare::{has_content, open};
use super::new_file::NewFile;
use super::write::{is_same, metadata_failure};
use super::{Destination, Parent, times};
use crate::error::{Failure, FailureKind};
use crate::send::meta_of;
use crate::store::Announced;
use crate::store::confine::{Kind, kind_of};
use crate::tree_hash::Hash;
use crate::wire::{Meta, Written};

/// An existing file that stays. Data that arrives for it is not written.
pub(super) struct InPlace {
    pub(super) parent: Parent,
    pub(super) fd: OwnedFd,
    /// Failure of the entry, unless it has the same content.
    failure: Failure,
}

impl InPlace {
    /// Returns the outcome for data that hashes to `hash`.
    pub(super) fn conclude(&self, size: u64, hash: &Hash) -> Result<Written, Failure> {
        match is_same(&self.parent, size, hash) {
            true => Ok(Written::Same),
            false => Err(self.failure.clone()),
        }
    }
}

impl Destination {
    /// Returns true if a file that arrived in one frame exists with the same content, and nothing
    /// about it must be changed. In this case nothing is written, and its directory stays
    /// untouched.
    pub(super) fn is_unchanged(
        &self,
        parent: &Parent,
        meta: &Meta,
        size: u64,
        hash: &Hash,
    ) -> bool {
        let there = self.same_content(parent, size, hash);
        there.is_some_and(|(_, stat)| !self.options.overwrite || meta_of(&stat) == *meta)
    }

    /// Updates the metadata of an existing file with the same content, after `denied` prevented a
    /// new file.
    pub(super) fn update_in_place(
        &self,
        parent: &Parent,
        meta: &Meta,
        size: u64,
        hash: &Hash,
        denied: Failure,
    ) -> Result<Written, Failure> {
        let (fd, stat) = self.same_content(parent, size, hash).ok_or(denied)?;
        if self.options.overwrite && meta_of(&stat) != *meta {
            fs::fchmod(&fd, Mode::from_raw_mode(meta.mode)).map_err(metadata_failure)?;
            times::set(&fd, meta)?;
        }
        Ok(Written::Same)
    }

    fn same_content(&self, parent: &Parent, size: u64, hash: &Hash) -> Option<(OwnedFd, Stat)> {
        let (fd, stat) = open(parent, size).filter(|_| self.may_compare)?;
        has_content(&fd, hash, &|| true).ok()?.then_some((fd, stat))
    }

    /// Returns the existing file of the same size, which stays, if there is one. Its failure is
    /// `failure` if the content differs.
    pub(super) fn file_in_place(
        &self,
        announced: &Announced,
        failure: &Failure,
    ) -> Option<NewFile> {
        if !self.may_compare {
            return None;
        }
        let parent = self.there(&self.beneath_base(&announced.head).ok()?)?;
        let (fd, _) = open(&parent, announced.size)?;
        let failure = failure.clone();
        let file = InPlace {
            parent,
            fd,
            failure,
        };
        Some(NewFile::in_place(file, announced.block_log2))
    }

    /// Notes that the existing entry is what the copy brings there.
    pub(super) fn stays(&self, parent: &Parent, outcome: Written) -> Result<Written, Failure> {
        self.names_in_place
            .reserve(parent.entry())?
            .confirm(parent.entry());
        Ok(outcome)
    }
}

/// Refuses to replace what is neither a file nor a link. Called right before the replacement.
pub(super) fn may_replace(parent: &Parent) -> Result<(), Failure> {
    match parent.dir.stat_name(&parent.name) {
        Ok(there) if kind_of(&there) == Kind::Other => Err(not_replaced(&there)),
        _ => Ok(()),
    }
}

/// Returns the refusal to replace what is neither a file nor a link.
pub(super) fn not_replaced(there: &Stat) -> Failure {
    let kind = match FileType::from_raw_mode(there.st_mode) {
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "no file, directory or link",
    };
    Failure::with(FailureKind::WrongKind, kind)
}
