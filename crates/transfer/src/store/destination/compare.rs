//! Checks whether an offered file exists already.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use longhaul_platform::fs::{self, Stat};
use rustix::io::Errno;

use super::directories::keeping_finished;
use super::{CopyDestination, EntryLocation, times};
use crate::error::{Failure, FailureKind};
use crate::metadata::meta_of;
use crate::metadata::node::Node;
use crate::path::RelPath;
use crate::store::Comparison;
use crate::store::confine::{NodeKind, kind_of};
use crate::tree_hash::Hash;
use crate::wire::{EntryHead, FileOffer, Meta};

/// Number of bytes per read.
const READ_BYTES: usize = 128 * 1024;

impl CopyDestination {
    /// Returns true if the destination has anything that the files may be compared with. Always
    /// false for a writer that may not learn it.
    pub(crate) fn has_something(&self) -> bool {
        // A restriction concerns every file, so every file is offered.
        self.may_compare
            && (!self.existing.is_default() || self.names.iter().any(|name| self.has_some_of(name)))
    }

    /// Returns true if the entry at `place` is left as it is (LH-COPY-56).
    pub(super) fn skips(&self, place: &RelPath, meta: &Meta) -> bool {
        if self.existing.is_default() || !self.may_compare {
            return false;
        }
        let Ok(there) = self.base.stat(place) else {
            return self.existing.existing;
        };
        let is_newer = kind_of(&there) == NodeKind::File && meta_of(&there).mtime > meta.mtime;
        self.existing.ignore_existing || (self.existing.update && is_newer)
    }

    /// Returns true if something exists where a source of this name goes.
    fn has_some_of(&self, name: &[u8]) -> bool {
        if !self.into {
            return self.base.stat(&self.target).is_ok();
        }
        if name.is_empty() {
            let dir = self.base.open_dir(&self.target);
            return dir.is_ok_and(|dir| !dir.is_empty().unwrap_or(false));
        }
        let place = self.target.child(name);
        place.is_ok_and(|place| self.base.stat(&place).is_ok())
    }

    /// Returns true if something exists where the entry goes.
    pub(crate) fn has_entry(&self, head: &EntryHead) -> bool {
        let there = self.path_of(head).ok().and_then(|place| self.there(&place));
        there.is_some_and(|there| there.dir.stat_occupant(&there.name).is_ok())
    }

    /// Compares the existing file with the offered one (LH-COPY-41). Reads it only if `offer` has a
    /// hash, and only while `is_waiting` returns true.
    pub(super) fn compare_offered(
        &self,
        offer: &FileOffer,
        is_waiting: &dyn Fn() -> bool,
    ) -> Result<Comparison, Failure> {
        if !self.may_compare {
            return Ok(Comparison::Wanted);
        }
        let place = self.path_of(&offer.head)?;
        if self.skips(&place, &offer.meta) {
            return Ok(Comparison::InPlace);
        }
        let Some(mut there) = self.there(&place) else {
            return Ok(Comparison::Wanted);
        };
        there.source = offer.head.source;
        let Ok(stat) = there.dir.stat_occupant(&there.name) else {
            return Ok(Comparison::Wanted);
        };
        self.names_in_place.check(there.entry())?;
        self.may_take_place_of(&stat, offer.size)?;
        let same_size = kind_of(&stat) == NodeKind::File && stat.st_size as u64 == offer.size;
        if !same_size || (offer.hash.is_none() && !self.has_time(&there, &stat, offer)) {
            return Ok(Comparison::Wanted);
        }
        let compared = self.compare_content(&there, &stat, offer, is_waiting)?;
        if compared == Comparison::InPlace {
            self.names_in_place
                .reserve(there.entry())?
                .confirm(there.entry());
        }
        Ok(compared)
    }

    /// Returns true if the existing file has the modification time of the offer, as its file system
    /// keeps it.
    fn has_time(&self, there: &EntryLocation, stat: &Stat, offer: &FileOffer) -> bool {
        let temp = self.temp_name(offer.head.id);
        let has_time = || {
            self.grains
                .has_time(stat, offer.meta.mtime, &there.dir, &temp)
        };
        // The granularity of a file system is measured in the directory.
        meta_of(stat).mtime == offer.meta.mtime || keeping_finished(&there.dir, has_time)
    }

    /// Compares an existing file of the offered size by its hash, if the offer has one.
    fn compare_content(
        &self,
        there: &EntryLocation,
        stat: &Stat,
        offer: &FileOffer,
        is_waiting: &dyn Fn() -> bool,
    ) -> Result<Comparison, Failure> {
        let needs_file =
            offer.hash.is_some() || self.options.fsync || self.differs(there, stat, offer);
        if !needs_file {
            return Ok(Comparison::InPlace);
        }
        let Some((fd, stat)) = open(there, offer.size) else {
            return Ok(Comparison::Wanted);
        };
        if let Some(hash) = &offer.hash
            && !has_content(&fd, hash, is_waiting)?
        {
            return match self.options.overwrite {
                true => Ok(Comparison::Wanted),
                false => Err(Failure::new(FailureKind::Exists)),
            };
        }
        self.give_metadata(there, &fd, &stat, offer)?;
        if self.options.fsync {
            fs::fsync(&fd)?;
            self.open_dirs.changed(&there.path, &there.dir);
        }
        Ok(Comparison::InPlace)
    }

    /// Opens the regular file that an entry replaces. Returns it with its size in bytes.
    pub(super) fn open_replaced(&self, head: &EntryHead) -> Option<(std::fs::File, u64)> {
        if !self.may_compare || !self.options.overwrite {
            return None;
        }
        let there = self.there(&self.path_of(head).ok()?)?;
        let name = RelPath::from_bytes(there.name.as_bytes()).ok()?;
        let fd = there.dir.open_file(&name).ok()?;
        let stat = fs::fstat(&fd).ok()?;
        let is_file = kind_of(&stat) == NodeKind::File;
        is_file.then(|| (fd.into(), stat.st_size as u64))
    }

    /// Returns the location of an entry without creating anything, or `None` if its directory does
    /// not exist or may not be entered.
    pub(super) fn there(&self, place: &RelPath) -> Option<EntryLocation> {
        let (path, name) = place.split_last()?;
        if !path.is_within(&self.within) {
            return None;
        }
        let dir = match self.open_dirs.get(&path) {
            Some(dir) => dir,
            None => {
                let dir = Arc::new(self.base.open_dir(&path).ok()?);
                // The failure is reported when the entry is sent.
                self.refuse_second_directory(&path).ok()?;
                self.open_dirs.insert(path.clone(), dir.clone());
                dir
            }
        };
        Some(EntryLocation {
            dir,
            name: OsStr::from_bytes(name).to_owned(),
            is_described: self.is_described(&path),
            path,
            source: 0,
        })
    }

    /// Returns true if the existing file needs other permissions, attributes or another time.
    fn differs(&self, there: &EntryLocation, stat: &Stat, offer: &FileOffer) -> bool {
        // LH-COPY-24: without `overwrite`, it is left alone.
        let is_same = || meta_of(stat).mode == offer.meta.mode && self.has_time(there, stat, offer);
        self.corrects_existing() && !(is_same() && self.has_attributes(there, stat, &offer.meta))
    }

    /// Returns true if the existing file has the attributes that it should have. One that cannot be
    /// opened has not.
    fn has_attributes(&self, there: &EntryLocation, stat: &Stat, meta: &Meta) -> bool {
        meta.attributes.is_none()
            || there.dir.node_named(&there.name).is_ok_and(|handle| {
                let node = Node::handle(&handle);
                !self.attributes.differs(&node, stat, meta)
            })
    }

    fn give_metadata(
        &self,
        there: &EntryLocation,
        fd: &OwnedFd,
        stat: &Stat,
        offer: &FileOffer,
    ) -> Result<(), Failure> {
        if !self.differs(there, stat, offer) {
            return Ok(());
        }
        // Without attributes, the special bits of a file with the right permissions stay.
        if offer.meta.attributes.is_none() && stat.st_mode & 0o777 == offer.meta.mode {
            return times::set(fd, &offer.meta);
        }
        self.set_metadata(fd.as_fd(), &offer.meta)
    }
}

/// Opens the file if it is a regular one of this size that may be read.
pub(super) fn open(there: &EntryLocation, size: u64) -> Option<(OwnedFd, Stat)> {
    let name = RelPath::from_bytes(there.name.as_bytes()).ok()?;
    let fd = there.dir.open_file(&name).ok()?;
    let stat = fs::fstat(&fd).ok()?;
    let fits = kind_of(&stat) == NodeKind::File && stat.st_size as u64 == size;
    fits.then_some((fd, stat))
}

/// Returns true if a file's content has this hash. Returns false early if no one waits for the
/// answer.
pub(super) fn has_content(
    fd: &OwnedFd,
    hash: &Hash,
    is_waiting: &dyn Fn() -> bool,
) -> Result<bool, Failure> {
    let (mut hasher, mut part, mut at) = (blake3::Hasher::new(), vec![0; READ_BYTES], 0);
    while is_waiting() {
        match rustix::io::pread(fd, &mut part, at) {
            Ok(0) => return Ok(hasher.finalize() == *hash),
            Ok(got) => {
                hasher.update(part.get(..got).unwrap_or_default());
                at += got as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(false)
}

/// Returns true if the existing file at this location has the same content.
pub(super) fn is_same(place: &EntryLocation, size: u64, hash: &Hash) -> bool {
    let Ok(path) = RelPath::from_bytes(place.name.as_bytes()) else {
        return false;
    };
    let Ok(fd) = place.dir.open_file(&path) else {
        return false;
    };
    let regular =
        fs::fstat(&fd).is_ok_and(|s| kind_of(&s) == NodeKind::File && s.st_size as u64 == size);
    let mut hasher = blake3::Hasher::new();
    regular && hasher.update_reader(std::fs::File::from(fd)).is_ok() && hasher.finalize() == *hash
}
