//! Local sources, for a reader in another crate.

use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::preservation::Preservation;
use crate::progress::TransferProgress;
use crate::send::{FoundEntry, SourceFile, Sources, WalkSink};
use crate::wire::{EntryHead, Meta, SourceIdentity};

/// An entry that the walk of local sources found.
#[derive(Debug)]
pub struct LocalEntry {
    /// Number of the source, from 0.
    pub source: u32,
    /// Path beneath the source, or the root for the source itself.
    pub path: RelPath,
    /// Permissions and modification time.
    pub meta: Meta,
    /// Kind of the entry, and what belongs to the kind.
    pub kind: LocalEntryKind,
}

/// Kind of a [`LocalEntry`].
#[derive(Debug)]
pub enum LocalEntryKind {
    /// A file. Its size in bytes may differ when it is opened.
    File {
        /// Size in bytes.
        size: u64,
    },
    /// A directory. It precedes its content.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Target of the link.
        target: Vec<u8>,
    },
    /// An entry that cannot be copied.
    Failed(Failure),
}

impl Sources {
    /// Walks the sources, and passes every entry to `take` until it returns false. Blocking.
    /// Properties that no copy keeps are counted in `progress`. Returns false if `take` stopped it.
    pub fn for_each(&self, progress: &TransferProgress, take: &dyn Fn(LocalEntry) -> bool) -> bool {
        self.walk(&EntrySink { progress, take })
    }

    /// Opens the file of an entry. Blocking.
    ///
    /// # Errors
    /// A change of the file since the walk, or the reason why it cannot be read.
    pub fn open(&self, source: u32, path: &RelPath) -> Result<LocalFile, Failure> {
        let head = EntryHead {
            id: 0,
            source,
            path: path.clone(),
        };
        self.source().open(&head).map(LocalFile)
    }
}

struct EntrySink<'a> {
    progress: &'a TransferProgress,
    take: &'a dyn Fn(LocalEntry) -> bool,
}

impl WalkSink for EntrySink<'_> {
    fn note_stat(&self, stat: &longhaul_platform::fs::Stat) {
        self.progress
            .not_kept
            .note_entry(stat, Preservation::default());
    }

    fn found(&self, source: u32, path: RelPath, meta: Meta, found: FoundEntry) -> bool {
        let kind = match found {
            FoundEntry::File { size } => LocalEntryKind::File { size },
            FoundEntry::Directory => LocalEntryKind::Directory,
            FoundEntry::Symlink { target } => LocalEntryKind::Symlink { target },
            FoundEntry::Special(_) => LocalEntryKind::Failed(Failure::new(FailureKind::NotRegular)),
            FoundEntry::Failed(failure) => LocalEntryKind::Failed(failure),
        };
        (self.take)(LocalEntry {
            source,
            path,
            meta,
            kind,
        })
    }
}

/// An open local file. Several threads may read it at once. All methods may block.
pub struct LocalFile(Box<dyn SourceFile>);

impl std::fmt::Debug for LocalFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalFile").finish_non_exhaustive()
    }
}

impl LocalFile {
    /// Returns the size in bytes when it was opened.
    pub fn size(&self) -> u64 {
        self.0.size()
    }

    /// Returns the permissions and modification time when it was opened.
    pub fn meta(&self) -> Meta {
        self.0.meta()
    }

    /// Returns a value that distinguishes this state of the file from every other.
    pub fn identity(&self) -> Option<SourceIdentity> {
        self.0.identity()
    }

    /// Counts its properties that no copy keeps.
    pub fn note_lost(&self, progress: &TransferProgress) {
        let names = self.0.attribute_names();
        progress
            .not_kept
            .note_attributes(&names, Preservation::default());
    }

    /// Reads from `offset` until `buffer` is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        self.0.read_at(buffer, offset)
    }

    /// Returns true if the file has not changed since it was opened.
    ///
    /// # Errors
    /// The file cannot be examined.
    pub fn is_unchanged(&self) -> Result<bool, Failure> {
        self.0.is_unchanged()
    }
}
