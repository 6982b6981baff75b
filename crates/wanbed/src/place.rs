//! Location of a running lab: a directory per lab with its control socket. The directory is locked
//! as long as the lab's process or its reaper lives. One that can be locked is left over from a
//! crash and is removed.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result, WhileDoing};

const SOCKET: &str = "control";
const LONGEST_NAME: usize = 64;

/// Returns the directory that holds one directory per lab of this user, and exists while there are
/// any: `/run/wanbed` for root, `$XDG_RUNTIME_DIR/wanbed` for others, or `/tmp/wanbed-UID` if that
/// is not set.
pub(crate) fn base() -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let path = match runtime {
        _ if user == 0 => PathBuf::from("/run/wanbed"),
        Some(directory) if owner(&directory) == Some(user) => directory.join("wanbed"),
        _ => PathBuf::from(format!("/tmp/wanbed-{user}")),
    };
    check_owner(&path)?;
    Ok(path)
}

/// Refuses a directory that belongs to another user.
fn check_owner(path: &Path) -> Result<()> {
    let user = rustix::process::geteuid().as_raw();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) if owner(path) == Some(user) => Ok(()),
        _ => Err(Error::System {
            doing: format!("using {}", path.display()),
            source: io::Error::other("it is not a directory of this user"),
        }),
    }
}

fn owner(path: &Path) -> Option<u32> {
    // A symbolic link would let another user redirect files.
    std::fs::symlink_metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_dir)
        .map(|found| found.uid())
}

fn private_directory(path: &Path) -> Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).while_doing(|| format!("making {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Checks that `name` can name a lab.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
    {
        Ok(())
    } else {
        Err(Error::BadName(name.to_owned()))
    }
}

/// Returns the path of a lab's control socket in its directory.
pub(crate) fn socket(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}

/// A lab's directory, claimed for this process.
#[derive(Debug)]
pub(crate) struct LabClaim {
    pub(crate) directory: PathBuf,
    lock: File,
}

impl LabClaim {
    /// Claims the name, and removes what a crashed lab left under it.
    pub(crate) fn new(base: &Path, name: &str) -> Result<Self> {
        check_name(name)?;
        let directory = base.join(name);
        // Other labs that end meanwhile may remove either directory while it is empty. That cannot
        // continue forever.
        loop {
            private_directory(base)?;
            check_owner(base)?;
            let made = private_directory(&directory).and_then(|()| {
                File::open(&directory).while_doing(|| format!("opening {}", directory.display()))
            });
            let lock = match made {
                Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    continue;
                }
                made => made?,
            };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Err(Error::NameTaken(name.to_owned()));
            }
            // Another lab may have removed it between creating and locking it. The lock then holds
            // a directory that is gone.
            let held = lock
                .metadata()
                .while_doing(|| format!("reading {}", directory.display()))?;
            if std::fs::symlink_metadata(&directory).is_ok_and(|found| found.ino() == held.ino()) {
                let _ = std::fs::remove_file(socket(&directory));
                return Ok(LabClaim { directory, lock });
            }
        }
    }

    /// Returns the lock, for the reaper to hold: the name is free again only when both are gone.
    pub(crate) fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }
}

/// Removes a lab's directory, and the directory of labs after the last of them.
pub(crate) fn remove_lab(directory: &Path) {
    let _ = std::fs::remove_file(socket(directory));
    let _ = std::fs::remove_dir(directory);
    if let Some(base) = directory.parent() {
        let _ = std::fs::remove_dir(base); // refused while there are others
    }
}

/// Waits until no process holds the lab.
pub(crate) fn wait_until_free(directory: &Path) {
    if let Ok(lock) = File::open(directory) {
        let _ = flock(&lock, FlockOperation::LockShared);
    }
}

/// Returns the names of the running labs, sorted, and removes what crashed labs left.
pub(crate) fn labs(base: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let entries = match std::fs::read_dir(base) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        entries => entries.while_doing(|| format!("reading {}", base.display()))?,
    };
    for entry in entries {
        let path = entry
            .while_doing(|| format!("reading {}", base.display()))?
            .path();
        let Some(name) = path
            .file_name()
            .and_then(|name| name.to_str())
            .map(str::to_owned)
        else {
            continue;
        };
        let Ok(lock) = File::open(&path) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_lab(&path);
        } else if socket(&path).exists() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_until_its_holder_is_gone() {
        let base = tempfile::tempdir().unwrap();
        let first = LabClaim::new(base.path(), "lab").unwrap();
        assert!(matches!(
            LabClaim::new(base.path(), "lab"),
            Err(Error::NameTaken(_))
        ));
        let reaper = first.lock().unwrap();
        drop(first);
        assert!(
            matches!(LabClaim::new(base.path(), "lab"), Err(Error::NameTaken(_))),
            "the reaper still holds it"
        );
        drop(reaper);
        assert!(LabClaim::new(base.path(), "lab").is_ok());
    }

    #[test]
    fn leftovers_of_a_crash_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let crashed = base.path().join("crashed");
        std::fs::create_dir(&crashed).unwrap();
        std::fs::write(socket(&crashed), "").unwrap();
        let alive = LabClaim::new(base.path(), "alive").unwrap();
        std::fs::write(socket(&alive.directory), "").unwrap();
        assert_eq!(labs(base.path()).unwrap(), ["alive"]);
        assert!(!crashed.exists());
    }

    #[test]
    fn names_that_would_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "a/b", ".hidden", "a b", &"x".repeat(65)] {
            assert!(
                matches!(check_name(name), Err(Error::BadName(_))),
                "{name:?}"
            );
        }
        assert!(check_name("run-12_a.b").is_ok());
    }
}
