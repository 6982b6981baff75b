//! Rules of `.longhaulignore` files in a tree. They match as those of `.gitignore` do: the last
//! rule that matches decides, and a file applies to its directory and all directories below it.

#![deny(clippy::indexing_slicing)] // the files are anyone's

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Name of a file with rules for its directory.
pub const IGNORE_FILE_NAME: &str = ".longhaulignore";
/// Maximum size of such a file, in bytes. What is behind it is not read.
pub const MAX_IGNORE_FILE_BYTES: usize = 64 << 10;

/// Rules of directories.
#[derive(Debug, Default)]
pub struct IgnoreRules {
    /// Rules of each directory that has some, by its path.
    directories: BTreeMap<Vec<u8>, DirectoryRules>,
}

#[derive(Debug)]
struct DirectoryRules {
    rules: Gitignore,
    /// Length of their text, in bytes.
    text_bytes: usize,
}

impl IgnoreRules {
    /// Forgets all directories that are not above `path`. A walk that goes deep first needs no
    /// others.
    pub fn retain_above(&mut self, path: &[u8]) {
        self.directories
            .retain(|above, _| beneath(path, above).is_some());
    }

    /// Adds the rules of the directory at `path`: the text of its file. Invalid rules are skipped,
    /// as git does.
    pub fn add(&mut self, path: &[u8], text: &[u8]) {
        let text = text.get(..MAX_IGNORE_FILE_BYTES).unwrap_or(text);
        let mut builder = GitignoreBuilder::new("");
        for line in String::from_utf8_lossy(text).lines() {
            let _ = builder.add_line(None, line);
        }
        if let Ok(rules) = builder.build() {
            let text_bytes = text.len();
            let rules = DirectoryRules { rules, text_bytes };
            self.directories.insert(path.to_vec(), rules);
        }
    }

    /// Returns the length of the texts whose rules are remembered, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.directories
            .values()
            .map(|rules| rules.text_bytes)
            .sum()
    }

    /// Returns true if the entry at `path` is left out. Rules of a directory precede those of the
    /// directories above it.
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        if self.directories.is_empty() {
            return false;
        }
        let ends = path
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, byte)| **byte == b'/');
        let above = ends
            .filter_map(|(end, _)| path.get(..end))
            .chain([&b""[..]]);
        for (above, rules) in above.filter_map(|above| self.directories.get_key_value(above)) {
            let Some(below) = beneath(path, above).filter(|below| !below.is_empty()) else {
                continue;
            };
            match rules
                .rules
                .matched(Path::new(OsStr::from_bytes(below)), is_directory)
            {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

/// Returns the rest of `path` below `directory`, which is empty for the directory itself.
fn beneath<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(directory)? {
        rest if directory.is_empty() || rest.is_empty() => Some(rest),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_apply_to_their_directories() {
        let mut rules = IgnoreRules::default();
        rules.add(b"", b"*.o\n/build/\n!keep.o\n");
        assert!(rules.leaves_out(b"a.o", false) && !rules.leaves_out(b"keep.o", false));
        assert!(rules.leaves_out(b"build", true) && !rules.leaves_out(b"build", false));
        rules.add(b"sub", b"!a.o\nlocal\n");
        assert!(!rules.leaves_out(b"sub/a.o", false) && rules.leaves_out(b"sub/b.o", false));
        assert!(rules.leaves_out(b"sub/local", false) && rules.leaves_out(b"sub/x/local", false));
        assert!(!rules.leaves_out(b"sub/build", true), "anchored at the top");
        assert!(
            rules.leaves_out(b"subway/a.o", false) && !rules.leaves_out(b"subway/local", false)
        );
        assert_eq!(rules.text_bytes(), 31);
        rules.retain_above(b"subway");
        assert_eq!(rules.text_bytes(), 20);
        assert!(rules.leaves_out(b"a.o", false) && !rules.leaves_out(b"sub/local", false));
    }

    #[test]
    fn names_of_any_bytes_are_matched() {
        let mut rules = IgnoreRules::default();
        rules.add(b"", b"*.tmp\n\xff\n");
        assert!(rules.leaves_out(b"\xfe.tmp", false) && !rules.leaves_out(b"\xfe", false));
    }
}
