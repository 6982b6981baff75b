//! Writing into a local tree: how a file comes to be there only when it is whole.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;

use super::temp_file::TempFile;
use super::{DIR_IN_THE_MAKING, Destination, Parent};
use crate::error::{Failure, FailureKind};
use crate::lock::Locked;
use crate::path::RelPath;
use crate::store::confine::{Kind, kind_of};
use crate::store::{MadeDir, Store};
use crate::tree_hash::Hash;
use crate::wire::{Block, Head, Meta, Written};

impl Store for Destination {
    type File = TempFile;

    fn sources(&self) -> usize {
        self.names.len()
    }

    fn name_bytes(&self) -> u64 {
        self.names.iter().map(|name| name.len() as u64).sum()
    }

    fn create(&self, head: &Head, size: u64) -> Result<TempFile, Failure> {
        let file = self.begin(head, size)?;
        file.set_size(size)?;
        Ok(file)
    }

    fn write(&self, file: &TempFile, block: &Block, mut data: &[u8]) -> Result<(), Failure> {
        for piece in &block.pieces {
            let (now, rest) = data.split_at_checked(piece.len as usize).unwrap_or((data, &[]));
            file.write(now, block.offset + u64::from(piece.offset))?;
            data = rest;
        }
        Ok(())
    }

    fn place(&self, mut file: TempFile, meta: &Meta, size: u64, hash: &Hash) -> Result<Written, Failure> {
        let metadata = apply(&file.fd, meta);
        if self.options.fsync {
            fs::fsync(&file.fd)?;
        }
        let Some(temp) = &file.temp else {
            return Err(Failure::new(FailureKind::Io));
        };
        let Parent { dir, path, name } = &file.parent;
        // LH-COPY-24.
        match dir.rename(temp, name, self.options.overwrite) {
            Ok(()) => file.temp = None,
            Err(Errno::EXIST) if self.may_compare && is_same(&file, size, hash) => return Ok(Written::Same),
            Err(errno) => return Err(errno.into()),
        }
        self.open_dirs.changed(path, dir);
        match metadata {
            Ok(()) => Ok(Written::New),
            Err(errno) => Err(metadata_failure(errno)),
        }
    }

    fn write_small(&self, head: &Head, meta: &Meta, data: &[u8], hash: &Hash) -> Result<Written, Failure> {
        let size = data.len() as u64;
        let file = self.begin(head, size)?;
        file.write(data, 0)?;
        self.place(file, meta, size, hash)
    }

    fn write_symlink(&self, head: &Head, meta: &Meta, target: &[u8]) -> Result<Written, Failure> {
        let place = self.beneath_base(head)?;
        let Parent { dir, path, name } = self.parent(&place)?;
        match dir.create_symlink(&name, target) {
            Err(Errno::EXIST) if self.may_compare && self.is_same_link(&place, target) => {
                return Ok(Written::Same);
            }
            Err(Errno::EXIST) if self.options.overwrite => {
                let temp = self.temp_name(head.id);
                dir.create_symlink(&temp, target)?;
                if let Err(errno) = dir.rename(&temp, &name, true) {
                    let _ = dir.remove(&temp);
                    return Err(errno.into());
                }
            }
            result => result?,
        }
        // A file system without times on links is no reason to lose the link.
        let _ = fs::utimensat(&*dir, &name, &times(meta), AtFlags::SYMLINK_NOFOLLOW);
        self.open_dirs.changed(&path, &dir);
        Ok(Written::New)
    }

    fn make_dir(&self, head: &Head) -> Result<MadeDir, Failure> {
        let place = self.beneath_base(head)?;
        let Some((parent, name)) = place.split_last() else {
            return Ok(MadeDir::Kept);
        };
        let name = OsStr::from_bytes(name);
        let dir = match place == self.within {
            // The one that all is to stay within, itself.
            true => Arc::new(self.base.open_dir(&parent)?),
            false => self.parent(&place)?.dir,
        };
        let mut made = self.made.locked();
        let new = dir
            .make_dir(name, DIR_IN_THE_MAKING)
            .map_err(|errno| match errno {
                Errno::EXIST => Failure::new(FailureKind::WrongKind),
                errno => errno.into(),
            })?;
        let was_made = made.remove(&place);
        drop(made);
        if new {
            self.open_dirs.changed(&parent, &dir);
        }
        Ok(match was_made || new {
            true => MadeDir::New,
            false => MadeDir::Kept,
        })
    }

    fn finishes(&self, made: MadeDir) -> bool {
        made == MadeDir::New || self.options.fsync
    }

    fn finish_dir(&self, head: &Head, made: MadeDir, meta: &Meta) -> Result<(), Failure> {
        let dir = self.base.open_dir(&self.beneath_base(head)?)?;
        let metadata = match made {
            MadeDir::New => apply(&dir, meta),
            MadeDir::Kept => Ok(()),
        };
        if self.options.fsync {
            fs::fsync(&dir)?;
            self.open_dirs.note(&dir, true);
        }
        metadata.map_err(metadata_failure)
    }

    fn leave_dir(&self, head: &Head, made: MadeDir, meta: &Meta) {
        if made == MadeDir::New
            && let Ok(place) = self.beneath_base(head)
            && let Ok(dir) = self.base.open_dir(&place)
        {
            // The copy has ended early and says so; nobody hears of this.
            let _ = fs::fchmod(dir, Mode::from_raw_mode(meta.mode));
        }
    }

    fn finish(&self) -> Vec<Failure> {
        self.open_dirs.finish()
    }
}

impl Destination {
    /// A file under a temporary name.
    fn begin(&self, head: &Head, size: u64) -> Result<TempFile, Failure> {
        let place = self.beneath_base(head)?;
        let parent = self.parent(&place)?;
        if !self.options.overwrite
            && let Ok(stat) = parent.dir.stat_name(&parent.name)
        {
            // Certain already that it can't be the same.
            match kind_of(&stat) {
                Kind::File if self.may_compare && stat.st_size as u64 == size => {}
                Kind::Directory => return Err(Failure::new(FailureKind::WrongKind)),
                _ => return Err(Failure::new(FailureKind::Exists)),
            }
        }
        let temp = self.temp_name(head.id);
        let fd = parent.dir.create_new(&temp)?;
        Ok(TempFile {
            parent,
            temp: Some(temp),
            fd,
        })
    }

    fn is_same_link(&self, place: &RelPath, target: &[u8]) -> bool {
        self.base.read_link(place).is_ok_and(|there| there == target)
    }

    fn temp_name(&self, id: u64) -> OsString {
        OsString::from(format!("{}{id:x}", self.temp_prefix))
    }
}

/// Whether what is at the file's place has the same content.
fn is_same(file: &TempFile, size: u64, hash: &Hash) -> bool {
    let Ok(path) = RelPath::from_bytes(file.parent.name.as_bytes()) else {
        return false;
    };
    let Ok(fd) = file.parent.dir.open_file(&path) else {
        return false;
    };
    let regular = fs::fstat(&fd).is_ok_and(|s| kind_of(&s) == Kind::File && s.st_size as u64 == size);
    let mut hasher = blake3::Hasher::new();
    regular && hasher.update_reader(std::fs::File::from(fd)).is_ok() && hasher.finalize() == *hash
}

fn metadata_failure(errno: Errno) -> Failure {
    Failure::with(FailureKind::Metadata, std::io::Error::from(errno).to_string())
}

fn times(meta: &Meta) -> Timestamps {
    let mtime = Timespec {
        tv_sec: meta.mtime.0,
        tv_nsec: i64::from(meta.mtime.1),
    };
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: fs::UTIME_OMIT,
        },
        last_modification: mtime,
    }
}

fn apply(fd: impl AsFd, meta: &Meta) -> Result<(), Errno> {
    fs::fchmod(&fd, Mode::from_raw_mode(meta.mode))?;
    fs::futimens(&fd, &times(meta))
}
