//! The sources of a copy, opened once and walked and read beneath.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Failure, FailureKind};
use crate::path::RelPath;
use crate::send::walk::{Found, SourceRoot, WalkSink, walk};
use crate::store::confine::{Dir, Kind, kind_of};
use crate::wire::{Head, Meta};

/// What is to be copied.
#[derive(Debug)]
pub struct Sources {
    roots: Vec<Result<SourceRoot, Failure>>,
    recursive: bool,
}

impl Sources {
    /// Sources beneath one directory, as a server sends them.
    pub fn beneath(base: Arc<Dir>, paths: &[RelPath], recursive: bool) -> Self {
        let root = |path: &RelPath| {
            Ok(SourceRoot {
                base: base.clone(),
                path: path.clone(),
            })
        };
        let roots = paths.iter().map(root).collect();
        Self { roots, recursive }
    }

    /// Local sources as a person names them, with the name each takes in a destination directory (empty for `.`, `..` and
    /// `/`, whose content goes there). A source that can't be opened is told as a failure when its turn comes; it is an error if
    /// none can. Without `recursive` a symbolic link named here is followed, as `cp` does.
    pub fn local(paths: &[impl AsRef<Path>], recursive: bool) -> Result<(Self, Vec<Vec<u8>>), Error> {
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
                    let shown = longhaul_proto::text::printable(path.as_os_str().as_encoded_bytes());
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
            _ => Ok((Self { roots, recursive }, names)),
        }
    }

    /// Walks them all; `false` if `sink` stopped it.
    pub(crate) fn walk(&self, sink: &impl WalkSink) -> bool {
        self.roots.iter().zip(0..).all(|(root, number)| match root {
            Ok(root) => walk(number, root, self.recursive, sink),
            Err(failure) => sink.found(
                number,
                RelPath::root(),
                Meta::default(),
                Found::Failed(failure.clone()),
            ),
        })
    }

    /// Where an entry lies: its directory and full path in it.
    pub(crate) fn locate(&self, head: &Head) -> Result<(&Dir, RelPath), Failure> {
        let root = self
            .roots
            .get(head.source as usize)
            .ok_or(Failure::new(FailureKind::NotFound))?;
        let root = root.as_ref().map_err(Clone::clone)?;
        Ok((&root.base, root.path.join(&head.path)?))
    }

    /// An entry's name as the user knows it: beneath `prefixes[source]`.
    pub(crate) fn labels(prefixes: Vec<String>) -> Box<dyn Fn(&Head) -> String + Send + Sync> {
        Box::new(move |head| {
            let prefix = prefixes.get(head.source as usize).map_or("?", String::as_str);
            match (head.path.is_root(), prefix.ends_with('/')) {
                (true, _) => prefix.to_owned(),
                (false, true) => format!("{prefix}{}", head.path),
                (false, false) => format!("{prefix}/{}", head.path),
            }
        })
    }
}

fn open_local(path: &Path, recursive: bool) -> Result<(SourceRoot, Vec<u8>), Failure> {
    let open = |dir: &Path| Dir::open(dir).map(Arc::new).map_err(Failure::from);
    // `.`, `..`, `/` have no name of their own; `dir/.` neither, though `Path` reads it as `dir`.
    let dot = path.as_os_str().as_encoded_bytes().ends_with(b"/.");
    let Some(name) = path.file_name().filter(|_| !dot) else {
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
    let trailing_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if kind_of(&stat) == Kind::Symlink && (!recursive || trailing_slash) {
        // The user's own link on the user's own command line.
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

/// An I/O error as a failure of one entry.
pub(crate) fn io_failure(error: &std::io::Error) -> Failure {
    match error.raw_os_error() {
        Some(code) => rustix::io::Errno::from_raw_os_error(code).into(),
        None => Failure::with(FailureKind::Io, error.to_string()),
    }
}
