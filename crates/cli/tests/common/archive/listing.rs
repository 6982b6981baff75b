//! All that `-a` keeps of a tree, in words that can be compared.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

/// Size from which holes of a file are kept: smaller ones travel whole.
const MIN_SPARSE_BYTES: u64 = 256 << 10;
const MAX_ATTRIBUTE_BYTES: usize = 4096;

/// Describes a tree by kinds, permissions, owners, times, devices, content, holes, targets of
/// links, ACLs, extended attributes, and which names are one file.
pub fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut described = BTreeMap::new();
    let mut first_names = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let below = path.strip_prefix(root).unwrap().to_owned();
        if meta.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            entries.sort();
            ahead.extend(entries);
        }
        let content = match meta.is_file() {
            true => format!(
                "{} in {:?}",
                blake3::hash(&fs::read(&path).unwrap()),
                data(&path, meta.len())
            ),
            false => String::new(),
        };
        let first = first_names.entry(meta.ino()).or_insert(below.clone());
        let line = format!(
            "{:o} {}:{} {}.{:09} {:x} {content} {:?} {:?} {:?}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.rdev(),
            fs::read_link(&path).ok(),
            attributes(&path),
            (meta.nlink() > 1 && !meta.is_dir()).then_some(first),
        );
        described.insert(below, line);
    }
    described
}

/// Returns where a file has data: offsets and ends.
fn data(path: &Path, len: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    if len < MIN_SPARSE_BYTES {
        return found;
    }
    let file = File::open(path).unwrap();
    let mut at = 0;
    while at < len
        && let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at))
    {
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        found.push((start, at));
    }
    found
}

/// Returns ACLs and extended attributes, without the records of copies.
pub fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; MAX_ATTRIBUTE_BYTES];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = String::from_utf8(names[..len].to_vec()).unwrap();
    names
        .split_terminator('\0')
        .filter(|name| !name.starts_with("user.longhaul."))
        .map(|name| {
            let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            (name.to_owned(), value[..len].to_vec())
        })
        .collect()
}
