//! Files that the source has under another name than the target.

use std::collections::{HashMap, HashSet};

use crate::tree::{Node, NodeKind, Tree, above};

/// BLAKE3 hash of the content of a file.
pub type ContentHash = [u8; 32];

/// A file of the target that gets the name that it has in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// Path at the target.
    pub from: Vec<u8>,
    /// Path in the source.
    pub to: Vec<u8>,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

/// A file that only one of the trees has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Path of the file.
    pub path: Vec<u8>,
    stamp: Stamp,
}

/// Size and modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    bytes: u64,
    seconds: i64,
    /// `None` if one of the sides reports no nanoseconds.
    nanoseconds: Option<u32>,
}

/// Files that may have been renamed in the source. Each has the size and time of one that only the
/// other tree has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenameCandidates {
    /// Files that only the source has.
    pub created: Vec<Candidate>,
    /// Files that only the target has, and that would be removed.
    pub removed: Vec<Candidate>,
}

impl RenameCandidates {
    /// Compares two trees.
    pub fn new(source: &Tree, target: &Tree) -> Self {
        let (created, removed) = (only_in(source, target), only_in(target, source));
        let both = || created.iter().chain(&removed);
        let has_nanoseconds = both().all(|(_, node)| node.modified.nanoseconds.is_some());
        let stamp = |node: &Node| Stamp {
            bytes: node.bytes,
            seconds: node.modified.seconds,
            nanoseconds: node.modified.nanoseconds.filter(|_| has_nanoseconds),
        };
        let stamps = |files: &[(&Vec<u8>, &Node)]| -> HashSet<Stamp> {
            files.iter().map(|(_, node)| stamp(node)).collect()
        };
        let with = |files: &[(&Vec<u8>, &Node)], stamps: &HashSet<Stamp>| {
            let candidates = files.iter().map(|(path, node)| Candidate {
                path: path.to_vec(),
                stamp: stamp(node),
            });
            candidates
                .filter(|candidate| stamps.contains(&candidate.stamp))
                .collect()
        };
        Self {
            created: with(&created, &stamps(&removed)),
            removed: with(&removed, &stamps(&created)),
        }
    }

    /// Returns true if no file may have been renamed.
    pub fn is_empty(&self) -> bool {
        self.created.is_empty()
    }

    /// Returns the number of bytes that both ends have to read.
    pub fn bytes(&self) -> u64 {
        let both = self.created.iter().chain(&self.removed);
        both.fold(0, |sum: u64, file| sum.saturating_add(file.stamp.bytes))
    }

    /// Returns the files that were renamed, by their new paths, given the hashes of
    /// [`Self::created`] and [`Self::removed`] in order. A file without a hash was not renamed. Of
    /// several files with the same content, those of the same name belong together.
    pub fn matching(
        &self,
        created: &[Option<ContentHash>],
        removed: &[Option<ContentHash>],
    ) -> Vec<Rename> {
        let mut created = hashed(&self.created, created);
        let mut removed = hashed(&self.removed, removed);
        let mut renames = Vec::new();
        for by_name in [true, false] {
            let key = |file: &HashedFile<'_>| {
                let name = by_name.then(|| name(&file.candidate.path).to_vec());
                (file.candidate.stamp, file.hash, name)
            };
            let mut open = HashMap::<_, Vec<HashedFile<'_>>>::new();
            // From the last to the first, as the first is taken from the end.
            for file in removed.into_iter().rev() {
                open.entry(key(&file)).or_default().push(file);
            }
            created.retain(|file| {
                let Some(found) = open.get_mut(&key(file)).and_then(Vec::pop) else {
                    return true;
                };
                renames.push(Rename {
                    from: found.candidate.path.clone(),
                    to: file.candidate.path.clone(),
                    bytes: file.candidate.stamp.bytes,
                });
                false
            });
            removed = open.into_values().flatten().collect();
            removed.sort_by(|one, other| one.candidate.path.cmp(&other.candidate.path));
        }
        renames.sort_by(|one, other| one.to.cmp(&other.to));
        renames
    }
}

impl Rename {
    /// Gives the file its new name in a listing of the target.
    pub fn apply(&self, target: &mut Tree) {
        if let Some(node) = target.remove(&self.from) {
            target.insert(self.to.clone(), node);
        }
    }

    /// Gives the file its old name again, as it could not be renamed.
    pub fn revert(&self, target: &mut Tree) {
        if let Some(node) = target.remove(&self.to) {
            target.insert(self.from.clone(), node);
        }
    }
}

/// A candidate with the hash of its content.
struct HashedFile<'a> {
    candidate: &'a Candidate,
    hash: ContentHash,
}

fn hashed<'a>(files: &'a [Candidate], hashes: &[Option<ContentHash>]) -> Vec<HashedFile<'a>> {
    let both = files.iter().zip(hashes);
    both.filter_map(|(candidate, hash)| {
        Some(HashedFile {
            candidate,
            hash: (*hash)?,
        })
    })
    .collect()
}

/// Returns the files with content that only `tree` has, unless the other tree has something in
/// their way. Empty files are left out, as nothing of them travels.
fn only_in<'a>(tree: &'a Tree, other: &Tree) -> Vec<(&'a Vec<u8>, &'a Node)> {
    let is_directory = |path: &[u8]| {
        let node = other.get(path);
        node.is_none_or(|node| node.kind == NodeKind::Directory)
    };
    let files = tree.iter().filter(|(path, node)| {
        node.kind == NodeKind::File
            && node.bytes > 0
            && node.is_taken
            && !other.contains_key(path.as_slice())
            && above(path).all(is_directory)
    });
    files.collect()
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
