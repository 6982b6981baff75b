//! Hard links to files in place (LH-COPY-45 to LH-COPY-47).

use std::ffi::OsStr;

use rustix::fs::Stat;

use super::in_place::may_replace;
use super::{Destination, Parent};
use crate::error::{Failure, FailureKind};
use crate::store::Comparison;
use crate::store::confine::{Dir, Kind, kind_of};
use crate::wire::{HardLink, Head};

impl Destination {
    /// Links the file of the first name to the other one. The file must be a regular one of the
    /// reported size, the writer must be allowed to learn what exists, and the file system must
    /// support it. An existing entry is replaced under the same conditions as for a file.
    pub(super) fn give_name(&self, link: &HardLink) -> Result<Comparison, Failure> {
        if !self.may_compare {
            return Ok(Comparison::Wanted);
        }
        let first = Head {
            id: link.head.id,
            source: link.first.0,
            path: link.first.1.clone(),
        };
        let Some(first) = self.there(&self.beneath_base(&first)?) else {
            return Ok(Comparison::Wanted);
        };
        let Ok(file) = first.dir.stat_name(&first.name) else {
            return Ok(Comparison::Wanted);
        };
        if kind_of(&file) != Kind::File || file.st_size as u64 != link.size {
            return Ok(Comparison::Wanted);
        }
        let mut parent = self.parent(&self.beneath_base(&link.head)?)?;
        parent.source = link.head.source;
        let reserved = self.names_in_place.reserve(parent.entry())?;
        let Parent {
            dir, path, name, ..
        } = &parent;
        match self.change(&parent, || {
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
