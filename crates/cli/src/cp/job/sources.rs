//! Sources of a copy, by the kind of their place.

use std::path::PathBuf;

use anyhow::{Result, bail};
use longhaul_endpoints::EndpointPath;
use longhaul_remote::Login;
use longhaul_sftp::SftpPath;

use crate::target::{Remote, Target};

/// Refusal of sources on this machine and elsewhere.
const HERE_AND_ELSEWHERE: &str = "sources here and elsewhere in one copy: run one command for each";

/// Sources at another end, all in one place.
pub enum RemoteSources {
    Server(Vec<Remote>),
    Login(Vec<Login>),
    Sftp(Vec<SftpPath>),
    Store(Vec<EndpointPath>),
}

impl RemoteSources {
    /// Returns the names of the sources in a destination directory.
    pub fn names(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Server(paths) => paths.iter().map(Remote::name).collect(),
            Self::Login(paths) => paths.iter().map(Login::name).collect(),
            Self::Sftp(paths) => paths.iter().map(SftpPath::name).collect(),
            Self::Store(paths) => paths.iter().map(EndpointPath::name).collect(),
        }
    }

    /// Returns the names of the sources in messages.
    pub fn labels(&self) -> Vec<String> {
        match self {
            Self::Server(paths) => paths.iter().map(Remote::to_string).collect(),
            Self::Login(paths) => paths.iter().map(Login::to_string).collect(),
            Self::Sftp(paths) => paths.iter().map(SftpPath::to_string).collect(),
            Self::Store(paths) => paths.iter().map(EndpointPath::to_string).collect(),
        }
    }
}

/// Sources of a command line, by the kind of their place.
#[derive(Default)]
pub struct ParsedSources {
    pub local: Vec<PathBuf>,
    pub server: Vec<Remote>,
    pub login: Vec<Login>,
    pub sftp: Vec<SftpPath>,
    pub endpoint: Vec<EndpointPath>,
}

/// Sources that are all in one place.
pub enum OnePlace {
    /// On this machine.
    Here(Vec<PathBuf>),
    Elsewhere(RemoteSources),
}

impl ParsedSources {
    /// Returns the sources of a copy to `destination`.
    ///
    /// # Errors
    /// There are none, or they are in several places.
    pub fn in_one_place(self, destination: &Target) -> Result<OnePlace> {
        let Self {
            local,
            server,
            login,
            sftp,
            endpoint,
        } = self;
        let is_empty = [
            local.is_empty(),
            server.is_empty(),
            login.is_empty(),
            sftp.is_empty(),
            endpoint.is_empty(),
        ];
        let elsewhere = match is_empty {
            [true, true, true, true, true] => bail!("name what to copy and where to"),
            [false, true, true, true, true] => return Ok(OnePlace::Here(local)),
            [true, false, true, true, true] => {
                one_place(&server, |one| one.server.to_string())?;
                RemoteSources::Server(server)
            }
            [true, true, false, true, true] => {
                one_place(&login, |one| one.host.clone())?;
                RemoteSources::Login(login)
            }
            [true, true, true, false, true] => {
                one_place(&sftp, |one| one.shown_host().to_owned())?;
                RemoteSources::Sftp(sftp)
            }
            [true, true, true, true, false] => {
                one_place(&endpoint, EndpointPath::place)?;
                RemoteSources::Store(endpoint)
            }
            [false, _, _, true, true] => bail!(HERE_AND_ELSEWHERE),
            [false, ..] if !matches!(destination, Target::Local(_)) => bail!(HERE_AND_ELSEWHERE),
            _ => bail!("sources in several places in one copy: run one command for each"),
        };
        Ok(OnePlace::Elsewhere(elsewhere))
    }
}

/// Fails unless all sources are in one place.
fn one_place<T: std::fmt::Display>(sources: &[T], place: impl Fn(&T) -> String) -> Result<()> {
    let mut others = sources.iter();
    if let Some(first) = others.next()
        && let Some(other) = others.find(|other| place(other) != place(first))
    {
        bail!("{other} is on another server than {first}: run one command for each server");
    }
    Ok(())
}
