//! Names that a copy has put in place, if its target equates different names.
//!
//! On a case-insensitive or normalising file system, `A.txt` and `a.txt` of one source have one
//! target. The second of them must fail and not replace the first. Names in place are therefore
//! remembered, but only in directories that were found to equate names ([`Dir::find_folding`]), and
//! if two sources of a copy may have the same path. A name takes 17 bytes besides its own. Beyond
//! [`MAX_NAMES`] and [`MAX_NAME_BYTES`], an entry in another spelling counts as the copy's own.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::text::printable;
use parking_lot::{Mutex, MutexGuard};

use super::Parent;
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::store::confine::{Dir, folded};

/// Maximum number of names: a table of 16 MiB while it grows.
const MAX_NAMES: usize = if cfg!(test) { 64 } else { 1 << 19 };
/// Maximum number of bytes of all names.
const MAX_NAME_BYTES: usize = 16 << 20;

/// The entry that put a name in place.
#[derive(Debug, Clone, Copy)]
struct Owner {
    /// Offset of the name, as it is spelled, in the bytes of all names.
    begin: u32,
    /// Number of its source.
    source: u32,
}

#[derive(Debug, Default)]
struct Names {
    /// Owners by a hash of the directory and the folded name.
    owners: HashMap<u64, Owner>,
    /// The names, each preceded by its length.
    bytes: Vec<u8>,
    hasher: RandomState,
    is_full: bool,
}

/// Names that a copy has put in place.
#[derive(Debug)]
pub(super) struct NamesInPlace {
    names: Mutex<Names>,
    /// True if two sources may have the same path beneath the target.
    sources_overlap: bool,
    /// True if a directory of this copy was found to equate names.
    has_folding: AtomicBool,
}

/// The names in one directory, as its file system equates them.
pub(super) trait Directory {
    /// Returns true if names like `name` are known to stand for one entry each.
    fn distinguishes(&self, name: &OsStr) -> bool;
    /// Returns true if names of different spelling are known to stand for one entry.
    fn folds(&self) -> bool;
    /// Tests whether names are equated, by the existing `name`.
    fn find_folding(&self, name: &OsStr);
    /// Returns true if `name` is found, in any spelling.
    fn has(&self, name: &OsStr) -> bool;
    /// Returns the names of entries that fold to `name`, as they are spelled.
    fn spellings(&self, folded: &str) -> Vec<OsString>;
}

impl Directory for Dir {
    fn distinguishes(&self, name: &OsStr) -> bool {
        self.distinguishes(name)
    }

    fn folds(&self) -> bool {
        self.folds()
    }

    fn find_folding(&self, name: &OsStr) {
        self.find_folding(name);
    }

    fn has(&self, name: &OsStr) -> bool {
        self.stat_occupant(name).is_ok()
    }

    fn spellings(&self, name: &str) -> Vec<OsString> {
        self.entries_where(|listed| folded(listed) == name)
            .unwrap_or_default()
    }
}

/// An entry that is about to be put in place.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub dir: &'a dyn Directory,
    /// Path of its directory.
    pub path: &'a RelPath,
    pub name: &'a OsStr,
    pub source: u32,
    /// True for a directory. Several sources may fill directories of the same name.
    pub is_directory: bool,
}

impl Parent {
    /// Returns the file or link at this location.
    pub(super) fn entry(&self) -> Entry<'_> {
        Entry {
            dir: &*self.dir,
            path: &self.path,
            name: &self.name,
            source: self.source,
            is_directory: false,
        }
    }
}

/// A name that is about to be put in place. If names are remembered, it holds their lock.
#[must_use]
pub(super) struct Reserved<'a> {
    names: Option<MutexGuard<'a, Names>>,
    in_place: &'a NamesInPlace,
}

impl NamesInPlace {
    /// Creates the set. `names` are those of the sources, which go beneath one directory if there
    /// are several.
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

    /// Returns true if any directory so far equates names.
    pub(super) fn has_folding(&self) -> bool {
        self.has_folding.load(Ordering::Relaxed)
    }

    /// Fails if the existing entry of that name belongs to another entry of this copy.
    pub(super) fn check(&self, entry: Entry<'_>) -> Result<(), Failure> {
        self.reserve(entry).map(drop)
    }

    /// Reserves the name of an entry. Must be called before the entry takes it, and followed by
    /// [`Reserved::confirm`].
    pub(super) fn reserve(&self, entry: Entry<'_>) -> Result<Reserved<'_>, Failure> {
        let is_plain = !self.sources_overlap && entry.dir.distinguishes(entry.name);
        let names = (!is_plain).then(|| self.names.lock());
        if let Some(names) = &names {
            self.refuse_other(names, entry)?;
        }
        Ok(Reserved {
            names,
            in_place: self,
        })
    }

    fn refuse_other(&self, names: &Names, entry: Entry<'_>) -> Result<(), Failure> {
        if !entry.dir.has(entry.name) {
            return Ok(());
        }
        // The directory may have been reopened, and its test results lost.
        entry.dir.find_folding(entry.name);
        let owner = names.owners.get(&names.key(entry));
        let spelling = owner.map(|owner| names.spelling(*owner));
        match owner.zip(spelling) {
            Some((owner, spelling)) if spelling == entry.name => {
                let is_own = entry.is_directory || owner.source == entry.source;
                return if is_own { Ok(()) } else { Err(same_path()) };
            }
            None if !names.is_full || !entry.dir.folds() => return Ok(()),
            _ => {}
        }
        let listed = entry.dir.spellings(&folded(entry.name));
        let is_listed = |name: &OsStr| listed.iter().any(|listed| listed == name);
        // If both are listed, they are two files. If the table is full, a listed name counts as its
        // own.
        if is_listed(entry.name) && spelling.is_none_or(is_listed) {
            return Ok(());
        }
        let other = spelling.or(listed.first().map(OsString::as_os_str));
        Err(one_target(entry.name, other.unwrap_or(entry.name)))
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

    fn spelling(&self, owner: Owner) -> &OsStr {
        let rest = self
            .bytes
            .get(owner.begin as usize..)
            .and_then(<[u8]>::split_first);
        let name = rest.and_then(|(length, rest)| rest.get(..usize::from(*length)));
        OsStr::from_bytes(name.unwrap_or_default())
    }

    fn insert(&mut self, entry: Entry<'_>) {
        let key = self.key(entry);
        if self.owners.contains_key(&key) {
            return;
        }
        // A name has at most 255 bytes (LH-COPY-3), and the offset fits because the total is
        // bounded.
        let name = entry.name.as_bytes();
        let (Ok(length), Ok(begin)) = (u8::try_from(name.len()), u32::try_from(self.bytes.len()))
        else {
            return;
        };
        if self.owners.len() >= MAX_NAMES || self.bytes.len() + name.len() >= MAX_NAME_BYTES {
            self.is_full = true;
            return;
        }
        self.bytes.push(length);
        self.bytes.extend_from_slice(name);
        let source = entry.source;
        self.owners.insert(key, Owner { begin, source });
    }
}

impl Reserved<'_> {
    /// Confirms that the entry has its name now, or had it already.
    pub(super) fn confirm(mut self, entry: Entry<'_>) {
        let Some(names) = &mut self.names else {
            return;
        };
        entry.dir.find_folding(entry.name);
        let folds = entry.dir.folds();
        if folds {
            self.in_place.has_folding.store(true, Ordering::Relaxed);
        }
        if !folds && !self.in_place.sources_overlap {
            return;
        }
        names.insert(entry);
    }
}

fn one_target(name: &OsStr, other: &OsStr) -> Failure {
    let [name, other] = [name, other].map(|name| printable(name.as_bytes()));
    let detail = format!(
        "\"{name}\" and \"{other}\" are one name to the target's file system; rename one of the \
         two, or copy to a file system that tells them apart"
    );
    Failure::with(FailureKind::RefusedPath, detail)
}

fn same_path() -> Failure {
    let detail = "another source of this copy has put a file there; copy one of the two elsewhere";
    Failure::with(FailureKind::RefusedPath, detail)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A directory that may ignore case, and keeps the spelling of the first entry.
    struct TestDirectory {
        ignores_case: bool,
        names: RefCell<Vec<OsString>>,
        folds: Cell<Option<bool>>,
    }

    impl TestDirectory {
        fn new(ignores_case: bool, names: &[&str]) -> Self {
            Self {
                ignores_case,
                names: RefCell::new(names.iter().map(OsString::from).collect()),
                folds: Cell::new(None),
            }
        }

        fn entry<'a>(&'a self, path: &'a RelPath, name: &'a str, source: u32) -> Entry<'a> {
            Entry {
                dir: self,
                path,
                name: name.as_ref(),
                source,
                is_directory: false,
            }
        }

        /// Puts a name in place, as a copy does.
        fn put(&self, names: &NamesInPlace, name: &str, source: u32) -> Result<(), Failure> {
            let path = RelPath::root();
            let entry = self.entry(&path, name, source);
            let reserved = names.reserve(entry)?;
            if !self.has(name.as_ref()) {
                self.names.borrow_mut().push(name.into());
            }
            reserved.confirm(entry);
            Ok(())
        }
    }

    impl Directory for TestDirectory {
        fn distinguishes(&self, _: &OsStr) -> bool {
            self.folds.get() == Some(false)
        }

        fn folds(&self) -> bool {
            self.folds.get() == Some(true)
        }

        fn find_folding(&self, _: &OsStr) {
            self.folds.set(Some(self.ignores_case));
        }

        fn has(&self, name: &OsStr) -> bool {
            let mut names = self.names.borrow().clone().into_iter();
            names.any(|listed| {
                listed == name || (self.ignores_case && listed.eq_ignore_ascii_case(name))
            })
        }

        fn spellings(&self, name: &str) -> Vec<OsString> {
            let names = self.names.borrow().clone().into_iter();
            names.filter(|listed| folded(listed) == name).collect()
        }
    }

    fn one_source() -> NamesInPlace {
        NamesInPlace::new(&[b"source".to_vec()])
    }

    #[test]
    fn second_spelling_is_refused_with_both_names() {
        let (names, directory) = (one_source(), TestDirectory::new(true, &[]));
        directory.put(&names, "A.txt", 0).unwrap();
        assert!(names.has_folding());
        // A repetition of the same entry is not another one.
        directory.put(&names, "A.txt", 0).unwrap();
        let refused = directory.put(&names, "a.txt", 0).unwrap_err();
        assert!(
            refused.detail.contains("\"a.txt\" and \"A.txt\""),
            "{refused}"
        );
        directory.put(&names, "b.txt", 0).unwrap();
    }

    #[test]
    fn existing_entry_is_taken_by_one_spelling_only() {
        let (names, directory) = (one_source(), TestDirectory::new(true, &["A.txt"]));
        directory.put(&names, "a.txt", 0).unwrap();
        // It still has its first spelling.
        let refused = directory.put(&names, "A.txt", 0).unwrap_err();
        assert!(
            refused.detail.starts_with("\"A.txt\" and \"a.txt\""),
            "{refused}"
        );
    }

    #[test]
    fn reopened_directory_is_tested_again() {
        let (names, directory) = (one_source(), TestDirectory::new(true, &[]));
        directory.put(&names, "A.txt", 0).unwrap();
        directory.folds.set(None);
        directory.put(&names, "a.txt", 0).unwrap_err();
    }

    #[test]
    fn nothing_is_remembered_if_names_are_distinguished() {
        let (names, directory) = (one_source(), TestDirectory::new(false, &[]));
        for name in ["A.txt", "a.txt", "A.txt"] {
            directory.put(&names, name, 0).unwrap();
        }
        assert!(names.names.lock().owners.is_empty());
        assert!(!names.has_folding());
    }

    #[test]
    fn similar_names_are_two_files() {
        let (names, directory) = (one_source(), TestDirectory::new(true, &[]));
        // Some file systems equate these names, but this one does not.
        for _ in 0..2 {
            directory.put(&names, "file", 0).unwrap();
            directory.put(&names, "\u{fb01}le", 0).unwrap();
        }
    }

    #[test]
    fn overlapping_sources_share_directories_and_no_file() {
        let names = NamesInPlace::new(&[vec![], b"other".to_vec()]);
        let directory = TestDirectory::new(false, &[]);
        directory.put(&names, "f", 0).unwrap();
        directory.put(&names, "f", 0).unwrap();
        directory.put(&names, "f", 1).unwrap_err();
        directory.put(&names, "F", 1).unwrap();
        let (path, both) = (
            RelPath::root(),
            NamesInPlace::new(&[b"d".to_vec(), b"d".to_vec()]),
        );
        for source in 0..2 {
            let entry = Entry {
                is_directory: true,
                ..directory.entry(&path, "d", source)
            };
            both.reserve(entry).unwrap().confirm(entry);
        }
    }

    #[test]
    fn beyond_the_bound_other_spellings_count_as_own() {
        let (names, directory) = (one_source(), TestDirectory::new(true, &["OLD", "same"]));
        for number in 0..2 * MAX_NAMES {
            directory.put(&names, &format!("n{number}"), 0).unwrap();
        }
        assert_eq!(names.names.lock().owners.len(), MAX_NAMES);
        directory.put(&names, "same", 0).unwrap();
        let last = format!("N{}", 2 * MAX_NAMES - 1);
        for other in [last.as_str(), "old"] {
            directory.put(&names, other, 0).unwrap_err();
        }
    }
}
