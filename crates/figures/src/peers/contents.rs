//! Comparison of the arrived files with the originals by the BLAKE3 hash of every file.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Number and size of the compared files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Regular files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A file's length in bytes and its hash.
type Seal = (u64, blake3::Hash);

/// Compares an arrived file or folder with its source by the hash of every file.
///
/// # Errors
/// A file is missing, differs, is unexpected, or cannot be read.
pub fn compare(source: &Path, arrived: &Path) -> Result<Contents> {
    let expected = seals(source)?;
    let found = seals(arrived)?;
    for (name, seal) in &expected {
        match found.get(name) {
            None => bail!("{} did not arrive", source.join(name).display()),
            Some(other) if other != seal => bail!(
                "{} arrived with other bytes ({} of them, {} were expected)",
                source.join(name).display(),
                other.0,
                seal.0
            ),
            Some(_) => {}
        }
    }
    if let Some(extra) = found.keys().find(|name| !expected.contains_key(*name)) {
        bail!("{} is not in the source", arrived.join(extra).display());
    }
    Ok(Contents {
        files: expected.len() as u64,
        bytes: expected.values().map(|(bytes, _)| bytes).sum(),
    })
}

/// Returns every regular file below `path` by its relative name. If `path` is a file, that name is
/// empty.
fn seals(path: &Path) -> Result<BTreeMap<PathBuf, Seal>> {
    let mut seals = BTreeMap::new();
    let mut left = vec![path.to_path_buf()];
    while let Some(next) = left.pop() {
        let reading = || format!("cannot read {}", next.display());
        if fs::metadata(&next).with_context(reading)?.is_dir() {
            for entry in fs::read_dir(&next).with_context(reading)? {
                left.push(entry.with_context(reading)?.path());
            }
        } else {
            let mut hasher = blake3::Hasher::new();
            hasher
                .update_reader(File::open(&next).with_context(reading)?)
                .with_context(reading)?;
            let name = next.strip_prefix(path).unwrap_or(&next).to_path_buf();
            seals.insert(name, (hasher.count(), hasher.finalize()));
        }
    }
    Ok(seals)
}
