//! Counts the files of an account.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::QuotaUse;
use crate::path::RelPath;
use crate::store::confine::{Dir, NodeKind, kind_of};
use crate::store::is_temporary;

/// Bytes of a unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Counts the regular files beneath `root` that belong to the user `owner`. A file with several
/// names counts once, and an unfinished one with its bytes on disk. Directories that this process
/// cannot read are left out, and no symbolic link is followed. Blocking, and long for large trees.
#[must_use]
pub fn count_owned(root: &Dir, owner: u32) -> QuotaUse {
    let mut used = QuotaUse::default();
    let mut seen = HashSet::new();
    let mut directories = vec![RelPath::root()];
    while let Some(path) = directories.pop() {
        let opened = root.open_dir(&path);
        let entries = opened.and_then(|dir| dir.entries().map(|entries| (dir, entries)));
        let Ok((dir, entries)) = entries else {
            continue;
        };
        for entry in entries {
            // An error ends the listing.
            let Ok(entry) = entry else {
                break;
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let Ok(found) = dir.stat_name(OsStr::from_bytes(name)) else {
                continue;
            };
            match kind_of(&found) {
                // What is too deep for a path cannot be reached by clients either.
                NodeKind::Directory => directories.extend(path.child(name).ok()),
                NodeKind::File if found.st_uid == owner => {
                    if found.st_nlink > 1 && !seen.insert((found.st_dev, found.st_ino)) {
                        continue;
                    }
                    let size = u64::try_from(found.st_size).unwrap_or(0);
                    let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
                    let bytes = match is_temporary(name) {
                        true => size.min(blocks.saturating_mul(BLOCK_BYTES)),
                        false => size,
                    };
                    used.bytes = used.bytes.saturating_add(bytes);
                    used.files += 1;
                }
                _ => {}
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

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
        let dir = Dir::open(&root).unwrap();
        assert_eq!(count_owned(&dir, owner), expected);
        assert_eq!(count_owned(&dir, owner + 1), QuotaUse::default());
        // A sparse unfinished file has few bytes on disk.
        let file = fs::File::create(root.join(".longhaul-01020304-5")).unwrap();
        file.set_len(1 << 30).unwrap();
        assert!(count_owned(&dir, owner).bytes < 1 << 20);
    }
}
