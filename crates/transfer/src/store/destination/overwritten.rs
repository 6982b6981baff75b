//! Existing files that are overwritten in place (LH-COPY-73): they have no second copy, and a copy
//! that ends early leaves a mixture of old and new under their names.

use std::os::fd::OwnedFd;

use longhaul_platform::fs::{self, FlockOperation, Mode};
use rustix::io::{self, Errno};

use super::EntryLocation;
use crate::error::{Failure, FailureKind};
use crate::store::confine::{NodeKind, kind_of};
use crate::store::journal::write_all;
use crate::wire::Block;

/// Bytes that are compared at once.
const COMPARED_BYTES: usize = 64 * 1024;

/// Need of a lock on a file that is overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locking {
    /// Not every file system has locks.
    IfPossible,
    /// Other members of a striped server may write the same file.
    Required,
}

/// An existing file that is overwritten in place.
pub(super) struct OverwrittenFile {
    fd: OwnedFd,
    /// Size of the new content, in bytes.
    size: u64,
}

impl OverwrittenFile {
    /// Opens the file at `location` for new content of `size` bytes, and locks it.
    pub(super) fn open(
        location: &EntryLocation,
        size: u64,
        locking: Locking,
    ) -> Result<Self, Failure> {
        let fd = location.dir.open_to_overwrite(&location.name)?;
        let stat = fs::fstat(&fd)?;
        if kind_of(&stat) != NodeKind::File {
            return Err(Failure::new(FailureKind::WrongKind));
        }
        // The new content would run as the owner of the old one.
        if fs::mode_bits(stat.st_mode).intersects(Mode::SUID | Mode::SGID) {
            return Err(refusal("it has a set-ID bit; leave out --inplace"));
        }
        let locked = fs::flock(&fd, FlockOperation::NonBlockingLockExclusive);
        locking.check(locked)?;
        Ok(Self { fd, size })
    }

    pub(super) const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Writes a block, as far as the file differs from it. Holes are written as zeros.
    pub(super) fn write(&self, block: &Block, data: &[u8]) -> Result<(), Errno> {
        let (mut data, mut at) = (data, block.offset);
        for extent in &block.extents {
            let begin = block.offset.saturating_add(extent.offset.into());
            self.write_zeros(at, begin)?;
            let len = extent.len as usize;
            let (now, rest) = data.split_at_checked(len).unwrap_or((data, &[]));
            self.write_changed(now, begin)?;
            (data, at) = (rest, begin.saturating_add(extent.len.into()));
        }
        self.write_zeros(at, block.offset.saturating_add(block.len.into()))
    }

    fn write_zeros(&self, from: u64, to: u64) -> Result<(), Errno> {
        let zeros = [0; COMPARED_BYTES];
        let mut at = from;
        while at < to {
            let len = usize::try_from(to - at).map_or(zeros.len(), |len| len.min(zeros.len()));
            self.write_changed(zeros.get(..len).unwrap_or_default(), at)?;
            at = at.saturating_add(len as u64);
        }
        Ok(())
    }

    /// Writes what differs. Behind its end, the file counts as zeros.
    fn write_changed(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        let (mut there, mut at) = (vec![0; COMPARED_BYTES.min(data.len())], offset);
        for part in data.chunks(COMPARED_BYTES) {
            let old = there.get_mut(..part.len()).unwrap_or_default();
            old.fill(0);
            read_some(&self.fd, old, at)?;
            if old != part {
                write_all(&self.fd, part, at)?;
            }
            at = at.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    /// Cuts or extends the file to the size of its new content, all of which is written.
    pub(super) fn set_size(&self) -> Result<(), Errno> {
        fs::ftruncate(&self.fd, self.size)
    }
}

impl Locking {
    /// Checks whether a file may be overwritten after this attempt to lock it.
    fn check(self, locked: Result<(), Errno>) -> Result<(), Failure> {
        match (locked, self) {
            (Err(Errno::WOULDBLOCK), _) => {
                Err(refusal("another program has locked it; stop it first"))
            }
            (Err(_), Self::Required) => Err(refusal(
                "files cannot be locked there, and the server is striped; leave out --inplace",
            )),
            (Err(_), Self::IfPossible) | (Ok(()), _) => Ok(()),
        }
    }
}

/// Returns the failure of a file that cannot be overwritten in place.
pub(super) fn refusal(why: &str) -> Failure {
    Failure::with_detail(FailureKind::Io, format!("not overwritten in place: {why}"))
}

/// Reads up to the length of `out`, or to the end of the file.
fn read_some(fd: &OwnedFd, out: &mut [u8], offset: u64) -> Result<(), Errno> {
    let mut read = 0;
    while let Some(left) = out.get_mut(read..).filter(|left| !left.is_empty()) {
        match io::pread(fd, left, offset.saturating_add(read as u64)) {
            Ok(0) => break,
            Ok(got) => read += got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_overwrite_only_what_they_can_lock() {
        for (locked, alone, member) in [
            (Ok(()), true, true),
            (Err(Errno::NOLCK), true, false),
            (Err(Errno::NOSYS), true, false),
            (Err(Errno::WOULDBLOCK), false, false),
        ] {
            assert_eq!(
                Locking::IfPossible.check(locked).is_ok(),
                alone,
                "{locked:?}"
            );
            assert_eq!(
                Locking::Required.check(locked).is_ok(),
                member,
                "{locked:?}"
            );
        }
    }
}
