//! Copies with hosts reached by ssh login, without a server: see [`longhaul_remote`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use longhaul_remote::between::CopyBetween;
use longhaul_remote::message::Access;
use longhaul_remote::{
    DataRoute, Error as RemoteError, FarSide, FoundRoute, Login, LoginConnector, RouteMemory,
    ServeRequest, Start,
};
use longhaul_session::Route;
use longhaul_sftp::SftpPath;
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{
    Client, CopyDestination, CopyOutcome, CopyRequest, Filter, Hello, Observer,
};
use tokio::task::JoinSet;

use super::beside::CopyCompanion;
use super::far_sides::FarSides;
use super::over_sftp::{SftpContext, is_unavailable, lacks_longhaul};
use super::receipt::PendingReceipt;
use super::stdin::LocalSources;
use super::{Cp, FinishedCopy, NO_SOURCE, remembered_streams};
use crate::watch::CopyWatch;
use crate::{home, ssh_options};

/// Silence of a login before its command, after which SFTP is tried. An account that is forced to
/// SFTP waits for its client in silence.
pub(super) const FORCED_SFTP_SILENCE: Duration = Duration::from_secs(5);

/// Observer and companion of a copy over ssh.
#[derive(Clone, Copy)]
pub(super) struct SshContext<'a> {
    pub watch: &'a Arc<CopyWatch>,
    pub beside: &'a CopyCompanion,
    pub receipt: Option<&'a PendingReceipt>,
    /// Routes to the port of the host. If there are none, the way of the data is searched for.
    pub routes: &'a [Route],
}

/// Paths that a host is to serve.
struct ServedPaths<'a> {
    host: &'a str,
    access: Access,
    paths: Vec<Vec<u8>>,
    /// Routes to the port of the host.
    routes: &'a [Route],
}

impl Cp {
    pub(super) async fn push_over_ssh(
        &self,
        opened: LocalSources,
        destination: &Login,
        filter: Arc<Filter>,
        context: SshContext<'_>,
    ) -> Result<FinishedCopy> {
        let SshContext {
            watch,
            beside,
            receipt,
            routes,
        } = context;
        let names = opened.names.clone();
        // What exists gets its owner and the rest corrected, too.
        let access = if self.options.replaces() || self.preservation().has_attributes() {
            Access::Write
        } else {
            Access::Create
        };
        let serve = || ServedPaths {
            host: &destination.host,
            access,
            paths: vec![destination.path.clone()],
            routes,
        };
        let far = self.far_side(serve(), watch, Some(FORCED_SFTP_SILENCE));
        let (connector, paths) = match far.await {
            Ok(far) => far,
            Err(error) => {
                // A receipt needs longhaul at both ends.
                let Some(reason) = lacks_longhaul(&error).filter(|_| receipt.is_none()) else {
                    return Err(error);
                };
                let context = SftpContext {
                    watch,
                    beside,
                    instead: Some(reason),
                };
                let by_sftp = SftpPath::from(destination);
                let labels = opened.labels.clone();
                match self.open_sftp(&by_sftp, labels, context).await {
                    Ok(copy) => {
                        return self
                            .push_by_sftp(&copy, opened, &by_sftp, filter, context)
                            .await;
                    }
                    Err(by_sftp) => {
                        require_stuck(error, by_sftp)?;
                        self.far_side(serve(), watch, None).await?
                    }
                }
            }
        };
        let request = CopyRequest::Push {
            destination: paths.into_iter().next().unwrap_or_default(),
            into: destination.is_directory() || names.len() > 1,
            overwrite: self.options.replaces(),
            fsync: self.options.fsync,
            names,
        };
        let hello = self.hello(request, &filter)?;
        let mut client = self.client_over_ssh(&connector, &destination.host, hello, watch);
        client.receipt = receipt.map(PendingReceipt::recorder);
        let found = opened.found.filtered(Some(filter));
        let outcome = client.push(found, opened.labels).await?;
        let far = FarSides::One(connector);
        Ok(FinishedCopy {
            outcome,
            far,
            unverified: None,
        })
    }

    pub(super) async fn pull_over_ssh(
        &self,
        sources: &[Login],
        destination: &Path,
        filter: Arc<Filter>,
        context: SshContext<'_>,
    ) -> Result<FinishedCopy> {
        let SshContext {
            watch,
            beside,
            receipt,
            routes,
        } = context;
        let Some(first) = sources.first() else {
            bail!(NO_SOURCE)
        };
        let serve = || ServedPaths {
            host: &first.host,
            access: Access::Read,
            paths: sources.iter().map(|source| source.path.clone()).collect(),
            routes,
        };
        let far = self.far_side(serve(), watch, Some(FORCED_SFTP_SILENCE));
        let (connector, paths) = match far.await {
            Ok(far) => far,
            Err(error) => {
                let Some(reason) = lacks_longhaul(&error).filter(|_| receipt.is_none()) else {
                    return Err(error);
                };
                let context = SftpContext {
                    watch,
                    beside,
                    instead: Some(reason),
                };
                let by_sftp: Vec<SftpPath> = sources.iter().map(SftpPath::from).collect();
                let copied = self.pull_over_sftp(&by_sftp, destination, filter.clone(), context);
                match copied.await {
                    Ok(copied) => return Ok(copied),
                    Err(by_sftp) => {
                        require_stuck(error, by_sftp)?;
                        self.far_side(serve(), watch, None).await?
                    }
                }
            }
        };
        let request = CopyRequest::Pull {
            recursive: self.options.recursive,
            sources: paths,
        };
        let hello = self.hello(request, &filter)?;
        let mut client = self.client_over_ssh(&connector, &first.host, hello, watch);
        client.receipt = receipt.map(PendingReceipt::recorder);
        let names = sources.iter().map(Login::name).collect();
        let options = self.write_options();
        let destination = CopyDestination::local(destination, names, options, client.hello.token)?
            .with_existing(self.options.existing_policy())
            .with_attributes(self.attribute_settings(self.changes()));
        let labels: Vec<String> = sources.iter().map(Login::to_string).collect();
        watch.expect_sources(&labels);
        let outcome = client.pull(destination, labels).await?;
        let far = FarSides::One(connector);
        Ok(FinishedCopy {
            outcome,
            far,
            unverified: None,
        })
    }

    pub(super) async fn between(
        &self,
        sources: &[Login],
        destination: &Login,
        filter: &Filter,
        watch: &Arc<CopyWatch>,
    ) -> Result<FinishedCopy> {
        let Some(first) = sources.first() else {
            bail!(NO_SOURCE)
        };
        if !self.options.routes.is_empty() {
            bail!("a copy between two hosts takes no --route: run it on one of the two");
        }
        watch.set_server(destination.host.clone());
        let start = self.start();
        // One after the other, as each may ask for a password.
        let mut source_side = FarSide::start(&start, &first.host).await?;
        let mut destination_side = FarSide::start(&start, &destination.host).await?;
        let between = CopyBetween {
            sources: sources.to_vec(),
            destination: destination.clone(),
            recursive: self.options.recursive,
            overwrite: self.options.replaces(),
            fsync: self.options.fsync,
            resume: !self.options.no_resume,
            checksum: self.options.checksum,
            hard_links: self.options.hard_links,
            streams: self.options.streams,
            patience: self.patience(),
            // The report names the hash if a single file was copied.
            report_done: self.run_options.json || (!self.options.recursive && sources.len() == 1),
            ports: self.options.ssh.port_range,
            congestion: self.options.congestion.clone(),
            no_encrypt: self.options.no_encrypt,
            compression: self.compression(),
            delta: self.options.delta,
            filter: filter.rules().clone(),
            existing: self.options.existing_policy(),
            keep: self.preservation(),
        };
        let labels: Vec<String> = sources.iter().map(Login::to_string).collect();
        watch.expect_sources(&labels);
        let observer: Arc<dyn Observer> = watch.clone();
        let copied = between.copy(
            &mut source_side,
            &mut destination_side,
            &watch.progress,
            &observer,
        );
        let ended = copied.await?;
        if let Some(notice) = &ended.notice {
            watch.notice(notice);
        }
        let outcome = CopyOutcome {
            manifest: ended.manifest,
            closing: JoinSet::new(),
        };
        let far = FarSides::Two(Box::new([source_side, destination_side]));
        Ok(FinishedCopy {
            outcome,
            far,
            unverified: None,
        })
    }

    /// Returns the options for starting far sides.
    pub(super) fn start(&self) -> Start {
        let mut start = ssh_options::start(&self.options.ssh);
        if self.scp.verbose {
            start.ssh.options.push("-v".into());
        }
        start
    }

    /// Logs in to the host, has it serve the paths, and finds a route for the data. The login may
    /// be silent for `max_silence`.
    async fn far_side(
        &self,
        served: ServedPaths<'_>,
        watch: &CopyWatch,
        max_silence: Option<Duration>,
    ) -> Result<(Arc<LoginConnector>, Vec<RelPath>)> {
        let ServedPaths {
            host,
            access,
            paths,
            routes,
        } = served;
        let start = Start {
            max_silence,
            ..self.start()
        };
        let far = FarSide::start(&start, host).await?;
        let memory = home::state_dir()
            .filter(|_| routes.is_empty())
            .map(|state| RouteMemory {
                file: state.join("ways"),
                host: host.to_owned(),
            });
        let last_way = match &memory {
            Some(memory) => memory.recall().await,
            None => None,
        };
        let serve = ServeRequest {
            access,
            paths,
            follow: !self.options.recursive,
            ports: self.options.ssh.port_range,
            congestion: self.options.congestion.clone(),
            no_encrypt: self.options.no_encrypt,
            routes: routes.to_vec(),
            last_way,
        };
        let FoundRoute {
            connector,
            paths,
            notice,
        } = LoginConnector::find(far, &serve).await?;
        if let Some(memory) = memory.filter(|_| last_way != Some(connector.way())) {
            memory.remember(connector.way()).await;
        }
        if let Some(notice) = notice {
            watch.notice(&notice);
        }
        Ok((Arc::new(connector), paths))
    }

    fn client_over_ssh(
        &self,
        connector: &Arc<LoginConnector>,
        host: &str,
        hello: Hello,
        watch: &Arc<CopyWatch>,
    ) -> Client<LoginConnector> {
        watch.set_server(host.to_owned());
        // ssh's connection has room for one stream.
        let only_one = connector.way() == DataRoute::InsideSsh;
        Client {
            connector: connector.clone(),
            hello,
            compare: self.compare(),
            streams: if only_one {
                Some(1)
            } else {
                self.options.streams
            },
            memory: remembered_streams(format!("ssh {host}")),
            patience: self.patience(),
            progress: watch.progress.clone(),
            observer: watch.clone(),
            receipt: None,
            tokens: None,
        }
    }
}

/// Checks that a login was only given up early, because it was silent, at a host without SFTP. It
/// may then be tried again and be silent for longer. `error` is that of the login, and `by_sftp`
/// that of SFTP.
///
/// # Errors
/// The error that ends the copy.
pub(super) fn require_stuck(error: anyhow::Error, by_sftp: anyhow::Error) -> Result<()> {
    let is_stuck = matches!(
        error.downcast_ref::<RemoteError>(),
        Some(RemoteError::Stuck { .. })
    );
    match (is_unavailable(&by_sftp), is_stuck) {
        (true, true) => Ok(()),
        (true, false) => Err(error),
        (false, _) => Err(by_sftp),
    }
}
