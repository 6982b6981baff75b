//! Reasons why a file request failed: a kind for programs, and a line for people.

use std::fmt;

use longhaul_proto::text::printable;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::path_bytes::PathBytes;
use crate::error::{Failure, FailureKind};
use crate::path::PathError;

/// Maximum length of the detail in a response, in bytes.
const MAX_DETAIL_BYTES: usize = 512;

/// Reason why a file request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesFailure {
    /// Kind of failure.
    pub kind: FilesFailureKind,
    /// Path that caused the failure, as it was requested.
    pub path: PathBytes,
    /// Further detail in one line. It may be empty.
    #[serde(default)]
    pub detail: String,
}

/// Kinds of [`FilesFailure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesFailureKind {
    /// There is no such entry. Check the path, and the directory above the destination.
    NotFound,
    /// An entry of that name exists. Give `-p` to `longhaul mkdir`, or `--overwrite` to
    /// `longhaul mv`. A directory is never replaced.
    Exists,
    /// The operating system denied access. At a server, the user that runs `longhaul serve` needs
    /// the permission.
    PermissionDenied,
    /// The server's grants do not permit it to this key. The detail is the whole sentence. Ask the
    /// server's operator for the grant.
    NotGranted,
    /// The path leads out of the served directory or through a symbolic link, or is the served
    /// directory itself.
    RefusedPath,
    /// A directory was expected.
    NotADirectory,
    /// The entry is a directory.
    IsDirectory,
    /// The directory is not empty. If another program wrote into it, remove it again.
    NotEmpty,
    /// Names beginning with `.longhaul-` belong to copies.
    ReservedName,
    /// The new name is in another file system. `longhaul mv` only renames.
    OtherFileSystem,
    /// A directory would be moved into itself.
    IntoItself,
    /// The disk is full, or a quota is exhausted.
    DiskFull,
    /// A limit was reached. The detail names it: this key's share of the server, the length of a
    /// path, or descriptors.
    Limit,
    /// The request is not understood.
    NotUnderstood,
    /// Another error of the operating system, named in the detail, or a kind unknown to this
    /// release.
    #[serde(other)]
    Io,
}

impl FilesFailureKind {
    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "no such file or directory",
            Self::Exists => "already exists",
            Self::PermissionDenied => "permission denied",
            Self::NotGranted => "not granted",
            Self::RefusedPath => {
                "refused: the path is the directory that is served, leads out of it, \
                 or leads through a symbolic link"
            }
            Self::NotADirectory => "is not a directory, or one of its parents is not",
            Self::IsDirectory => "is a directory; give -r for it and all it holds",
            Self::NotEmpty => "is a directory that is not empty",
            Self::ReservedName => {
                "names beginning with .longhaul- are reserved for copies; longhaul leftovers \
                 lists and removes unused ones"
            }
            Self::OtherFileSystem => "is in another file system: copy it there and remove it here",
            Self::IntoItself => "a directory cannot be moved into itself",
            Self::DiskFull => "no space left",
            Self::Limit => "a limit was reached",
            Self::NotUnderstood => {
                "the server did not understand the request; does it run the same release?"
            }
            Self::Io => "input/output error",
        }
    }
}

impl FilesFailure {
    /// Creates a failure of `path` without detail.
    pub fn new(kind: FilesFailureKind, path: &PathBytes) -> Self {
        Self {
            kind,
            path: path.clone(),
            detail: String::new(),
        }
    }

    /// Creates a failure with a detail, which is truncated if it is too long.
    pub fn with_detail(kind: FilesFailureKind, path: &PathBytes, detail: &str) -> Self {
        let mut end = detail.len().min(MAX_DETAIL_BYTES);
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            detail: detail.get(..end).unwrap_or_default().to_owned(),
            ..Self::new(kind, path)
        }
    }

    /// Converts the error number of a system call.
    pub fn from_errno(errno: Errno, path: &PathBytes) -> Self {
        use FilesFailureKind::*;
        let kind = match errno {
            Errno::NOENT => NotFound,
            Errno::EXIST => Exists,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => PermissionDenied,
            Errno::LOOP => RefusedPath,
            Errno::NOTDIR => NotADirectory,
            Errno::ISDIR => IsDirectory,
            Errno::NOTEMPTY => NotEmpty,
            Errno::XDEV => OtherFileSystem,
            Errno::NOSPC | Errno::DQUOT => DiskFull,
            Errno::NAMETOOLONG | Errno::MFILE | Errno::NFILE => Limit,
            _ => Io,
        };
        match kind {
            Io if matches!(errno, Errno::INVAL | Errno::ILSEQ) => {
                Self::with_detail(kind, path, "the file system does not allow this name")
            }
            Io | Limit => Self::with_detail(kind, path, &std::io::Error::from(errno).to_string()),
            _ => Self::new(kind, path),
        }
    }

    /// Converts a failure of the store.
    pub(crate) fn from_store(failure: &Failure, path: &PathBytes) -> Self {
        use FilesFailureKind::*;
        let kind = match failure.kind {
            FailureKind::NotFound | FailureKind::Vanished => NotFound,
            FailureKind::PermissionDenied => PermissionDenied,
            FailureKind::RefusedPath | FailureKind::IsLink => RefusedPath,
            FailureKind::Exists => Exists,
            FailureKind::WrongKind => NotADirectory,
            FailureKind::Limit => Limit,
            _ => Io,
        };
        Self::with_detail(kind, path, &failure.detail)
    }

    /// Creates the failure of a path that is not plain.
    pub fn not_plain(error: PathError, path: &PathBytes) -> Self {
        Self::with_detail(FilesFailureKind::RefusedPath, path, &error.to_string())
    }
}

/// Formats one printable line: the path, the failure and the remedy. Text from the peer is escaped.
impl fmt::Display for FilesFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = printable(self.detail.as_bytes());
        let path = match self.path.0.is_empty() {
            true => ".".to_owned(),
            false => printable(&self.path.0),
        };
        match (self.kind, detail.is_empty()) {
            (FilesFailureKind::NotGranted, false) => f.write_str(&detail),
            (kind, true) => write!(f, "{path}: {}", kind.text()),
            (kind, false) => write!(f, "{path}: {} ({detail})", kind.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn failures_are_one_short_line(path: Vec<u8>, detail: String) {
            let path = PathBytes(path.into_iter().take(4095).collect());
            let line = FilesFailure::with_detail(FilesFailureKind::Io, &path, &detail).to_string();
            prop_assert!(line.chars().all(longhaul_proto::text::is_printable));
        }
    }
}
