//! The same destination for another copy: one that takes the place of a copy that the server has
//! lost, in the same run.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Committer, Destination, Flusher, Grains, OpenDirs, temp_prefix};
use crate::wire::{Placement, Token};

impl Destination {
    /// Where the sources go.
    pub(crate) fn placement(&self) -> Placement {
        match self.into {
            true => Placement::Into,
            false => Placement::Itself,
        }
    }

    /// The same, as a copy that was lost has placed it: its one source stays the destination
    /// itself, though that is a directory by now.
    #[must_use]
    pub(crate) fn placed(mut self, placement: Option<Placement>) -> Self {
        if placement == Some(Placement::Itself) && self.names.len() == 1 {
            self.into = false;
        }
        self
    }

    /// The same for another copy, of this `token`, to be begun when this one has let go of its
    /// files. To be asked for before anything is made.
    pub(crate) fn successor(&self, token: Token) -> Self {
        Self {
            base: self.base.clone(),
            target: self.target.clone(),
            into: self.into,
            names: self.names.clone(),
            options: self.options,
            within: self.within.clone(),
            may_compare: self.may_compare,
            temp_prefix: temp_prefix(token),
            rivals: None,
            is_in_place: None,
            began: Instant::now(),
            patience: Mutex::default(),
            flusher: Flusher::new(),
            committer: Committer::default(),
            open_dirs: Arc::new(OpenDirs::new(self.options.fsync)),
            directories: self.directories.clone(),
            is_local: self.is_local,
            names_in_place: self.names_in_place.clone(),
            grains: Grains::default(),
        }
    }
}
