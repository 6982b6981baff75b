//! Names of complete files at a host.

use std::path::{Path, PathBuf};

use longhaul_transfer::{Failure, FailureKind};

use super::{Place, Push};
use crate::entries::Kind;
use crate::error::RequestError;

/// An unfinished file at the host.
pub(super) struct Unfinished {
    pub path: PathBuf,
    /// If true, a later copy may resume it.
    pub is_kept: bool,
}

impl Push {
    /// Gives a complete file its name, and removes it if that fails.
    pub(super) async fn commit(
        &self,
        unfinished: &Unfinished,
        place: &Place,
        is_replaced: bool,
    ) -> Result<(), Failure> {
        let named = self.give_name(&unfinished.path, place, is_replaced).await;
        match &named {
            Ok(()) if !unfinished.is_kept => self.unfinished.forget(&unfinished.path),
            Ok(()) => {}
            Err(_) => self.remove_unfinished(&unfinished.path).await,
        }
        named?;
        if self.options.fsync {
            self.sync(&place.directory).await?;
        }
        Ok(())
    }

    /// Renames a complete entry. Nothing is replaced unless `is_replaced`.
    pub(super) async fn give_name(
        &self,
        temp: &Path,
        place: &Place,
        is_replaced: bool,
    ) -> Result<(), Failure> {
        let path = &place.path;
        let is_atomic = self.pool.abilities().posix_rename;
        let mut is_repeated = false;
        let refused = loop {
            let lease = self.pool.lease(0).await;
            let named = match (is_replaced, is_atomic) {
                (false, _) => lease.rename(temp, path).await,
                (true, true) => lease.replace(temp, path).await,
                (true, false) => match lease.remove(path).await {
                    Err(error) if !error.is_not_found() => Err(error),
                    _ => lease.rename(temp, path).await,
                },
            };
            match named {
                Ok(()) => return Ok(()),
                Err(RequestError::Lost) => is_repeated = true,
                Err(error) => break error,
            }
        };
        let there = again!(self.pool, 0, |lease| lease.describe_entry(path));
        let left = again!(self.pool, 0, |lease| lease.describe_entry(temp));
        let is_gone = left.is_err_and(|error| error.is_not_found());
        match there {
            // The answer to a first attempt was lost.
            Ok(_) if is_repeated && is_gone => Ok(()),
            Ok(there) if there.kind == Kind::Directory => Err(Failure::new(FailureKind::WrongKind)),
            Ok(_) if !is_replaced => Err(Failure::new(FailureKind::Exists)),
            _ => Err(refused.into()),
        }
    }

    pub(super) async fn remove_unfinished(&self, path: &Path) {
        let removed = again!(self.pool, 0, |lease| lease.remove(path));
        if removed.is_ok() {
            self.unfinished.forget(path);
        }
    }
}
