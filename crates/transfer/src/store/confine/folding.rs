//! Detects directories where names of different spelling stand for one file: case-insensitive ones,
//! and those that normalise Unicode.
//!
//! Each directory is tested once for each kind of difference, by looking up an existing name in
//! another spelling. On most file systems, that is one failed look-up.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU8, Ordering};

use longhaul_platform::fs;
use rustix::io::Errno;
use unicode_normalization::UnicodeNormalization;

use super::Dir;

/// Result of the test for one kind of difference.
#[derive(Debug, Default)]
struct FoldingResult(AtomicU8);

const DISTINCT: u8 = 1;
const FOLDED: u8 = 2;

impl FoldingResult {
    fn is(&self, code: u8) -> bool {
        self.0.load(Ordering::Relaxed) == code
    }

    fn set(&self, code: u8) {
        self.0.store(code, Ordering::Relaxed);
    }
}

/// Results of the tests for a directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryFolding {
    case: FoldingResult,
    forms: FoldingResult,
}

impl Dir {
    /// Returns true if names like `name` are known to stand for one file each, in every spelling.
    pub(crate) fn distinguishes(&self, name: &OsStr) -> bool {
        if self.folds() {
            return false;
        }
        // Most names have letters, and most directories are known, so the rest is checked last.
        (self.folding.case.is(DISTINCT) || other_case(name).is_none())
            && (name.as_bytes().is_ascii()
                || self.folding.forms.is(DISTINCT)
                || other_form(name).is_none())
    }

    /// Returns true if names of different spelling are known to stand for one file.
    pub(crate) fn folds(&self) -> bool {
        self.folding.case.is(FOLDED) || self.folding.forms.is(FOLDED)
    }

    /// Tests what the existing entry `name` can show.
    pub(crate) fn find_folding(&self, name: &OsStr) {
        let spellings = [
            (&self.folding.case, other_case(name)),
            (&self.folding.forms, other_form(name)),
        ];
        for (found, spelling) in spellings {
            let Some(spelling) = spelling.filter(|_| !found.is(DISTINCT) && !found.is(FOLDED))
            else {
                continue;
            };
            match self.stat_name(&spelling) {
                // This includes names that no file can have.
                Err(Errno::NOENT | Errno::INVAL | Errno::ILSEQ) => found.set(DISTINCT),
                Err(_) => {}
                // There are two entries, or one. Its listed spelling shows nothing: it may be in
                // lower case, as created, or as replaced.
                Ok(_) => match self.entries_where(|listed| listed == name || listed == spelling) {
                    Ok(listed) if listed.len() > 1 => found.set(DISTINCT),
                    Ok(_) => found.set(FOLDED),
                    Err(_) => {}
                },
            }
        }
    }

    /// Returns the names in this directory that are `wanted`. Reads the whole directory.
    pub(crate) fn entries_where(
        &self,
        wanted: impl Fn(&OsStr) -> bool,
    ) -> Result<Vec<OsString>, Errno> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(self)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if wanted(name) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

/// Returns the name in the other case, or `None` if it has no letter with two cases.
fn other_case(name: &OsStr) -> Option<OsString> {
    let swap = |letter: char| {
        let (lower, upper) = (letter.to_lowercase(), letter.to_uppercase());
        match (lower.len(), upper.len()) {
            (1, 1) if letter.is_lowercase() => upper.last(),
            (1, 1) => lower.last(),
            _ => None,
        }
        .unwrap_or(letter)
    };
    let swapped: Vec<u8> = match name.to_str() {
        Some(text) => text.chars().map(swap).collect::<String>().into_bytes(),
        None => name.as_bytes().iter().map(swap_ascii).collect(),
    };
    (swapped != name.as_bytes()).then(|| OsStr::from_bytes(&swapped).to_owned())
}

fn swap_ascii(byte: &u8) -> u8 {
    match byte.is_ascii_alphabetic() {
        true => byte ^ 0x20,
        false => *byte,
    }
}

/// Composes the name (NFC) if it is decomposed, and vice versa (Unicode Standard Annex 15). Returns
/// `None` if there is no difference.
fn other_form(name: &OsStr) -> Option<OsString> {
    let text = name.to_str().filter(|text| !text.is_ascii())?;
    let (composed, decomposed): (String, String) = (text.nfc().collect(), text.nfd().collect());
    let other = if decomposed == text {
        composed
    } else {
        decomposed
    };
    (other != text).then(|| other.into())
}

/// Returns a spelling that all names share which any file system equates: compatibly decomposed,
/// without case, invisible characters, or trailing dots and spaces. Names that share it may still
/// be two files.
pub fn folded(name: &OsStr) -> String {
    if name.as_bytes().is_ascii() {
        let text = String::from_utf8_lossy(name.as_bytes());
        return text.trim_end_matches(['.', ' ']).to_ascii_lowercase();
    }
    let text = String::from_utf8_lossy(name.as_bytes());
    let upper = text.nfkd().flat_map(char::to_uppercase);
    let lower = upper
        .flat_map(char::to_lowercase)
        .filter(|letter| !is_ignorable(*letter));
    let folded: String = lower.nfkd().collect();
    folded.trim_end_matches(['.', ' ']).to_owned()
}

/// Returns true for characters of text that file systems ignore in comparisons
/// (`Default_Ignorable_Code_Point`).
fn is_ignorable(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_fold_to_one() {
        for (one, other) in [
            ("A.txt", "a.txt"),
            ("\u{e4}", "a\u{308}"),
            ("\u{c4}rger", "a\u{308}RGER"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{3a3}", "\u{3c2}"),
            ("trail.", "trail"),
            ("\u{fb01}", "fi"),
        ] {
            assert_eq!(
                folded(one.as_ref()),
                folded(other.as_ref()),
                "{one} {other}"
            );
        }
        for (one, other) in [("a", "b"), ("\u{e4}", "a"), ("a.txt", "a.txt.gz")] {
            assert_ne!(
                folded(one.as_ref()),
                folded(other.as_ref()),
                "{one} {other}"
            );
        }
    }

    #[test]
    fn other_spellings_exist_only_for_names_with_variants() {
        assert_eq!(other_case("aB1".as_ref()), Some("Ab1".into()));
        assert_eq!(other_case("\u{e4}1".as_ref()), Some("\u{c4}1".into()));
        assert_eq!(other_case("12_3".as_ref()), None);
        assert_eq!(other_form("\u{e4}".as_ref()), Some("a\u{308}".into()));
        assert_eq!(other_form("a\u{308}".as_ref()), Some("\u{e4}".into()));
        assert_eq!(other_form("abc".as_ref()), None);
        assert_eq!(
            other_case(OsStr::from_bytes(b"\xffa")),
            Some(OsStr::from_bytes(b"\xffA").into())
        );
    }

    #[test]
    fn directory_that_distinguishes_names_is_recognised() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        // Two names of one file are no sign of folding.
        std::fs::write(tmp.path().join("Name"), "").unwrap();
        std::fs::hard_link(tmp.path().join("Name"), tmp.path().join("nAME")).unwrap();
        assert!(!dir.distinguishes("Name".as_ref()));
        dir.find_folding("Name".as_ref());
        assert!(dir.distinguishes("Name".as_ref()));
        assert!(dir.distinguishes("1234".as_ref()));
        assert!(!dir.folds());
        // Case folding says nothing about normalisation.
        assert!(!dir.distinguishes("\u{e4}".as_ref()));
        std::fs::write(tmp.path().join("\u{e4}"), "").unwrap();
        dir.find_folding("\u{e4}".as_ref());
        assert!(dir.distinguishes("\u{e4}".as_ref()));
    }
}
