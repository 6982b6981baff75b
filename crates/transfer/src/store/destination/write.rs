//! Writes into a local tree, where a file appears only when it is complete.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use longhaul_platform::fs::{self, Stat};
use rustix::io::Errno;

use super::attributes::AppliedAttributes;
use super::commit::CompleteFile;
use super::in_place::{may_replace, not_replaced};
use super::names_in_place::PlacedEntry;
use super::new_file::{NewFile, bytes_on_disk};
use super::open_dirs::sync_failure;
use super::temp_file::TempFile;
use super::{CopyDestination, EntryLocation, MARKED_DIR_MODE, times};
use crate::attributes::SpecialFile;
use crate::error::{Failure, FailureKind, metadata_failure, refuses_name};
use crate::late_size::is_late;
use crate::metadata::node::Node;
use crate::path::RelPath;
use crate::progress::NotKeptCounts;
use crate::store::confine::{NodeKind, kind_of};
use crate::store::contest::ContestState;
use crate::store::journal::{DirStorage, Identity, Journal};
use crate::store::quota::QuotaCharge;
use crate::store::{
    AnnouncedFile, Comparison, FileStore, MadeDir, OnCommit, ResumedFile, Resumption,
};
use crate::tree_hash::{BlockHash, Hash, Subtree};
use crate::wire::{Block, ChangedKind, EntryHead, EntryOutcome, FileOffer, HardLink, Meta};

impl FileStore for CopyDestination {
    type File = NewFile;

    fn sources(&self) -> usize {
        self.names.len()
    }

    fn takes_late_sizes(&self) -> bool {
        self.quota.is_none() && !self.options.in_place && self.existing.is_default()
    }

    fn name_bytes(&self) -> u64 {
        self.names.iter().map(|name| name.len() as u64).sum()
    }

    fn may_resume(&self, announced: &AnnouncedFile) -> Resumption<()> {
        let Some(identity) = self.kept_identity(announced) else {
            return Resumption::Nothing;
        };
        if let Some(pause) = self.contest_pause(ContestState::Possible) {
            return Resumption::AskAgain(pause);
        }
        match self.has_journal(announced, &identity) {
            true => Resumption::Some(()),
            false => Resumption::Nothing,
        }
    }

    fn resume(
        &self,
        announced: &AnnouncedFile,
    ) -> Result<Resumption<ResumedFile<NewFile>>, Failure> {
        let Some(identity) = self.kept_identity(announced) else {
            return Ok(Resumption::Nothing);
        };
        let (file, subtrees) = self.keep(announced, &identity)?;
        if file.is_contested()
            && let Some(pause) = self.contest_pause(ContestState::Locked)
        {
            return Ok(Resumption::AskAgain(pause));
        }
        let file = self.charge_kept(file, announced.size)?;
        Ok(Resumption::Some((file, subtrees)))
    }

    fn compare(
        &self,
        offer: &FileOffer,
        is_waiting: &dyn Fn() -> bool,
    ) -> Result<Comparison, Failure> {
        self.compare_offered(offer, is_waiting)
    }

    fn existing_file(&self, head: &EntryHead) -> Option<(std::fs::File, u64)> {
        self.open_replaced(head)
    }

    fn link(&self, link: &HardLink) -> Result<Comparison, Failure> {
        self.give_name(link)
    }

    fn create(&self, announced: &AnnouncedFile) -> Result<NewFile, Failure> {
        // LH-COPY-73.
        if let Some(opened) = self.open_in_place(announced) {
            return opened;
        }
        // LH-COPY-24: an existing file stays, whether it is the same or not.
        let exists = Failure::new(FailureKind::Exists);
        if !self.options.overwrite
            && let Some(file) = self.file_in_place(announced, &exists)
        {
            return Ok(file);
        }
        match self.create_file(announced) {
            Err(denied) if denied.kind == FailureKind::PermissionDenied => {
                self.file_in_place(announced, &denied).ok_or(denied)
            }
            created => created,
        }
    }

    fn write(
        &self,
        file: &NewFile,
        block: &Block,
        data: &[u8],
        hash: BlockHash,
    ) -> Result<(), Failure> {
        file.write(block, data, hash, &self.flusher)
    }

    fn discard(&self, mut file: NewFile) {
        file.discard();
    }

    fn commit(&self, file: NewFile, meta: &Meta, size: u64, hash: &Hash, done: OnCommit) {
        if let Some(outcome) = file.conclude(size, hash) {
            // The existing file may belong to another source of this copy, whose error comes first.
            let own = self.names_in_place.check(file.parent.entry());
            return done(
                own.and(outcome)
                    .and_then(|same| self.stays(&file.parent, same)),
            );
        }
        let settled = file
            .settle(size)
            .and_then(|is_durable| Ok((is_durable, self.set_metadata(file.fd()?.as_fd(), meta))));
        let (is_durable, metadata) = match settled {
            Ok(settled) => settled,
            Err(failure) => return done(Err(failure)),
        };
        let whole = CompleteFile {
            file,
            size,
            hash: *hash,
            metadata,
            overwrite: self.options.overwrite,
            may_compare: self.may_compare,
            fsync: self.options.fsync,
            open_dirs: self.open_dirs.clone(),
            names_in_place: self.names_in_place.clone(),
            done,
        };
        match is_durable {
            true => whole.finish(Ok(())),
            false => self.committer.commit(whole),
        }
    }

    fn write_small(&self, head: &EntryHead, meta: &Meta, data: &[u8], hash: &Hash, done: OnCommit) {
        let size = data.len() as u64;
        let parent = match self.parent_for(head, size) {
            Ok(parent) => parent,
            Err(failure) => return done(Err(failure)),
        };
        if let Some(unchanged) = self.unchanged(&parent, meta, size, hash) {
            return done(unchanged.and_then(|same| self.stays(&parent, same)));
        }
        let written = self.charge(size).and_then(|charge| {
            let file = self.begin(&parent, head)?;
            file.write(data, 0)?;
            Ok(NewFile::temporary(parent.clone(), file, 0).charged(charge))
        });
        match written {
            Ok(file) => self.commit(file, meta, size, hash, done),
            Err(denied) if denied.kind == FailureKind::PermissionDenied => {
                let updated = self.update_in_place(&parent, meta, size, hash, denied);
                done(updated.and_then(|same| self.stays(&parent, same)));
            }
            Err(failure) => done(Err(failure)),
        }
    }

    fn write_symlink(
        &self,
        head: &EntryHead,
        meta: &Meta,
        target: &[u8],
    ) -> Result<EntryOutcome, Failure> {
        let place = self.path_of(head)?;
        if self.skips(&place, meta) {
            return Ok(EntryOutcome::Same);
        }
        let parent = self.parent_of(head, &place)?;
        let EntryLocation {
            dir, path, name, ..
        } = &parent;
        let reserved = self.names_in_place.reserve(parent.entry())?;
        if self.may_compare && self.is_same_link(&place, target) {
            reserved.confirm(parent.entry());
            if self.corrects_existing() {
                self.correct_link(&parent, meta)?;
                // Not every file system has times for links.
                let _ = correct_link_time(&parent, meta);
            }
            return Ok(EntryOutcome::Same);
        }
        let create = || match dir.create_symlink(name, target) {
            Err(Errno::EXIST) => Err(Failure::new(FailureKind::Exists)),
            // A denial means that the directory is not writable.
            Err(errno) if errno != Errno::ACCESS && lacks_links(errno) => Err(no_links(errno)),
            result => result.map_err(|errno| Failure::for_name(errno, name.as_bytes())),
        };
        match self.put_name(&parent, create) {
            Err(failure) if failure.kind == FailureKind::Exists && self.options.overwrite => {
                may_replace(&parent)?;
                let temp = self.temp_name(head.id);
                dir.create_symlink(&temp, target).map_err(no_links)?;
                if let Err(errno) = dir.rename(&temp, name, true) {
                    let _ = dir.remove(&temp);
                    return Err(Failure::for_name(errno, name.as_bytes()));
                }
            }
            result => result?,
        }
        reserved.confirm(parent.entry());
        self.correct_link(&parent, meta)?;
        // The link is kept even if the file system has no times for links.
        let _ = times::set_of_link(dir, name, meta);
        self.open_dirs.changed(path, dir);
        Ok(EntryOutcome::New)
    }

    fn make_special(
        &self,
        head: &EntryHead,
        meta: &Meta,
        special: SpecialFile,
    ) -> Result<EntryOutcome, Failure> {
        self.place_special(head, meta, special)
    }

    fn change(&self, meta: &mut Meta, kind: ChangedKind) {
        self.attributes.change(meta, kind);
    }

    fn not_kept(&self) -> NotKeptCounts {
        self.attributes.lost()
    }

    fn make_dir(&self, head: &EntryHead, meta: &Meta) -> Result<MadeDir, Failure> {
        let place = self.path_of(head)?;
        let Some((path, name)) = place.split_last() else {
            return Ok(self.found_dir(&place, &self.base, meta));
        };
        if self.existing.existing && self.base.stat(&place).is_err() {
            return Ok(MadeDir::Kept);
        }
        let parent = match place == self.within {
            // The directory itself to which the copy is confined.
            true => EntryLocation {
                dir: Arc::new(self.base.open_dir(&path)?),
                path,
                name: OsStr::from_bytes(name).to_owned(),
                source: head.source,
                is_described: false,
            },
            false => self.parent_of(head, &place)?,
        };
        let entry = PlacedEntry {
            is_directory: true,
            ..parent.entry()
        };
        let reserved = self.names_in_place.reserve(entry)?;
        let mut made = self.directories.made.lock();
        let new = self.make_named_dir(&parent)?;
        let was_made = made.remove(&place);
        drop(made);
        reserved.confirm(entry);
        if new {
            self.open_dirs.changed(&parent.path, &parent.dir);
        }
        if new || was_made {
            return Ok(MadeDir::New);
        }
        // A directory that may not be opened is not changed either.
        Ok(match self.base.open_dir(&place) {
            Ok(dir) => self.found_dir(&place, &dir, meta),
            Err(_) => MadeDir::Kept,
        })
    }

    fn finishes(&self, made: MadeDir) -> bool {
        made != MadeDir::Kept || self.options.fsync
    }

    fn finish_dir(&self, head: &EntryHead, made: MadeDir, meta: &Meta) -> Result<(), Failure> {
        let dir = match self.base.open_dir(&self.path_of(head)?) {
            // It was not created.
            Err(Errno::NOENT) if self.existing.existing => return Ok(()),
            dir => dir?,
        };
        let completed = self.complete(&dir, made, meta);
        if self.options.fsync {
            dir.sync().map_err(sync_failure)?;
            self.open_dirs.note(&dir, true);
        }
        completed
    }

    fn leave_dir(&self, head: &EntryHead, made: MadeDir, meta: &Meta) {
        // A directory that this copy created is marked.
        if made == MadeDir::Earlier
            && let Ok(place) = self.path_of(head)
            && let Ok(dir) = self.base.open_dir(&place)
        {
            self.leave(&dir, meta);
        }
    }

    fn is_in_place(&self) -> bool {
        self.is_in_place
            .as_ref()
            .is_none_or(|is_in_place| is_in_place())
    }

    fn finish(&self) -> Vec<Failure> {
        self.open_dirs.finish()
    }
}

impl CopyDestination {
    /// Returns the identity of a file that is kept when the copy ends early, or `None` if it is not
    /// kept.
    fn kept_identity(&self, announced: &AnnouncedFile) -> Option<Identity> {
        let in_blocks = announced.size > 1u64 << announced.block_log2 && !is_late(announced.size);
        let identity = announced
            .identity
            .filter(|_| self.options.resume && in_blocks)?;
        if self.overwritten_in_place(announced).is_some() {
            return None;
        }
        let identity = Identity::opaque(&identity)?;
        Some(match self.member {
            Some(member) => identity.at_member(member),
            None => identity,
        })
    }

    /// Returns true if the file has a journal.
    fn has_journal(&self, announced: &AnnouncedFile, identity: &Identity) -> bool {
        let Ok(place) = self.path_of(&announced.head) else {
            return false;
        };
        let Some((parent, name)) = place
            .split_last()
            .filter(|(parent, _)| parent.is_within(&self.within))
        else {
            return false;
        };
        let dir = self.open_dirs.get(&parent);
        let dir = dir.map_or_else(|| self.base.open_dir(&parent).map(Arc::new), Ok);
        dir.is_ok_and(|dir| Journal::may_exist(&DirStorage(dir), OsStr::from_bytes(name), identity))
    }

    /// Opens or creates a file with a journal, unless another copy holds it. Also returns the parts
    /// that exist.
    fn keep(
        &self,
        announced: &AnnouncedFile,
        identity: &Identity,
    ) -> Result<(NewFile, Vec<Subtree>), Failure> {
        let (size, block_log2) = (announced.size, announced.block_log2);
        let parent = self.parent_for(&announced.head, size)?;
        let (journal, resume) = self.put_name(&parent, || {
            self.try_name(&parent, announced.head.id)?;
            let storage = DirStorage(parent.dir.clone());
            Journal::open_or_create(storage, &parent.name, identity, block_log2 as u8, size)
        })?;
        Ok((NewFile::kept(parent, journal, block_log2), resume.subtrees))
    }

    /// Charges a file with a journal to the quota, if there is one. What it has on disk already is
    /// charged.
    fn charge_kept(&self, mut file: NewFile, size: u64) -> Result<NewFile, Failure> {
        let Some(quota) = &self.quota else {
            return Ok(file);
        };
        // Without bytes it was not charged.
        let there = bytes_on_disk(file.fd()?).filter(|&bytes| bytes > 0);
        match quota.charge(size, there) {
            Ok(charge) => Ok(file.charged(Some(charge))),
            Err(exceeded) => {
                // Nothing of it exists that a later copy could resume.
                if there.is_none() {
                    file.discard();
                }
                Err(exceeded)
            }
        }
    }

    /// Charges a file of `size` bytes to the quota, if there is one.
    fn charge(&self, size: u64) -> Result<Option<QuotaCharge>, Failure> {
        let quota = self.quota.as_ref();
        quota.map(|quota| quota.charge(size, None)).transpose()
    }

    fn create_file(&self, announced: &AnnouncedFile) -> Result<NewFile, Failure> {
        if let Some(identity) = self.kept_identity(announced) {
            // Any existing part is written again, as the ledger does not know it. If another copy
            // holds the journal by now, that copy created it after the file was described. It is
            // still running, so this copy does not wait for it.
            let (file, _) = self.keep(announced, &identity)?;
            return self.charge_kept(file, announced.size);
        }
        let parent = self.parent_for(&announced.head, announced.size)?;
        let charge = self.charge(announced.size)?;
        let file = self.begin(&parent, &announced.head)?;
        self.try_name(&parent, announced.head.id)?;
        let has_late_size = is_late(announced.size);
        if !has_late_size {
            file.set_size(announced.size)?;
        }
        let file = NewFile::temporary(parent, file, announced.block_log2);
        Ok(file.with_late_size(has_late_size).charged(charge))
    }

    /// Creates a directory. Returns false if it exists.
    fn make_named_dir(&self, parent: &EntryLocation) -> Result<bool, Failure> {
        let there = parent.dir.stat_name(&parent.name);
        if there.is_ok_and(|there| kind_of(&there) == NodeKind::Directory) {
            return Ok(false);
        }
        self.put_name(parent, || {
            let made = parent.dir.make_dir(&parent.name, MARKED_DIR_MODE);
            made.map_err(|errno| match errno {
                Errno::EXIST => Failure::new(FailureKind::WrongKind),
                errno => Failure::for_name(errno, parent.name.as_bytes()),
            })
        })
    }

    /// Creates a file under a temporary name.
    fn begin(&self, parent: &EntryLocation, head: &EntryHead) -> Result<TempFile, Failure> {
        let temp = self.temp_name(head.id);
        let fd = self.put_name(parent, || Ok(parent.dir.create_new(&temp)?))?;
        Ok(TempFile {
            dir: parent.dir.clone(),
            temp: Some(temp),
            fd: Some(fd),
        })
    }

    /// Returns the location of a file of `size` bytes, unless it certainly cannot go there.
    fn parent_for(&self, head: &EntryHead, size: u64) -> Result<EntryLocation, Failure> {
        let place = self.path_of(head)?;
        let parent = self.parent_of(head, &place)?;
        match parent.dir.stat_occupant(&parent.name) {
            Ok(stat) => {
                self.names_in_place.check(parent.entry())?;
                self.may_take_place_of(&stat, size)?;
            }
            Err(errno) if refuses_name(errno) => {
                return Err(Failure::for_name(errno, parent.name.as_bytes()));
            }
            Err(_) => {}
        }
        Ok(parent)
    }

    /// Returns [`Self::locate`] of an entry, with its source.
    pub(super) fn parent_of(
        &self,
        head: &EntryHead,
        place: &RelPath,
    ) -> Result<EntryLocation, Failure> {
        let mut parent = self.locate(place)?;
        parent.source = head.source;
        Ok(parent)
    }

    /// Checks that a file of `size` bytes may replace the existing entry, or be equal to it, as far
    /// as that is certain already.
    pub(super) fn may_take_place_of(&self, there: &Stat, size: u64) -> Result<(), Failure> {
        match kind_of(there) {
            NodeKind::File | NodeKind::Symlink if self.options.overwrite => Ok(()),
            NodeKind::Other if self.options.overwrite || self.may_compare => {
                Err(not_replaced(there))
            }
            NodeKind::File if self.may_compare && there.st_size as u64 == size => Ok(()),
            NodeKind::Directory => Err(not_replaced(there)),
            _ => Err(Failure::new(FailureKind::Exists)),
        }
    }

    /// Gives an open file its attributes, permissions and time.
    pub(super) fn set_metadata(&self, fd: BorrowedFd<'_>, meta: &Meta) -> Result<(), Failure> {
        let applied = match meta.attributes {
            None => AppliedAttributes::default(),
            Some(_) => {
                let node = Node::open(fd);
                self.attributes.apply(&node, &node.stat()?, meta)
            }
        };
        let mode = fs::mode_bits(meta.mode | applied.special_bits.unwrap_or(0));
        fs::fchmod(fd, mode).map_err(metadata_failure)?;
        times::set(fd, meta)?;
        applied.failure.map_or(Ok(()), Err)
    }

    /// Gives a symbolic link its attributes, if it has any.
    fn correct_link(&self, parent: &EntryLocation, meta: &Meta) -> Result<(), Failure> {
        if meta.attributes.is_none() {
            return Ok(());
        }
        let handle = parent.dir.node_named(&parent.name)?;
        let node = Node::handle(&handle);
        let stat = node.stat()?;
        // Something else may have taken the name meanwhile.
        let is_link = kind_of(&stat) == NodeKind::Symlink && stat.st_nlink == 1;
        if !is_link || !self.attributes.differs(&node, &stat, meta) {
            return Ok(());
        }
        let applied = self.attributes.apply(&node, &stat, meta);
        applied.failure.map_or(Ok(()), Err)
    }

    fn is_same_link(&self, place: &RelPath, target: &[u8]) -> bool {
        self.base
            .read_link(place)
            .is_ok_and(|there| there == target)
    }

    pub(super) fn temp_name(&self, id: u64) -> OsString {
        OsString::from(format!("{}{id:x}", self.temp_prefix))
    }
}

/// Gives a symbolic link its modification time, if it has another one.
fn correct_link_time(parent: &EntryLocation, meta: &Meta) -> Result<(), Errno> {
    let EntryLocation { dir, name, .. } = parent;
    let stat = dir.stat_name(name)?;
    // Something else may have taken the name meanwhile.
    let is_link = kind_of(&stat) == NodeKind::Symlink && stat.st_nlink == 1;
    match is_link && times::modified(&stat) != meta.mtime {
        true => times::set_of_link(dir, name, meta),
        false => Ok(()),
    }
}

/// Returns true if the file system does not support symbolic links (symlink(2)).
fn lacks_links(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP)
}

fn no_links(errno: Errno) -> Failure {
    match lacks_links(errno) {
        true => Failure::with_detail(
            FailureKind::Io,
            "the target's file system has no symbolic links",
        ),
        false => errno.into(),
    }
}
