//! One hash over everything that a copy carried. It is the same on both sides, whatever the order
//! of arrival.
//!
//! Entries are chained by their number: BLAKE3 over the records of entry 0, 1, 2, ... Records that
//! come early wait. Both sides compute it and the sender compares it at the end (LH-COPY-26). This
//! reveals an entry that was lost, duplicated or swapped.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::BTreeMap;
use std::sync::Arc;

use blake3::Hasher;

use crate::attributes::SpecialFile;
use crate::path::RelPath;
use crate::tree_hash::{Hash, Subtree};

/// Outcome of an entry, as both sides know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManifestRecord<'a> {
    File {
        size: u64,
        hash: &'a Hash,
        /// Modification time, which the hash over all records does not include.
        mtime: (i64, u32),
        /// Coarse subtrees of the file, if they are kept. The hash determines them.
        parts: &'a [Subtree],
    },
    /// A file whose size and modification time (seconds since 1970, nanoseconds) showed that it was
    /// there already.
    Unchanged {
        size: u64,
        mtime: (i64, u32),
    },
    Directory,
    Symlink {
        target: &'a [u8],
    },
    Special(SpecialFile),
    /// Another name of a file of `size` bytes, with the source of its first name and the path
    /// beneath it.
    HardLink {
        size: u64,
        source: u32,
        path: &'a RelPath,
    },
    Failed,
}

/// Observer of the records of a manifest. It is called under the lock of the copy.
pub(crate) trait ManifestObserver: Send + Sync {
    /// Receives the record of entry `id`, once.
    fn recorded(&self, id: u64, source: u32, path: &RelPath, record: ManifestRecord<'_>);
}

/// Hash under construction.
#[derive(Default)]
pub(crate) struct Manifest {
    hasher: Hasher,
    next: u64,
    waiting: BTreeMap<u64, Hash>,
    observer: Option<Arc<dyn ManifestObserver>>,
}

impl Manifest {
    /// Reports all records to `observer` from now on.
    pub(crate) fn observe(&mut self, observer: Arc<dyn ManifestObserver>) {
        self.observer = Some(observer);
    }

    /// Returns true if the records are observed, so that they should have all details.
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Returns true if entry `id` has been recorded.
    pub(crate) fn contains(&self, id: u64) -> bool {
        id < self.next || self.waiting.contains_key(&id)
    }

    /// Returns the number of recorded entries.
    pub(crate) fn len(&self) -> u64 {
        self.next + self.waiting.len() as u64
    }

    /// Returns the number of records that wait for an earlier one.
    pub(crate) fn waiting_records(&self) -> usize {
        self.waiting.len()
    }

    /// Records entry `id`. Returns false if it was recorded before.
    pub(crate) fn record(
        &mut self,
        id: u64,
        source: u32,
        path: &RelPath,
        record: ManifestRecord<'_>,
    ) -> bool {
        if self.contains(id) {
            return false;
        }
        if let Some(observer) = &self.observer {
            observer.recorded(id, source, path, record);
        }
        self.waiting.insert(id, digest(source, path, record));
        while let Some(digest) = self.waiting.remove(&self.next) {
            self.hasher.update(&digest);
            self.next += 1;
        }
        true
    }

    /// Returns the hash over the records so far, up to the first gap.
    pub(crate) fn hash(&self) -> Hash {
        *self.hasher.finalize().as_bytes()
    }
}

fn digest(source: u32, path: &RelPath, record: ManifestRecord<'_>) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(&source.to_le_bytes());
    hasher.update(&(path.as_bytes().len() as u64).to_le_bytes());
    hasher.update(path.as_bytes());
    match record {
        ManifestRecord::File { size, hash, .. } => {
            hasher.update(b"f");
            hasher.update(&size.to_le_bytes());
            hasher.update(hash);
        }
        ManifestRecord::Unchanged { size, mtime } => {
            hasher.update(b"u");
            hasher.update(&size.to_le_bytes());
            hasher.update(&mtime.0.to_le_bytes());
            hasher.update(&mtime.1.to_le_bytes());
        }
        ManifestRecord::Directory => {
            hasher.update(b"d");
        }
        ManifestRecord::Symlink { target } => {
            hasher.update(b"l");
            hasher.update(target);
        }
        ManifestRecord::Special(special) => {
            hasher.update(b"s");
            hasher.update(&[special.kind as u8]);
            hasher.update(&special.device.0.to_le_bytes());
            hasher.update(&special.device.1.to_le_bytes());
        }
        ManifestRecord::HardLink { size, source, path } => {
            hasher.update(b"h");
            hasher.update(&size.to_le_bytes());
            hasher.update(&source.to_le_bytes());
            hasher.update(path.as_bytes());
        }
        ManifestRecord::Failed => {
            hasher.update(b"x");
        }
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lh_copy_47_link_record_has_first_name_and_size() {
        let path = |name: &str| RelPath::from_bytes(name.as_bytes()).unwrap();
        let hash = |size, source, first: &str| {
            let (mut manifest, first) = (Manifest::default(), path(first));
            let record = ManifestRecord::HardLink {
                size,
                source,
                path: &first,
            };
            assert!(manifest.record(0, 0, &path("f"), record));
            manifest.hash()
        };
        let all = [
            hash(5, 0, "a"),
            hash(6, 0, "a"),
            hash(5, 1, "a"),
            hash(5, 0, "b"),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn lh_copy_12_manifest_depends_on_content_and_not_on_order() {
        let path = |n: u64| RelPath::from_bytes(format!("f{n}").as_bytes()).unwrap();
        let make = |order: &[u64], size: u64| {
            let mut manifest = Manifest::default();
            for &id in order {
                assert!(manifest.record(
                    id,
                    0,
                    &path(id),
                    ManifestRecord::File {
                        size,
                        hash: &[id as u8; 32],
                        mtime: (0, 0),
                        parts: &[],
                    }
                ));
                assert!(
                    !manifest.record(id, 0, &path(id), ManifestRecord::Failed),
                    "the first word counts"
                );
            }
            assert_eq!((manifest.len(), manifest.waiting_records()), (4, 0));
            manifest.hash()
        };
        assert_eq!(make(&[0, 1, 2, 3], 5), make(&[3, 1, 0, 2], 5));
        assert_ne!(make(&[0, 1, 2, 3], 5), make(&[0, 1, 2, 3], 6));
    }
}
