//! Why a question about files has no answer, or a name was not changed: a kind for programs, a line
//! for people.

use std::fmt;

use longhaul_proto::text::printable;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::message::PathBytes;
use crate::error::{Failure, FailureKind};
use crate::path::PathError;

/// Most bytes of explanation in an answer.
const MAX_DETAIL_BYTES: usize = 512;

/// Why a question has no answer, or a name was not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesFailure {
    /// Why.
    pub kind: FilesFailureKind,
    /// Which of the paths that were asked for is to blame; as it was asked for.
    pub path: PathBytes,
    /// More, if there is more to say; one line.
    #[serde(default)]
    pub detail: String,
}

/// Kinds of [`FilesFailure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesFailureKind {
    /// There is no such entry.
    NotFound,
    /// An entry of that name exists.
    Exists,
    /// The operating system denies it.
    PermissionDenied,
    /// The server's grants do not let this key do it; the detail is the whole sentence.
    NotGranted,
    /// The path leads out of the directory that is served, or through a symbolic link; or it is the
    /// directory that is served itself.
    RefusedPath,
    /// A directory was expected.
    NotADirectory,
    /// It is a directory.
    IsDirectory,
    /// A directory is not empty.
    NotEmpty,
    /// Names beginning with `.longhaul-` belong to copies.
    ReservedName,
    /// The new name is in another file system.
    OtherFileSystem,
    /// A directory would come to lie within itself.
    IntoItself,
    /// The disk or a quota is full.
    DiskFull,
    /// A bound was met.
    Limit,
    /// The question is not understood.
    NotUnderstood,
    /// Another error of the operating system, named in the detail; or a kind that this release does
    /// not know.
    #[serde(other)]
    Io,
}

impl FilesFailureKind {
    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "no such file or directory",
            Self::Exists => "exists already",
            Self::PermissionDenied => "permission denied",
            Self::NotGranted => "not granted",
            Self::RefusedPath => {
                "refused: the path is the directory that is served, leads out of it, or leads through a symbolic link"
            }
            Self::NotADirectory => "is not a directory, or something above it is none",
            Self::IsDirectory => "is a directory; give -r to remove it with all it holds",
            Self::NotEmpty => "is a directory that is not empty",
            Self::ReservedName => {
                "names beginning with .longhaul- belong to copies; see longhaul leftovers for those that nobody needs"
            }
            Self::OtherFileSystem => "is in another file system: copy it there and remove it here",
            Self::IntoItself => "a directory cannot be moved into itself",
            Self::DiskFull => "no space left",
            Self::Limit => "a limit was met",
            Self::NotUnderstood => "not understood; does the server run the same release?",
            Self::Io => "input/output error",
        }
    }
}

impl FilesFailure {
    /// Of `path`, without detail.
    pub fn new(kind: FilesFailureKind, path: &PathBytes) -> Self {
        Self {
            kind,
            path: path.clone(),
            detail: String::new(),
        }
    }

    /// With detail, which is cut off where it is too long.
    pub fn with(kind: FilesFailureKind, path: &PathBytes, detail: &str) -> Self {
        let mut end = detail.len().min(MAX_DETAIL_BYTES);
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            detail: detail.get(..end).unwrap_or_default().to_owned(),
            ..Self::new(kind, path)
        }
    }

    /// An error number of a system call.
    pub fn of(errno: Errno, path: &PathBytes) -> Self {
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
                Self::with(kind, path, "the file system does not allow this name")
            }
            Io | Limit => Self::with(kind, path, &std::io::Error::from(errno).to_string()),
            _ => Self::new(kind, path),
        }
    }

    /// What the store says.
    pub(crate) fn of_store(failure: &Failure, path: &PathBytes) -> Self {
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
        Self::with(kind, path, &failure.detail)
    }

    /// A path that is not plain.
    pub fn not_plain(error: PathError, path: &PathBytes) -> Self {
        Self::with(FilesFailureKind::RefusedPath, path, &error.to_string())
    }
}

/// One printable line: the path, what happened and what to do. The other side's words are written
/// out.
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
            let line = FilesFailure::with(FilesFailureKind::Io, &path, &detail).to_string();
            prop_assert!(line.chars().all(longhaul_proto::text::is_printable));
        }
    }
}
