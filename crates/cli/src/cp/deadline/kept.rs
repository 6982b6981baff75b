//! What copies have reserved, on this machine's disk, so that what a killed one has left is given
//! back by the next.
//!
//! Each copy that has something promised has a file of its own, locked for as long as it lives: the
//! system lets the lock go however it ends.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use longhaul_config::home;
use longhaul_control_client::controller::Action;
use longhaul_control_client::{Controller, encoded};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Beneath what is kept of controllers.
const DIR: &str = "reserved";
/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 4096;
/// Most files that one copy looks at.
const MAX_FILES: usize = 64;

/// What is kept of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// The controller.
    pub controller: String,
    /// The key that it was asked with.
    pub owner: String,
    /// Its number.
    pub id: u64,
}

/// The file of a living copy. It goes with [`Kept::forget`], and stays when its process dies.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    /// Locked.
    _file: File,
}

impl Kept {
    /// Writes it down, beneath `state`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(state: &Path, reserved: &Reserved) -> io::Result<Self> {
        let dir = state.join(DIR);
        home::make_private(&dir).map_err(io::Error::other)?;
        let path = dir.join(format!("{}-{}.json", reserved.id, std::process::id()));
        // It is locked before it has its name, so that nobody takes it for a dead one's.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&dir)?;
        flock(file.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        serde_json::to_writer(&mut file, reserved)?;
        let file = file.persist(&path).map_err(|error| error.error)?;
        Ok(Self { path, _file: file })
    }

    /// It is given back.
    pub fn forget(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What copies have left that live no more, each with its locked file.
pub fn left(state: &Path, controller: &str, owner: &str) -> Vec<(Reserved, Kept)> {
    let entries = std::fs::read_dir(state.join(DIR)).into_iter().flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    let named = paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    let found = named.take(MAX_FILES).filter_map(|path| {
        let file = File::open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let mut text = Vec::new();
        (&file).take(MAX_BYTES).read_to_end(&mut text).ok()?;
        let Ok(reserved) = serde_json::from_slice::<Reserved>(&text) else {
            let _ = std::fs::remove_file(&path);
            return None;
        };
        Some((reserved, Kept { path, _file: file }))
    });
    found
        .filter(|(reserved, _)| reserved.controller == controller && reserved.owner == owner)
        .collect()
}

/// Gives back what copies have left. What cannot be given back now is by a later copy, or ends by
/// itself.
pub async fn give_back(left: Vec<(Reserved, Kept)>, controller: &Controller) {
    for (reserved, kept) in left {
        let key = encoded(&format!("left-{}", reserved.id));
        let cancel = Action::Cancel { series: false };
        match controller
            .act_on_reservation(reserved.id, cancel, &key)
            .await
        {
            Err(error) if error.is_passing() => {
                tracing::info!(id = reserved.id, %error, "what a copy has left reserved is not given back yet");
            }
            // Where the controller knows of none, or it is over, there is nothing to give back.
            _ => kept.forget(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_living_copy_has_is_left_alone_and_what_a_dead_one_had_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let reserved = Reserved {
            controller: "unix:/c".to_owned(),
            owner: "lhk1:a".to_owned(),
            id: 7,
        };
        let found = || left(dir.path(), "unix:/c", "lhk1:a");
        assert!(found().is_empty());
        let kept = Kept::keep(dir.path(), &reserved).unwrap();
        assert!(found().is_empty());
        // As a process that is killed does.
        drop(kept);
        let dead = found();
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].0, reserved);
        assert!(found().is_empty(), "one finds it at a time");
        drop(dead);
        assert!(left(dir.path(), "unix:/other", "lhk1:a").is_empty());
        found().into_iter().for_each(|(_, kept)| kept.forget());
        assert!(found().is_empty());
        std::fs::write(dir.path().join(DIR).join("x.json"), "{").unwrap();
        assert!(found().is_empty() && !dir.path().join(DIR).join("x.json").exists());
    }
}
