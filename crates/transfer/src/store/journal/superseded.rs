//! Removes the remains of a copy after another one has finished the file.

use super::format::{self, MAX_JOURNAL_BYTES};
use super::{Found, Journal, Storage};

impl<S: Storage> Journal<S> {
    /// Returns true if the target's name has been given to a file of this copy's size since this
    /// copy began.
    pub(super) fn is_superseded(&self) -> bool {
        let named = self.storage.named(&self.target).ok().flatten();
        named != self.replaces && named.is_some_and(|named| named.size == self.header.size)
    }

    /// Removes the journal that another copy of the same request left, and its data file, unless a
    /// copy is writing it. The finished file is synced before. If that fails, they stay. Blocking.
    pub(super) fn remove_superseded(&self) {
        let storage = &self.storage;
        let journal = self.names.journal();
        if !self.header.has_blocks() {
            return;
        }
        let Ok(Found::Own(file)) = storage.open_own(&journal) else {
            return;
        };
        let is_idle =
            storage.lock(&file) == Ok(true) && storage.is_named(&file, &journal) == Ok(true);
        if !is_idle || !self.has_synced_target() {
            return;
        }
        let bytes = storage.read(&file, MAX_JOURNAL_BYTES).ok();
        if let Some(contents) = bytes.and_then(|bytes| format::read(&bytes)) {
            let _ = storage.remove(&self.names.data(&contents.header.data));
        }
        let _ = storage.remove(&journal);
    }

    fn has_synced_target(&self) -> bool {
        let storage = &self.storage;
        let Ok(Found::Own(target)) = storage.open_own(&self.target) else {
            return false;
        };
        storage.sync_all(&target).is_ok() && storage.sync_dir().is_ok()
    }
}
