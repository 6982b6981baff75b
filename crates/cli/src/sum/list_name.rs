//! Names in a list of checksums: the algorithm that the list has, and where its files are.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Result;
use longhaul_checksum::{Algorithm, Checksum, ListedSum};
use longhaul_transfer::files::message::{FilesFailure, FilesFailureKind, PathBytes};
use longhaul_transfer::path::RelPath;

use super::places::SummedPath;
use crate::files::show::join;
use crate::place::{Location, PlacePath};

/// Returns the checksum of a line. `None` if it cannot be one of the algorithm that was given. For
/// a length that several algorithms have, the list's own name decides, else the usual one.
pub fn checksum(line: &ListedSum, given: Option<Algorithm>, list: &OsStr) -> Option<Checksum> {
    let named = given.or(line.algorithm).or_else(|| named_in(list));
    let usual = match line.value.len() {
        4 => Algorithm::Adler32,
        16 => Algorithm::Md5,
        _ => Algorithm::Blake3,
    };
    let fits = |algorithm: &Algorithm| algorithm.value_bytes() == line.value.len();
    let algorithm = match given {
        Some(given) => given,
        None => named.filter(fits).unwrap_or(usual),
    };
    Checksum::new(algorithm, line.value.clone())
}

/// Returns the name of the file of a line. A manifest of BagIt escapes line ends by percent signs
/// (RFC 8493, section 2.1.3).
pub fn name_of(line: &ListedSum, list: &OsStr) -> Vec<u8> {
    let file = std::path::Path::new(list).file_name();
    let file = file.map_or(&b""[..], OsStrExt::as_bytes);
    let is_manifest = (file.starts_with(b"manifest-") || file.starts_with(b"tagmanifest-"))
        && file.ends_with(b".txt");
    let mut name = Vec::with_capacity(line.name.len());
    let mut rest = &line.name[..];
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match after {
            [b'0', b'A' | b'a', ..] => Some(b'\n'),
            [b'0', b'D' | b'd', ..] => Some(b'\r'),
            [b'2', b'5', ..] => Some(b'%'),
            _ => None,
        };
        match escaped.filter(|_| is_manifest && byte == b'%') {
            Some(plain) => {
                name.push(plain);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                name.push(byte);
                rest = after;
            }
        }
    }
    name
}

/// Returns the algorithm in the name of a list, such as `SHA256SUMS` or `manifest-md5.txt`.
fn named_in(list: &OsStr) -> Option<Algorithm> {
    let name = std::path::Path::new(list).file_name()?;
    let name = name.to_string_lossy().to_ascii_lowercase().replace('-', "");
    Algorithm::ALL
        .into_iter()
        .find(|algorithm| name.contains(algorithm.name()))
}

/// Directory that the names of a list are below.
pub enum ListBase {
    /// A directory of this machine.
    Here(PathBuf),
    /// A directory of another machine, and how it was typed.
    There(PlacePath, OsString),
}

impl ListBase {
    /// Parses a directory. Without one, it is the current one.
    ///
    /// # Errors
    /// The text is not a path.
    pub fn parse(typed: Option<&OsString>) -> Result<Self> {
        let Some(typed) = typed else {
            return Ok(Self::Here(PathBuf::from(".")));
        };
        Ok(match PlacePath::parse(typed)? {
            PlacePath {
                location: Location::Here(path),
                ..
            } => Self::Here(path),
            there => Self::There(there, typed.clone()),
        })
    }

    /// Returns where the file of that name is.
    pub fn locate(&self, name: &[u8]) -> Result<SummedPath, FilesFailure> {
        let shown = name.to_vec();
        let (base, typed) = match self {
            Self::Here(_) if name.starts_with(b"lh://") => {
                return Err(FilesFailure::with_detail(
                    FilesFailureKind::NotFound,
                    &PathBytes(shown),
                    "give the server's directory after the list",
                ));
            }
            Self::Here(directory) => {
                return SummedPath::local(&directory.join(OsStr::from_bytes(name)), shown);
            }
            Self::There(base, typed) => (base, typed.as_encoded_bytes()),
        };
        // A list that was made of this very directory has its address in the names.
        let below = match name.strip_prefix(typed) {
            Some(rest) if typed.ends_with(b"/") || rest.starts_with(b"/") => rest,
            _ => name,
        };
        let start = below.iter().position(|&byte| byte != b'/');
        let below = below.get(start.unwrap_or(0)..).unwrap_or(below);
        let path = join(&base.path, below);
        let path = match base.location {
            Location::Server(_) => RelPath::from_typed(&path.0)
                .map(|path| PathBytes(path.as_bytes().to_vec()))
                .map_err(|error| FilesFailure::not_plain(error, &PathBytes(shown.clone())))?,
            Location::Login(_) | Location::Store(_) | Location::Sftp(_) | Location::Here(_) => path,
        };
        Ok(SummedPath {
            shown,
            spot: PlacePath {
                location: base.location.clone(),
                path,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithm_of_a_line_is_found() {
        let found = |bytes: usize, given, list: &str| {
            let line = ListedSum {
                algorithm: None,
                value: vec![0; bytes],
                name: b"a".to_vec(),
            };
            checksum(&line, given, list.as_ref()).map(|sum| sum.algorithm())
        };
        use Algorithm::*;
        assert_eq!(found(32, None, "list"), Some(Blake3));
        assert_eq!(found(32, None, "d/SHA256SUMS"), Some(Sha256));
        assert_eq!(found(32, None, "manifest-sha256.txt"), Some(Sha256));
        assert_eq!(found(16, None, "SHA256SUMS"), Some(Md5));
        assert_eq!(found(4, None, "list"), Some(Adler32));
        assert_eq!(found(4, None, "x.crc32c"), Some(Crc32c));
        assert_eq!(found(32, Some(Sha256), "list"), Some(Sha256));
        assert_eq!(found(16, Some(Sha256), "list"), None);
    }

    #[test]
    fn names_in_a_manifest_of_bagit_are_unescaped() {
        let name = |name: &str, list: &str| {
            let line = ListedSum {
                algorithm: None,
                value: Vec::new(),
                name: name.into(),
            };
            String::from_utf8(name_of(&line, list.as_ref())).unwrap()
        };
        assert_eq!(
            name("a%0Ab%25%0d%2", "bag/manifest-sha256.txt"),
            "a\nb%\r%2"
        );
        assert_eq!(name("a%0A%", "SHA256SUMS"), "a%0A%");
    }

    #[test]
    fn names_are_located_below_the_base() {
        let located = |base: &str, name: &str| {
            let base = ListBase::parse(Some(&base.into())).unwrap();
            let found = base.locate(name.as_bytes());
            found.map(|path| path.spot.to_string()).ok()
        };
        for (base, name, at) in [
            ("h:runs", "a/b", "h:runs/a/b"),
            ("h:", "a", "h:a"),
            ("h:runs", "h:runs/a", "h:runs/a"),
            ("lh://h/runs/", "./a", "lh://h:7511/runs/a"),
            ("lh://h/runs/", "lh://h/runs/a", "lh://h:7511/runs/a"),
            ("lh://h/runs", "/a", "lh://h:7511/runs/a"),
            ("lh://h", "lh://h/a", "lh://h:7511/a"),
        ] {
            assert_eq!(located(base, name).as_deref(), Some(at), "{base} {name}");
        }
        assert_eq!(located("lh://h/runs", "../a"), None);
        assert_eq!(located(".", "lh://h/a"), None);
        assert_eq!(located(".", "absent-file"), None);
    }
}
