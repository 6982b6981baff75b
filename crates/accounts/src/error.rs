//! Errors of accounts.

use std::io;
use std::path::PathBuf;

/// Reason why accounts cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// The file of accounts cannot be opened for writing. Create its directory, and give the user
    /// of the service the right to write there.
    #[error(
        "cannot keep accounts: {}: {source}; create its directory for this user",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file of accounts, or a rotated one, cannot be read. Name the file of `--accounts`, and
    /// read it as a user who may.
    #[error("cannot read accounts: {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The journal of systemd does not run on this machine. Leave `--accounts-journal` out.
    #[error(
        "cannot send accounts to the journal: {}: {source}; leave out --accounts-journal",
        path.display()
    )]
    Journal {
        /// Socket of the journal.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The system started no thread for the accounts. Raise the limit on processes (`ulimit -u`,
    /// TasksMax= of the unit).
    #[error("cannot keep accounts: cannot start a thread: {0}; raise the limit on processes")]
    Thread(#[source] io::Error),
}
