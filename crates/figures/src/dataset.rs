//! Data sets to copy: real files found on this machine, and files of a given size.
//!
//! Files of a given size are a BLAKE3 output stream: the same for the same seed, and
//! incompressible, so that compression on the path cannot help.

use anyhow::{Context, Result};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Folders of ordinary machines with trees of real files, in the order in which they are tried.
const REAL_TREES: [&str; 4] = [
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/include",
    "/usr/share",
];

/// Bytes of a file that are made and written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Contents of a data set.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// Number of regular files, including the large one.
    pub files: u64,
    /// Total size of the files, in bytes.
    pub bytes: u64,
}

/// Fills `dir` with copies of real files in their own folders, and one large file of `large_bytes`.
/// The real files have at most `real_bytes` and `real_files` in total, and each less than a quarter
/// of the bytes.
pub fn real_tree(
    dir: &Path,
    real_bytes: u64,
    real_files: u64,
    large_bytes: u64,
) -> Result<Contents> {
    let mut contents = Contents { files: 0, bytes: 0 };
    for tree in REAL_TREES {
        gather(
            Path::new(tree),
            &dir.join("files"),
            real_bytes,
            real_files,
            &mut contents,
        )?;
    }
    sized_file(&dir.join("large.bin"), large_bytes, 0)?;
    contents.files += 1;
    contents.bytes += large_bytes;
    Ok(contents)
}

/// Copies regular files below `from` until a limit is reached. Unreadable files are skipped: the
/// data set needs real files, not all of them.
fn gather(from: &Path, to: &Path, bytes: u64, files: u64, so_far: &mut Contents) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if so_far.files >= files || so_far.bytes >= bytes {
            return Ok(());
        }
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.is_dir() {
            gather(&path, to, bytes, files, so_far)?;
        } else if meta.is_file() && meta.len() <= (bytes - so_far.bytes).min(bytes / 4) {
            let target = to.join(path.strip_prefix("/").unwrap_or(&path));
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)
                    .with_context(|| format!("cannot make {}", parent.display()))?;
            }
            if fs::copy(&path, &target).is_ok() {
                so_far.files += 1;
                so_far.bytes += meta.len();
            }
        }
    }
    Ok(())
}

/// Writes a file of exactly `bytes` bytes made from `seed`; a file of that length already there is
/// kept.
///
/// # Errors
/// It cannot be written.
pub fn sized_file(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut stream = stream(seed);
    filled_file(path, bytes, |chunk| stream.fill(chunk))
}

/// Returns the endless, incompressible bytes of files made from `seed`.
pub fn stream(seed: u64) -> blake3::OutputReader {
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
}

/// Writes a file of exactly `bytes` bytes, which `fill` makes chunk by chunk. A file of that length
/// already there is kept.
///
/// # Errors
/// It cannot be written.
pub fn filled_file(path: &Path, bytes: u64, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
    if fs::metadata(path).is_ok_and(|meta| meta.len() == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    // Written under another name until complete: runs are parallel, and none may serve half a file.
    let folder = path.parent().unwrap_or(Path::new("."));
    let part = tempfile::NamedTempFile::new_in(folder)
        .with_context(|| format!("cannot write into {}", folder.display()))?;
    let mut out = BufWriter::new(part.as_file());
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let take = left.min(chunk.len() as u64) as usize;
        fill(&mut chunk[..take]);
        out.write_all(&chunk[..take])
            .with_context(|| format!("cannot write {}", path.display()))?;
        left -= take as u64;
    }
    let written = out.flush();
    drop(out);
    written
        .and_then(|()| part.persist(path).map(drop).map_err(|error| error.error))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sized_file_has_its_size_and_repeats_by_seed() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = ["a", "b", "c"]
            .iter()
            .map(|name| dir.path().join(name))
            .collect();
        for (path, seed) in paths.iter().zip([7, 7, 8]) {
            sized_file(path, (1 << 20) + 17, seed).unwrap();
        }
        let read = |path: &PathBuf| fs::read(path).unwrap();
        assert_eq!(read(&paths[0]).len(), (1 << 20) + 17);
        assert_eq!(read(&paths[0]), read(&paths[1]));
        assert_ne!(read(&paths[0]), read(&paths[2]));
    }

    #[test]
    fn a_real_tree_stays_within_its_limits() {
        let dir = tempfile::tempdir().unwrap();
        let contents = real_tree(dir.path(), 1 << 20, 50, 1000).unwrap();
        assert!(contents.files >= 1 && contents.files <= 51, "{contents:?}");
        assert!(
            contents.bytes >= 1000 && contents.bytes <= (1 << 20) + 1000,
            "{contents:?}"
        );
    }
}
