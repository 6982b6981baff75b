//! Data that compression or delta may keep off the network. It is the same on every machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::SavingsPath;
use crate::copy::Source;
use crate::dataset::{filled_file, sized_file, stream};
use crate::experiments::copy::data::Data;
use crate::text::Text;
use crate::tools::Tools;

/// Seed of the large files.
const SEED: u64 = 1;
/// Seed of a file that has nothing in common with them.
const OTHER_SEED: u64 = 2;
/// Bytes of a part that is changed, and the one in so many parts that is.
const PART_BYTES: usize = 4096;
const CHANGED_PARTS: u32 = 100;
/// Bytes that the newer file has before those of the older one: no multiple of any block.
const INSERTED_BYTES: u64 = 4321;
/// Time by which the older file is older.
const AGE: Duration = Duration::from_secs(3600);

/// Data of a copy, and what the target has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SavedData {
    /// A file of text.
    Text,
    /// A file of random bytes.
    Random,
    /// 3,000 files of text with the sizes of a source tree.
    SmallTexts,
    /// A file of random bytes, of which the target has an older version: one part of 4 KiB in a
    /// hundred differs.
    Scattered,
    /// The same, but the older version lacks some bytes at the front.
    Inserted,
    /// The same, but the older version has nothing in common with the newer one.
    Unrelated,
}

impl SavedData {
    pub const ALL: [Self; 6] = [
        Self::Text,
        Self::Random,
        Self::SmallTexts,
        Self::Scattered,
        Self::Inserted,
        Self::Unrelated,
    ];

    /// Returns true if the target has an older version.
    pub const fn has_older(self) -> bool {
        matches!(self, Self::Scattered | Self::Inserted | Self::Unrelated)
    }

    /// Returns a title, for a heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Text => "A file of text",
            Self::Random => "A file of random bytes",
            Self::SmallTexts => "3,000 small files of text",
            Self::Scattered => "A file of which 1 % changed, in scattered places",
            Self::Inserted => "A file with bytes inserted at its front",
            Self::Unrelated => "A file that has nothing in common with the one it replaces",
        }
    }

    /// Returns the bytes of the source.
    pub fn bytes(self, path: SavingsPath) -> u64 {
        match self {
            Self::SmallTexts => Data::SourceTree.extent().1,
            _ => path.file_bytes(),
        }
    }

    /// Returns the approximate share of its bytes that travels, over all programs.
    pub const fn travelling_share(self) -> f64 {
        match self {
            Self::Text | Self::SmallTexts => 0.6,
            Self::Random | Self::Unrelated => 1.0,
            Self::Scattered | Self::Inserted => 0.3,
        }
    }

    /// Returns the source. It is written when it is first needed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn prepare(self, tools: &Tools, path: SavingsPath) -> Result<Source> {
        self.write(&tools.scratch.path().join("savings"), self.bytes(path))
    }

    /// Writes what is not there yet below `root`.
    fn write(self, root: &Path, bytes: u64) -> Result<Source> {
        let source = Source {
            root: root.to_path_buf(),
            name: match self {
                Self::Text => format!("{bytes}.txt"),
                Self::SmallTexts => "small-texts".to_owned(),
                _ => format!("{bytes}.bin"),
            },
        };
        let whole = root.join(&source.name);
        match self {
            Self::Text => text_file(&whole, bytes, SEED)?,
            Self::SmallTexts => {
                for (nth, (name, bytes)) in Data::SourceTree.files().into_iter().enumerate() {
                    text_file(&whole.join(name), bytes, nth as u64)?;
                }
            }
            _ => sized_file(&whole, bytes, SEED)?,
        }
        if self.has_older() {
            self.write_older(&older_path(self, root, bytes), bytes)?;
        }
        Ok(source)
    }

    fn write_older(self, path: &Path, bytes: u64) -> Result<()> {
        match self {
            Self::Scattered => {
                let (mut bytes_of, mut random) = (stream(SEED), changes());
                filled_file(path, bytes, |chunk| {
                    bytes_of.fill(chunk);
                    change(chunk, &mut random);
                })
            }
            Self::Inserted => {
                let mut bytes_of = stream(SEED);
                bytes_of.set_position(INSERTED_BYTES);
                filled_file(path, bytes - INSERTED_BYTES, |chunk| bytes_of.fill(chunk))
            }
            _ => sized_file(path, bytes, OTHER_SEED),
        }
    }

    /// Puts the older version into the folder `to`, under the name of the source and with an
    /// earlier time. Does nothing if there is none.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn place_older(self, source: &Source, bytes: u64, to: &Path) -> Result<()> {
        if !self.has_older() {
            return Ok(());
        }
        let newer = source.root.join(&source.name);
        let older = to.join(&source.name);
        let place = || -> std::io::Result<()> {
            fs::copy(older_path(self, &source.root, bytes), &older)?;
            let time = fs::metadata(&newer)?.modified()? - AGE;
            File::options().write(true).open(&older)?.set_modified(time)
        };
        place().with_context(|| format!("cannot make {}", older.display()))
    }
}

fn text_file(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut text = Text::new(seed);
    filled_file(path, bytes, |chunk| text.fill(chunk))
}

/// Returns the path of the older version of a file of so many bytes, outside the served root.
fn older_path(data: SavedData, root: &Path, bytes: u64) -> PathBuf {
    let name = match data {
        SavedData::Scattered => "scattered",
        SavedData::Inserted => "inserted",
        _ => "unrelated",
    };
    root.with_extension("older")
        .join(format!("{name}-{bytes}.bin"))
}

/// Returns the source of the places that change.
fn changes() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(SEED)
}

/// Changes every byte of one part in a hundred.
fn change(chunk: &mut [u8], random: &mut impl RngExt) {
    for part in chunk.chunks_mut(PART_BYTES) {
        if random.random_range(0..CHANGED_PARTS) == 0 {
            part.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 8 << 20;

    /// Writes the data, and returns its newer and its older version.
    fn versions(data: SavedData) -> (Vec<u8>, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let source = data.write(&folder.path().join("savings"), BYTES).unwrap();
        let target = tempfile::tempdir().unwrap();
        data.place_older(&source, BYTES, target.path()).unwrap();
        let [newer, older] = [&source.root, target.path()].map(|root| root.join(&source.name));
        let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(time(&newer) - AGE, time(&older));
        (fs::read(newer).unwrap(), fs::read(older).unwrap())
    }

    #[test]
    fn one_percent_is_changed_in_many_places() {
        let (newer, older) = versions(SavedData::Scattered);
        assert_eq!(newer.len(), older.len());
        let parts = newer.chunks(PART_BYTES).zip(older.chunks(PART_BYTES));
        let changed = parts.filter(|(newer, older)| newer != older).count();
        assert!((10..35).contains(&changed), "{changed} of 2048");
    }

    #[test]
    fn inserted_bytes_are_at_the_front() {
        let (newer, older) = versions(SavedData::Inserted);
        assert!(newer[INSERTED_BYTES as usize..] == older);
    }

    #[test]
    fn unrelated_versions_differ_everywhere() {
        let (newer, older) = versions(SavedData::Unrelated);
        assert_eq!(newer.len(), older.len());
        let mut parts = newer.chunks(16).zip(older.chunks(16));
        assert!(parts.all(|(newer, older)| newer != older));
    }

    #[test]
    fn data_without_an_older_version_leaves_the_target_empty() {
        let folder = tempfile::tempdir().unwrap();
        let source = SavedData::Text
            .write(&folder.path().join("savings"), 5000)
            .unwrap();
        let target = tempfile::tempdir().unwrap();
        SavedData::Text
            .place_older(&source, 5000, target.path())
            .unwrap();
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
        assert_eq!(
            fs::metadata(source.root.join(&source.name)).unwrap().len(),
            5000
        );
    }
}
