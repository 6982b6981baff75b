//! What can go wrong: with one file ([`Failure`], the rest goes on) and with the whole copy
//! ([`Error`]).

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::account::Exhausted;
use crate::path::{PathError, RelPath};

/// Why one file, directory or link was not copied. The number is its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FailureKind {
    /// The file's size or times changed while it was read: copy it again when it is quiet.
    Changed = 1,
    /// It was there during the walk and gone when its turn came.
    Vanished = 2,
    /// The operating system denied reading or writing it.
    PermissionDenied = 3,
    /// The destination's disk or quota is full.
    DiskFull = 4,
    /// Outside the permitted directory, or a symbolic link in the way: never followed. Or a name
    /// that the target's file system refuses, or takes for another one of the same copy.
    RefusedPath = 5,
    /// The destination exists and `--overwrite` was not given.
    Exists = 6,
    /// A device, socket or FIFO: only files, directories and symbolic links are copied.
    NotRegular = 7,
    /// A directory where a file should go, or the other way round, or a device, FIFO or socket
    /// where a file should go.
    WrongKind = 8,
    /// The source does not exist.
    NotFound = 9,
    /// A directory, but `-r` was not given.
    IsDirectory = 10,
    /// What arrived does not hash to what was sent; the file was not kept.
    Verification = 11,
    /// Any other error of the operating system, named in the detail.
    Io = 12,
    /// A bound of the other side (files open at once, directories in one copy) was met.
    Limit = 13,
    /// The file was copied, but its permissions or times could not be set.
    Metadata = 14,
    /// A symbolic link at the server, but `-r` was not given.
    IsLink = 15,
}

impl FailureKind {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        use FailureKind::*;
        [
            Changed,
            Vanished,
            PermissionDenied,
            DiskFull,
            RefusedPath,
            Exists,
            NotRegular,
            WrongKind,
            NotFound,
            IsDirectory,
            Verification,
            Io,
            Limit,
            Metadata,
            IsLink,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == code)
    }

    /// What happened and what to do, in one line.
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
                "something of another kind is in the way, which is never replaced; move it away"
            }
            Self::NotFound => "no such file or directory",
            Self::IsDirectory => "is a directory; give -r to copy it with all it holds",
            Self::Verification => {
                "what arrived differs from what was sent; not kept, copy it again"
            }
            Self::Io => "input/output error",
            Self::Limit => "a limit was met; copy in smaller parts",
            Self::Metadata => "copied, but its permissions or times could not be set",
            Self::IsLink => {
                "is a symbolic link at the server, which is not followed; give -r to copy the link itself"
            }
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// One entry that was not copied (or, for [`FailureKind::Metadata`], not wholly).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub kind: FailureKind,
    /// More, if there is more to say; one line.
    pub detail: String,
    /// The end that writes failed, not the one that reads. Known to the end that has both from
    /// where the failure came.
    pub at_destination: bool,
}

impl Failure {
    /// Without detail.
    pub fn new(kind: FailureKind) -> Self {
        Self {
            kind,
            detail: String::new(),
            at_destination: false,
        }
    }

    /// With detail.
    pub fn with(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            at_destination: false,
        }
    }

    /// The same, of the end that writes.
    #[must_use]
    pub fn at_destination(self) -> Self {
        Self {
            at_destination: true,
            ..self
        }
    }
}

impl Failure {
    /// Failure to create, look up or give the name `name`.
    pub(crate) fn for_name(errno: rustix::io::Errno, name: &[u8]) -> Self {
        if !refuses_name(errno) {
            return errno.into();
        }
        let name = longhaul_proto::text::printable(name);
        let detail = format!("the target's file system does not allow the name \"{name}\"");
        Self::with(FailureKind::RefusedPath, detail)
    }
}

/// Whether an error of a call that takes a name says that the file system allows no such name.
pub(crate) fn refuses_name(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(errno, Errno::INVAL | Errno::ILSEQ | Errno::NAMETOOLONG)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.detail.as_str()) {
            (kind, "") => write!(f, "{kind}"),
            // What these say by themselves, the detail says better.
            (FailureKind::Io | FailureKind::RefusedPath, detail) => f.write_str(detail),
            (kind, detail) => write!(f, "{kind} ({detail})"),
        }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::with(FailureKind::RefusedPath, error.to_string())
    }
}

/// An error number of a system call, as the kind a user can act on.
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
                "larger than the target's file system, or the limit on file sizes (ulimit -f), allows"
                    .to_owned()
            }
            FailureKind::Io | FailureKind::DiskFull => io::Error::from(errno).to_string(),
            _ => String::new(),
        };
        Self::with(kind, detail)
    }
}

/// Inside a tree, what isn't there any more was there a moment ago.
pub(crate) fn vanished(errno: rustix::io::Errno) -> Failure {
    match errno {
        rustix::io::Errno::NOENT => Failure::new(FailureKind::Vanished),
        errno => errno.into(),
    }
}

/// Why a copy as a whole ended early, or could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No route led to the server. The text names the hop that failed and why.
    #[error("{0}")]
    Connect(String),
    /// A depot or the server knows who asks and says no. The text names it.
    #[error("{0}")]
    Unauthorised(String),
    /// The server refused the request for another reason than who asks.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// Every stream was lost and none came back in time.
    #[error("the copy broke off: {0}")]
    StreamsLost(String),
    /// The peer sent what the protocol does not allow.
    #[error("the peer broke the copy protocol: {0}; do both sides run the same release?")]
    Protocol(String),
    /// A path of the command line can't be used.
    #[error("{path}: {failure}")]
    Path {
        /// As the user gave it.
        path: String,
        /// What is wrong with it.
        failure: Failure,
    },
    /// The server has dropped the copy in mid-copy, or was started again and knows nothing of it:
    /// the same command resumes.
    #[error("the server has lost this copy: {0}")]
    CopyLost(String),
    /// Reading or writing a stream failed.
    #[error("stream: {0}")]
    Stream(#[from] io::Error),
    /// A bound on what a key may hold at once was met.
    #[error("{0}")]
    Limit(String),
    /// The peer sent something else than what it was asked for; what it was, and where.
    #[error("the server sends what was not asked for: {0}; do not trust what it sent")]
    NotAsked(String),
    /// Both sides ended with different accounts of the copy.
    #[error("verification failed: the two sides disagree on what was copied; copy again")]
    Disagreement,
}

impl From<Exhausted> for Error {
    fn from(error: Exhausted) -> Self {
        Self::Limit(error.to_string())
    }
}

impl Error {
    /// The server has begun the copy again in mid-copy, and knows nothing of what it had said
    /// before.
    pub(crate) fn started_again() -> Self {
        Self::CopyLost("it was started again".into())
    }

    pub(crate) fn path(path: &RelPath, failure: impl Into<Failure>) -> Self {
        Self::Path {
            path: path.to_string(),
            failure: failure.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_no_full_disk() {
        let failure = Failure::from(Errno::FBIG);
        assert_eq!(failure.kind, FailureKind::Io);
        assert!(
            failure.to_string().starts_with("larger than the target's"),
            "{failure}"
        );
        assert_eq!(Failure::from(Errno::NOSPC).kind, FailureKind::DiskFull);
    }

    #[test]
    fn a_refused_name_is_in_the_message() {
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
