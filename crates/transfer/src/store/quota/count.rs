//! Counts the files of an account.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::QuotaUse;
use crate::store::is_temporary;

/// Bytes of a unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Counts the regular files beneath `root` that belong to the user `owner`. A file with several
/// names counts once, and an unfinished one with its bytes on disk. Directories that this process
/// cannot read are left out. Blocking, and long for large trees.
#[must_use]
pub fn count_owned(root: &Path, owner: u32) -> QuotaUse {
    let mut used = QuotaUse::default();
    let mut seen = HashSet::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            // Links are not followed.
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if found.is_dir() {
                directories.push(entry.path());
            } else if found.is_file() && found.uid() == owner {
                if found.nlink() > 1 && !seen.insert((found.dev(), found.ino())) {
                    continue;
                }
                let bytes = match is_temporary(entry.file_name().as_bytes()) {
                    true => found.len().min(found.blocks().saturating_mul(BLOCK_BYTES)),
                    false => found.len(),
                };
                used.bytes = used.bytes.saturating_add(bytes);
                used.files += 1;
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_file_of_the_owner_counts_once() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(tmp.path().join("outside"), "outside").unwrap();
        symlink(tmp.path(), root.join("link")).unwrap();
        fs::write(root.join("a/b/f"), "12345").unwrap();
        fs::hard_link(root.join("a/b/f"), root.join("g")).unwrap();
        fs::write(root.join("h"), "123").unwrap();
        let owner = fs::metadata(root.join("h")).unwrap().uid();
        let expected = QuotaUse { bytes: 8, files: 2 };
        assert_eq!(count_owned(&root, owner), expected);
        assert_eq!(count_owned(&root, owner + 1), QuotaUse::default());
        // A sparse unfinished file has few bytes on disk.
        let file = fs::File::create(root.join(".longhaul-01020304-5")).unwrap();
        file.set_len(1 << 30).unwrap();
        assert!(count_owned(&root, owner).bytes < 1 << 20);
    }
}
