//! The walk of the sources, one directory at a time, in one order: names are sorted, and the
//! entries of a directory precede those of its subdirectories. Entries go to the queue as they are
//! found, so data flows during the walk. The walk waits when the queue is full.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use longhaul_platform::fs::Stat;
use rustix::io::Errno;

use crate::account::ResourcePermit;
use crate::error::{Failure, FailureKind, vanished_failure};
use crate::metadata::links::leads_out;
use crate::metadata::node::Node;
use crate::metadata::reader::MetadataReader;
use crate::metadata::{meta_of, special_file};
use crate::path::RelPath;
use crate::send::schedule::{FoundEntry, SourceInode};
use crate::store::confine::{Dir, DirIdentity, DirectoryNames, NodeKind, kind_of};
use crate::store::is_temporary;
use crate::wire::Meta;

/// Location of one source: `path` within `base`.
#[derive(Debug, Clone)]
pub(crate) struct SourceRoot {
    pub base: Arc<Dir>,
    pub path: RelPath,
}

/// Treatment of files of late size by the receiver of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LateSizes {
    Taken,
    /// The size must be known first.
    Refused,
    /// Nothing more is taken.
    Over,
}

/// Answer to the growth of a file of late size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// The walk continues.
    Wanted,
    /// The file has its result, so no more of it is needed.
    Settled,
    /// Nothing more is taken.
    Over,
}

/// Receiver of entries as they are found. A result of `false` stops the walk.
pub(crate) trait WalkSink {
    /// Returns the account for names that are still to be examined, or `None` if memory is not
    /// counted.
    fn hold(&self) -> Option<ResourcePermit> {
        None
    }
    /// Returns true if it takes the entry at `path` beneath the source, which is no directory. It
    /// is asked before further details are determined.
    fn wants(&self, _source: u32, _path: &RelPath, _kind: NodeKind) -> bool {
        true
    }
    /// Returns true if it takes the entry at `path` beneath the source. A directory that it does
    /// not take is not walked.
    fn takes(&self, _source: u32, _path: &RelPath, _stat: &Stat) -> bool {
        true
    }
    /// Returns true if it takes the content of a directory, whose entries are `names`.
    fn enter(&self, _source: u32, _path: &RelPath, _dir: &Dir, _names: &DirectoryNames) -> bool {
        true
    }
    /// Notes the metadata of an entry that may be copied.
    fn note_stat(&self, _stat: &Stat) {}
    /// Takes an entry. `path` is beneath the source.
    fn found(&self, source: u32, path: RelPath, meta: Meta, found: FoundEntry) -> bool;
    /// Returns whether files of late size are taken. May wait for the receiver's word.
    fn late_sizes(&self) -> LateSizes {
        LateSizes::Refused
    }
    /// Takes a file of late size, of which `available` bytes can be read, at least one block. Only
    /// if [`Self::late_sizes`] allows it.
    fn found_late(&self, _source: u32, _path: RelPath, _meta: Meta, _available: u64) -> bool {
        false
    }
    /// Notes that `available` bytes of the file of late size can be read. If `is_whole`, these are
    /// all. Must be repeated from time to time while the walk waits for more.
    fn grown(&self, _available: u64, _is_whole: bool) -> Growth {
        Growth::Over
    }
    /// Returns true if nothing more is taken.
    fn is_over(&self) -> bool {
        false
    }
    /// Takes a file of `size` bytes that has several names, here or elsewhere.
    fn found_linked(
        &self,
        source: u32,
        path: RelPath,
        meta: Meta,
        size: u64,
        (_inode, _names): (SourceInode, u64),
    ) -> bool {
        self.found(source, path, meta, FoundEntry::File { size })
    }
}

/// Settings of a walk.
#[derive(Clone, Copy)]
pub(crate) struct WalkSettings<'a> {
    /// If true, directories are walked.
    pub recursive: bool,
    /// Reader of the metadata of entries.
    pub metadata: &'a MetadataReader,
}

/// Walks one source. Blocking.
pub(crate) fn walk(
    number: u32,
    source: &SourceRoot,
    settings: WalkSettings<'_>,
    sink: &dyn WalkSink,
) -> bool {
    let WalkSettings {
        recursive,
        metadata,
    } = settings;
    let walk = Walk {
        number,
        source,
        recursive,
        metadata,
        sink,
    };
    let stat = match source.base.stat(&source.path) {
        Ok(stat) => stat,
        Err(errno) => return walk.failed(RelPath::root(), errno.into()),
    };
    match kind_of(&stat) {
        NodeKind::Directory if !recursive => {
            walk.failed(RelPath::root(), Failure::new(FailureKind::IsDirectory))
        }
        NodeKind::Directory => walk.descend(RelPath::root(), &stat),
        // A local link was followed before the walk. A server follows none.
        NodeKind::Symlink if !recursive => {
            walk.failed(RelPath::root(), Failure::new(FailureKind::IsLink))
        }
        _ if !sink.takes(number, &RelPath::root(), &stat) => true,
        _ => walk.visit_entry(RelPath::root(), &stat),
    }
}

struct Walk<'a> {
    number: u32,
    source: &'a SourceRoot,
    recursive: bool,
    metadata: &'a MetadataReader,
    sink: &'a dyn WalkSink,
}

/// A directory and those above it, in a walk that follows links.
struct Lineage {
    identity: DirIdentity,
    above: Option<Arc<Lineage>>,
}

impl Lineage {
    /// Returns true if one of the directories is `identity`.
    fn contains(lineage: Option<&Arc<Self>>, identity: DirIdentity) -> bool {
        let mut next = lineage;
        while let Some(one) = next {
            if one.identity == identity {
                return true;
            }
            next = one.above.as_ref();
        }
        false
    }
}

/// A directory that waits to be walked.
struct AheadDirectory {
    path: RelPath,
    meta: Meta,
    /// Directories above it, if links are followed.
    above: Option<Arc<Lineage>>,
}

impl Walk<'_> {
    fn emit(&self, path: RelPath, meta: Meta, found: FoundEntry) -> bool {
        self.sink.found(self.number, path, meta, found)
    }

    fn failed(&self, path: RelPath, failure: Failure) -> bool {
        self.emit(path, Meta::default(), FoundEntry::Failed(failure))
    }

    /// Handles an entry that is not a directory.
    fn visit_entry(&self, path: RelPath, stat: &Stat) -> bool {
        let meta = self.meta_of_entry(&path, stat);
        self.sink.note_stat(stat);
        match kind_of(stat) {
            NodeKind::File => self.file(path, meta, stat),
            NodeKind::Symlink => {
                let target = self.source.path.join(&path).map_err(Failure::from);
                match target
                    .and_then(|full| self.source.base.read_link(&full).map_err(vanished_failure))
                {
                    Ok(target)
                        if self.metadata.leaves_out_links()
                            && leads_out(path.as_bytes(), &target) =>
                    {
                        true
                    }
                    Ok(target) => self.emit(path, meta, FoundEntry::Symlink { target }),
                    Err(failure) => self.failed(path, failure),
                }
            }
            NodeKind::Directory | NodeKind::Other => {
                let is_kept = self.metadata.kept().special_files;
                match special_file(stat).filter(|_| is_kept) {
                    Some(special) => self.emit(path, meta, FoundEntry::Special(special)),
                    None => self.failed(path, Failure::new(FailureKind::NotRegular)),
                }
            }
        }
    }

    /// Returns the metadata of an entry that is not a directory.
    fn meta_of_entry(&self, path: &RelPath, stat: &Stat) -> Meta {
        if !self.metadata.reads_nodes() {
            return self.metadata.meta(stat, None);
        }
        let full = self.source.path.join(path).ok();
        let handle = full.and_then(|full| self.source.base.node(&full).ok());
        let node = handle.as_ref().map(Node::handle);
        self.metadata.meta(stat, node.as_ref())
    }

    /// Returns the failure of an entry that was listed and cannot be examined.
    fn lost_entry(&self, errno: Errno) -> Failure {
        match errno {
            Errno::NOENT if self.metadata.follows_links() => Failure::with_detail(
                FailureKind::NotFound,
                "a symbolic link that leads nowhere, with --copy-links",
            ),
            errno => vanished_failure(errno),
        }
    }

    #[allow(
        clippy::useless_conversion,
        reason = "it has 32 bits on some processors"
    )]
    fn file(&self, path: RelPath, meta: Meta, stat: &Stat) -> bool {
        let (size, names) = (stat.st_size as u64, u64::from(stat.st_nlink));
        if names < 2 {
            return self.emit(path, meta, FoundEntry::File { size });
        }
        let inode = SourceInode {
            device: stat.st_dev,
            number: stat.st_ino,
        };
        self.sink
            .found_linked(self.number, path, meta, size, (inode, names))
    }

    /// Handles a directory and all its content. No descriptor stays open while its subdirectories
    /// are walked, and the list of these is on the heap. Depth thus costs neither descriptors nor
    /// stack.
    fn descend(&self, path: RelPath, stat: &Stat) -> bool {
        self.sink.note_stat(stat);
        let mut ahead = vec![AheadDirectory {
            path,
            meta: meta_of(stat),
            above: None,
        }];
        let mut memory = WalkMemory(self.sink.hold());
        while let Some(AheadDirectory { path, meta, above }) = ahead.pop() {
            memory.shrink(ahead_bytes(&path));
            let listed = self.source.path.join(&path).map_err(Failure::from);
            let mut name_bytes = 0;
            let listed = listed.and_then(|full| {
                let dir = self.source.base.open_dir(&full).map_err(vanished_failure)?;
                let names = dir.names(&mut |name| {
                    let bytes = NAME_OVERHEAD_BYTES + name.len() as u64;
                    memory.grow(bytes)?;
                    name_bytes += bytes;
                    Ok(())
                })?;
                Ok((dir, names))
            });
            let (dir, names) = match listed {
                Ok(listed) => listed,
                Err(failure) => {
                    memory.shrink(name_bytes);
                    if !self.failed(path, failure) {
                        return false;
                    }
                    continue;
                }
            };
            let lineage = match self.lineage(&dir, above) {
                Ok(lineage) => lineage,
                Err(failure) => {
                    memory.shrink(name_bytes);
                    if !self.failed(path, failure) {
                        return false;
                    }
                    continue;
                }
            };
            let meta = self.meta_of_directory(&dir, meta);
            if !self.emit(path.clone(), meta, FoundEntry::Directory) {
                return false;
            }
            if !self.sink.enter(self.number, &path, &dir, &names) {
                memory.shrink(name_bytes);
                continue;
            }
            let first_below = ahead.len();
            for (name, kind) in names.iter() {
                // It belongs to another copy, to this directory.
                if is_temporary(name.as_bytes()) {
                    continue;
                }
                let child = match path.child(name.as_bytes()) {
                    Ok(child) => child,
                    // It is reported under the name of its directory, as its own cannot be
                    // transmitted.
                    Err(error) => {
                        let detail = format!(
                            "{}: {error}",
                            longhaul_proto::text::printable(name.as_bytes())
                        );
                        if !self.failed(
                            path.clone(),
                            Failure::with_detail(FailureKind::RefusedPath, detail),
                        ) {
                            return false;
                        }
                        continue;
                    }
                };
                let may_be_directory = |kind: NodeKind| match kind {
                    NodeKind::Directory => true,
                    NodeKind::Symlink => self.metadata.follows_links(),
                    NodeKind::File | NodeKind::Other => false,
                };
                if let Some(kind) = kind.filter(|kind| !may_be_directory(*kind))
                    && !self.sink.wants(self.number, &child, kind)
                {
                    continue;
                }
                let go_on = match dir.stat_name(name) {
                    Err(errno) => self.failed(child, self.lost_entry(errno)),
                    Ok(stat) if !self.sink.takes(self.number, &child, &stat) => true,
                    Ok(stat) if kind_of(&stat) == NodeKind::Directory && self.recursive => {
                        self.sink.note_stat(&stat);
                        // Its attributes are read when it is open.
                        let meta = meta_of(&stat);
                        match memory.grow(ahead_bytes(&child)) {
                            Ok(()) => {
                                ahead.push(AheadDirectory {
                                    path: child,
                                    meta,
                                    above: lineage.clone(),
                                });
                                true
                            }
                            Err(failure) => self.failed(child, failure),
                        }
                    }
                    Ok(stat) => self.visit_entry(child, &stat),
                };
                if !go_on {
                    return false;
                }
            }
            memory.shrink(name_bytes);
            if let Some(below) = ahead.get_mut(first_below..) {
                below.reverse();
            }
        }
        true
    }
}

impl Walk<'_> {
    /// Returns the metadata of an open directory, of which permissions and time are known.
    fn meta_of_directory(&self, dir: &Dir, known: Meta) -> Meta {
        match longhaul_platform::fs::fstat(dir) {
            Ok(stat) if self.metadata.changes_meta() => {
                self.metadata.meta(&stat, Some(&Node::open(dir.as_fd())))
            }
            _ => known,
        }
    }

    /// Returns an open directory with those above it, if links are followed.
    ///
    /// # Errors
    /// The directory is one of those above it, so the walk would not end.
    fn lineage(
        &self,
        dir: &Dir,
        above: Option<Arc<Lineage>>,
    ) -> Result<Option<Arc<Lineage>>, Failure> {
        if !self.metadata.follows_links() {
            return Ok(None);
        }
        let identity = dir.identity().map_err(vanished_failure)?;
        match Lineage::contains(above.as_ref(), identity) {
            true => Err(Failure::with_detail(
                FailureKind::RefusedPath,
                "a symbolic link leads to a directory above it, with --copy-links",
            )),
            false => Ok(Some(Arc::new(Lineage { identity, above }))),
        }
    }
}

/// Memory of a name that waits to be examined, besides its own, and of a directory that waits to be
/// walked, in bytes.
const NAME_OVERHEAD_BYTES: u64 = 32;
const DIRECTORY_OVERHEAD_BYTES: u64 = 64;

fn ahead_bytes(path: &RelPath) -> u64 {
    DIRECTORY_OVERHEAD_BYTES + path.as_bytes().len() as u64
}

/// Memory of a walk, if it is counted.
struct WalkMemory(Option<ResourcePermit>);

impl WalkMemory {
    fn grow(&mut self, bytes: u64) -> Result<(), Failure> {
        match &mut self.0 {
            Some(held) => Ok(held.grow(bytes)?),
            None => Ok(()),
        }
    }

    fn shrink(&mut self, bytes: u64) {
        if let Some(held) = &mut self.0 {
            held.shrink(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn settings(recursive: bool) -> WalkSettings<'static> {
        static PLAIN: std::sync::LazyLock<MetadataReader> =
            std::sync::LazyLock::new(MetadataReader::default);
        WalkSettings {
            recursive,
            metadata: &PLAIN,
        }
    }

    #[derive(Default)]
    struct List(Mutex<Vec<(String, FoundEntry)>>);

    impl WalkSink for List {
        fn found(&self, _: u32, path: RelPath, _: Meta, found: FoundEntry) -> bool {
            self.0.lock().push((path.to_string(), found));
            true
        }
    }

    #[test]
    fn walk_has_one_order_and_follows_no_links() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |p: &str| tmp.path().join(p);
        std::fs::create_dir_all(at("s/b/c")).unwrap();
        std::fs::create_dir_all(at("s/d")).unwrap();
        for file in ["s/z", "s/a", "s/b/f", "s/b/c/g", "s/d/h"] {
            std::fs::write(at(file), file).unwrap();
        }
        std::os::unix::fs::symlink("/", at("s/link")).unwrap();
        let stem = "0".repeat(32);
        for name in [
            "0011aaff-3".to_owned(),
            format!("{stem}.journal"),
            format!("{stem}.{stem}.part"),
        ] {
            std::fs::write(at(&format!("s/.longhaul-{name}")), "not finished").unwrap();
        }
        let list = List::default();
        let source = SourceRoot {
            base: Arc::new(Dir::open(tmp.path()).unwrap()),
            path: RelPath::from_bytes(b"s").unwrap(),
        };
        assert!(walk(0, &source, settings(true), &list));
        let found = list.0.into_inner();
        let names: Vec<&str> = found.iter().map(|(p, _)| p.as_str()).collect();
        assert_eq!(
            names,
            [
                ".", "a", "link", "z", "b", "b/f", "b/c", "b/c/g", "d", "d/h"
            ]
        );
        assert_eq!(
            found[2].1,
            FoundEntry::Symlink {
                target: b"/".to_vec()
            }
        );
        assert_eq!(found[1].1, FoundEntry::File { size: 3 });
    }

    #[test]
    fn walk_reports_directories_and_missing_sources() {
        let tmp = tempfile::tempdir().unwrap();
        let base = Arc::new(Dir::open(tmp.path()).unwrap());
        let list = List::default();
        walk(
            0,
            &SourceRoot {
                base: base.clone(),
                path: RelPath::root(),
            },
            settings(false),
            &list,
        );
        walk(
            1,
            &SourceRoot {
                base,
                path: RelPath::from_bytes(b"none").unwrap(),
            },
            settings(true),
            &list,
        );
        std::os::unix::fs::symlink("/etc/passwd", tmp.path().join("link")).unwrap();
        let link = SourceRoot {
            base: Arc::new(Dir::open(tmp.path()).unwrap()),
            path: RelPath::from_bytes(b"link").unwrap(),
        };
        walk(2, &link, settings(false), &list);
        let found = list.0.into_inner();
        let kinds = [
            FailureKind::IsDirectory,
            FailureKind::NotFound,
            FailureKind::IsLink,
        ];
        for ((_, found), kind) in found.into_iter().zip(kinds) {
            assert_eq!(found, FoundEntry::Failed(Failure::new(kind)));
        }
    }
}
