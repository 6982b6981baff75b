//! One large file whose segments are read by several threads.

use std::collections::BTreeMap;

use blake3::hazmat::ChainingValue;
use longhaul_checksum::{Algorithm, Checksum, RunningSum};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::{FileSum, OpenFile};
use crate::tree_hash::{BlockHasher, Subtree, TreeHash};

/// Binary logarithm of the size of a segment.
const SEGMENT_LOG2: u32 = 20;
/// Size of a segment, in bytes.
pub(super) const SEGMENT_BYTES: usize = 1 << SEGMENT_LOG2;
/// Size from which a file is split, in bytes.
const MIN_SPLIT_BYTES: u64 = 8 << 20;

/// Returns true if a file of `size` bytes is split.
pub(super) fn is_split(algorithm: Algorithm, size: u64) -> bool {
    let joins = algorithm == Algorithm::Blake3 || RunningSum::new(algorithm).is_some();
    joins && size >= MIN_SPLIT_BYTES
}

/// A file under way.
pub(super) struct SplitFile {
    file: OpenFile,
    joined: Mutex<Joined>,
}

/// Segments that have been read.
enum Joined {
    Tree(TreeHash),
    Chain {
        /// Sum of all segments from the beginning without a gap.
        sum: RunningSum,
        /// Sums of later segments, by their offsets.
        waiting: BTreeMap<u64, RunningSum>,
    },
}

impl SplitFile {
    pub(super) fn new(file: OpenFile, algorithm: Algorithm) -> Self {
        let joined = match RunningSum::new(algorithm) {
            Some(sum) => Joined::Chain {
                sum,
                waiting: BTreeMap::new(),
            },
            None => Joined::Tree(TreeHash::new(file.size(), SEGMENT_LOG2).keeping_coarse()),
        };
        Self {
            file,
            joined: Mutex::new(joined),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads the segment at `offset`. Returns the checksum of the whole file once all of it has
    /// been read, or the failure of this segment.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Option<Result<FileSum, Errno>> {
        match self.add(offset, buffer) {
            Ok(sum) => {
                let sum = sum?;
                Some(self.file.check_unchanged().map(|()| sum))
            }
            Err(errno) => Some(Err(errno)),
        }
    }

    fn add(&self, offset: u64, buffer: &mut [u8]) -> Result<Option<FileSum>, Errno> {
        let length = (self.size() - offset).min(SEGMENT_BYTES as u64);
        let wanted = buffer.get_mut(..length as usize).unwrap_or_default();
        if self.file.read_at(wanted, offset)? as u64 != length {
            // It has become shorter.
            return Err(Errno::AGAIN);
        }
        let empty = match &*self.joined.lock() {
            Joined::Chain { sum, .. } => Some(sum.emptied()),
            Joined::Tree(_) => None,
        };
        match empty {
            Some(mut segment) => {
                segment.update(wanted);
                Ok(self.joined.lock().chain(offset, segment, self.size()))
            }
            None => {
                let mut hasher = BlockHasher::new(offset, length, self.size());
                hasher.update(wanted);
                let hash = hasher.finish();
                let mut joined = self.joined.lock();
                let Joined::Tree(tree) = &mut *joined else {
                    return Ok(None);
                };
                tree.insert(offset, hash);
                let root = tree.root().map(|root| root.to_vec());
                let sum = root.and_then(|root| Checksum::new(Algorithm::Blake3, root));
                Ok(sum.map(|sum| FileSum {
                    sum,
                    size: self.size(),
                    coarse: sorted(tree.coarse()),
                }))
            }
        }
    }
}

impl Joined {
    /// Adds the sum of a segment. Returns the checksum of the whole file once it is complete.
    fn chain(&mut self, offset: u64, segment: RunningSum, size: u64) -> Option<FileSum> {
        let Self::Chain { sum, waiting } = self else {
            return None;
        };
        waiting.insert(offset, segment);
        while let Some(next) = waiting.remove(&sum.length()) {
            sum.append(&next);
        }
        (sum.length() == size).then(|| FileSum {
            sum: sum.checksum(),
            size,
            coarse: Vec::new(),
        })
    }
}

/// Returns the hashes of coarse subtrees in their order.
fn sorted(coarse: &[Subtree]) -> Vec<ChainingValue> {
    let mut sorted = coarse.to_vec();
    sorted.sort_unstable_by_key(|subtree| subtree.offset);
    sorted
        .into_iter()
        .map(|subtree| subtree.chaining_value)
        .collect()
}
