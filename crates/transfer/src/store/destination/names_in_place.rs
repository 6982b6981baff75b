//! Names that a copy has put in place where its target takes different names for one.
//!
//! On a case-insensitive or normalising file system `A.txt` and `a.txt` of one source have one
//! target. The second of them must fail, and not replace the first. So the names that are in place
//! are remembered, but only in directories that were found to take names for one
//! ([`Dir::find_folding`]), and where two sources of a copy may have the same path. A name takes
//! 16 bytes. Past [`MAX_NAMES`], what is there under another spelling counts as the copy's own.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use longhaul_proto::text::printable;

use super::Parent;
use crate::error::{Failure, FailureKind};
use crate::lock::Locked;
use crate::path::RelPath;
use crate::store::confine::{Dir, folded};

/// Names remembered at most: 16 MiB while the table grows.
const MAX_NAMES: usize = if cfg!(test) { 64 } else { 1 << 19 };

/// The entry that put a name in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    /// Hash of the name as it is spelled.
    spelling: u32,
    /// Number of the source that it is of.
    source: u32,
}

#[derive(Debug, Default)]
struct Names {
    /// By a hash of the directory and of the name as it is folded.
    owners: HashMap<u64, Owner>,
    hasher: RandomState,
    is_full: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct NamesInPlace {
    names: Mutex<Names>,
    /// Two sources may have the same path beneath the target.
    sources_overlap: bool,
    /// A directory of this copy was found to take names for one.
    has_folding: AtomicBool,
}

/// An entry on its way to its name.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub dir: &'a Dir,
    /// Path of the directory.
    pub path: &'a RelPath,
    pub name: &'a OsStr,
    pub source: u32,
    /// Directories of one name are filled by several sources.
    pub is_directory: bool,
}

impl Parent {
    /// The file, link or other name of a file that goes here.
    pub(super) fn entry(&self) -> Entry<'_> {
        Entry {
            dir: &self.dir,
            path: &self.path,
            name: &self.name,
            source: self.source,
            is_directory: false,
        }
    }
}

/// A name that is about to be put in place. Where names are remembered, no other is meanwhile.
#[must_use]
pub(super) struct Reserved<'a> {
    names: Option<MutexGuard<'a, Names>>,
    of: &'a NamesInPlace,
}

impl NamesInPlace {
    /// `names` are those of the sources; they go beneath one directory if there are several.
    pub(super) fn new(names: &[Vec<u8>]) -> Self {
        let mut sorted: Vec<&Vec<u8>> = names.iter().collect();
        sorted.sort();
        let is_repeated = sorted.windows(2).any(|pair| pair.first() == pair.last());
        let has_contents = sorted.iter().any(|name| name.is_empty());
        Self {
            names: Mutex::default(),
            sources_overlap: sorted.len() > 1 && (is_repeated || has_contents),
            has_folding: AtomicBool::new(false),
        }
    }

    /// Whether any directory so far takes names for one.
    pub(super) fn has_folding(&self) -> bool {
        self.has_folding.load(Ordering::Relaxed)
    }

    /// Fails if what is at the entry's name is another one's of this copy.
    pub(super) fn check(&self, entry: Entry<'_>) -> Result<(), Failure> {
        self.reserve(entry).map(drop)
    }

    /// To be called before an entry takes its name, and [`Reserved::confirm`] behind it.
    pub(super) fn reserve(&self, entry: Entry<'_>) -> Result<Reserved<'_>, Failure> {
        let is_plain = !self.sources_overlap && entry.dir.distinguishes(entry.name);
        let names = (!is_plain).then(|| self.names.locked());
        if let Some(names) = &names {
            self.refuse_other(names, entry)?;
        }
        Ok(Reserved { names, of: self })
    }

    fn refuse_other(&self, names: &Names, entry: Entry<'_>) -> Result<(), Failure> {
        let own = names.owner(entry);
        match names.owners.get(&names.key(entry)) {
            Some(owner) if owner.spelling == own.spelling => {
                let is_own = entry.is_directory || owner.source == own.source;
                match is_own || entry.dir.stat_occupant(entry.name).is_err() {
                    true => Ok(()),
                    false => Err(same_path()),
                }
            }
            None if !names.is_full || !entry.dir.folds() => Ok(()),
            owner => {
                if entry.dir.stat_occupant(entry.name).is_err() {
                    return Ok(());
                }
                let spellings = spellings(entry);
                let has_entry = spellings.iter().any(|listed| listed == entry.name);
                let is_owner = |listed: &OsString| Some(names.spelling(listed)) == owner.map(|o| o.spelling);
                // Both are listed: two files after all. Of a full table, what is listed so is.
                match has_entry && (owner.is_none() || spellings.iter().any(is_owner)) {
                    true => Ok(()),
                    false => Err(one_target(entry.name, &spellings)),
                }
            }
        }
    }
}

impl Names {
    fn key(&self, entry: Entry<'_>) -> u64 {
        let path = entry.path.as_bytes();
        match entry.dir.folds() {
            true => self.hasher.hash_one((path, folded(entry.name).as_bytes())),
            false => self.hasher.hash_one((path, entry.name.as_bytes())),
        }
    }

    fn spelling(&self, name: &OsStr) -> u32 {
        self.hasher.hash_one(name.as_bytes()) as u32
    }

    fn owner(&self, entry: Entry<'_>) -> Owner {
        Owner {
            spelling: self.spelling(entry.name),
            source: entry.source,
        }
    }
}

impl Reserved<'_> {
    /// The entry has its name, or had it.
    pub(super) fn confirm(mut self, entry: Entry<'_>) {
        let Some(names) = &mut self.names else {
            return;
        };
        entry.dir.find_folding(entry.name);
        let folds = entry.dir.folds();
        if folds {
            self.of.has_folding.store(true, Ordering::Relaxed);
        }
        if !folds && !self.of.sources_overlap {
            return;
        }
        if names.owners.len() >= MAX_NAMES {
            names.is_full = true;
            return;
        }
        let (key, owner) = (names.key(entry), names.owner(entry));
        names.owners.entry(key).or_insert(owner);
    }
}

/// Names in the directory of an entry that some file system takes for its name.
fn spellings(entry: Entry<'_>) -> Vec<OsString> {
    let own = folded(entry.name);
    entry
        .dir
        .entries_where(|listed| folded(listed) == own)
        .unwrap_or_default()
}

fn one_target(name: &OsStr, listed: &[OsString]) -> Failure {
    let quoted = |name: &OsStr| format!("\"{}\"", printable(name.as_bytes()));
    let other = listed.iter().find(|listed| *listed != name);
    let other = other.map_or("another name in this copy".to_owned(), |other| quoted(other));
    let detail = format!(
        "{} and {other} are one name to the target's file system; rename one of the two, or copy \
         to a file system that tells them apart",
        quoted(name)
    );
    Failure::with(FailureKind::Io, detail)
}

fn same_path() -> Failure {
    let detail = "another source of this copy has put a file there; copy one of the two elsewhere";
    Failure::with(FailureKind::Io, detail)
}
