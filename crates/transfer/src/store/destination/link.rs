//! Hard links to files in place (LH-COPY-45 to LH-COPY-47).

use std::ffi::OsStr;

use longhaul_platform::fs::Stat;

use super::in_place::may_replace;
use super::{CopyDestination, EntryLocation};
use crate::error::{Failure, FailureKind};
use crate::metadata::meta_of;
use crate::store::Comparison;
use crate::store::confine::{Dir, NodeKind, kind_of};
use crate::wire::{EntryHead, HardLink};

impl CopyDestination {
    /// Links the file of the first name to the other one. The file must be a regular one of the
    /// reported size, the writer must be allowed to learn what exists, and the file system must
    /// support it. An existing entry is replaced under the same conditions as for a file.
    pub(super) fn give_name(&self, link: &HardLink) -> Result<Comparison, Failure> {
        if !self.may_compare {
            return Ok(Comparison::Wanted);
        }
        let first = EntryHead {
            id: link.head.id,
            source: link.first.0,
            path: link.first.1.clone(),
        };
        let Some(first) = self.there(&self.path_of(&first)?) else {
            return Ok(Comparison::Wanted);
        };
        let Ok(file) = first.dir.stat_name(&first.name) else {
            return Ok(Comparison::Wanted);
        };
        if kind_of(&file) != NodeKind::File || file.st_size as u64 != link.size {
            return Ok(Comparison::Wanted);
        }
        let place = self.path_of(&link.head)?;
        if self.skips(&place, &meta_of(&file)) {
            return Ok(Comparison::InPlace);
        }
        let mut parent = self.locate(&place)?;
        parent.source = link.head.source;
        let reserved = self.names_in_place.reserve(parent.entry())?;
        let EntryLocation {
            dir, path, name, ..
        } = &parent;
        match self.put_name(&parent, || {
            Ok(first.dir.link_into(&first.name, dir, name)?)
        }) {
            Ok(()) => {}
            Err(failure) if failure.kind == FailureKind::Exists && is_name_of(dir, name, &file) => {
                reserved.confirm(parent.entry());
                return Ok(Comparison::InPlace);
            }
            Err(failure) if failure.kind == FailureKind::Exists && self.options.overwrite => {
                may_replace(&parent)?;
                let temp = self.temp_name(link.head.id);
                if first.dir.link_into(&first.name, dir, &temp).is_err() {
                    return Ok(Comparison::Wanted);
                }
                if let Err(errno) = dir.rename(&temp, name, true) {
                    let _ = dir.remove(&temp);
                    return Err(errno.into());
                }
            }
            // The entry has the same content, or another: this is decided when the file is sent. Or
            // the file system, or the owner of the file, allows no more links.
            Err(_) => return Ok(Comparison::Wanted),
        }
        reserved.confirm(parent.entry());
        self.open_dirs.changed(path, dir);
        Ok(Comparison::InPlace)
    }
}

/// Returns true if `name` is a name of `file`.
fn is_name_of(dir: &Dir, name: &OsStr, file: &Stat) -> bool {
    dir.stat_name(name)
        .is_ok_and(|there| (there.st_dev, there.st_ino) == (file.st_dev, file.st_ino))
}
