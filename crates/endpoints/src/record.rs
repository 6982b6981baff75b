//! Records of unfinished uploads, so that the same command resumes them: one small file for each in
//! the user's state directory.
//!
//! The first line names the upload, and each further line a part that the store has. A line that is
//! incomplete, as the copy was killed, is ignored.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Parts that the store has, with the text by which it knows each.
pub(crate) type StoredParts = BTreeMap<u64, String>;

/// First line of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UploadHead {
    /// Identifier of the upload at the store.
    pub upload: String,
    /// Size of a part in bytes.
    pub part_bytes: u64,
}

/// A line about a part.
#[derive(Debug, Serialize, Deserialize)]
struct StoredPart {
    part: u64,
    id: String,
}

/// Record of one upload. While it is open, no other copy uses it.
#[derive(Debug)]
pub(crate) struct UploadRecord {
    path: PathBuf,
    file: Mutex<File>,
}

impl UploadRecord {
    /// Opens the record of an upload, which depends on its destination and on the state of its
    /// source. Returns what an earlier copy left, too. `None` if another copy is using it, or it
    /// cannot be written: the upload is not resumed then.
    pub(crate) fn open(
        directory: &Path,
        destination: &str,
        source: &[u8; 32],
    ) -> Option<(Self, Option<(UploadHead, StoredParts)>)> {
        let mut hasher = blake3::Hasher::new_derive_key("longhaul 2026 record of an upload");
        hasher.update(source);
        hasher.update(destination.as_bytes());
        let hash = hasher.finalize().to_hex();
        let path = directory.join(hash.get(..32).unwrap_or_default());
        std::fs::create_dir_all(directory).ok()?;
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .ok()?;
        file.try_lock().ok()?;
        let left = read(&file);
        let record = Self {
            path,
            file: Mutex::new(file),
        };
        Some((record, left))
    }

    /// Begins the record of a new upload.
    pub(crate) fn begin(&self, head: &UploadHead) -> std::io::Result<()> {
        let mut file = self.file.lock();
        file.set_len(0)?;
        file.rewind()?;
        write_line(&mut file, head)
    }

    /// Notes a part that the store has.
    pub(crate) fn note(&self, part: u64, id: &str) -> std::io::Result<()> {
        let id = id.to_owned();
        write_line(&mut self.file.lock(), &StoredPart { part, id })
    }

    /// Removes the record.
    pub(crate) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn write_line(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}

fn read(file: &File) -> Option<(UploadHead, StoredParts)> {
    let mut lines = BufReader::new(file).lines();
    let head: UploadHead = serde_json::from_str(&lines.next()?.ok()?).ok()?;
    let mut parts = StoredParts::new();
    for line in lines {
        let part: Option<StoredPart> = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        // What follows an incomplete line was written by a copy that resumed.
        if let Some(part) = part {
            parts.insert(part.part, part.id);
        }
    }
    (head.part_bytes > 0).then_some((head, parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> UploadHead {
        UploadHead {
            upload: "id/1".to_owned(),
            part_bytes: 16,
        }
    }

    #[test]
    fn record_is_found_by_the_same_source_alone() {
        let directory = tempfile::tempdir().unwrap();
        let open = |source| UploadRecord::open(directory.path(), "s3://b/k", &[source; 32]);
        let (record, left) = open(1).unwrap();
        assert_eq!(left, None);
        record.begin(&head()).unwrap();
        record.note(3, "\"e3\"").unwrap();
        assert!(open(1).is_none(), "another copy uses it");
        drop(record);
        let (record, left) = open(1).unwrap();
        assert_eq!(left, Some((head(), [(3, "\"e3\"".to_owned())].into())));
        assert_eq!(open(2).unwrap().1, None);
        record.remove();
        assert_eq!(open(1).unwrap().1, None);
    }

    #[test]
    fn cut_lines_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let open = || UploadRecord::open(directory.path(), "k", &[1; 32]).unwrap();
        let (record, _) = open();
        record.begin(&head()).unwrap();
        record.note(0, "a").unwrap();
        record.file.lock().write_all(b"{\"part\":1,\"i").unwrap();
        drop(record);
        let (record, left) = open();
        assert_eq!(left.unwrap().1, [(0, "a".to_owned())].into());
        record.begin(&head()).unwrap();
        drop(record);
        assert_eq!(open().1, Some((head(), StoredParts::new())));
    }
}
