//! Reads the database of a router, within limits of time and length.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use longhaul_map::ospf::{DatabaseFault, MAX_DATABASE_BYTES};
use longhaul_proto::text::printable_within;
use longhaul_provisioning::process::{RunError, run_program};
use tokio::time::timeout;

use super::vty::{VtyConnection, VtyError};

/// Command that prints the database.
const SHOW_DATABASE: &str = "show ip ospf mpls-te database json";
/// Maximum length of what is repeated of a router's complaint.
const MAX_COMPLAINT_BYTES: usize = 200;

/// A router to read from.
#[derive(Debug)]
pub struct TopologySource {
    access: Access,
    timeout: Duration,
}

#[derive(Debug)]
enum Access {
    Socket {
        path: PathBuf,
        connection: Option<VtyConnection>,
    },
    Command {
        program: PathBuf,
        arguments: Vec<String>,
    },
}

/// Reason why the database cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceFault {
    /// The socket cannot be reached: start `ospfd`, and let this user read its socket (on Debian by
    /// the group `frrvty`).
    #[error(
        "cannot connect to {path}: {why}; start ospfd, and put the controller's user into the \
         group frrvty"
    )]
    Connect {
        /// Path of the socket.
        path: String,
        /// Error of the system.
        why: io::Error,
    },
    /// The router ended the connection, as when it restarts.
    #[error("{path} ended the connection ({why})")]
    Lost {
        /// Path of the socket.
        path: String,
        /// Error of the system.
        why: io::Error,
    },
    /// The command failed: run it by hand to see why.
    #[error("{program}: {why}")]
    Command {
        /// Program that was run.
        program: String,
        /// Reason, in one line.
        why: String,
    },
    /// The router refused the request: check that `ospfd` has `mpls-te on`.
    #[error("{from} answered with status {status}: {text}; check that ospfd has `mpls-te on`")]
    Refused {
        /// Router that was asked.
        from: String,
        /// Status of the answer.
        status: u8,
        /// Beginning of the answer.
        text: String,
    },
    /// The router answers too slowly: raise `time_s`.
    #[error("{from} took longer than {} s; raise time_s", .time.as_secs_f64())]
    Late {
        /// Router that was asked.
        from: String,
        /// Time limit.
        time: Duration,
    },
    /// The answer is not a database that can be used.
    #[error("{from}: {fault}")]
    Database {
        /// Router that was asked.
        from: String,
        /// Fault of the database.
        fault: DatabaseFault,
    },
}

impl SourceFault {
    /// Returns true if the router may have restarted, so that its next database may be incomplete.
    #[must_use]
    pub const fn is_restart(&self) -> bool {
        !matches!(self, Self::Late { .. })
    }
}

impl TopologySource {
    /// Creates a source from the socket of `ospfd`.
    #[must_use]
    pub const fn socket(path: PathBuf, timeout: Duration) -> Self {
        let access = Access::Socket {
            path,
            connection: None,
        };
        Self { access, timeout }
    }

    /// Creates a source from a command that prints the database.
    #[must_use]
    pub const fn command(program: PathBuf, arguments: Vec<String>, timeout: Duration) -> Self {
        let access = Access::Command { program, arguments };
        Self { access, timeout }
    }

    /// Returns the socket or the program, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        let (Access::Socket { path, .. } | Access::Command { program: path, .. }) = &self.access;
        path.display().to_string()
    }

    /// Reads the database as text.
    ///
    /// # Errors
    /// [`SourceFault`].
    pub async fn read(&mut self) -> Result<String, SourceFault> {
        let from = self.name();
        let time = self.timeout;
        let bytes = match &mut self.access {
            Access::Socket { path, connection } => {
                // Taken, so that a cancelled or failed request closes it.
                let (open, shown) = (connection.take(), path.display().to_string());
                let asking = async {
                    let mut open =
                        match open {
                            Some(open) => open,
                            None => VtyConnection::open(path).await.map_err(|why| {
                                SourceFault::Connect {
                                    path: shown.clone(),
                                    why,
                                }
                            })?,
                        };
                    let answer = open.ask(SHOW_DATABASE, MAX_DATABASE_BYTES).await;
                    let answer = answer.map_err(|error| vty_fault(shown, error))?;
                    Ok((open, answer))
                };
                let late = || SourceFault::Late {
                    from: from.clone(),
                    time,
                };
                let (open, answer) = timeout(time, asking).await.map_err(|_| late())??;
                if answer.status != 0 {
                    let (status, text) = (answer.status, shorten(&answer.text));
                    return Err(SourceFault::Refused { from, status, text });
                }
                *connection = Some(open);
                answer.text
            }
            Access::Command { program, arguments } => {
                let mut command = Command::new(&*program);
                command.args(&*arguments);
                match run_program(command, b"", time, MAX_DATABASE_BYTES).await {
                    Ok(ran) if ran.status.success() => ran.output,
                    Ok(ran) => {
                        let complaint = match ran.complaint.trim().is_empty() {
                            true => shorten(&ran.output),
                            false => shorten(ran.complaint.as_bytes()),
                        };
                        let why = format!("{}: {complaint}", ran.status);
                        return Err(SourceFault::Command { program: from, why });
                    }
                    Err(RunError::Time(time)) => return Err(SourceFault::Late { from, time }),
                    Err(error) => {
                        let why = error.to_string();
                        return Err(SourceFault::Command { program: from, why });
                    }
                }
            }
        };
        String::from_utf8(bytes).map_err(|error| SourceFault::Database {
            from,
            fault: DatabaseFault::NotADatabase {
                why: "it is not UTF-8".to_owned(),
                beginning: shorten(error.as_bytes()),
            },
        })
    }
}

fn vty_fault(path: String, error: VtyError) -> SourceFault {
    match error {
        VtyError::Lost(why) => SourceFault::Lost { path, why },
        VtyError::TooLong => SourceFault::Database {
            from: path,
            fault: DatabaseFault::TooLong(MAX_DATABASE_BYTES.saturating_add(1)),
        },
    }
}

/// Returns the beginning of an answer as one printable line.
fn shorten(text: &[u8]) -> String {
    printable_within(text.trim_ascii(), MAX_COMPLAINT_BYTES)
}

#[cfg(test)]
mod tests;
