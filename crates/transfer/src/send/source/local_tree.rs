//! Files of this host: roots that are opened once, walked, and read beneath.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use longhaul_platform::fs::{self, SeekFrom, Stat};
use rustix::io::Errno;

use super::device_file::DeviceFile;
use super::unsized_file::UnsizedFile;
use super::{Source, SourceFile};
use crate::error::{Error, Failure, FailureKind, vanished_failure};
use crate::full_read::read_full_at;
use crate::metadata::node::Node;
use crate::metadata::reader::MetadataReader;
use crate::path::RelPath;
use crate::send::schedule::FoundEntry;
use crate::send::walk::{SourceRoot, WalkSettings, WalkSink, walk};
use crate::store::confine::{Dir, NodeKind, kind_of};
use crate::store::journal::Identity;
use crate::typed_path::source_name;
use crate::wire::{EntryHead, Extent, MAX_EXTENTS, Meta, SourceIdentity};

/// Context for deriving identities (BLAKE3 paper, section 2.3).
const IDENTITY_CONTEXT: &str = "longhaul 2026 identity of a source file";

/// Maximum number of bytes of the names of a file's extended attributes (xattr(7)).
const MAX_ATTRIBUTE_NAMES: usize = 64 * 1024;

/// Local roots.
#[derive(Debug)]
pub(super) struct LocalTree {
    roots: Vec<Result<SourceRoot, Failure>>,
    recursive: bool,
    /// If true, roots that are block devices are read as files.
    reads_devices: bool,
    metadata: Arc<MetadataReader>,
}

impl LocalTree {
    pub(super) fn beneath(base: Arc<Dir>, paths: &[RelPath], recursive: bool) -> Self {
        let root = |path: &RelPath| {
            Ok(SourceRoot {
                base: base.clone(),
                path: path.clone(),
            })
        };
        let roots = paths.iter().map(root).collect();
        Self {
            roots,
            recursive,
            reads_devices: false,
            metadata: Arc::default(),
        }
    }

    /// Reads roots that are block devices as files.
    pub(super) fn with_devices(self) -> Self {
        Self {
            reads_devices: true,
            ..self
        }
    }

    /// Opens the block device that is the root of an entry. `None` if it is something else.
    fn device(&self, root: &SourceRoot) -> Option<Result<DeviceFile, Failure>> {
        let stat = match self.reads_devices {
            true => root.base.stat(&root.path).ok()?,
            false => return None,
        };
        DeviceFile::is_device(&stat).then(|| {
            let fd = root.base.open_file(&root.path).map_err(vanished_failure)?;
            let stat = fs::fstat(&fd)?;
            match DeviceFile::is_device(&stat) {
                true => DeviceFile::new(fd, stat),
                false => Err(Failure::new(FailureKind::Changed)),
            }
        })
    }

    /// Opens roots like [`super::Sources::local`].
    pub(super) fn open(
        paths: &[impl AsRef<Path>],
        recursive: bool,
    ) -> Result<(Self, Vec<Vec<u8>>), Error> {
        let (mut roots, mut names) = (Vec::new(), Vec::new());
        let mut first_failure = None;
        for path in paths {
            let path = path.as_ref();
            match open_local(path, recursive) {
                Ok((root, name)) => {
                    roots.push(Ok(root));
                    names.push(name);
                }
                Err(failure) => {
                    let shown =
                        longhaul_proto::text::printable(path.as_os_str().as_encoded_bytes());
                    first_failure.get_or_insert(Error::Path {
                        path: shown,
                        failure: failure.clone(),
                    });
                    roots.push(Err(failure));
                    names.push(Vec::new());
                }
            }
        }
        match first_failure {
            Some(error) if roots.iter().all(Result::is_err) => Err(error),
            _ => Ok((
                Self {
                    roots,
                    recursive,
                    reads_devices: false,
                    metadata: Arc::default(),
                },
                names,
            )),
        }
    }

    fn settings(&self) -> WalkSettings<'_> {
        WalkSettings {
            recursive: self.recursive,
            metadata: &self.metadata,
        }
    }

    /// Returns the root of an entry.
    fn root(&self, head: &EntryHead) -> Result<&SourceRoot, Failure> {
        let root = self
            .roots
            .get(head.source as usize)
            .ok_or(Failure::new(FailureKind::NotFound))?;
        root.as_ref().map_err(Clone::clone)
    }
}

impl Source for LocalTree {
    fn walk(&self, sink: &dyn WalkSink) -> bool {
        self.roots.iter().zip(0..).all(|(root, number)| match root {
            Ok(root) => match self.device(root) {
                None => walk(number, root, self.settings(), sink),
                Some(Ok(device)) => {
                    let (meta, size) = (device.meta(), device.size());
                    sink.found(number, RelPath::root(), meta, FoundEntry::File { size })
                }
                Some(Err(failure)) => {
                    let failed = FoundEntry::Failed(failure);
                    sink.found(number, RelPath::root(), Meta::default(), failed)
                }
            },
            Err(failure) => sink.found(
                number,
                RelPath::root(),
                Meta::default(),
                FoundEntry::Failed(failure.clone()),
            ),
        })
    }

    fn open(&self, head: &EntryHead) -> Result<Box<dyn SourceFile>, Failure> {
        let root = self.root(head)?;
        if let Some(device) = self.device(root).filter(|_| head.path.is_root()) {
            return Ok(Box::new(device?));
        }
        let (dir, path) = (&root.base, root.path.join(&head.path)?);
        let fd = dir.open_file(&path).map_err(vanished_failure)?;
        let stat = fs::fstat(&fd)?;
        let meta = self.metadata.meta(&stat, Some(&Node::open(fd.as_fd())));
        match kind_of(&stat) {
            NodeKind::File if stat.st_size == 0 => Ok(match UnsizedFile::read(&fd, &meta)? {
                Some(file) => Box::new(file),
                None => Box::new(LocalFile { fd, stat, meta }),
            }),
            NodeKind::File => Ok(Box::new(LocalFile { fd, stat, meta })),
            _ => Err(Failure::new(FailureKind::Changed)),
        }
    }

    fn set_metadata(&mut self, metadata: Arc<MetadataReader>) {
        if metadata.follows_links() {
            for root in &mut self.roots {
                if let Ok(source) = root {
                    match source.base.following() {
                        Ok(base) => source.base = Arc::new(base),
                        Err(errno) => *root = Err(errno.into()),
                    }
                }
            }
        }
        self.metadata = metadata;
    }
}

/// An open regular file of this machine.
pub(super) struct LocalFile {
    fd: OwnedFd,
    /// Metadata when it was opened. The file is unchanged if it still agrees.
    stat: Stat,
    /// The same, as it is sent.
    meta: Meta,
}

impl LocalFile {
    /// Takes an open file that is sent with this metadata.
    ///
    /// # Errors
    /// It cannot be examined.
    pub(super) fn new(fd: OwnedFd, meta: Meta) -> Result<Self, Errno> {
        let stat = fs::fstat(&fd)?;
        Ok(Self { fd, stat, meta })
    }
}

impl SourceFile for LocalFile {
    fn size(&self) -> u64 {
        self.stat.st_size as u64
    }

    fn meta(&self) -> Meta {
        self.meta.clone()
    }

    fn identity(&self) -> Option<SourceIdentity> {
        // The identity is a hash, so that the receiver learns nothing about this host's file
        // system.
        Some(blake3::derive_key(
            IDENTITY_CONTEXT,
            Identity::from_stat(&self.stat).as_bytes(),
        ))
    }

    fn attribute_names(&self) -> Vec<u8> {
        // Most files have none, which one call without a buffer shows.
        match fs::flistxattr_query(&self.fd) {
            Ok(1..) => {
                let mut names = vec![0; MAX_ATTRIBUTE_NAMES];
                let len = fs::flistxattr(&self.fd, &mut names[..]).unwrap_or(0);
                names.truncate(len);
                names
            }
            _ => Vec::new(),
        }
    }

    fn extents(&self, offset: u64, len: u32) -> Result<Vec<Extent>, Failure> {
        let may_have_holes = (self.stat.st_blocks as u64).saturating_mul(512) < self.size();
        match may_have_holes {
            true => Ok(data_extents(&self.fd, offset, len)?),
            false => Ok(vec![Extent { offset: 0, len }]),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        Ok(read_full_at(&self.fd, buffer, offset)?)
    }

    fn is_unchanged(&self) -> Result<bool, Failure> {
        // The change time is included, because a writer can reset the others.
        let key = |s: &Stat| {
            (
                s.st_size,
                s.st_mtime,
                s.st_mtime_nsec,
                s.st_ctime,
                s.st_ctime_nsec,
            )
        };
        Ok(key(&self.stat) == key(&fs::fstat(&self.fd)?))
    }
}

/// Returns the extents of data in `len` bytes from `offset`, by `SEEK_DATA` and `SEEK_HOLE`.
fn data_extents(fd: &OwnedFd, offset: u64, len: u32) -> Result<Vec<Extent>, Errno> {
    let end = offset + u64::from(len);
    let mut extents = Vec::new();
    let mut at = offset;
    while at < end {
        let data = match fs::seek(fd, SeekFrom::Data(at)) {
            Ok(data) => data,
            // There is no data up to the file's end.
            Err(Errno::NXIO) => break,
            // The file system does not support it, so everything counts as data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                return Ok(vec![Extent { offset: 0, len }]);
            }
            Err(errno) => return Err(errno),
        };
        if data >= end {
            break;
        }
        let hole = match fs::seek(fd, SeekFrom::Hole(data)) {
            Ok(hole) => hole.min(end),
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
        if hole <= data {
            break;
        }
        // The last possible extent takes the rest, including its holes.
        let until = if extents.len() + 1 == MAX_EXTENTS {
            end
        } else {
            hole
        };
        extents.push(Extent {
            offset: (data - offset) as u32,
            len: (until - data) as u32,
        });
        at = until;
    }
    Ok(extents)
}

fn open_local(path: &Path, recursive: bool) -> Result<(SourceRoot, Vec<u8>), Failure> {
    let open = |dir: &Path| Dir::open(dir).map(Arc::new).map_err(Failure::from);
    let typed = path.as_os_str().as_encoded_bytes();
    // `Path` reads `dir/.` as `dir`.
    let content_only = source_name(typed).is_empty();
    let Some(name) = path.file_name().filter(|_| !content_only) else {
        return Ok((
            SourceRoot {
                base: open(path)?,
                path: RelPath::root(),
            },
            Vec::new(),
        ));
    };
    let name_path = RelPath::from_bytes(name.as_encoded_bytes())?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let base = open(parent)?;
    let stat = base.stat(&name_path)?;
    let trailing_slash = typed.ends_with(b"/");
    if trailing_slash && kind_of(&stat) == NodeKind::File {
        return Err(Errno::NOTDIR.into());
    }
    if kind_of(&stat) == NodeKind::Symlink && (!recursive || trailing_slash) {
        // The user named this link on the command line, so it is followed.
        let real = std::fs::canonicalize(path).map_err(|error| io_failure(&error))?;
        let (mut root, _) = match real.file_name() {
            Some(_) => open_local(&real, true)?,
            None => return Err(Failure::new(FailureKind::IsDirectory)),
        };
        if real.is_dir() {
            root = SourceRoot {
                base: open(&real)?,
                path: RelPath::root(),
            };
        }
        return Ok((root, name.as_encoded_bytes().to_vec()));
    }
    Ok((
        SourceRoot {
            base,
            path: name_path,
        },
        name.as_encoded_bytes().to_vec(),
    ))
}

/// Converts an I/O error to the failure of one entry.
fn io_failure(error: &std::io::Error) -> Failure {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw_os_error(code).into(),
        None => Failure::with_detail(FailureKind::Io, error.to_string()),
    }
}
