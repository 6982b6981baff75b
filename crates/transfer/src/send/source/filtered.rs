//! A walk that takes only what a filter takes (LH-COPY-55).

use std::collections::BTreeSet;

use longhaul_filter::{EntryKind, Filter, IGNORE_FILE_NAME, IgnoreRules, MAX_IGNORE_FILE_BYTES};
use longhaul_platform::fs::Stat;
use parking_lot::Mutex;

use crate::account::ResourcePermit;
use crate::error::{Failure, FailureKind};
use crate::metadata::modified_ms;
use crate::path::RelPath;
use crate::send::schedule::{FoundEntry, SourceInode};
use crate::send::walk::{Growth, LateSizes, WalkSink};
use crate::store::confine::{Dir, DirectoryNames, NodeKind, kind_of};
use crate::wire::Meta;

/// Passes the entries that the filter takes to `sink`.
pub(super) struct FilterSink<'a> {
    filter: &'a Filter,
    sink: &'a dyn WalkSink,
    state: Mutex<FilterState>,
}

/// State of the walk of one source.
#[derive(Default)]
struct FilterState {
    ignored: IgnoreRules,
    /// Device of the source, if the walk stays on it.
    device: Option<u64>,
    /// Listed paths that have been found.
    found: BTreeSet<Vec<u8>>,
    /// Memory of the rules of ignore files.
    memory: Option<ResourcePermit>,
    memory_bytes: u64,
}

/// Memory of the rules of ignore files for each byte of their text, in bytes.
const RULE_BYTES_PER_TEXT_BYTE: u64 = 32;

impl FilterState {
    /// Takes the memory for the rules that are remembered.
    fn account(&mut self) -> Result<(), Failure> {
        let bytes = self.ignored.text_bytes() as u64 * RULE_BYTES_PER_TEXT_BYTE;
        if let Some(memory) = &mut self.memory {
            match bytes >= self.memory_bytes {
                true => memory.grow(bytes - self.memory_bytes)?,
                false => memory.shrink(self.memory_bytes - bytes),
            }
        }
        self.memory_bytes = bytes;
        Ok(())
    }
}

impl<'a> FilterSink<'a> {
    pub(super) fn new(filter: &'a Filter, sink: &'a dyn WalkSink) -> Self {
        Self {
            filter,
            sink,
            state: Mutex::new(FilterState {
                memory: sink.hold(),
                ..FilterState::default()
            }),
        }
    }

    /// Notes that a path exists, if it is listed.
    fn note_listed(&self, path: &RelPath) {
        if self.filter.lists(path.as_bytes()) {
            self.state.lock().found.insert(path.as_bytes().to_vec());
        }
    }

    /// Reports the listed paths that the walk has not found.
    pub(super) fn report_missing(&self) -> bool {
        let found = std::mem::take(&mut self.state.lock().found);
        let missing = self.filter.listed().filter(|path| !found.contains(*path));
        for path in missing {
            let (path, kind) = match RelPath::from_bytes(path) {
                Ok(path) => (path, FailureKind::NotFound),
                Err(_) => (RelPath::root(), FailureKind::RefusedPath),
            };
            let failed = FoundEntry::Failed(Failure::new(kind));
            if !self.sink.found(0, path, Meta::default(), failed) {
                return false;
            }
        }
        true
    }
}

impl WalkSink for FilterSink<'_> {
    fn hold(&self) -> Option<ResourcePermit> {
        self.sink.hold()
    }

    fn wants(&self, source: u32, path: &RelPath, kind: NodeKind) -> bool {
        let is_directory = kind == NodeKind::Directory;
        self.note_listed(path);
        self.filter.takes_name(path.as_bytes(), is_directory) && self.sink.wants(source, path, kind)
    }

    fn takes(&self, source: u32, path: &RelPath, stat: &Stat) -> bool {
        let kind = match kind_of(stat) {
            NodeKind::Directory => EntryKind::Directory,
            NodeKind::File => EntryKind::File {
                bytes: stat.st_size as u64,
                modified_ms: modified_ms(stat),
            },
            NodeKind::Symlink | NodeKind::Other => EntryKind::Other,
        };
        let (bytes, is_directory) = (path.as_bytes(), kind == EntryKind::Directory);
        self.note_listed(path);
        let is_ignored = || self.state.lock().ignored.leaves_out(bytes, is_directory);
        self.filter.takes(bytes, kind) && !is_ignored() && self.sink.takes(source, path, stat)
    }

    fn enter(&self, source: u32, path: &RelPath, dir: &Dir, names: &DirectoryNames) -> bool {
        let mut state = self.state.lock();
        let device = match self.filter.rules().one_file_system {
            true => longhaul_platform::fs::fstat(dir)
                .ok()
                .map(|stat| stat.st_dev),
            false => None,
        };
        if path.is_root() {
            state.ignored = IgnoreRules::default();
            state.device = device;
        }
        if device != state.device {
            return false;
        }
        if self.filter.rules().ignore_files {
            let has_file = names.iter().any(|(name, _)| name == IGNORE_FILE_NAME);
            state.ignored.retain_above(path.as_bytes());
            if let Some(text) = has_file.then(|| read_ignore_file(dir)).flatten() {
                state.ignored.add(path.as_bytes(), &text);
            }
            if let Err(failure) = state.account() {
                state.ignored = IgnoreRules::default();
                drop(state);
                // Without its rules, it is not known what to leave out.
                let failed = FoundEntry::Failed(failure);
                self.sink
                    .found(source, path.clone(), Meta::default(), failed);
                return false;
            }
        }
        drop(state);
        self.sink.enter(source, path, dir, names)
    }

    fn note_stat(&self, stat: &Stat) {
        self.sink.note_stat(stat);
    }

    fn found(&self, source: u32, path: RelPath, meta: Meta, found: FoundEntry) -> bool {
        self.sink.found(source, path, meta, found)
    }

    fn late_sizes(&self) -> LateSizes {
        self.sink.late_sizes()
    }

    fn found_late(&self, source: u32, path: RelPath, meta: Meta, available: u64) -> bool {
        self.sink.found_late(source, path, meta, available)
    }

    fn grown(&self, available: u64, is_whole: bool) -> Growth {
        self.sink.grown(available, is_whole)
    }

    fn is_over(&self) -> bool {
        self.sink.is_over()
    }

    fn found_linked(
        &self,
        source: u32,
        path: RelPath,
        meta: Meta,
        size: u64,
        inode: (SourceInode, u64),
    ) -> bool {
        self.sink.found_linked(source, path, meta, size, inode)
    }
}

/// Reads the rules of a directory. `None` if they cannot be read, as for a file without rules.
fn read_ignore_file(dir: &Dir) -> Option<Vec<u8>> {
    let name = RelPath::from_bytes(IGNORE_FILE_NAME.as_bytes()).ok()?;
    let (text, _) = dir.read_beginning(&name, MAX_IGNORE_FILE_BYTES).ok()?;
    Some(text)
}
