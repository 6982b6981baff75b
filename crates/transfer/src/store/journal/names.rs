//! Names of temporary files. The same copy finds them again, and two copies never write one file.
//!
//! | name | content |
//! |---|---|
//! | `.longhaul-STEM.journal` | the journal: STEM follows from the target and the source |
//! | `.longhaul-STEM.journal.new` | the journal being rewritten, until it takes the first name |
//! | `.longhaul-STEM.DATA.part` | the file being copied: DATA is random, and in the header |
//!
//! STEM and DATA are 16 bytes in hexadecimal. A journal can only ever describe the one file that
//! was created together with it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::Identity;
use crate::store::TEMP_PREFIX;

/// Context for deriving stems (BLAKE3 paper, section 2.3).
const STEM_CONTEXT: &str = "longhaul 2026 stem of a temporary file";
const JOURNAL: &str = ".journal";
const NEW_JOURNAL: &str = ".journal.new";
const PART: &str = ".part";
/// Number of letters of 16 bytes in hexadecimal.
const HEX_LETTERS: usize = 32;

/// Names that belong to one source file and its target.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Names {
    /// The stem with [`TEMP_PREFIX`].
    stem: String,
}

/// Role of a file, according to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Journal,
    NewJournal,
    Data([u8; 16]),
}

impl Names {
    /// Returns the names for the copy of a source to `target`, a name in their common directory.
    pub(super) fn of(target: &OsStr, identity: &Identity) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(STEM_CONTEXT);
        for field in [target.as_bytes(), identity.as_bytes()] {
            hasher
                .update(&(field.len() as u64).to_le_bytes())
                .update(field);
        }
        let (hash, mut stem) = (hasher.finalize(), TEMP_PREFIX.to_owned());
        hash.as_bytes()
            .iter()
            .take(16)
            .for_each(|byte| hex(*byte, &mut stem));
        Self { stem }
    }

    /// Parses the name of a file in a directory. Returns `None` for other files.
    pub(super) fn parse(name: &[u8]) -> Option<(Self, Role)> {
        let name = std::str::from_utf8(name).ok()?;
        let letters = name.strip_prefix(TEMP_PREFIX)?.get(..HEX_LETTERS)?;
        unhex(letters)?;
        let (stem, rest) = name.split_at_checked(TEMP_PREFIX.len() + HEX_LETTERS)?;
        let role = match rest {
            JOURNAL => Role::Journal,
            NEW_JOURNAL => Role::NewJournal,
            _ => Role::Data(unhex(rest.strip_prefix('.')?.strip_suffix(PART)?)?),
        };
        Some((
            Self {
                stem: stem.to_owned(),
            },
            role,
        ))
    }

    pub(super) fn journal(&self) -> OsString {
        format!("{}{JOURNAL}", self.stem).into()
    }

    pub(super) fn new_journal(&self) -> OsString {
        format!("{}{NEW_JOURNAL}", self.stem).into()
    }

    pub(super) fn data(&self, data: &[u8; 16]) -> OsString {
        let mut name = format!("{}.", self.stem);
        data.iter().for_each(|byte| hex(*byte, &mut name));
        name.push_str(PART);
        name.into()
    }
}

/// Returns true if a file of this name is a journal, or belongs to one.
pub(crate) fn is_name(name: &[u8]) -> bool {
    Names::parse(name).is_some()
}

fn hex(byte: u8, text: &mut String) {
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
    }
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    let lower = |letter: &u8| letter.is_ascii_digit() || (b'a'..=b'f').contains(letter);
    if text.len() != HEX_LETTERS || !text.as_bytes().iter().all(lower) {
        return None;
    }
    Some(u128::from_str_radix(text, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(target: &str, identity: &str) -> Names {
        Names::of(
            OsStr::new(target),
            &Identity::opaque(identity.as_bytes()).unwrap(),
        )
    }

    #[test]
    fn same_copy_finds_its_names_and_another_has_others() {
        assert_eq!(names("a", "1"), names("a", "1"));
        assert_ne!(names("a", "1"), names("b", "1"));
        assert_ne!(names("a", "1"), names("a", "2"));
        assert_ne!(names("ab", "c"), names("a", "bc"));
        let other = Names::parse(b".longhaul-000102030405060708090a0b0c0d0e0f.journal");
        assert_eq!(
            other.unwrap().0.stem,
            ".longhaul-000102030405060708090a0b0c0d0e0f"
        );
    }

    #[test]
    fn names_are_parsed_by_role() {
        let names = names("a", "1");
        let data = [0xab; 16];
        for (name, role) in [
            (names.journal(), Role::Journal),
            (names.new_journal(), Role::NewJournal),
            (names.data(&data), Role::Data(data)),
        ] {
            assert!(name.len() <= crate::path::MAX_NAME);
            assert_eq!(Names::parse(name.as_bytes()), Some((names.clone(), role)));
        }
        for other in ["", "a", ".longhaul-01020304-5", ".longhaul-", ".longhaul-é"] {
            assert_eq!(Names::parse(other.as_bytes()), None);
        }
        let upper = names.journal().to_str().unwrap().to_uppercase();
        assert_eq!(Names::parse(upper.as_bytes()), None);
    }
}
