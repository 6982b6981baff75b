//! The copy that a `cp` command line asks for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use longhaul_endpoints::EndpointPath;
use longhaul_remote::Login;
use longhaul_sftp::SftpPath;

use super::impossible::{ForeignProtocol, RelayedEnds};
use crate::home;
use crate::target::{Remote, Target};

mod sources;

pub use sources::RelayedSources;
use sources::{ParsedSources, one_place};

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
        sources: RelayedSources,
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
        if !sources.endpoint.is_empty() || matches!(destination, Target::Endpoint(_)) {
            return Self::with_store(sources, destination);
        }
        if !sources.sftp.is_empty() || matches!(destination, Target::Sftp(_)) {
            return Self::with_sftp(sources, destination);
        }
        let ParsedSources {
            local,
            server,
            login,
            ..
        } = sources;
        match (
            destination,
            local.is_empty(),
            server.is_empty(),
            login.is_empty(),
        ) {
            (_, true, true, true) => bail!("name what to copy and where to"),
            (Target::Local(destination), false, true, true) => {
                refuse_into_itself(&local, &destination)?;
                Ok(Self::Local {
                    sources: local,
                    destination,
                })
            }
            (Target::Remote(destination), false, true, true) => Ok(Self::Push {
                sources: local,
                destination,
            }),
            (Target::Login(destination), false, true, true) => Ok(Self::PushOverSsh {
                sources: local,
                destination,
            }),
            (Target::Local(destination), true, false, true) => {
                one_place(&server, |one| one.server.to_string())?;
                Ok(Self::Pull {
                    sources: server,
                    destination,
                })
            }
            (Target::Local(destination), true, true, false) => {
                one_place(&login, |one| one.host.clone())?;
                Ok(Self::PullOverSsh {
                    sources: login,
                    destination,
                })
            }
            (Target::Login(destination), true, true, false) => {
                one_place(&login, |one| one.host.clone())?;
                Ok(Self::Between {
                    sources: login,
                    destination,
                })
            }
            (Target::Remote(destination), true, false, true) => {
                one_place(&server, |one| one.server.to_string())?;
                if server.iter().any(|one| one.server == destination.server) {
                    bail!("from a server to itself: use longhaul mv, or copy here first");
                }
                Ok(Self::BetweenServers {
                    sources: server,
                    destination,
                })
            }
            (_, false, ..) => {
                bail!("sources here and elsewhere in one copy: run one command for each")
            }
            (_, true, ..) => {
                bail!(
                    "lh:// and user@host: in one copy: run this on the one host with the other's \
                     path"
                )
            }
        }
    }

    /// Returns the copy with a host that has an SFTP server.
    fn with_sftp(sources: ParsedSources, destination: Target) -> Result<Self> {
        let ParsedSources {
            local,
            server,
            login,
            sftp,
            endpoint,
        } = &sources;
        let is_remote = !server.is_empty() || !login.is_empty() || !endpoint.is_empty();
        Ok(match destination {
            Target::Sftp(destination) if !local.is_empty() && sftp.is_empty() && !is_remote => {
                Self::PushOverSftp {
                    sources: sources.local,
                    destination,
                }
            }
            Target::Local(destination) if local.is_empty() && !is_remote => {
                one_place(sftp, |one| one.shown_host().to_owned())?;
                Self::PullOverSftp {
                    sources: sources.sftp,
                    destination,
                }
            }
            Target::Local(_) => {
                bail!("sources in several places in one copy: run one command for each")
            }
            destination => {
                if let Target::Sftp(destination) = &destination {
                    refuse_sftp_into_itself(sftp, destination)?;
                }
                Self::Relayed {
                    sources: sources.relayed()?,
                    destination,
                }
            }
        })
    }

    /// Returns the copy with an object store or a web server.
    fn with_store(sources: ParsedSources, destination: Target) -> Result<Self> {
        let ParsedSources {
            local,
            server,
            login,
            sftp,
            endpoint,
        } = &sources;
        let has_hosts = !server.is_empty() || !login.is_empty() || !sftp.is_empty();
        Ok(match destination {
            Target::Endpoint(destination)
                if !local.is_empty() && endpoint.is_empty() && !has_hosts =>
            {
                Self::PushToStore {
                    sources: sources.local,
                    destination,
                }
            }
            Target::Endpoint(destination) if local.is_empty() && !has_hosts => {
                one_place(endpoint, EndpointPath::place)?;
                Self::BetweenStores {
                    sources: sources.endpoint,
                    destination,
                }
            }
            Target::Local(destination) if local.is_empty() && !has_hosts => {
                one_place(endpoint, EndpointPath::place)?;
                Self::PullFromStore {
                    sources: sources.endpoint,
                    destination,
                }
            }
            Target::Local(_) => {
                bail!("sources in several places in one copy: run one command for each")
            }
            destination => Self::Relayed {
                sources: sources.relayed()?,
                destination,
            },
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
                    matches!(sources, RelayedSources::Login(_) | RelayedSources::Sftp(_));
                Some(ForeignProtocol::Relayed(RelayedEnds {
                    from_server: matches!(sources, RelayedSources::Server(_)),
                    to_longhaul: matches!(destination, Target::Remote(_) | Target::Login(_)),
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

/// Refuses to copy a directory at an SFTP server into itself, which would never end.
fn refuse_sftp_into_itself(sources: &[SftpPath], destination: &SftpPath) -> Result<()> {
    match sources.iter().find(|source| source.holds(destination)) {
        Some(source) => bail!("{source}: cannot be copied into itself, {destination}"),
        None => Ok(()),
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
