//! Records of reservations on this machine's disk, so that the next copy returns those of a killed
//! one.
//!
//! Each copy with a promised reservation has a file of its own, which it keeps locked. The system
//! releases the lock however the copy ends.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use longhaul_config::home;
use longhaul_control_client::controller::ReservationAction;
use longhaul_control_client::{ControllerClient, percent_encode};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Directory of the records, inside the state directory of controllers.
const RECORDS_DIR: &str = "reserved";
/// Maximum length of a record that is read, in bytes.
const MAX_RECORD_BYTES: u64 = 4096;
/// Maximum number of records that one copy examines.
const MAX_RECORDS: usize = 64;

/// Record of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationRecord {
    /// URL of the controller.
    pub controller: String,
    /// The key that it was reserved with.
    pub owner: String,
    /// Number of the reservation.
    pub id: u64,
}

/// The locked record of a living copy. [`LockedRecord::forget`] removes it; it stays when its
/// process dies.
#[derive(Debug)]
pub struct LockedRecord {
    path: PathBuf,
    /// The lock.
    _file: File,
}

impl LockedRecord {
    /// Writes a record beneath `state`.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn keep(state: &Path, reserved: &ReservationRecord) -> io::Result<Self> {
        let dir = state.join(RECORDS_DIR);
        home::make_private(&dir).map_err(io::Error::other)?;
        let path = dir.join(format!("{}-{}.json", reserved.id, std::process::id()));
        // It is locked before it gets its name, so no other copy takes it for a dead one's.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&dir)?;
        flock(file.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        serde_json::to_writer(&mut file, reserved)?;
        let file = file.persist(&path).map_err(|error| error.error)?;
        Ok(Self { path, _file: file })
    }

    /// Removes the record after the reservation was returned.
    pub fn forget(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the records of copies that no longer run, each with its locked file.
pub fn leftover_records(
    state: &Path,
    controller: &str,
    owner: &str,
) -> Vec<(ReservationRecord, LockedRecord)> {
    let entries = std::fs::read_dir(state.join(RECORDS_DIR))
        .into_iter()
        .flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    let named = paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    let found = named.take(MAX_RECORDS).filter_map(|path| {
        let file = File::open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let mut text = Vec::new();
        (&file).take(MAX_RECORD_BYTES).read_to_end(&mut text).ok()?;
        let Ok(reserved) = serde_json::from_slice::<ReservationRecord>(&text) else {
            let _ = std::fs::remove_file(&path);
            return None;
        };
        Some((reserved, LockedRecord { path, _file: file }))
    });
    found
        .filter(|(reserved, _)| reserved.controller == controller && reserved.owner == owner)
        .collect()
}

/// Returns leftover reservations of dead copies to the controller. One that fails now is retried by
/// a later copy, or expires.
pub async fn return_leftovers(
    leftovers: Vec<(ReservationRecord, LockedRecord)>,
    controller: &ControllerClient,
) {
    for (reserved, kept) in leftovers {
        let key = percent_encode(&format!("left-{}", reserved.id));
        let cancel = ReservationAction::Cancel { series: false };
        match controller
            .act_on_reservation(reserved.id, cancel, &key)
            .await
        {
            Err(error) if error.is_transient() => {
                tracing::info!(
                    id = reserved.id, %error,
                    "the rest of a reservation is not returned yet"
                );
            }
            // The controller does not know it, or it is over: there is nothing to return.
            _ => kept.forget(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reservations_of_dead_copies_are_returned() {
        let dir = tempfile::tempdir().unwrap();
        let reserved = ReservationRecord {
            controller: "unix:/c".to_owned(),
            owner: "lhk1:a".to_owned(),
            id: 7,
        };
        let found = || leftover_records(dir.path(), "unix:/c", "lhk1:a");
        assert!(found().is_empty());
        let kept = LockedRecord::keep(dir.path(), &reserved).unwrap();
        assert!(found().is_empty());
        // As the death of a process does.
        drop(kept);
        let dead = found();
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].0, reserved);
        assert!(found().is_empty(), "one finds it at a time");
        drop(dead);
        assert!(leftover_records(dir.path(), "unix:/other", "lhk1:a").is_empty());
        found().into_iter().for_each(|(_, kept)| kept.forget());
        assert!(found().is_empty());
        std::fs::write(dir.path().join(RECORDS_DIR).join("x.json"), "{").unwrap();
        assert!(found().is_empty() && !dir.path().join(RECORDS_DIR).join("x.json").exists());
    }
}
