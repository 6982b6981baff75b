//! `longhaul cp`: copies files and trees between this machine and a server, over one route or several.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use longhaul_session::{ConnectOptions, PublicKey, Route, Service};
use longhaul_transfer::{
    Client, Destination, Error, Hello, MAX_STREAMS, Outcome, Request, SessionConnector, Sources,
    StreamMemory, Token, WriteOptions, copy_local,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::report::Report;
use crate::target::{Remote, Target};
use crate::trust::Remembering;
use crate::watch::{Show, Watch};
use crate::{descriptors, home, logging, trust};

/// Copy files and directory trees, here or there: each path is local, or lh://host[:port]/path.
///
/// Every file is verified end to end with BLAKE3 and takes its name only when it is whole. Nothing is overwritten unless asked; a
/// file that is there already with the same content is left alone and counts as copied. Symbolic links are copied as links;
/// permissions and modification times are kept, owners are not.
#[derive(Args)]
#[command(override_usage = "longhaul cp [OPTIONS] <SRC>... <DST>")]
pub struct Cp {
    /// What to copy, then where to. With several sources, or a slash at the end, the last is a directory.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Copy directories with all they hold.
    #[arg(short, long)]
    recursive: bool,
    /// Replace files that exist and differ.
    #[arg(long)]
    overwrite: bool,
    /// Force every file to disk before it counts as copied (slower; without it, a power failure can undo a finished copy).
    #[arg(long)]
    fsync: bool,
    /// Depots to pass, in order, or `direct`. Repeatable: streams spread over the routes, and the faster ones carry more.
    /// [default: direct]
    #[arg(long, value_name = "HOP[,HOP...]|direct")]
    route: Vec<Route>,
    /// Streams in all [default: one a route to begin with, and more while they make the copy faster].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_STREAMS)))]
    streams: Option<u32>,
    /// TCP congestion control of this host's connections [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// When a route fails before anything was sent, connect directly instead.
    #[arg(long)]
    fall_back: bool,
    /// The server's key, as `longhaul serve` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY")]
    host_key: Option<PublicKey>,
    /// Trust a server that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key")]
    accept_new: bool,
    /// The key to be known by [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Write events and a closing report as JSON lines to standard output.
    #[arg(long)]
    json: bool,
    /// Say in one line what limits the copy, and what would help.
    #[arg(long)]
    explain: bool,
    /// Show no progress; failures are still told.
    #[arg(short, long)]
    quiet: bool,
}

/// What is to be done, once the paths are understood.
enum Job {
    Local {
        sources: Vec<PathBuf>,
        destination: PathBuf,
    },
    Push {
        sources: Vec<PathBuf>,
        destination: Remote,
    },
    Pull {
        sources: Vec<Remote>,
        destination: PathBuf,
    },
}

impl Cp {
    /// Copies; `started` is when the command began.
    pub fn run(self, started: Instant) -> Result<Exit> {
        logging::start("error");
        descriptors::raise();
        let job = self.job()?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        let exit = runtime.block_on(self.copy(job, started));
        // Removes temporary files of a copy that was interrupted.
        runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        exit
    }

    fn job(&self) -> Result<Job> {
        let mut targets = self
            .paths
            .iter()
            .map(|path| Target::parse(path))
            .collect::<Result<Vec<_>>>()?;
        let destination = targets.pop().ok_or(anyhow!("name what to copy and where to"))?;
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        for target in targets {
            match target {
                Target::Local(path) => local.push(path),
                Target::Remote(path) => remote.push(path),
            }
        }
        match (destination, local.is_empty(), remote.is_empty()) {
            (_, false, false) => bail!("sources here and on a server in one copy: run one command for each"),
            (Target::Local(destination), false, true) => {
                refuse_into_itself(&local, &destination)?;
                Ok(Job::Local {
                    sources: local,
                    destination,
                })
            }
            (Target::Remote(destination), false, true) => Ok(Job::Push {
                sources: local,
                destination,
            }),
            (Target::Local(destination), true, false) => {
                if let Some(other) = remote.iter().find(|r| r.server != remote[0].server) {
                    bail!(
                        "{other} is on another server than {}: run one command for each server",
                        remote[0]
                    );
                }
                Ok(Job::Pull {
                    sources: remote,
                    destination,
                })
            }
            (Target::Remote(_), true, _) => {
                bail!("from server to server: copy here first, or run this on one of the two")
            }
            (_, true, true) => bail!("name what to copy and where to"),
        }
    }

    async fn copy(&self, job: Job, started: Instant) -> Result<Exit> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let show = Show {
            json: self.json,
            quiet: self.quiet,
            explain: self.explain,
        };
        let watch = Watch::start(show, started);
        let result = tokio::select! {
            result = self.carry_out(&job, &watch) => result,
            _ = interrupt.recv() => Err(anyhow!(Interrupted)),
            _ = terminate.recv() => Err(anyhow!(Interrupted)),
        };
        let report = Report::new(&job_name(&job), started.elapsed(), &watch, &result);
        watch.finish(&report);
        if let Ok(outcome) = result {
            // Told already; what is left is closing in good order.
            outcome.closing.join_all().await;
        }
        Ok(report.exit())
    }

    async fn carry_out(&self, job: &Job, watch: &Arc<Watch>) -> Result<Outcome> {
        let options = WriteOptions {
            overwrite: self.overwrite,
            fsync: self.fsync,
        };
        match job {
            Job::Local { sources, destination } => {
                let (found, names) = Sources::local(sources, self.recursive)?;
                let destination = Destination::local(destination, names, options, Token::random()?)?;
                Ok(copy_local(
                    found,
                    shown(sources),
                    destination,
                    watch.progress.clone(),
                    watch.clone(),
                )
                .await?)
            }
            Job::Push { sources, destination } => {
                let (found, names) = Sources::local(sources, self.recursive)?;
                let request = Request::Push {
                    destination: destination.path.clone(),
                    into: destination.slash || names.len() > 1,
                    overwrite: self.overwrite,
                    fsync: self.fsync,
                    names,
                };
                let client = self.client(destination, request, watch).await?;
                let connector = client.connector.clone();
                client
                    .push(found, shown(sources))
                    .await
                    .map_err(|error| self.advise(error, &connector, destination))
            }
            Job::Pull { sources, destination } => {
                let Some(first) = sources.first() else {
                    bail!("name what to copy")
                };
                let paths = sources.iter().map(|source| source.path.clone()).collect();
                let request = Request::Pull {
                    recursive: self.recursive,
                    sources: paths,
                };
                let client = self.client(first, request, watch).await?;
                let names = sources.iter().map(Remote::name).collect();
                let destination = Destination::local(destination, names, options, client.hello.token)?;
                let labels = sources.iter().map(Remote::to_string).collect();
                let connector = client.connector.clone();
                client
                    .pull(destination, labels)
                    .await
                    .map_err(|error| self.advise(error, &connector, first))
            }
        }
    }

    async fn client(
        &self,
        remote: &Remote,
        request: Request,
        watch: &Arc<Watch>,
    ) -> Result<Client<Remembering>> {
        let hello = Hello {
            token: Token::random()?,
            request,
        };
        if !hello.fits() {
            bail!("too many sources in one command: name a directory that holds them, with -r");
        }
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let wanted = trust::Wanted {
            key: self.host_key,
            accept_new: self.accept_new,
        };
        let route = self.route.first().cloned().unwrap_or_default();
        let mut options = ConnectOptions {
            congestion: self.congestion.clone(),
            fall_back: self.fall_back,
            ..ConnectOptions::new(
                Service::COPY,
                route,
                remote.server.clone(),
                identity,
                trust::nobody(),
            )
        };
        let first = trust::settle(&wanted, &mut options).await?;
        let sessions = SessionConnector::new(options, self.route.clone());
        Ok(Client {
            connector: Arc::new(Remembering::new(sessions, first)),
            hello,
            streams: self.streams,
            memory: home::state_dir().map(|state| StreamMemory {
                file: state.join("streams"),
                destination: remote.server.to_string(),
            }),
            progress: watch.progress.clone(),
            observer: watch.clone(),
        })
    }

    /// Says what to do about a server that isn't known.
    fn advise(&self, error: Error, connector: &Remembering, remote: &Remote) -> anyhow::Error {
        match connector.unknown_server() {
            Some(found) => anyhow!(Error::Unauthorised(trust::unknown(&remote.server, found))),
            None => anyhow!(error),
        }
    }
}

/// Stopped by a signal.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; what was not finished has been removed")]
pub struct Interrupted;

fn job_name(job: &Job) -> String {
    match job {
        Job::Local { .. } => "local",
        Job::Push { .. } => "push",
        Job::Pull { .. } => "pull",
    }
    .to_owned()
}

fn shown(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| home::shown(path)).collect()
}

/// A directory copied into itself would never end.
fn refuse_into_itself(sources: &[PathBuf], destination: &Path) -> Result<()> {
    let mut real = destination.to_path_buf();
    // As far as it exists.
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
                "{}: can't be copied into itself, {}",
                home::shown(source),
                home::shown(destination)
            );
        }
    }
    Ok(())
}
