//! Errors before a copy over ssh has its first stream.

use std::io;

use longhaul_proto::KeyError;
use longhaul_transfer::path::PathError;

/// Reasons why the far side is unavailable. Hosts are named as they were typed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text before the colon of a path is not a host. Write a local file whose name has a colon
    /// as ./a:b.
    #[error(
        "{text}: no host before the colon; a local file whose name has a colon is written ./{text}"
    )]
    Host {
        /// Text as typed.
        text: String,
    },
    /// This machine has no ssh client. Install OpenSSH. `--ssh` names another one.
    #[error(
        "cannot run {program}: {source}; copies to user@host:path need an ssh client (OpenSSH) here"
    )]
    NoSsh {
        /// The program.
        program: String,
        /// Reason.
        source: io::Error,
    },
    /// ssh could not log in, for the reason that it gives. Nothing of Longhaul ran there.
    /// `ssh HOST true` shows whether the login works.
    #[error("cannot log in to {host}: {reason}")]
    Login {
        /// Host.
        host: String,
        /// Last message of ssh.
        reason: String,
    },
    /// The login succeeded, but the host does not run the command: the account has no shell, or is
    /// for something else. Use another account.
    #[error(
        "{host} does not run commands for this login: {reason}; use an account that may run \
         programs"
    )]
    NoCommand {
        /// Host.
        host: String,
        /// Last output of the login.
        reason: String,
    },
    /// The login succeeded, but its command does not start: see what its startup files wait for.
    #[error(
        "the login at {host} did not reach its command: {reason}; check what its startup files \
         wait for"
    )]
    Stuck {
        /// Host.
        host: String,
        /// Time waited, and last output of the login.
        reason: String,
    },
    /// The login prints endlessly: have its startup files print to terminals only.
    #[error(
        "the login at {host} prints too much before its command: {reason}; have its startup files \
         print to terminals only"
    )]
    Noisy {
        /// Host.
        host: String,
        /// Amount of output, and its last line.
        reason: String,
    },
    /// The host has no longhaul. Use --bootstrap, or install it in the login's PATH.
    #[error(
        "{host} has no longhaul: give --bootstrap to copy this one there, or install it in the \
         login's PATH"
    )]
    Missing {
        /// Host.
        host: String,
    },
    /// The host has another system or processor, so this program does not run there. Install one
    /// that does.
    #[error(
        "{host} is {there} and this is {here}: this longhaul does not run there; install one that \
         does"
    )]
    OtherMachine {
        /// Host.
        host: String,
        /// Operating system and processor of the host.
        there: String,
        /// Operating system and processor of this machine.
        here: String,
    },
    /// The program was copied there and does not run. Use a static build, or install longhaul
    /// there.
    #[error(
        "this longhaul does not run on {host} (another C library?): use a static build of it, or \
         install longhaul there"
    )]
    Unfit {
        /// Host.
        host: String,
    },
    /// The program arrived damaged, or could not be stored there. Check disk space, quota and
    /// permissions of the home directory.
    #[error("cannot store longhaul in ~/.cache/longhaul at {host}: {reason}")]
    NotBrought {
        /// Host.
        host: String,
        /// Reason.
        reason: String,
    },
    /// The program that would be copied to the host cannot be read: this program's own file, or
    /// `longhaul-static` of its package. Check that it is readable.
    #[error("cannot read this program's own file to copy it to the host: {0}")]
    OwnProgram(#[source] io::Error),
    /// The far side speaks another version. Use --bootstrap to run this one there.
    #[error(
        "{host} runs longhaul {there}, which is incompatible with this one ({here}): give \
         --bootstrap to use this one there"
    )]
    Version {
        /// Host.
        host: String,
        /// Release of the far side.
        there: String,
        /// Release of this program.
        here: String,
    },
    /// The far side ended before it answered, for the reason given. Repeat the command. It was
    /// killed, or the ssh connection broke.
    #[error("longhaul at {host} ended early: {reason}")]
    Ended {
        /// Host.
        host: String,
        /// Known reason.
        reason: String,
    },
    /// The far side's answer does not fit the question. A startup file prints to standard output
    /// there, or the releases differ.
    #[error("longhaul at {host} sent an unexpected answer: {what}")]
    Answer {
        /// Host.
        host: String,
        /// The answer.
        what: String,
    },
    /// The far side refuses, for the reason that it gives.
    #[error("{host}: {reason}")]
    Refused {
        /// Host.
        host: String,
        /// Reason.
        reason: String,
    },
    /// Neither of two hosts reaches the other. Open a port at one of them (--port-range), or copy
    /// through this machine.
    #[error(
        "{source_host} and {destination_host} cannot reach each other ({reason}): open a port at \
         one of them (--port-range), or copy through this machine in two steps"
    )]
    Apart {
        /// Host of the sources.
        source_host: String,
        /// Host of the destination.
        destination_host: String,
        /// Attempts.
        reason: String,
    },
    /// This machine lacks a resource for a copy over ssh. Free descriptors or memory.
    #[error("cannot set up a copy over ssh: {0}")]
    Here(#[from] io::Error),
    /// A key could not be made, or a session not prepared.
    #[error(transparent)]
    Session(#[from] longhaul_session::Error),
    /// A key is invalid.
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
    /// Returns true if the same command may succeed a little later, without any change by a person.
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
