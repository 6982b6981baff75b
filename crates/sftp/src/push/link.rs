//! Symbolic links to a host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_transfer::local_end::{EntryOutcome, LocalEntry};
use longhaul_transfer::{Failure, FailureKind};

use super::directories::Directory;
use super::{Place, Push};
use crate::entries::check_utf8;
use crate::error::RequestError;
use crate::existing::{Decision, decide_link};

impl Push {
    /// Creates a link with any target, which is never followed.
    pub(super) async fn copy_link(
        &self,
        entry: &LocalEntry,
        target: &[u8],
    ) -> Result<EntryOutcome, Failure> {
        let place = self.place(entry)?;
        let target = Path::new(OsStr::from_bytes(target));
        check_utf8(target)?;
        let directory = self.directory_at(&place.directory).await?;
        if matches!(*directory, Directory::Absent) {
            return Ok(EntryOutcome::Same);
        }
        let there = directory.entry(&place.name);
        let is_replaced = match decide_link(there, &entry.meta, &self.existing) {
            Decision::Create => false,
            Decision::Replace => true,
            Decision::Leave | Decision::Unchanged { .. } => return Ok(EntryOutcome::Same),
            Decision::Fail(kind) => return Err(Failure::new(kind)),
            Decision::Compare => {
                let path = &place.path;
                let known = again!(self.pool, 0, |lease| lease.read_link(path));
                match known {
                    Ok(known) if *known == *target => return Ok(EntryOutcome::Same),
                    _ if !self.existing.overwrite => {
                        return Err(Failure::new(FailureKind::Exists));
                    }
                    _ => true,
                }
            }
        };
        match is_replaced {
            true => self.replace_link(&place, target).await,
            false => self.create_link(&place, target).await,
        }
    }

    async fn create_link(&self, place: &Place, target: &Path) -> Result<EntryOutcome, Failure> {
        let path = &place.path;
        let made = again!(self.pool, 0, |lease| lease.make_link(path, target));
        let Err(refused) = made else {
            return Ok(EntryOutcome::New);
        };
        // It was made meanwhile, or the answer to a first attempt was lost.
        let known = again!(self.pool, 0, |lease| lease.read_link(path));
        match known {
            Ok(known) if *known == *target => Ok(EntryOutcome::New),
            Ok(_) => Err(Failure::new(FailureKind::Exists)),
            Err(_) => Err(refused.into()),
        }
    }

    async fn replace_link(&self, place: &Place, target: &Path) -> Result<EntryOutcome, Failure> {
        let temp = loop {
            let temp = self.unfinished.add(&place.directory);
            let lease = self.pool.lease(0).await;
            match lease.make_link(&temp, target).await {
                Ok(()) => break temp,
                // The link may have been made: another name is taken.
                Err(RequestError::Lost) => {}
                Err(error) => {
                    self.unfinished.forget(&temp);
                    return Err(error.into());
                }
            }
        };
        self.give_name(&temp, place, true).await?;
        self.unfinished.forget(&temp);
        Ok(EntryOutcome::New)
    }
}
