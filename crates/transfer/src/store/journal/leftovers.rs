//! Finds and reports what interrupted copies left in a directory, and removes what is no longer
//! used.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::format::{self, MAX_JOURNAL_BYTES};
use super::names::{Names, Role};
use super::{DirStorage, Found, ResumePoint, Storage};
use crate::error::Failure;
use crate::store::TEMP_PREFIX;
use crate::store::confine::{Dir, Kind, kind_of};

/// Maximum number of temporary files of one directory that are examined.
pub const MAX_LEFTOVERS: usize = 10_000;
/// Size of the blocks that `st_blocks` counts, in bytes (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;

/// Use of a leftover. Of several files, the last of these variants that applies to any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftoverUse {
    /// It is not being written by any copy.
    Idle,
    /// The use is unknown, as files that are written without a journal are not locked. Only the age
    /// is an indication.
    Unknown,
    /// A copy is writing it.
    InUse,
    /// It belongs to another user, or no copy creates such an entry. It is reported, and never
    /// opened or removed.
    Foreign,
}

/// Temporary files that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Their names in the directory, the journal first.
    pub names: Vec<OsString>,
    /// Final name of the file, or `None` without a journal. It may have any bytes, and must be
    /// escaped before it is displayed.
    pub target: Option<Vec<u8>>,
    /// Size of the whole file in bytes, or `None` without a journal.
    pub size: Option<u64>,
    /// Bytes from which the same copy would resume.
    pub durable_bytes: u64,
    /// Bytes that they occupy on disk.
    pub disk_bytes: u64,
    /// Time since any of them was last written.
    pub age: Duration,
    /// Use of the leftover.
    pub usage: LeftoverUse,
}

/// Returns the temporary files in this very directory: the first [`MAX_LEFTOVERS`] that the
/// operating system lists, ordered by name. Each is locked briefly while it is examined. A copy of
/// the same file that begins at this moment has no journal. Blocking.
///
/// # Errors
/// The directory cannot be read.
pub fn leftovers(dir: &Arc<Dir>) -> Result<Vec<Leftover>, Failure> {
    let storage = DirStorage(dir.clone());
    let mut left: BTreeMap<Vec<u8>, Option<(Names, Role)>> = BTreeMap::new();
    for entry in dir.entries()? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(TEMP_PREFIX.as_bytes()) && left.len() < MAX_LEFTOVERS {
            left.insert(name.to_vec(), Names::parse(name));
        }
    }
    let mut found = Vec::new();
    let journals: Vec<(Vec<u8>, Names)> = left
        .iter()
        .filter_map(|(name, parsed)| match parsed {
            Some((names, Role::Journal)) => Some((name.clone(), names.clone())),
            _ => None,
        })
        .collect();
    for (name, names) in journals {
        left.remove(&name);
        let mut leftover = look(&storage, vec![OsString::from_vec(name.clone())], true);
        if let Some(contents) = journal(&storage, OsStr::from_bytes(&name)) {
            let resume = ResumePoint {
                subtrees: contents.tree.subtrees().collect(),
                size: contents.header.size,
            };
            let data = names.data(&contents.header.data);
            if left.remove(data.as_bytes()).is_some() {
                leftover = look(&storage, vec![OsString::from_vec(name), data], true);
                leftover.durable_bytes = resume.bytes();
            }
            leftover.target = Some(contents.header.target);
            leftover.size = Some(resume.size);
        }
        found.push(leftover);
    }
    for (name, parsed) in left {
        found.push(look(
            &storage,
            vec![OsString::from_vec(name)],
            parsed.is_some(),
        ));
    }
    found.retain(|leftover| leftover.age < Duration::MAX);
    found.sort_by(|a, b| a.names.cmp(&b.names));
    Ok(found)
}

/// Removes a leftover. Returns false if a copy is writing it or it is foreign. Blocking.
///
/// # Errors
/// Those of the operating system.
pub fn remove_leftover(dir: &Arc<Dir>, leftover: &Leftover) -> Result<bool, Failure> {
    let storage = DirStorage(dir.clone());
    let mut held = Vec::new();
    for name in &leftover.names {
        let is_ours = match leftover.usage {
            LeftoverUse::InUse | LeftoverUse::Foreign => false,
            LeftoverUse::Unknown => name.as_bytes().starts_with(TEMP_PREFIX.as_bytes()),
            // Locked until both are removed, so that no copy begins to use them.
            LeftoverUse::Idle => match storage.open_own(name)? {
                Found::Own(file) if storage.lock(&file)? && storage.is_named(&file, name)? => {
                    held.push(file);
                    true
                }
                Found::Missing => true,
                _ => false,
            },
        };
        if !is_ours {
            return Ok(false);
        }
    }
    for name in &leftover.names {
        match storage.remove(name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}

/// Returns the content of a journal, if it can be read.
fn journal(storage: &DirStorage, name: &OsStr) -> Option<format::Contents> {
    let Ok(Found::Own(file)) = storage.open_own(name) else {
        return None;
    };
    format::read(&storage.read(&file, MAX_JOURNAL_BYTES).ok()?)
}

/// Examines files that belong together. The age is unlimited if there are none. With
/// `is_locked_in_use`, a copy that writes them has locked them.
fn look(storage: &DirStorage, names: Vec<OsString>, is_locked_in_use: bool) -> Leftover {
    let mut leftover = Leftover {
        names: Vec::new(),
        target: None,
        size: None,
        durable_bytes: 0,
        disk_bytes: 0,
        age: Duration::MAX,
        usage: if is_locked_in_use {
            LeftoverUse::Idle
        } else {
            LeftoverUse::Unknown
        },
    };
    for name in names {
        let Ok(stat) = storage.0.stat_name(&name) else {
            continue;
        };
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(stat.st_mtime.max(0) as u64);
        let age = SystemTime::now()
            .duration_since(written)
            .unwrap_or_default();
        leftover.age = leftover.age.min(age);
        leftover.disk_bytes += stat.st_blocks as u64 * STAT_BLOCK_BYTES;
        let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
        let usage = match (storage.open_own(&name), is_locked_in_use) {
            (Ok(Found::Own(file)), true) => match storage.lock(&file) {
                Ok(true) => LeftoverUse::Idle,
                Ok(false) => LeftoverUse::InUse,
                Err(_) => LeftoverUse::Unknown,
            },
            (Ok(Found::Own(_)), false) => LeftoverUse::Unknown,
            // A link that waits to replace another one.
            _ if !is_locked_in_use && is_own && kind_of(&stat) == Kind::Symlink => {
                LeftoverUse::Unknown
            }
            _ => LeftoverUse::Foreign,
        };
        leftover.usage = leftover.usage.max(usage);
        leftover.names.push(name);
    }
    leftover
}

#[cfg(test)]
mod tests;
