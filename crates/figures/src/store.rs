//! The file of an experiment's runs.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Store of one experiment's runs.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// Returns the store `NAME.json` in `folder`.
    pub fn open(folder: &Path, name: &str) -> Self {
        Self {
            path: folder.join(format!("{name}.json")),
        }
    }

    /// Reads all runs. The result is empty if the file does not exist.
    ///
    /// # Errors
    /// The file exists but cannot be read or parsed.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        match fs::read(&self.path) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| {
                format!(
                    "{} does not parse: measure again, or remove it",
                    self.path.display()
                )
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
            Err(error) => {
                Err(error).with_context(|| format!("cannot read {}", self.path.display()))
            }
        }
    }

    /// Writes all runs, one a line, so that a change of one run is one line of a diff. The old file
    /// stays until the new one is complete.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write<T: Serialize>(&self, runs: &[T]) -> Result<()> {
        replace(&self.path, &Self::text(runs)?)
    }

    /// Returns the text of a file that holds `runs`.
    ///
    /// # Errors
    /// A run cannot be written as JSON.
    pub fn text<T: Serialize>(runs: &[T]) -> Result<String> {
        let lines: Vec<String> = runs
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<_, _>>()?;
        Ok(format!("[\n{}\n]\n", lines.join(",\n")))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes a file next to the old one and renames it, so that an interruption loses nothing.
///
/// # Errors
/// The file cannot be written.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut part = tempfile::NamedTempFile::new_in(folder)?;
        part.write_all(text.as_bytes())?;
        // A temporary file is private to its owner, but everybody may read a page.
        part.as_file()
            .set_permissions(fs::Permissions::from_mode(0o644))?;
        part.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_runs_are_restored_and_no_file_means_no_runs() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), "some");
        assert!(store.read::<f64>().unwrap().is_empty());
        let runs = [0.1, 1.0 / 3.0, 1e300];
        store.write(&runs).unwrap();
        assert_eq!(store.read::<f64>().unwrap(), runs);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_does_not_parse_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("some.json"), "[1,").unwrap();
        let error = Store::open(folder.path(), "some")
            .read::<f64>()
            .unwrap_err();
        assert!(format!("{error:#}").contains("some.json"), "{error:#}");
    }
}
