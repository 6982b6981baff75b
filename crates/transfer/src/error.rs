//! Errors of one file ([`Failure`], the copy continues) and of the whole copy ([`Error`]).

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use strum::FromRepr;

use crate::path::{PathError, RelPath};

/// Reason why one file, directory or link was not copied. The number is its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FailureKind {
    /// The file's size or times changed while it was read. Copy it again when nothing writes to it.
    Changed = 1,
    /// The walk found the entry, but it was gone when it was to be read.
    Vanished = 2,
    /// The operating system denied reading or writing it. At a server, the user that runs
    /// `longhaul serve` needs the permission.
    PermissionDenied = 3,
    /// The destination's disk or quota is full. Free space, then repeat the command.
    DiskFull = 4,
    /// The path is outside the permitted directory, or leads through a symbolic link, which is
    /// never followed. Or the target's file system refuses the name, or equates it with another
    /// name of the same copy.
    RefusedPath = 5,
    /// The destination exists and `--overwrite` was not given. Give `--overwrite` to replace it, or
    /// choose another name.
    Exists = 6,
    /// A device, socket or FIFO: only files, directories and symbolic links are copied. Leave it
    /// out.
    NotRegular = 7,
    /// A directory is where a file should go, or the reverse, or a device, FIFO or socket is where
    /// a file should go. `--overwrite` does not replace it either.
    WrongKind = 8,
    /// The source does not exist. Check the path, and the directory above the destination.
    NotFound = 9,
    /// A directory, but `-r` was not given.
    IsDirectory = 10,
    /// The received content does not have the hash that was sent. The file was discarded. If it
    /// happens again, check memory and disks of both ends.
    Verification = 11,
    /// Any other error of the operating system, named in the detail.
    Io = 12,
    /// A limit of the peer was reached, such as open files or directories in one copy.
    Limit = 13,
    /// The file was copied, but its permissions or times could not be set. The file system does not
    /// support them, or the file belongs to another user. The content is complete.
    Metadata = 14,
    /// A symbolic link at the server, but `-r` was not given.
    IsLink = 15,
}

impl FailureKind {
    /// Returns one line with the cause, and with the remedy if there is one.
    fn text(self) -> &'static str {
        match self {
            Self::Changed => {
                "changed while it was being read; copy it again when nothing writes to it"
            }
            Self::Vanished => "vanished before it could be read",
            Self::PermissionDenied => "permission denied",
            Self::DiskFull => "no space left at the destination",
            Self::RefusedPath => {
                "refused: the path leads out of the permitted directory or through a symbolic link"
            }
            Self::Exists => "already exists at the destination and differs",
            Self::NotRegular => "not a file, directory or symbolic link; not copied",
            Self::WrongKind => {
                "a file of another type is in the way and is never replaced; move it away"
            }
            Self::NotFound => "no such file or directory",
            Self::IsDirectory => "is a directory; give -r to copy it with all it holds",
            Self::Verification => "was corrupted on the way and not kept; copy it again",
            Self::Io => "input/output error",
            Self::Limit => "a limit was reached; copy in smaller parts",
            Self::Metadata => "copied, but its permissions or times could not be set",
            Self::IsLink => {
                "is a symbolic link at the server, which is not followed; \
                 give -r to copy the link itself"
            }
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// An entry that was not copied, or not completely ([`FailureKind::Metadata`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Reason.
    pub kind: FailureKind,
    /// Further detail in one line. It may be empty.
    pub detail: String,
    /// If true, the writing end failed rather than the reading end. Known at the end that receives
    /// failures from both.
    pub at_destination: bool,
}

impl Failure {
    /// Creates a failure without detail.
    pub fn new(kind: FailureKind) -> Self {
        Self {
            kind,
            detail: String::new(),
            at_destination: false,
        }
    }

    /// Creates a failure with a detail.
    pub fn with_detail(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            at_destination: false,
        }
    }

    /// Marks the failure as one of the writing end.
    #[must_use]
    pub fn at_destination(self) -> Self {
        Self {
            at_destination: true,
            ..self
        }
    }
}

impl Failure {
    /// Returns the failure of a call that creates, looks up or assigns the name `name`.
    pub(crate) fn for_name(errno: rustix::io::Errno, name: &[u8]) -> Self {
        if !refuses_name(errno) {
            return errno.into();
        }
        let name = longhaul_proto::text::printable(name);
        let detail = format!("the target's file system does not allow the name \"{name}\"");
        Self::with_detail(FailureKind::RefusedPath, detail)
    }
}

/// Returns true if `errno`, from a call that takes a name, says that the file system does not allow
/// the name.
pub(crate) fn refuses_name(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(errno, Errno::INVAL | Errno::ILSEQ | Errno::NAMETOOLONG)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.detail.as_str()) {
            (kind, "") => write!(f, "{kind}"),
            // The detail is clearer than the text of these kinds.
            (FailureKind::Io | FailureKind::RefusedPath, detail) => f.write_str(detail),
            (kind, detail) => write!(f, "{kind} ({detail})"),
        }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::with_detail(FailureKind::RefusedPath, error.to_string())
    }
}

/// Converts the error number of a system call into the kind that a user can act on.
impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let kind = match errno {
            Errno::NOENT => FailureKind::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => FailureKind::PermissionDenied,
            Errno::NOSPC | Errno::DQUOT => FailureKind::DiskFull,
            Errno::LOOP | Errno::XDEV => FailureKind::RefusedPath,
            Errno::EXIST => FailureKind::Exists,
            Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY => FailureKind::WrongKind,
            _ => FailureKind::Io,
        };
        let detail = match kind {
            FailureKind::Io if errno == Errno::FBIG => {
                "larger than the target's file system, or the limit on file sizes (ulimit -f), \
                 allows"
                    .to_owned()
            }
            FailureKind::Io | FailureKind::DiskFull => io::Error::from(errno).to_string(),
            _ => String::new(),
        };
        Self::with_detail(kind, detail)
    }
}

/// Converts `errno` for an entry within a tree: what is missing now existed during the walk.
pub(crate) fn vanished_failure(errno: rustix::io::Errno) -> Failure {
    match errno {
        rustix::io::Errno::NOENT => Failure::new(FailureKind::Vanished),
        errno => errno.into(),
    }
}

/// Error that ended a whole copy early, or prevented it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server could not be reached over any route. The text names the hop that failed and the
    /// reason.
    #[error("{0}")]
    Connect(String),
    /// A depot or the server refuses this key, or the server's key is unknown or not the expected
    /// one. The text says which.
    #[error("{0}")]
    Unauthorised(String),
    /// The server does not accept the token, or does not any more. The text says why. Get a new
    /// one; a copy that broke off resumes with it.
    #[error(
        "the server does not accept the token: {0}; get a new one (longhaul login), and repeat the \
         command"
    )]
    Token(String),
    /// The server refused the request for a reason other than the key.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// All streams were lost and none was reopened in time. They are tried again for `--patience`.
    /// The same command resumes.
    #[error("the copy broke off: {0}")]
    StreamsLost(String),
    /// The peer violated the protocol.
    #[error("the peer violated the copy protocol: {0}; do both sides run the same release?")]
    Protocol(String),
    /// A path from the command line cannot be used.
    #[error("{path}: {failure}")]
    Path {
        /// Path as the user gave it.
        path: String,
        /// Reason.
        failure: Failure,
    },
    /// The server dropped the copy, or was restarted and does not know it. The same command
    /// resumes.
    #[error("the server has lost this copy: {0}")]
    CopyLost(String),
    /// Reading or writing a stream failed.
    #[error("stream: {0}")]
    Stream(#[from] io::Error),
    /// A limit on what a key may hold at once was reached.
    #[error("{0}")]
    Limit(String),
    /// The peer sent something that was not requested. The text says what and where. The server is
    /// faulty or hostile; nothing beyond the request was written.
    #[error("the server did not send what was requested: {0}; do not trust what it sent")]
    NotAsked(String),
    /// The two sides ended with different records of the copy. If it happens again with the same
    /// release at both ends, report it.
    #[error("verification failed: the two sides disagree on what was copied; copy again")]
    Disagreement,
}

impl Error {
    /// Returns the error for a server that began the copy again in the middle of it, and has lost
    /// what was said before.
    pub(crate) fn restarted_copy() -> Self {
        Self::CopyLost("it was restarted".into())
    }

    pub(crate) fn path(path: &RelPath, failure: impl Into<Failure>) -> Self {
        Self::Path {
            path: path.to_string(),
            failure: failure.into(),
        }
    }
}

/// Returns the failure of a call that sets the permissions or times of a copied entry.
pub(crate) fn metadata_failure(errno: rustix::io::Errno) -> Failure {
    Failure::with_detail(FailureKind::Metadata, io::Error::from(errno).to_string())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn too_large_a_file_is_not_a_full_disk() {
        let failure = Failure::from(Errno::FBIG);
        assert_eq!(failure.kind, FailureKind::Io);
        assert!(
            failure.to_string().starts_with("larger than the target's"),
            "{failure}"
        );
        assert_eq!(Failure::from(Errno::NOSPC).kind, FailureKind::DiskFull);
    }

    #[test]
    fn refused_name_is_in_the_message() {
        for errno in [Errno::INVAL, Errno::ILSEQ, Errno::NAMETOOLONG] {
            let message = Failure::for_name(errno, b"a:b\xff").to_string();
            assert!(
                message.ends_with("does not allow the name \"a:b\\xff\""),
                "{message}"
            );
        }
        assert_eq!(
            Failure::for_name(Errno::NOSPC, b"a").kind,
            FailureKind::DiskFull
        );
    }
}
