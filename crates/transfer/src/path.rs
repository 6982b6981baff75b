//! Names on the wire: a path beneath a root, as the bytes that the file system holds.
//!
//! The spelling of a [`RelPath`] cannot leave the directory in which it is resolved.
//! `store::confine` ensures that symbolic links cannot leave it either.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_proto::text::printable;

/// Maximum length of a relative path in bytes: what one `openat2(2)` call resolves (`PATH_MAX` less
/// the final NUL).
pub const MAX_PATH_BYTES: usize = 4095;
/// Maximum length of a single name in bytes (`MAX_NAME_BYTES`).
pub const MAX_NAME_BYTES: usize = 255;

/// A path relative to some root: names joined by `/`, never `.` or `..`, no empty name, no NUL. The
/// empty path is the root itself. It holds bytes, as names need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RelPath(Box<[u8]>);

/// Reason why bytes are not a [`RelPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A name is empty, `.` or `..`.
    #[error(
        "a path has an empty name, \".\" or \"..\" in it: give the plain path beneath the root"
    )]
    NotPlain,
    /// A NUL byte.
    #[error("a path has a NUL byte in it")]
    Nul,
    /// A name longer than [`MAX_NAME_BYTES`] or a path longer than [`MAX_PATH_BYTES`].
    #[error(
        "a name is longer than 255 bytes or a path longer than 4095: \
         shorten it, or copy from a directory further in"
    )]
    TooLong,
}

impl RelPath {
    /// Returns the root itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// Checks bytes from the wire. Nothing is normalised; a path that is not plain is refused.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.len() > MAX_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        for name in bytes.split(|&b| b == b'/').filter(|_| !bytes.is_empty()) {
            match name {
                b"" | b"." | b".." => return Err(PathError::NotPlain),
                name if name.len() > MAX_NAME_BYTES => return Err(PathError::TooLong),
                _ => {}
            }
        }
        Ok(Self(bytes.into()))
    }

    /// Parses what a user typed. Leading, trailing and doubled slashes and `.` are dropped; `..` is
    /// refused.
    pub fn from_typed(bytes: &[u8]) -> Result<Self, PathError> {
        let names: Vec<&[u8]> = bytes
            .split(|&b| b == b'/')
            .filter(|n| !n.is_empty() && *n != b".")
            .collect();
        Self::from_bytes(&names.join(&b'/'))
    }

    /// Returns `self/below`.
    pub fn join(&self, below: &RelPath) -> Result<Self, PathError> {
        if self.is_root() {
            return Ok(below.clone());
        }
        if below.is_root() {
            return Ok(self.clone());
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + below.0.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(&below.0);
        if bytes.len() > MAX_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        Ok(Self(bytes.into()))
    }

    /// Returns `self/name`, where `name` is one name.
    pub fn child(&self, name: &[u8]) -> Result<Self, PathError> {
        if name.contains(&b'/') {
            return Err(PathError::NotPlain);
        }
        self.join(&Self::from_bytes(name)?)
    }

    /// Returns true if this is the root itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the parent directory and the last name, or `None` for the root.
    pub fn split_last(&self) -> Option<(RelPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        let mut names = self.0.rsplitn(2, |&b| b == b'/');
        let last = names.next()?;
        Some((
            names
                .next()
                .map_or(Self::root(), |above| Self(above.into())),
            last,
        ))
    }

    /// Returns true if this is `ancestor` or lies beneath it.
    pub fn is_within(&self, ancestor: &RelPath) -> bool {
        ancestor.is_root()
            || self.0 == ancestor.0
            || (self.0.starts_with(&ancestor.0) && self.0.get(ancestor.0.len()) == Some(&b'/'))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path for system calls: `.` for the root itself.
    pub(crate) fn as_os(&self) -> &OsStr {
        OsStr::from_bytes(if self.is_root() { b"." } else { &self.0 })
    }

    /// Returns a path that can be joined to a local directory's name in messages.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

/// Formats the path for messages, escaped by [`printable`].
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            f.write_str(".")
        } else {
            f.write_str(&printable(&self.0))
        }
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({})", printable(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_are_accepted_from_the_wire() {
        for good in [&b""[..], b"a", b"a/b", b"a b/\xff\xfe", &[b'x'; 255]] {
            assert_eq!(RelPath::from_bytes(good).unwrap().as_bytes(), good);
        }
        for bad in [
            &b"/"[..],
            b"/a",
            b"a/",
            b"a//b",
            b".",
            b"..",
            b"a/../b",
            b"a/.",
            b"a\0b",
            &[b'x'; 256],
            &[b'/'; 5000],
        ] {
            assert!(RelPath::from_bytes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn typed_paths_are_normalised_and_parents_refused() {
        assert_eq!(RelPath::from_typed(b"/a//./b/").unwrap().as_bytes(), b"a/b");
        assert!(RelPath::from_typed(b"/").unwrap().is_root());
        assert_eq!(RelPath::from_typed(b"/a/../b"), Err(PathError::NotPlain));
    }

    #[test]
    fn is_within_compares_names_not_letters() {
        let path = |s: &str| RelPath::from_bytes(s.as_bytes()).unwrap();
        assert!(path("in/a").is_within(&path("in")));
        assert!(path("in").is_within(&path("in")));
        assert!(path("x").is_within(&RelPath::root()));
        assert!(!path("inner").is_within(&path("in")));
        assert!(!path("in").is_within(&path("in/a")));
    }

    #[test]
    fn displayed_paths_have_no_terminal_controls() {
        let path = RelPath::from_bytes(b"a\x1b[31m\n\xff\xe2\x80\xae").unwrap();
        assert_eq!(path.to_string(), "a\\u{1b}[31m\\u{a}\\xff\\u{202e}");
    }
}
