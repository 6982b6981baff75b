//! Record of the part that has each number, because the kernel keeps no names.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::circuit::{CircuitPart, PartId};

use super::config::MAX_SLOTS;

/// Maximum size of a record, in bytes: far more than [`MAX_SLOTS`] parts take.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Reason why the record cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another router keeps its record in the directory: stop it, or choose another directory.
    /// `longhaul router` runs twice with one `--state`.
    #[error(
        "{}: another router uses this directory: stop it, or name another directory",
        .0.display()
    )]
    Taken(PathBuf),
    /// The record is malformed: remove it, and everything that is set up will be torn down. The
    /// controller sets up again what is to be there.
    #[error(
        "{}: cannot read the record of circuits ({why}): remove it to have all of them torn down",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Fault.
        why: String,
    },
    /// The operating system refuses. Check that the directory of `--state` is writable.
    #[error("{}: cannot write the record of circuits: {source}", path.display())]
    System {
        /// The file or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// Parts by slot, in a file.
#[derive(Debug)]
pub(super) struct SlotRecord {
    path: PathBuf,
    parts: BTreeMap<u16, CircuitPart>,
    /// Lock that is held as long as the record is open.
    lock: File,
}

impl Drop for SlotRecord {
    fn drop(&mut self) {
        // Unlocked explicitly: a process that is being started at this moment may keep the file
        // open for an instant longer.
        let _ = self.lock.unlock();
    }
}

impl SlotRecord {
    pub fn open(directory: &Path) -> Result<Self, RecordError> {
        let of = |path: &Path| {
            let path = path.to_owned();
            move |source| RecordError::System { path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(of(directory))?;
        let lock_path = directory.join("lock");
        let lock = private_file_options()
            .open(&lock_path)
            .map_err(of(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => RecordError::Taken(directory.to_owned()),
            TryLockError::Error(source) => of(&lock_path)(source),
        })?;
        let path = directory.join("parts.json");
        let mut text = String::new();
        match File::open(&path) {
            Ok(file) => {
                file.take(MAX_RECORD_BYTES)
                    .read_to_string(&mut text)
                    .map_err(of(&path))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => text.push_str("{}"),
            Err(error) => return Err(of(&path)(error)),
        }
        let unreadable = |why: String| RecordError::Unreadable {
            path: path.clone(),
            why,
        };
        let parts: BTreeMap<u16, CircuitPart> =
            serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        if let Some(slot) = parts.keys().find(|slot| **slot >= MAX_SLOTS) {
            return Err(unreadable(format!("number {slot} is beyond {MAX_SLOTS}")));
        }
        Ok(Self { path, parts, lock })
    }

    pub fn parts(&self) -> impl Iterator<Item = (u16, &CircuitPart)> {
        self.parts.iter().map(|(slot, part)| (*slot, part))
    }

    pub fn part(&self, slot: u16) -> Option<&CircuitPart> {
        self.parts.get(&slot)
    }

    pub fn find_part(&self, id: &PartId) -> Option<(u16, &CircuitPart)> {
        self.parts().find(|(_, part)| part.id == *id)
    }

    /// Records a part, before any of its kernel objects is created.
    pub fn insert(&mut self, slot: u16, part: CircuitPart) -> Result<(), RecordError> {
        let before = self.parts.insert(slot, part);
        self.save().inspect_err(|_| match before {
            Some(before) => drop(self.parts.insert(slot, before)),
            None => drop(self.parts.remove(&slot)),
        })
    }

    /// Removes a part, after all of its kernel objects are removed.
    pub fn remove(&mut self, slot: u16) -> Result<(), RecordError> {
        let Some(before) = self.parts.remove(&slot) else {
            return Ok(());
        };
        self.save()
            .inspect_err(|_| drop(self.parts.insert(slot, before)))
    }

    /// Writes the record to a temporary file, and renames it to its final name.
    fn save(&self) -> Result<(), RecordError> {
        let beside = self.path.with_extension("new");
        let write = || {
            let text = serde_json::to_vec(&self.parts)?;
            let mut file = private_file_options().truncate(true).open(&beside)?;
            file.write_all(&text)?;
            file.sync_data()?;
            std::fs::rename(&beside, &self.path)
        };
        write().map_err(|source| RecordError::System {
            path: self.path.clone(),
            source,
        })
    }
}

/// Returns options that create a missing file for its owner alone.
fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}
