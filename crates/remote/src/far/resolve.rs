//! Typed paths as the user who logged in means them: beneath the home directory, or from the root.
//! Symbolic links belong to that user and are followed once, here. The real path, which contains
//! none, is served.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_proto::text::printable;
use longhaul_transfer::path::{PathError, RelPath};
use longhaul_transfer::typed_path::names_directory;

use crate::login::below_home;

/// Destination of a copy.
#[derive(Debug, PartialEq)]
pub(super) struct CopyDestination {
    /// The path itself.
    pub path: RelPath,
    /// The directory that is written to: the path, or its parent.
    pub directory: RelPath,
}

/// Returns the home directory: `$HOME`, or else where ssh starts programs.
pub(super) fn home() -> PathBuf {
    std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Makes a typed path absolute.
pub(super) fn typed(home: &Path, path: &[u8]) -> PathBuf {
    home.join(OsStr::from_bytes(below_home(path)))
}

/// Resolves a source. A missing one is returned all the same, so that the copy reports it. With
/// `follow`, a symbolic link is replaced by its target.
pub(super) fn source(home: &Path, path: &[u8], follow: bool) -> Result<RelPath, String> {
    let full = typed(home, path);
    let ends_in_directory = names_directory(below_home(path));
    let parts = (full.parent(), full.file_name());
    let real = match parts {
        (Some(parent), Some(name)) if !follow && !ends_in_directory => {
            parent.canonicalize().map(|parent| parent.join(name))
        }
        _ => full.canonicalize(),
    };
    match real {
        Ok(real) => plain(path, &real),
        // The same for an inaccessible one; the others are copied.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            let above = parts.0.and_then(|parent| parent.canonicalize().ok());
            let named = above.zip(parts.1).map(|(above, name)| above.join(name));
            plain(path, &named.unwrap_or(full))
        }
        Err(error) => Err(failed(path, &error)),
    }
}

/// Resolves a name that is itself listed or changed. Its parent is resolved as far as it exists. A
/// symbolic link of that name is only followed if the path ends with a slash.
pub(super) fn name(home: &Path, path: &[u8]) -> Result<RelPath, PathError> {
    let full = typed(home, path);
    let ends_in_directory = names_directory(below_home(path));
    if ends_in_directory && let Ok(real) = full.canonicalize() {
        return RelPath::from_typed(real.as_os_str().as_bytes());
    }
    let (mut above, mut below) = (full.as_path(), Vec::new());
    while let (Some(parent), Some(name)) = (above.parent(), above.file_name()) {
        below.push(name);
        if let Ok(real) = parent.canonicalize() {
            let real: PathBuf = std::iter::once(real.as_os_str())
                .chain(below.iter().rev().copied())
                .collect();
            return RelPath::from_typed(real.as_os_str().as_bytes());
        }
        above = parent;
    }
    let real = full.canonicalize().unwrap_or(full);
    RelPath::from_typed(real.as_os_str().as_bytes())
}

/// Resolves a destination. Its parent must exist.
pub(super) fn destination(home: &Path, path: &[u8]) -> Result<CopyDestination, String> {
    let full = typed(home, path);
    match full.canonicalize() {
        Ok(real) => {
            let path_in_root = plain(path, &real)?;
            let directory = match (real.is_dir(), real.parent()) {
                (false, Some(parent)) => plain(path, parent)?,
                _ => path_in_root.clone(),
            };
            Ok(CopyDestination {
                path: path_in_root,
                directory,
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else {
                return Err(failed(path, &error));
            };
            let parent = parent.canonicalize().map_err(|error| {
                let parent = printable(parent.as_os_str().as_bytes());
                format!("{parent}: {error}; make that directory first")
            })?;
            Ok(CopyDestination {
                path: plain(path, &parent.join(name))?,
                directory: plain(path, &parent)?,
            })
        }
        Err(error) => Err(failed(path, &error)),
    }
}

fn plain(typed: &[u8], real: &Path) -> Result<RelPath, String> {
    RelPath::from_typed(real.as_os_str().as_bytes())
        .map_err(|error| format!("{}: {error}", printable(typed)))
}

fn failed(typed: &[u8], error: &io::Error) -> String {
    format!("{}: {error}", printable(typed))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            let home = Self(tempfile::tempdir().unwrap());
            std::fs::create_dir(home.path("data")).unwrap();
            std::fs::write(home.path("data/f"), "f").unwrap();
            symlink("data", home.path("link")).unwrap();
            symlink("data/f", home.path("alias")).unwrap();
            home
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn rel(&self, name: &str) -> RelPath {
            RelPath::from_typed(self.path(name).as_os_str().as_bytes()).unwrap()
        }
    }

    #[test]
    fn sources_resolve_beneath_home_through_links() {
        let home = Home::new();
        let at = |path: &str, follow| source(home.0.path(), path.as_bytes(), follow).unwrap();
        for (path, follow, real) in [
            ("data/f", true, "data/f"),
            ("~/data/f", false, "data/f"),
            ("link/f", false, "data/f"),
            ("alias", true, "data/f"),
            ("alias", false, "alias"),
            ("link", false, "link"),
            ("link/", false, "data"),
            ("link/.", false, "data"),
            ("data/../alias", true, "data/f"),
            ("", false, ""),
            ("~", false, ""),
            ("~//data/f", false, "data/f"),
            ("data/~", true, "data/~"),
            ("./~", true, "~"),
            ("missing", true, "missing"),
            ("link/missing", true, "data/missing"),
        ] {
            assert_eq!(at(path, follow), home.rel(real), "{path} {follow}");
        }
        let absolute = home.path("data/f");
        assert_eq!(at(absolute.to_str().unwrap(), true), home.rel("data/f"));
        assert!(source(home.0.path(), b"no/../../where", true).is_err());
    }

    #[test]
    fn destinations_write_into_themselves_or_their_parent() {
        let home = Home::new();
        for (path, real, directory) in [
            ("data", "data", "data"),
            ("link/", "data", "data"),
            ("data/f", "data/f", "data"),
            ("alias", "data/f", "data"),
            ("new", "new", ""),
            ("link/new/", "data/new", "data"),
            ("", "", ""),
        ] {
            let place = destination(home.0.path(), path.as_bytes()).unwrap();
            let expected = CopyDestination {
                path: home.rel(real),
                directory: home.rel(directory),
            };
            assert_eq!(place, expected, "{path}");
        }
        let error = destination(home.0.path(), b"no/such/f").unwrap_err();
        assert!(
            error.contains("no/such: No such file") && !error.contains('\n'),
            "{error}"
        );
    }
}
