//! Data that is copied: one file, many small ones, a tree of source files, a mix. The bytes are the
//! same on every machine.

use std::collections::BTreeMap;
use std::path::Path;

use parking_lot::Mutex;

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::copy::Source;
use crate::dataset::sized_file;
use crate::tools::Tools;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Number of files in the tree of source files.
const SOURCE_FILES: u64 = 3000;
/// Their median size in bytes; the sizes are log-normal, as those of source trees are.
const SOURCE_MEDIAN_BYTES: f64 = 4096.0;
/// The standard deviation of the sizes' logarithm: the mean is 2.3 times the median.
const SOURCE_SIGMA: f64 = 1.3;
/// Maximum size of a file in the tree, in bytes.
const SOURCE_MOST_BYTES: f64 = 1048576.0;
/// Files in a folder, and folders in a folder.
const FILES_PER_FOLDER: u64 = 20;

/// Shape of the copied data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// One file of this many bytes.
    File(u64),
    /// This many files of 4 KiB, 20 in a folder.
    SmallFiles(u64),
    /// 3,000 files with the sizes of a source tree, 20 in a folder, 20 folders in a folder.
    SourceTree,
    /// A file of 256 MiB, 16 of 8 MiB, 1,000 of 16 KiB.
    Mix,
}

impl Data {
    /// Returns the name below the folder and the size of each file; a single file's name is empty.
    pub fn files(self) -> Vec<(String, u64)> {
        match self {
            Self::File(bytes) => vec![(String::new(), bytes)],
            Self::SmallFiles(count) => (0..count).map(|file| (place(file), 4 * KIB)).collect(),
            Self::SourceTree => {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
                (0..SOURCE_FILES)
                    .map(|file| (place(file), source_size(&mut random)))
                    .collect()
            }
            Self::Mix => {
                let large = |file: u64| (format!("large/{file}.bin"), 8 * MIB);
                let small = |file: u64| (format!("small/{}", place(file)), 16 * KIB);
                std::iter::once(("largest.bin".to_owned(), 256 * MIB))
                    .chain((0..16).map(large))
                    .chain((0..1000).map(small))
                    .collect()
            }
        }
    }

    /// Returns true if it is a folder.
    pub fn is_tree(self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// Number of files and sum of their bytes.
    pub fn extent(self) -> (u64, u64) {
        let files = self.files();
        (
            files.len() as u64,
            files.iter().map(|(_, bytes)| bytes).sum(),
        )
    }

    /// Returns the name of the file or folder.
    fn name(self) -> String {
        match self {
            Self::File(bytes) => format!("{bytes}.bin"),
            Self::SmallFiles(count) => format!("small-{count}"),
            Self::SourceTree => "source-tree".into(),
            Self::Mix => "mix".into(),
        }
    }

    /// Writes it below `root`.
    fn write(self, root: &Path) -> Result<()> {
        let whole = root.join(self.name());
        for (nth, (file, bytes)) in self.files().into_iter().enumerate() {
            let path = match self.is_tree() {
                true => whole.join(file),
                false => whole.clone(),
            };
            sized_file(&path, bytes, nth as u64)?;
        }
        Ok(())
    }
}

/// Returns the path of a file by its number: 20 files per folder, 20 folders per folder.
fn place(file: u64) -> String {
    let folder = file / FILES_PER_FOLDER;
    format!(
        "{:03}/{:02}/{file:06}.dat",
        folder / FILES_PER_FOLDER,
        folder % FILES_PER_FOLDER
    )
}

/// Draws a size from the log-normal distribution of a source tree, by Box and Muller.
fn source_size(random: &mut impl RngExt) -> u64 {
    let (radius, angle): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
    (SOURCE_MEDIAN_BYTES * (SOURCE_SIGMA * normal).exp()).min(SOURCE_MOST_BYTES) as u64
}

/// Sources written so far. Each shape is made when a run first needs it, because all of them
/// together take many gigabytes of memory.
#[derive(Default)]
pub struct Sources {
    made: Mutex<BTreeMap<String, Source>>,
}

impl Sources {
    /// Returns the source of this shape, and writes it first if needed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn prepare(&self, tools: &Tools, data: Data) -> Result<Source> {
        let mut made = self.made.lock();
        if let Some(source) = made.get(&data.name()) {
            return Ok(source.clone());
        }
        let root = tools.scratch.path().join("copied");
        data.write(&root)
            .with_context(|| format!("cannot make {}", data.name()))?;
        let source = Source {
            root,
            name: data.name(),
        };
        made.insert(data.name(), source.clone());
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_their_files_and_bytes() {
        assert_eq!(Data::File(7).extent(), (1, 7));
        assert_eq!(Data::SmallFiles(20_000).extent(), (20_000, 20_000 * 4096));
        assert_eq!(
            Data::Mix.extent(),
            (1017, 256 * MIB + 128 * MIB + 1000 * 16 * KIB)
        );
        let (files, bytes) = Data::SourceTree.extent();
        let mean = bytes as f64 / files as f64;
        assert!(
            files == SOURCE_FILES && (7e3..14e3).contains(&mean),
            "{mean}"
        );
    }

    #[test]
    fn names_within_a_shape_are_unique() {
        for data in [Data::SmallFiles(1000), Data::SourceTree, Data::Mix] {
            let files = data.files();
            let names: std::collections::BTreeSet<_> = files.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), files.len());
        }
    }

    #[test]
    fn written_data_has_the_stated_extent() {
        let folder = tempfile::tempdir().unwrap();
        for data in [Data::File(70_000), Data::SmallFiles(45)] {
            data.write(folder.path()).unwrap();
            let copied = crate::peers::contents::compare(
                &folder.path().join(data.name()),
                &folder.path().join(data.name()),
            )
            .unwrap();
            assert_eq!((copied.files, copied.bytes), data.extent());
        }
    }
}
