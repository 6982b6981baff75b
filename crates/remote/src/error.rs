//! What can go wrong before a copy over ssh has its first stream.

use std::io;

use longhaul_proto::KeyError;
use longhaul_transfer::path::PathError;

/// Why the far side is not to be had. Hosts are named as they were typed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What stands before the colon of a path is no host.
    #[error(
        "{text}: no host before the colon; a local file whose name has a colon is written ./{text}"
    )]
    Host {
        /// As typed.
        text: String,
    },
    /// This machine has no ssh.
    #[error(
        "cannot run {program}: {source}; copies to user@host:path need an ssh client (OpenSSH) here"
    )]
    NoSsh {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// ssh did not get through.
    #[error("cannot log in to {host}: {reason}")]
    Login {
        /// Whom.
        host: String,
        /// ssh's own last words.
        reason: String,
    },
    /// The login stands, and the host does not run what it is asked to: the account has no shell,
    /// or is for something else. Use another account.
    #[error(
        "{host} runs no command for this login: {reason}; use an account there that may run programs"
    )]
    NoCommand {
        /// Whom.
        host: String,
        /// Last words of the login.
        reason: String,
    },
    /// The login stands and goes no further: see what its startup files wait for.
    #[error(
        "the login at {host} does not come to its command: {reason}; see what its startup files wait for"
    )]
    Stuck {
        /// Whom.
        host: String,
        /// How long it was waited for, and its last words.
        reason: String,
    },
    /// The login prints without end: its startup files are to print to terminals only.
    #[error(
        "the login at {host} prints too much before its command: {reason}; have its startup files print to terminals only"
    )]
    Noisy {
        /// Whom.
        host: String,
        /// How much that was, and its last words.
        reason: String,
    },
    /// The host has no longhaul.
    #[error(
        "{host} has no longhaul: give --bootstrap to have this one copied there, or install it in the login's PATH"
    )]
    Missing {
        /// Whom.
        host: String,
    },
    /// The host is of another kind than this one, so this program does not run there.
    #[error(
        "{host} is {there} and this is {here}: this longhaul does not run there; install one that does"
    )]
    OtherMachine {
        /// Whom.
        host: String,
        /// Operating system and processor there.
        there: String,
        /// And here.
        here: String,
    },
    /// The program was brought and does not run.
    #[error(
        "this longhaul does not run on {host} (another C library?): use a static build of it, or install longhaul there"
    )]
    Unfit {
        /// Whom.
        host: String,
    },
    /// What arrived there is not what was sent, or could not be kept.
    #[error("{host} could not keep longhaul in its ~/.cache/longhaul: {reason}")]
    NotBrought {
        /// Whom.
        host: String,
        /// Why.
        reason: String,
    },
    /// This program's own file can't be read.
    #[error("cannot read this program's own file to bring it along: {0}")]
    OwnProgram(#[source] io::Error),
    /// The far side speaks another version.
    #[error(
        "{host} runs longhaul {there}, which does not understand this one ({here}): give --bootstrap to use this one there"
    )]
    Version {
        /// Whom.
        host: String,
        /// Its release.
        there: String,
        /// This one.
        here: String,
    },
    /// The far side ended before it answered.
    #[error("the far side at {host} ended early: {reason}")]
    Ended {
        /// Whom.
        host: String,
        /// What is known of it.
        reason: String,
    },
    /// The far side answers something else than what it was asked.
    #[error("the far side at {host} answers what was not asked: {what}")]
    Answer {
        /// Whom.
        host: String,
        /// What.
        what: String,
    },
    /// The far side says no, in its own words.
    #[error("{host}: {reason}")]
    Refused {
        /// Whom.
        host: String,
        /// Why.
        reason: String,
    },
    /// Neither of two hosts reaches the other.
    #[error(
        "{source_host} and {destination_host} do not reach each other ({reason}): open a port at one of them (--port-range), or copy by way of this machine in two steps"
    )]
    Apart {
        /// Where the files are.
        source_host: String,
        /// Where they go.
        destination_host: String,
        /// What was tried.
        reason: String,
    },
    /// This machine lacks something.
    #[error("cannot make what a copy over ssh needs: {0}")]
    Here(#[from] io::Error),
    /// No key could be made, or no session prepared.
    #[error(transparent)]
    Session(#[from] longhaul_session::Error),
    /// A key is not one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A path is not plain.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The copy itself ended early.
    #[error(transparent)]
    Copy(#[from] longhaul_transfer::Error),
}

impl Error {
    /// Returns whether the same command may succeed a little later, with nothing changed by a
    /// person.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        !matches!(
            self,
            Self::NoSsh { .. }
                | Self::NoCommand { .. }
                | Self::Noisy { .. }
                | Self::Missing { .. }
                | Self::OtherMachine { .. }
                | Self::Unfit { .. }
        )
    }
}
