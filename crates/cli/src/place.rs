//! Places whose files are listed or changed without copying: a server, an ssh host, a store, or
//! this machine.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use longhaul_copy_api::{CopyOptions, SshOptions};
use longhaul_endpoints::{EndpointFiles, EndpointPath};
use longhaul_proto::text::printable;
use longhaul_remote::FarSide;
use longhaul_session::{Endpoint, ServiceName};
use longhaul_sftp::{SftpFiles, SftpPath};
use longhaul_transfer::Error;
use longhaul_transfer::files::message::{
    FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, PathBytes,
};
use longhaul_transfer::files::{AllowAll, Files, FilesClient, FilesError};
use longhaul_transfer::store::confine::Dir;

use crate::server_options::ServerOptions;
use crate::target::Target;
use crate::trust::{self, RememberingConnector};
use crate::{home, ssh_options};

mod open_places;

/// Maximum number of connections with an SFTP server.
const SFTP_SESSIONS: usize = 8;
/// Time for which an SFTP server may be silent.
const SFTP_PATIENCE: Duration = Duration::from_secs(60);

pub use open_places::OpenPlaces;

/// Options for reaching places.
#[derive(Args)]
pub struct PlaceOptions {
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    ssh: SshOptions,
}

impl PlaceOptions {
    /// Returns the options that a copy has.
    pub fn for_copy(options: &CopyOptions) -> Self {
        Self {
            server: ServerOptions::for_copy(options),
            ssh: options.ssh.clone(),
        }
    }
}

/// A path, and the place that it is in.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacePath {
    /// The place.
    pub location: Location,
    /// The path within the place.
    pub path: PathBytes,
}

/// Address of a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Location {
    /// A server; paths lie beneath its root.
    Server(Endpoint),
    /// An ssh host.
    Login(String),
    /// A store; paths are keys.
    Store(EndpointPath),
    /// A host with an SFTP server.
    Sftp(SftpPath),
    /// A directory of this machine.
    Here(std::path::PathBuf),
}

impl PlacePath {
    /// Parses a path. A local path is a place of its own.
    ///
    /// # Errors
    /// The text is not a path.
    pub fn parse(text: &OsStr) -> Result<Self> {
        Ok(match Target::parse(text)? {
            Target::Login(login) => Self {
                location: Location::Login(login.host),
                path: PathBytes(login.path),
            },
            Target::Remote(remote) => Self {
                location: Location::Server(remote.server),
                path: PathBytes(remote.path.as_bytes().to_vec()),
            },
            Target::Sftp(path) => bail!(
                "{path}: only cp and sync take sftp://: for other commands name user@host:path, \
                 with longhaul at the host"
            ),
            Target::Endpoint(path) => bail!(
                "{path}: only cp, sync, ls, stat, du, find and rm take paths in stores, and only \
                 cp those at web servers: use the store's own tools for the rest"
            ),
            Target::Local(path) => Self {
                location: Location::Here(path),
                path: PathBytes::default(),
            },
        })
    }

    /// Parses a path in a store that lists what it holds. Returns `None` for other paths.
    ///
    /// # Errors
    /// The text is not a path.
    pub fn parse_in_store(text: &OsStr) -> Result<Option<Self>> {
        Ok(match Target::parse(text)? {
            Target::Endpoint(path) if path.is_listable() => Some(Self::in_store(&path)),
            _ => None,
        })
    }

    /// Converts a path in a store that lists what it holds.
    pub fn in_store(path: &EndpointPath) -> Self {
        Self {
            path: PathBytes(path.path().as_bytes().to_vec()),
            location: Location::Store(path.root()),
        }
    }

    /// Converts a path at a host with an SFTP server.
    pub fn at_sftp(path: &SftpPath) -> Self {
        Self {
            path: PathBytes(path.path().to_vec()),
            location: Location::Sftp(path.root()),
        }
    }

    /// Parses a path on another machine.
    ///
    /// # Errors
    /// The text is not a path, or is a local one.
    pub fn parse_remote(text: &OsStr) -> Result<Self> {
        match Self::parse(text)? {
            Self {
                location: Location::Here(path),
                ..
            } => bail!(
                "{}: name a path as user@host:path or lh://host/path",
                home::display_path(&path)
            ),
            spot => Ok(spot),
        }
    }

    /// Parses paths that must all be in one place, which may be a store.
    ///
    /// # Errors
    /// One is not a path, or is in another place than the first.
    pub fn parse_all(paths: &[std::ffi::OsString]) -> Result<Vec<Self>> {
        let spots = paths
            .iter()
            .map(|path| match Self::parse_in_store(path)? {
                Some(spot) => Ok(spot),
                None => Self::parse_remote(path),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut others = spots.iter();
        if let Some(first) = others.next()
            && let Some(other) = others.find(|other| other.location != first.location)
        {
            bail!("{other} is on another host than {first}: run one command for each");
        }
        Ok(spots)
    }
}

impl std::fmt::Display for PlacePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.location.shown(&self.path))
    }
}

impl Location {
    /// Formats a path in this place, as a person may read and type it.
    pub fn shown(&self, path: &PathBytes) -> String {
        let shown = printable(&path.0);
        match self {
            Self::Server(server) => format!("lh://{server}/{shown}"),
            Self::Login(host) => format!("{host}:{shown}"),
            Self::Store(store) => format!("{}/{shown}", store.place()),
            Self::Sftp(host) => host.with_path(&path.0).to_string(),
            Self::Here(directory) => {
                home::display_path(&directory.join(Path::new(OsStr::new(&shown))))
            }
        }
    }

    /// Formats a failure in this place in one line.
    pub fn failed(&self, failure: &FilesFailure) -> String {
        match (failure.kind, self) {
            // The detail names the key, the path and whom to ask.
            (FilesFailureKind::NotGranted, _) if !failure.detail.is_empty() => failure.to_string(),
            (_, Self::Server(server)) => format!("lh://{server}/{failure}"),
            (_, Self::Login(host)) => format!("{host}:{failure}"),
            (_, Self::Store(store)) => format!("{}/{failure}", store.place()),
            (_, Self::Sftp(host)) => format!("sftp://{}: {failure}", host.shown_host()),
            (_, Self::Here(directory)) if directory == Path::new("/") => format!("/{failure}"),
            (_, Self::Here(directory)) if directory == Path::new(".") => failure.to_string(),
            (_, Self::Here(directory)) => format!("{}: {failure}", home::display_path(directory)),
        }
    }
}

/// An open place.
pub enum Place {
    /// A server.
    Server {
        /// Client for questions about files.
        client: FilesClient<RememberingConnector>,
        /// Opens sessions with the server.
        connector: Arc<RememberingConnector>,
        /// The server.
        server: Endpoint,
    },
    /// An ssh host.
    Login(Box<FarSide>),
    /// A store.
    Store(Box<EndpointFiles>),
    /// A host with an SFTP server.
    Sftp(Arc<SftpFiles>),
    /// This machine.
    Here(Option<Files>),
}

impl Place {
    /// Opens a place.
    ///
    /// # Errors
    /// The place cannot be reached.
    pub async fn open(location: &Location, options: &PlaceOptions) -> Result<Self> {
        Ok(match location {
            Location::Server(server) => {
                let connector = options.server.connector(ServiceName::FILES, server).await?;
                Self::Server {
                    client: FilesClient::new(connector.clone())
                        .with_tokens(crate::tokens::source_for(server).await),
                    connector,
                    server: server.clone(),
                }
            }
            Location::Login(host) => Self::Login(Box::new(
                FarSide::start(&ssh_options::start(&options.ssh), host).await?,
            )),
            Location::Store(store) => Self::Store(Box::new(EndpointFiles::open(store).await?)),
            Location::Sftp(path) => {
                let ssh = ssh_options::start(&options.ssh).ssh;
                let files = SftpFiles::open(path, ssh, SFTP_SESSIONS, SFTP_PATIENCE).await?;
                Self::Sftp(Arc::new(files))
            }
            Location::Here(directory) => {
                let opened = Dir::open(directory);
                let shown = home::display_path(directory);
                let root =
                    opened.map_err(|errno| anyhow!("{shown}: {}", std::io::Error::from(errno)))?;
                let mut files = Files::new(Arc::new(root));
                files.set_threads(available_parallelism().map_or(1, usize::from));
                Self::Here(Some(files))
            }
        })
    }

    /// Sends a question, and receives the answer.
    ///
    /// # Errors
    /// The place is gone, or its answer does not fit. Failures of file operations are in
    /// [`FilesResponse::Failed`].
    pub async fn ask(&mut self, ask: FilesRequest) -> Result<FilesResponse> {
        match self {
            Self::Login(far) => Ok(far.ask_files(ask).await?),
            Self::Store(files) => Ok(files.answer(&ask).await?),
            Self::Sftp(files) => Ok(files.answer(&ask).await?),
            Self::Server {
                client,
                connector,
                server,
            } => {
                let answered = client.request(&ask).await;
                answered.map_err(|error| advise(error, connector, server))
            }
            Self::Here(files) => {
                let mut own = files
                    .take()
                    .ok_or(anyhow!("an earlier request has failed"))?;
                let answering = tokio::task::spawn_blocking(move || {
                    let answer = own.answer(&ask, &AllowAll, &AtomicBool::new(false));
                    (own, answer)
                });
                let (own, answer) = answering.await?;
                *files = Some(own);
                Ok(answer)
            }
        }
    }

    /// Sends several questions without waiting in between, and receives the answers in order. The
    /// questions must be few and short enough for the buffers of a connection.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_all(&mut self, asks: &[FilesRequest]) -> Result<Vec<FilesResponse>> {
        match self {
            Self::Login(far) => Ok(far.ask_all_files(asks).await?),
            Self::Store(files) => Ok(files.answer_all(asks).await?),
            Self::Sftp(files) => Ok(files.answer_all(asks).await?),
            Self::Server {
                client,
                connector,
                server,
            } => {
                let answered = client.request_all(asks).await;
                answered.map_err(|error| advise(error, connector, server))
            }
            Self::Here(_) => {
                let mut answers = Vec::with_capacity(asks.len());
                for ask in asks {
                    answers.push(self.ask(ask.clone()).await?);
                }
                Ok(answers)
            }
        }
    }

    /// Closes the place in good order.
    pub async fn end(self) {
        match self {
            Self::Server { client, .. } => client.end().await,
            Self::Login(far) => far.end().await,
            Self::Sftp(files) => files.end().await,
            Self::Store(_) | Self::Here(_) => {}
        }
    }
}

/// Adds to the error what to do about an unknown server.
fn advise(error: FilesError, connector: &RememberingConnector, server: &Endpoint) -> anyhow::Error {
    match connector.unknown_server() {
        Some(found) if matches!(error, FilesError::Connect(_)) => anyhow!(Error::Unauthorised(
            trust::unknown_server_advice(server, found)
        )),
        _ => anyhow!(error),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn paths_of_several_places_are_refused() {
        let parse = |paths: &[&str]| {
            let paths: Vec<OsString> = paths.iter().map(OsString::from).collect();
            PlacePath::parse_all(&paths)
        };
        assert!(parse(&["h:a", "h:b"]).is_ok());
        assert!(parse(&["lh://h/a", "lh://h:7511//b"]).is_ok());
        for bad in [
            &["a"][..],
            &["h:a", "g:b"],
            &["h:a", "lh://h/a"],
            &["lh://h/a", "lh://h:1/a"],
            &["lh://h/../a"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_are_shown_as_they_are_typed() {
        for text in ["h:a/b", "lh://h:7511/a/b"] {
            assert_eq!(PlacePath::parse(text.as_ref()).unwrap().to_string(), text);
        }
    }
}
