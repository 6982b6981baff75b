//! Creates the same destination for the copy that replaces a lost one in the same run.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    AttributeWriter, Committer, CopyDestination, Flusher, GranularityCache, OpenDirs, temp_prefix,
};
use crate::wire::{CopyToken, Placement};

impl CopyDestination {
    /// Returns the placement of the sources.
    pub(crate) fn placement(&self) -> Placement {
        match self.into {
            true => Placement::IntoDirectory,
            false => Placement::Itself,
        }
    }

    /// Sets the placement that a lost copy had: its single source stays the destination itself,
    /// even if that is now a directory.
    #[must_use]
    pub(crate) fn placed(mut self, placement: Option<Placement>) -> Self {
        if placement == Some(Placement::Itself) && self.names.len() == 1 {
            self.into = false;
        }
        self
    }

    /// Creates the same destination for another copy with this `token`, which begins when this one
    /// has released its files. Must be called before anything is created.
    pub(crate) fn successor(&self, token: CopyToken) -> Self {
        Self {
            base: self.base.clone(),
            target: self.target.clone(),
            into: self.into,
            names: self.names.clone(),
            options: self.options,
            existing: self.existing,
            within: self.within.clone(),
            may_compare: self.may_compare,
            temp_prefix: temp_prefix(token),
            rivals: self.rivals.clone(),
            is_in_place: self.is_in_place.clone(),
            began: Instant::now(),
            patience: Mutex::default(),
            flusher: Flusher::new(),
            committer: Committer::default(),
            open_dirs: Arc::new(OpenDirs::new(self.options.fsync)),
            directories: self.directories.clone(),
            is_local: self.is_local,
            names_in_place: self.names_in_place.clone(),
            grains: GranularityCache::default(),
            attributes: AttributeWriter::new(self.attributes.settings().clone()),
            quota: self.quota.clone(),
            member: self.member,
        }
    }
}
