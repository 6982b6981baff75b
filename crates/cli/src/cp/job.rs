//! The copy that a `cp` command line asks for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use longhaul_endpoints::EndpointPath;
use longhaul_remote::Login;
use longhaul_sftp::SftpPath;

use super::impossible::{ForeignProtocol, RelayedEnds};
use crate::target::{Remote, Target};
use crate::{home, overlap};

mod sources;

pub use sources::RemoteSources;
use sources::{OnePlace, ParsedSources};

/// A copy with parsed paths. All remote paths are on one host, or on one host per end.
pub enum CopyJob {
    /// Within this machine.
    Local {
        sources: Vec<PathBuf>,
        destination: PathBuf,
    },
    /// To a server.
    Push {
        sources: Vec<PathBuf>,
        destination: Remote,
    },
    /// From a server.
    Pull {
        sources: Vec<Remote>,
        destination: PathBuf,
    },
    /// To a host, by ssh login.
    PushOverSsh {
        sources: Vec<PathBuf>,
        destination: Login,
    },
    /// From a host, by ssh login.
    PullOverSsh {
        sources: Vec<Login>,
        destination: PathBuf,
    },
    /// From one ssh host to another.
    Between {
        sources: Vec<Login>,
        destination: Login,
    },
    /// From one server to another.
    BetweenServers {
        sources: Vec<Remote>,
        destination: Remote,
    },
    /// To a host, by SFTP.
    PushOverSftp {
        sources: Vec<PathBuf>,
        destination: SftpPath,
    },
    /// From a host, by SFTP.
    PullOverSftp {
        sources: Vec<SftpPath>,
        destination: PathBuf,
    },
    /// To an object store or a web server.
    PushToStore {
        sources: Vec<PathBuf>,
        destination: EndpointPath,
    },
    /// From an object store or a web server.
    PullFromStore {
        sources: Vec<EndpointPath>,
        destination: PathBuf,
    },
    /// From one of them to another, through this machine.
    BetweenStores {
        sources: Vec<EndpointPath>,
        destination: EndpointPath,
    },
    /// Between two ends that cannot reach each other by themselves, through this machine.
    Relayed {
        sources: RemoteSources,
        /// Path at another end.
        destination: Target,
    },
}

impl CopyJob {
    /// Parses the paths: sources, then the destination.
    pub fn read(paths: &[OsString]) -> Result<Self> {
        let targets = paths.iter().map(|path| Target::parse(path));
        let mut targets = targets.collect::<Result<Vec<_>>>()?;
        let destination = targets
            .pop()
            .ok_or(anyhow!("name what to copy and where to"))?;
        let mut sources = ParsedSources::default();
        for target in targets {
            match target {
                Target::Local(path) => sources.local.push(path),
                Target::Remote(path) => sources.server.push(path),
                Target::Login(path) => sources.login.push(path),
                Target::Sftp(path) => sources.sftp.push(path),
                Target::Endpoint(path) => sources.endpoint.push(path),
            }
        }
        match sources.in_one_place(&destination)? {
            OnePlace::Here(sources) => Self::from_here(sources, destination),
            OnePlace::Elsewhere(sources) => Self::from_elsewhere(sources, destination),
        }
    }

    fn from_here(sources: Vec<PathBuf>, destination: Target) -> Result<Self> {
        Ok(match destination {
            Target::Local(destination) => {
                refuse_into_itself(&sources, &destination)?;
                Self::Local {
                    sources,
                    destination,
                }
            }
            Target::Remote(destination) => Self::Push {
                sources,
                destination,
            },
            Target::Login(destination) => Self::PushOverSsh {
                sources,
                destination,
            },
            Target::Sftp(destination) => Self::PushOverSftp {
                sources,
                destination,
            },
            Target::Endpoint(destination) => Self::PushToStore {
                sources,
                destination,
            },
        })
    }

    fn from_elsewhere(sources: RemoteSources, destination: Target) -> Result<Self> {
        Ok(match (sources, destination) {
            (RemoteSources::Server(sources), Target::Local(destination)) => Self::Pull {
                sources,
                destination,
            },
            (RemoteSources::Login(sources), Target::Local(destination)) => Self::PullOverSsh {
                sources,
                destination,
            },
            (RemoteSources::Sftp(sources), Target::Local(destination)) => Self::PullOverSftp {
                sources,
                destination,
            },
            (RemoteSources::Store(sources), Target::Local(destination)) => Self::PullFromStore {
                sources,
                destination,
            },
            (RemoteSources::Login(sources), Target::Login(destination)) => Self::Between {
                sources,
                destination,
            },
            (RemoteSources::Server(sources), Target::Remote(destination)) => {
                if sources.iter().any(|one| one.server == destination.server) {
                    bail!("from a server to itself: use longhaul mv, or copy here first");
                }
                Self::BetweenServers {
                    sources,
                    destination,
                }
            }
            (RemoteSources::Store(sources), Target::Endpoint(destination)) => Self::BetweenStores {
                sources,
                destination,
            },
            (sources, destination) => {
                if let (RemoteSources::Sftp(sources), Target::Sftp(destination)) =
                    (&sources, &destination)
                {
                    overlap::refuse_into_itself_by_name(sources, destination)?;
                }
                Self::Relayed {
                    sources,
                    destination,
                }
            }
        })
    }

    /// Returns true if neither end is this machine, and the data does not pass through it.
    pub fn is_between_others(&self) -> bool {
        matches!(self, Self::Between { .. } | Self::BetweenServers { .. })
    }

    /// Returns true if the other end is `longhaul serve`.
    pub fn is_with_server(&self) -> bool {
        matches!(self, Self::Push { .. } | Self::Pull { .. })
    }

    /// Returns the protocol of the other end, if the user names one that needs no longhaul there.
    pub(super) fn foreign_protocol(&self) -> Option<ForeignProtocol> {
        match self {
            Self::PushOverSftp { .. } | Self::PullOverSftp { .. } => Some(ForeignProtocol::Sftp),
            Self::PushToStore { .. } | Self::PullFromStore { .. } | Self::BetweenStores { .. } => {
                Some(ForeignProtocol::Store)
            }
            Self::Relayed {
                sources,
                destination,
            } => {
                let has_ssh =
                    |target: &Target| matches!(target, Target::Login(_) | Target::Sftp(_));
                let reads_by_ssh =
                    matches!(sources, RemoteSources::Login(_) | RemoteSources::Sftp(_));
                Some(ForeignProtocol::Relayed(RelayedEnds {
                    from_server: matches!(sources, RemoteSources::Server(_)),
                    to_server: matches!(destination, Target::Remote(_)),
                    to_login: matches!(destination, Target::Login(_)),
                    has_ssh: reads_by_ssh || has_ssh(destination),
                }))
            }
            _ => None,
        }
    }

    /// Returns the word for this kind of copy in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Local { .. } => "local",
            Self::Push { .. }
            | Self::PushOverSsh { .. }
            | Self::PushOverSftp { .. }
            | Self::PushToStore { .. } => "push",
            Self::Pull { .. }
            | Self::PullOverSsh { .. }
            | Self::PullOverSftp { .. }
            | Self::PullFromStore { .. } => "pull",
            Self::Between { .. }
            | Self::BetweenServers { .. }
            | Self::BetweenStores { .. }
            | Self::Relayed { .. } => "between",
        }
    }
}

/// Refuses to copy a directory into itself, which would never end.
fn refuse_into_itself(sources: &[PathBuf], destination: &Path) -> Result<()> {
    let mut real = destination.to_path_buf();
    // The real path of the part that exists.
    let real = loop {
        match real.canonicalize() {
            Ok(real) => break real,
            Err(_) => match real.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => real = parent.to_path_buf(),
                _ => break PathBuf::from(".").canonicalize()?,
            },
        }
    };
    for source in sources {
        if let Ok(source_real) = source.canonicalize()
            && source_real.is_dir()
            && real.starts_with(&source_real)
        {
            bail!(
                "{}: cannot be copied into itself, {}",
                home::display_path(source),
                home::display_path(destination)
            );
        }
    }
    Ok(())
}
