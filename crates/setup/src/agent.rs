//! Answers requests that come over a stream, one line each, by another driver: what runs on a
//! router, reached through a Unix socket or, by its standard input and output, through ssh. Who may
//! reach the stream may ask for anything: it is for the operating system or ssh to say who.

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

use crate::ask::{DriverError, MAX_REQUEST_BYTES, Reply, read_request, reply_line};
use crate::driver::Driver;
use crate::lines::next_line;

/// Most connections at one time; a further one waits.
const MAX_CONNECTIONS: usize = 16;
/// Wait after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Answers requests from a stream until it ends, or says something so long that its end can't be
/// found.
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
            Ok(Some(line)) => (reply(&line, driver).await, true),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => (
                Reply::Error(DriverError::nonsense(error.to_string())),
                false,
            ),
            Err(error) => return Err(error),
        };
        output.write_all(&reply_line(&reply)).await?;
        output.flush().await?;
        if !goes_on {
            return Ok(());
        }
    }
}

async fn reply(line: &[u8], driver: &dyn Driver) -> Reply {
    let answer = match read_request(line) {
        Ok(request) => driver.ask(&request).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(Reply::Error)
}

/// The agent can't listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Others could reach the socket.
    #[error(
        "{}: others than its owner may enter it (mode {mode:o}), and whoever reaches the socket may ask for anything: chmod 700 it, or name another directory",
        directory.display()
    )]
    Open {
        /// Where the socket would be.
        directory: PathBuf,
        /// The directory's permissions.
        mode: u32,
    },
    /// Somebody listens there.
    #[error("{}: somebody listens there already: end that one, or name another socket", .0.display())]
    Taken(PathBuf),
    /// Something else has that name.
    #[error("{}: that is no socket: name another", .0.display())]
    NoSocket(PathBuf),
    /// The system refuses.
    #[error("cannot listen on {}: {source}", path.display())]
    System {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Listens on a Unix socket, in a directory that only its owner can enter; it is made where it is
/// not there.
///
/// # Errors
/// [`ListenError`].
pub fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::System {
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
        return Err(ListenError::Open {
            directory: directory.to_owned(),
            mode,
        });
    }
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NoSocket(path.to_owned()));
        }
        // What an agent left that was killed.
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            return Err(ListenError::Taken(path.to_owned()));
        }
        Ok(_) => std::fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Serves whoever connects until `stop` is true, or whoever could say so is gone.
///
/// # Errors
/// None; it ends when it is told to.
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
                    connections.spawn(async move { one(stream, &*driver).await });
                    None
                }
                Err(error) => Some(error),
            },
            Some(_) = connections.join_next() => None,
        };
        if let Some(error) = failed {
            // What is set up stays; what ends meanwhile frees descriptors.
            tracing::warn!(%error, "cannot accept connections for the moment");
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

async fn one(stream: UnixStream, driver: &dyn Driver) {
    let (input, output) = stream.into_split();
    if let Err(error) = serve(input, output, driver).await {
        tracing::debug!(%error, "a connection broke");
    }
}
