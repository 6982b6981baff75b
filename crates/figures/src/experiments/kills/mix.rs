//! Copied data and the check of its arrival: small files, a large one and medium ones, in the order
//! of the walk.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::dataset::sized_file;
use crate::tools::Tools;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Numbers of small and medium files with the bytes of each, and the bytes of the large file.
pub const SMALL_FILES: u64 = 300;
const SMALL_BYTES: u64 = 4 * KIB;
const LARGE_BYTES: u64 = 28 * MIB;
/// Name of the large file.
pub const LARGE_FILE: &str = "b/large";
const MIDDLE_FILES: u64 = 8;
const MIDDLE_BYTES: u64 = MIB + 300 * KIB;
/// Total of files and total of bytes.
pub const FILES: u64 = SMALL_FILES + 1 + MIDDLE_FILES;
pub const BYTES: u64 = SMALL_FILES * SMALL_BYTES + LARGE_BYTES + MIDDLE_FILES * MIDDLE_BYTES;

/// Name of the folder.
pub const NAME: &str = "mix";

/// The source files.
pub struct Mix {
    /// The folder that holds [`NAME`].
    pub root: PathBuf,
}

/// Difference between the sent and the arrived files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Bytes that arrived with another value.
    pub wrong_bytes: u64,
    /// Files that are missing or have another length.
    pub lost_files: u64,
    /// Names of unfinished files.
    pub leftovers: u64,
}

impl Mix {
    /// Writes the files.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn make(tools: &Tools) -> Result<Self> {
        let root = tools.scratch.path().join("kills");
        for (name, bytes) in files() {
            sized_file(
                &root.join(NAME).join(&name),
                bytes,
                bytes ^ name.len() as u64,
            )?;
        }
        Ok(Self { root })
    }

    /// Compares the content of the folder `arrived` with the source.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn compare(&self, arrived: &Path) -> Result<Difference> {
        let mut difference = Difference {
            leftovers: leftovers(arrived),
            ..Difference::default()
        };
        for (name, bytes) in files() {
            let source = self.root.join(NAME).join(&name);
            let sent =
                fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
            let there = fs::read(arrived.join(NAME).join(&name)).unwrap_or_default();
            if there.len() as u64 != bytes {
                difference.lost_files += 1;
            }
            difference.wrong_bytes +=
                sent.iter().zip(&there).filter(|(a, b)| a != b).count() as u64;
        }
        Ok(difference)
    }
}

/// Returns the name and the size of every file.
fn files() -> impl Iterator<Item = (String, u64)> {
    let small = (0..SMALL_FILES).map(|file| (format!("a/{:02}/{file:03}", file / 20), SMALL_BYTES));
    let middle = (0..MIDDLE_FILES).map(|file| (format!("c/{file}"), MIDDLE_BYTES));
    small
        .chain([(LARGE_FILE.to_owned(), LARGE_BYTES)])
        .chain(middle)
}

/// Returns the number of names of unfinished files beneath `folder`.
fn leftovers(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let is_one = entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(b".longhaul-");
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            u64::from(is_one)
                + if is_folder {
                    leftovers(&entry.path())
                } else {
                    0
                }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_differing_files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("sent");
        let arrived = folder.path().join("arrived");
        for (name, bytes) in files() {
            for place in [&root, &arrived] {
                // Sparse, because the content is not under test.
                let path = place.join(NAME).join(&name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::File::create(path).unwrap().set_len(bytes).unwrap();
            }
        }
        let mix = Mix { root };
        assert_eq!(mix.compare(&arrived).unwrap(), Difference::default());
        fs::remove_file(arrived.join(NAME).join("a/00/003")).unwrap();
        let mut other = vec![0; SMALL_BYTES as usize];
        other[17] = 1;
        fs::write(arrived.join(NAME).join("a/01/020"), other).unwrap();
        fs::write(arrived.join(NAME).join("c/.longhaul-0"), "").unwrap();
        let expected = Difference {
            wrong_bytes: 1,
            lost_files: 1,
            leftovers: 1,
        };
        assert_eq!(mix.compare(&arrived).unwrap(), expected);
    }
}
