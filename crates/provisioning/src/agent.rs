//! Agent that answers requests from a stream, one per line, by means of another driver. It runs on
//! a router and is reached through a Unix socket, or through ssh by its standard input and output.
//!
//! Anyone who can reach the stream may ask for anything. The operating system or ssh controls the
//! access.

#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::ask::{DriverError, DriverReply, MAX_REQUEST_BYTES, encode_reply, read_request};
use crate::driver::Driver;
use crate::lines::next_line;

/// Maximum number of concurrent connections; further ones wait.
const MAX_CONNECTIONS: usize = 16;
/// Pause after an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Answers requests from a stream until it ends, or until a line is too long.
///
/// # Errors
/// The stream broke.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    driver: &dyn Driver,
) -> io::Result<()> {
    let mut input = BufReader::new(input);
    loop {
        let (reply, goes_on) = match next_line(&mut input, MAX_REQUEST_BYTES).await {
            Ok(None) => return Ok(()),
            Ok(Some(line)) => (answer_line(&line, driver).await, true),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => (
                DriverReply::Error(DriverError::nonsense(error.to_string())),
                false,
            ),
            Err(error) => return Err(error),
        };
        output.write_all(&encode_reply(&reply)).await?;
        output.flush().await?;
        if !goes_on {
            return Ok(());
        }
    }
}

async fn answer_line(line: &[u8], driver: &dyn Driver) -> DriverReply {
    let answer = match read_request(line) {
        Ok(request) => driver.ask(&request).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(DriverReply::Error)
}

/// Reason why the agent cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum AgentListenError {
    /// Other users could reach the socket: make the directory private, or choose another.
    #[error(
        "{}: users other than its owner may enter it (mode {mode:o}), and whoever reaches the \
         socket may change circuits: run chmod 700 on it, or name another directory",
        directory.display()
    )]
    Open {
        /// Directory of the socket.
        directory: PathBuf,
        /// Permissions of the directory.
        mode: u32,
    },
    /// Another process listens on the socket: stop it, or choose another socket.
    #[error(
        "{}: another process listens there already: stop it, or name another socket",
        .0.display()
    )]
    Taken(PathBuf),
    /// A file that is not a socket has that name: choose another name.
    #[error("{}: not a socket: name another path", .0.display())]
    NoSocket(PathBuf),
    /// The operating system refuses. If the address is in use, another server runs; ports below
    /// 1024 need root.
    #[error("cannot listen on {}: {source}", path.display())]
    System {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// Listens on a Unix socket, in a directory that only its owner can enter. Creates the directory if
/// it is missing.
///
/// # Errors
/// [`AgentListenError`].
pub fn bind(path: &Path) -> Result<UnixListener, AgentListenError> {
    let failed = |source| AgentListenError::System {
        path: path.to_owned(),
        source,
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let mode = directory.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(AgentListenError::Open {
            directory: directory.to_owned(),
            mode,
        });
    }
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(AgentListenError::NoSocket(path.to_owned()));
        }
        // A stale socket of an agent that was killed.
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            return Err(AgentListenError::Taken(path.to_owned()));
        }
        Ok(_) => std::fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Serves connections until `stop` is true, or its sender is dropped.
///
/// # Errors
/// Never; it ends when it is told to.
pub async fn listen(
    listener: UnixListener,
    driver: Arc<dyn Driver>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let full = connections.len() >= MAX_CONNECTIONS;
        let failed = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
            accepted = listener.accept(), if !full => match accepted {
                Ok((stream, _)) => {
                    let driver = Arc::clone(&driver);
                    connections.spawn(async move { serve_connection(stream, &*driver).await });
                    None
                }
                Err(error) => Some(error),
            },
            Some(_) = connections.join_next() => None,
        };
        if let Some(error) = failed {
            // Circuits stay set up; connections that end meanwhile free descriptors.
            tracing::warn!(%error, "cannot accept connections for the moment");
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

async fn serve_connection(stream: UnixStream, driver: &dyn Driver) {
    let (input, output) = stream.into_split();
    if let Err(error) = serve(input, output, driver).await {
        tracing::debug!(%error, "a connection broke");
    }
}
