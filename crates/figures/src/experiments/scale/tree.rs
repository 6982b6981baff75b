//! Makes the data, checks that there is room for it twice, and counts what arrived.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::CopiedData;
use crate::dataset::sized_file;

const MIB: u64 = 1 << 20;

/// Makes the data in `folder`, under the name `data`.
///
/// # Errors
/// It cannot be written.
pub fn make(folder: &Path, what: CopiedData) -> Result<()> {
    let path = folder.join("data");
    let made = match what {
        CopiedData::Sparse => sparse_file(&path, what.shape().2),
        CopiedData::ManyStreams => return sized_file(&path, what.shape().2, 1),
        _ => tree(&path, what.shape()),
    };
    made.with_context(|| format!("cannot write {}", path.display()))
}

fn sparse_file(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    let data = vec![7; MIB as usize];
    file.write_all_at(&data, 0)?;
    file.write_all_at(&data, bytes - MIB)
}

fn tree(path: &Path, (files, in_a_folder, bytes): (u64, u64, u64)) -> std::io::Result<()> {
    let data = vec![7; bytes as usize];
    for folder in 0..files.div_ceil(in_a_folder) {
        let folder_path = path.join(format!("{folder:05}"));
        fs::create_dir_all(&folder_path)?;
        let first = folder * in_a_folder;
        for file in first..files.min(first + in_a_folder) {
            File::create(folder_path.join(format!("{file:07}")))?.write_all(&data)?;
        }
    }
    Ok(())
}

/// Returns true if the file system of `folder` has space for `files` more files.
pub fn has_room(folder: &Path, files: u64) -> bool {
    // File systems that make inodes on demand report none as free.
    rustix::fs::statvfs(folder)
        .is_ok_and(|stat| stat.f_files == 0 || stat.f_favail > files + files / 20)
}

/// Counts the regular files beneath `path`, or `path` itself, and their bytes.
///
/// # Errors
/// It cannot be read.
pub fn count(path: &Path) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    let mut left = vec![path.to_path_buf()];
    while let Some(next) = left.pop() {
        let reading = || format!("cannot read {}", next.display());
        let meta = fs::symlink_metadata(&next).with_context(reading)?;
        if !meta.is_dir() {
            files += 1;
            bytes += meta.len();
            continue;
        }
        for entry in fs::read_dir(&next).with_context(reading)? {
            let entry = entry.with_context(reading)?;
            if entry.file_type().with_context(reading)?.is_dir() {
                left.push(entry.path());
            } else {
                files += 1;
                bytes += entry.metadata().with_context(reading)?.len();
            }
        }
    }
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_files_that_it_should_have() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        tree(&path, (25, 10, 3)).unwrap();
        assert_eq!(count(&path).unwrap(), (25, 75));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
        assert!(has_room(folder.path(), 10));
    }
}
