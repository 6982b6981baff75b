//! Devices, FIFOs and sockets (LH-COPY-67).

use longhaul_platform::fs::Stat;
use rustix::io::Errno;

use super::{CopyDestination, EntryLocation, times};
use crate::attributes::SpecialFile;
use crate::error::{Failure, FailureKind, metadata_failure};
use crate::metadata::node::Node;
use crate::metadata::{meta_of, special_file};
use crate::store::confine::{NodeKind, kind_of};
use crate::wire::{EntryHead, EntryOutcome, Meta};

impl CopyDestination {
    /// Creates a special file. It gets its attributes under a temporary name.
    pub(super) fn place_special(
        &self,
        head: &EntryHead,
        meta: &Meta,
        special: SpecialFile,
    ) -> Result<EntryOutcome, Failure> {
        let settings = self.attributes.settings();
        if !settings.keep.special_files {
            return Err(Failure::new(FailureKind::NotRegular));
        }
        if special.is_device() && !settings.is_privileged {
            return Err(Failure::with_detail(
                FailureKind::NotRegular,
                "the server creates no devices (longhaul serve --allow-owners)",
            ));
        }
        let place = self.path_of(head)?;
        if self.skips(&place, meta) {
            return Ok(EntryOutcome::Same);
        }
        let parent = self.parent_of(head, &place)?;
        let reserved = self.names_in_place.reserve(parent.entry())?;
        let there = parent.dir.stat_occupant(&parent.name).ok();
        let outcome = match there {
            Some(there) if self.may_compare && special_file(&there) == Some(special) => {
                if self.corrects_existing() {
                    self.correct_special(&parent, meta)?;
                }
                EntryOutcome::Same
            }
            Some(there) if !self.options.overwrite || kind_of(&there) == NodeKind::Directory => {
                return Err(match kind_of(&there) {
                    NodeKind::Directory => Failure::new(FailureKind::WrongKind),
                    _ => Failure::new(FailureKind::Exists),
                });
            }
            _ => {
                self.create_special(&parent, head, meta, special)?;
                EntryOutcome::New
            }
        };
        reserved.confirm(parent.entry());
        Ok(outcome)
    }

    fn create_special(
        &self,
        parent: &EntryLocation,
        head: &EntryHead,
        meta: &Meta,
        special: SpecialFile,
    ) -> Result<(), Failure> {
        let EntryLocation {
            dir, path, name, ..
        } = parent;
        let temp = self.temp_name(head.id);
        self.put_name(parent, || {
            dir.create_special(&temp, special)
                .map_err(|errno| match errno {
                    Errno::PERM if special.is_device() => Failure::with_detail(
                        FailureKind::PermissionDenied,
                        "only root may create devices",
                    ),
                    errno => errno.into(),
                })
        })?;
        let placed = self
            .set_special_metadata(parent, &temp, special, meta)
            .and_then(|metadata| {
                dir.rename(&temp, name, self.options.overwrite)?;
                Ok(metadata)
            });
        if placed.is_err() {
            let _ = dir.remove(&temp);
        }
        self.open_dirs.changed(path, dir);
        placed?
    }

    /// Gives a new special file its metadata. The inner result is about the metadata alone.
    fn set_special_metadata(
        &self,
        parent: &EntryLocation,
        name: &std::ffi::OsStr,
        special: SpecialFile,
        meta: &Meta,
    ) -> Result<Result<(), Failure>, Failure> {
        let handle = parent.dir.node_named(name)?;
        let node = Node::handle(&handle);
        let stat = node.stat()?;
        // Something else may have taken the name meanwhile.
        match special_file(&stat) == Some(special) && stat.st_nlink == 1 {
            true => Ok(self.set_node_metadata(&node, &stat, meta)),
            false => Err(Failure::new(FailureKind::Exists)),
        }
    }

    /// Corrects the metadata of an existing special file.
    fn correct_special(&self, parent: &EntryLocation, meta: &Meta) -> Result<(), Failure> {
        let handle = parent.dir.node_named(&parent.name)?;
        let node = Node::handle(&handle);
        let stat = node.stat()?;
        let is_right =
            meta_of(&stat).has_same_basics(meta) && !self.attributes.differs(&node, &stat, meta);
        match is_right || special_file(&stat).is_none() {
            true => Ok(()),
            false => self.set_node_metadata(&node, &stat, meta),
        }
    }

    fn set_node_metadata(&self, node: &Node<'_>, stat: &Stat, meta: &Meta) -> Result<(), Failure> {
        let applied = self.attributes.apply(node, stat, meta);
        node.set_mode(meta.mode | applied.special_bits.unwrap_or(0))
            .map_err(metadata_failure)?;
        times::set_of_node(node, stat, meta).map_err(metadata_failure)?;
        applied.failure.map_or(Ok(()), Err)
    }
}
