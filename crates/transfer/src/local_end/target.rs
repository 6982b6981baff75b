//! A local destination, for a writer in another crate.

use parking_lot::Mutex;

use crate::block_size::block_log2;
use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::store::{AnnouncedFile, Comparison, CopyDestination, FileStore, MadeDir, Resumption};
use crate::tree_hash::{BlockHasher, Hash, TreeHash};
use crate::wire::{Block, EntryHead, EntryOutcome, Extent, FileOffer, Meta, SourceIdentity};

/// A local destination. All methods may block.
pub struct LocalTarget {
    store: CopyDestination,
}

/// An entry to write.
#[derive(Debug, Clone)]
pub struct NewEntry {
    /// Number that no other entry of the copy has.
    pub id: u64,
    /// Number of the source, from 0.
    pub source: u32,
    /// Path beneath the source, or the root for the source itself.
    pub path: RelPath,
    /// Permissions and modification time.
    pub meta: Meta,
}

impl NewEntry {
    fn head(&self) -> EntryHead {
        EntryHead {
            id: self.id,
            source: self.source,
            path: self.path.clone(),
        }
    }
}

/// A directory of a copy, to be finished after its content is written.
#[derive(Debug)]
pub struct LocalDirectory {
    entry: NewEntry,
    made: MadeDir,
}

impl LocalDirectory {
    /// Returns true if this copy created it, or an earlier one did not finish it.
    pub fn is_new(&self) -> bool {
        self.made == MadeDir::New
    }

    /// Returns the number of its source.
    pub fn source(&self) -> u32 {
        self.entry.source
    }

    /// Returns its path beneath the source.
    pub fn path(&self) -> &RelPath {
        &self.entry.path
    }

    /// Returns the number of directories above it, in the source.
    pub fn depth(&self) -> usize {
        let path = self.entry.path.as_bytes();
        match path.is_empty() {
            true => 0,
            false => path.split(|&byte| byte == b'/').count(),
        }
    }
}

/// A file that is being written. On drop it is removed, or kept for a later copy to resume.
pub struct PartialFile {
    file: <CopyDestination as FileStore>::File,
    entry: NewEntry,
    size: u64,
    block_log2: u32,
    /// Hash of the blocks that are in place. It is locked while one of them is written.
    tree: Mutex<TreeHash>,
}

impl std::fmt::Debug for LocalTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalTarget").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PartialFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartialFile").finish_non_exhaustive()
    }
}

impl PartialFile {
    /// Returns the ranges that are not in place: offset and length of one block each, ascending.
    pub fn missing_blocks(&self) -> Vec<(u64, u32)> {
        let tree = self.tree.lock();
        let block = 1u64 << self.block_log2;
        (0..self.size.div_ceil(block))
            .map(|index| index * block)
            .filter(|offset| !tree.covers(*offset))
            .map(|offset| (offset, block.min(self.size - offset) as u32))
            .collect()
    }
}

impl LocalTarget {
    /// Creates a target that writes to `destination`.
    pub fn new(destination: CopyDestination) -> Self {
        Self { store: destination }
    }

    /// Returns true if something exists where the entry goes.
    pub fn has_entry(&self, entry: &NewEntry) -> bool {
        self.store.has_entry(&entry.head())
    }

    /// Returns true if a file of this size and time is in place, or must be left alone. Its
    /// permissions are corrected if the copy overwrites.
    ///
    /// # Errors
    /// The existing file cannot be replaced.
    pub fn is_in_place(&self, entry: &NewEntry, size: u64) -> Result<bool, Failure> {
        let offer = FileOffer {
            head: entry.head(),
            meta: entry.meta.clone(),
            size,
            hash: None,
        };
        let compared = self.store.compare(&offer, &|| true)?;
        Ok(compared == Comparison::InPlace)
    }

    /// Creates a directory, or takes an existing one.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn make_dir(&self, entry: NewEntry) -> Result<LocalDirectory, Failure> {
        let made = self.store.make_dir(&entry.head(), &entry.meta)?;
        Ok(LocalDirectory { entry, made })
    }

    /// Sets a directory's permissions and time, after all its content is written.
    ///
    /// # Errors
    /// They cannot be set.
    pub fn finish_dir(&self, directory: &LocalDirectory) -> Result<(), Failure> {
        let LocalDirectory { entry, made } = directory;
        match self.store.finishes(*made) {
            true => self.store.finish_dir(&entry.head(), *made, &entry.meta),
            false => Ok(()),
        }
    }

    /// Leaves a directory for a later copy to finish, as this one ends early.
    pub fn leave_dir(&self, directory: &LocalDirectory) {
        let LocalDirectory { entry, made } = directory;
        self.store.leave_dir(&entry.head(), *made, &entry.meta);
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// It cannot be created, or something else exists.
    pub fn write_symlink(&self, entry: &NewEntry, target: &[u8]) -> Result<EntryOutcome, Failure> {
        self.store.write_symlink(&entry.head(), &entry.meta, target)
    }

    /// Writes a whole file, and commits it. `done` receives the outcome, and the hash of the
    /// content, now or later from another thread.
    pub fn write_small(
        &self,
        entry: &NewEntry,
        data: &[u8],
        done: impl FnOnce(Result<EntryOutcome, Failure>, Hash) + Send + 'static,
    ) {
        let hash = *blake3::hash(data).as_bytes();
        let done = Box::new(move |outcome| done(outcome, hash));
        self.store
            .write_small(&entry.head(), &entry.meta, data, &hash, done);
    }

    /// Begins a file of `size` bytes, which is not empty. What an earlier copy left of it is
    /// resumed if both give the same `identity`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin(
        &self,
        entry: NewEntry,
        size: u64,
        identity: Option<SourceIdentity>,
    ) -> Result<PartialFile, Failure> {
        let announced = AnnouncedFile {
            head: entry.head(),
            meta: entry.meta.clone(),
            size,
            block_log2: block_log2(size),
            identity,
        };
        let mut tree = TreeHash::new(size, announced.block_log2);
        let resumed = match self.store.may_resume(&announced) {
            Resumption::Some(()) => self.store.resume(&announced)?,
            // Another copy that is still writing the file is not waited for.
            Resumption::Nothing | Resumption::AskAgain(_) => Resumption::Nothing,
        };
        let file = match resumed {
            Resumption::Some((file, subtrees)) => {
                for subtree in subtrees {
                    tree.insert_subtree(subtree);
                }
                file
            }
            Resumption::Nothing | Resumption::AskAgain(_) => self.store.create(&announced)?,
        };
        Ok(PartialFile {
            file,
            entry,
            size,
            block_log2: announced.block_log2,
            tree: Mutex::new(tree),
        })
    }

    /// Writes one of the [`PartialFile::missing_blocks`].
    ///
    /// # Errors
    /// It cannot be written, or has not the length of the block.
    pub fn write_block(&self, file: &PartialFile, offset: u64, data: &[u8]) -> Result<(), Failure> {
        let left = file.size.saturating_sub(offset);
        let expected = (1u64 << file.block_log2).min(left);
        if data.len() as u64 != expected || data.is_empty() {
            return Err(Failure::new(FailureKind::Changed));
        }
        let len = data.len() as u32;
        let mut hasher = BlockHasher::new(offset, u64::from(len), file.size);
        hasher.update(data);
        let hash = hasher.finish();
        let block = Block {
            id: file.entry.id,
            offset,
            len,
            extents: vec![Extent { offset: 0, len }],
        };
        let mut tree = file.tree.lock();
        self.store.write(&file.file, &block, data, hash)?;
        tree.insert(offset, hash);
        Ok(())
    }

    /// Makes a complete file durable, and gives it its name. `done` receives the outcome, and the
    /// hash of the content if it is complete, now or later from another thread.
    pub fn commit(
        &self,
        file: PartialFile,
        done: impl FnOnce(Result<EntryOutcome, Failure>, Option<Hash>) + Send + 'static,
    ) {
        let PartialFile {
            file,
            entry,
            size,
            tree,
            ..
        } = file;
        let Some(hash) = tree.into_inner().root() else {
            self.store.discard(file);
            return done(Err(Failure::new(FailureKind::Verification)), None);
        };
        let done = Box::new(move |outcome| done(outcome, Some(hash)));
        self.store.commit(file, &entry.meta, size, &hash, done);
    }

    /// Removes an unfinished file, so that no later copy resumes it.
    pub fn discard(&self, file: PartialFile) {
        self.store.discard(file.file);
    }

    /// Finishes directories after all their content is written, deepest first, and makes everything
    /// durable. Returns the failures, each with the source and the path.
    pub fn finish_all(&self, mut directories: Vec<LocalDirectory>) -> Vec<(u32, RelPath, Failure)> {
        directories.sort_by_key(|directory| std::cmp::Reverse(directory.depth()));
        let mut failures = Vec::new();
        for directory in directories {
            if let Err(failure) = self.finish_dir(&directory) {
                let failure = match failure.kind {
                    FailureKind::Metadata => failure,
                    _ => Failure::with_detail(FailureKind::Metadata, failure.to_string()),
                };
                failures.push((directory.source(), directory.path().clone(), failure));
            }
        }
        let rest = self.finish().into_iter();
        failures.extend(rest.map(|failure| (0, RelPath::root(), failure)));
        failures
    }

    /// Forces the remaining data to disk, before the end of the copy is reported. Returns the
    /// failures, each with its path in the detail.
    pub fn finish(&self) -> Vec<Failure> {
        self.store.finish()
    }
}
