//! Errors of the file of principals and of the certificates that it names.

use std::io;
use std::path::PathBuf;

use longhaul_proto::text::printable;

/// Error of the file of principals, or of a file that it names.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read: check the path and its permissions. Nobody but its owner may write
    /// it.
    #[error("{}: cannot read it: {source}", shown(file))]
    Unreadable {
        /// Path of the file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is not valid TOML, or a field has an invalid value: fix the line.
    #[error("{}:{line}: {problem}", shown(file))]
    Field {
        /// Path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Description of the error, and what to write.
        problem: String,
    },
    /// A certificate or a revocation list cannot be used: replace the file, or remove it.
    #[error("{}: {problem}", shown(file))]
    Certificate {
        /// Path of the file.
        file: PathBuf,
        /// Description of the error.
        problem: String,
    },
    /// There is no trust anchor, so no certificate would be accepted: name a file of certificates,
    /// or a directory with names such as `1a2b3c4d.0` or `ca.pem`.
    #[error("{}: it has no certificate of an authority", shown(file))]
    NoAnchors {
        /// Path of the file or directory.
        file: PathBuf,
    },
}

fn shown(file: &std::path::Path) -> String {
    printable(file.as_os_str().as_encoded_bytes())
}
