//! Existing files that travelled nevertheless, and entries that no file replaces.

use std::os::fd::{AsFd, OwnedFd};

use longhaul_platform::fs::{FileType, Stat, file_type};

use super::compare::{has_content, open};
use super::new_file::NewFile;
use super::overwritten::{Locking, OverwrittenFile, refusal};
use super::{CopyDestination, EntryLocation};
use crate::error::{Failure, FailureKind};
use crate::metadata::meta_of;
use crate::metadata::node::Node;
use crate::store::AnnouncedFile;
use crate::store::confine::{NodeKind, kind_of};
use crate::tree_hash::Hash;
use crate::wire::{EntryOutcome, Meta};

impl CopyDestination {
    /// Returns the outcome of a file that arrived in one frame and exists with the same content, if
    /// it need not be replaced. In this case no content is written, and its directory stays
    /// untouched.
    pub(super) fn unchanged(
        &self,
        parent: &EntryLocation,
        meta: &Meta,
        size: u64,
        hash: &Hash,
    ) -> Option<Result<EntryOutcome, Failure>> {
        let (fd, stat) = self.same_content(parent, size, hash)?;
        let is_right = !self.corrects_existing() || self.has_metadata(&fd, &stat, meta);
        match (is_right, self.options.overwrite) {
            (true, _) => Some(Ok(EntryOutcome::Same)),
            (false, true) => None,
            (false, false) => {
                let corrected = self.set_metadata(fd.as_fd(), meta);
                Some(corrected.map(|()| EntryOutcome::Same))
            }
        }
    }

    /// Returns true if an existing file has this metadata.
    fn has_metadata(&self, fd: &OwnedFd, stat: &Stat, meta: &Meta) -> bool {
        let node = Node::open(fd.as_fd());
        meta_of(stat).has_same_basics(meta) && !self.attributes.differs(&node, stat, meta)
    }

    /// Updates the metadata of an existing file with the same content, after `denied` prevented a
    /// new file.
    pub(super) fn update_in_place(
        &self,
        parent: &EntryLocation,
        meta: &Meta,
        size: u64,
        hash: &Hash,
        denied: Failure,
    ) -> Result<EntryOutcome, Failure> {
        let (fd, stat) = self.same_content(parent, size, hash).ok_or(denied)?;
        if self.corrects_existing() && !self.has_metadata(&fd, &stat, meta) {
            self.set_metadata(fd.as_fd(), meta)?;
        }
        Ok(EntryOutcome::Same)
    }

    fn same_content(
        &self,
        parent: &EntryLocation,
        size: u64,
        hash: &Hash,
    ) -> Option<(OwnedFd, Stat)> {
        let (fd, stat) = open(parent, size).filter(|_| self.may_compare)?;
        has_content(&fd, hash, &|| true).ok()?.then_some((fd, stat))
    }

    /// Returns the existing file of the same size, which stays, if there is one. Its failure is
    /// `failure` if the content differs.
    pub(super) fn file_in_place(
        &self,
        announced: &AnnouncedFile,
        failure: &Failure,
    ) -> Option<NewFile> {
        if !self.may_compare {
            return None;
        }
        let parent = self.there(&self.path_of(&announced.head).ok()?)?;
        let (fd, _) = open(&parent, announced.size)?;
        let failure = failure.clone();
        Some(NewFile::in_place(parent, fd, failure))
    }

    /// Notes that the existing entry is what the copy brings there.
    pub(super) fn stays(
        &self,
        parent: &EntryLocation,
        outcome: EntryOutcome,
    ) -> Result<EntryOutcome, Failure> {
        self.names_in_place
            .reserve(parent.entry())?
            .confirm(parent.entry());
        Ok(outcome)
    }
}

impl CopyDestination {
    /// Returns the location of the regular file that the announced one overwrites in place, if
    /// there is one.
    pub(super) fn overwritten_in_place(&self, announced: &AnnouncedFile) -> Option<EntryLocation> {
        if !(self.options.in_place && self.options.overwrite) {
            return None;
        }
        let mut there = self.there(&self.path_of(&announced.head).ok()?)?;
        there.source = announced.head.source;
        let stat = there.dir.stat_occupant(&there.name).ok()?;
        (kind_of(&stat) == NodeKind::File).then_some(there)
    }

    /// Opens the file that the announced one overwrites in place, if there is one.
    pub(super) fn open_in_place(
        &self,
        announced: &AnnouncedFile,
    ) -> Option<Result<NewFile, Failure>> {
        let location = self.overwritten_in_place(announced)?;
        // Its growth would be charged to nobody.
        if self.quota.is_some() {
            return Some(Err(refusal("there is a quota; leave out --inplace")));
        }
        let locking = match self.member {
            Some(_) => Locking::Required,
            None => Locking::IfPossible,
        };
        let opened = self
            .names_in_place
            .check(location.entry())
            .and_then(|()| OverwrittenFile::open(&location, announced.size, locking));
        Some(opened.map(|file| NewFile::overwritten(location, file)))
    }
}

/// Refuses to replace what is neither a file nor a link. Called right before the replacement.
pub(super) fn may_replace(parent: &EntryLocation) -> Result<(), Failure> {
    match parent.dir.stat_name(&parent.name) {
        Ok(there) if kind_of(&there) == NodeKind::Other => Err(not_replaced(&there)),
        _ => Ok(()),
    }
}

/// Returns the refusal to replace what is neither a file nor a link.
pub(super) fn not_replaced(there: &Stat) -> Failure {
    let kind = match file_type(there.st_mode) {
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "no file, directory or link",
    };
    Failure::with_detail(FailureKind::WrongKind, kind)
}
