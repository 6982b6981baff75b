//! Copies with hosts reached by ssh login, without a server: see [`longhaul_remote`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use longhaul_remote::between::CopyBetween;
use longhaul_remote::message::Access;
use longhaul_remote::{
    DataRoute, FarSide, FoundRoute, Login, LoginConnector, RouteMemory, ServeRequest, Start,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{
    Client, CopyDestination, CopyOutcome, CopyRequest, Observer, Sources, WriteOptions,
};
use tokio::task::JoinSet;

use super::{Cp, FinishedCopy, remembered_streams, shown};
use crate::watch::CopyWatch;
use crate::{home, ssh_options};

/// Remote processes of a finished copy, to be ended in good order.
pub enum FarSides {
    /// There are none.
    None,
    /// The far side of a copy from or to this machine.
    One(Arc<LoginConnector>),
    /// Both far sides of a copy between two hosts.
    Two(Box<[FarSide; 2]>),
}

impl FarSides {
    /// Ends the remote processes.
    pub async fn end(self) {
        match self {
            Self::None => {}
            Self::One(connector) => {
                if let Some(connector) = Arc::into_inner(connector) {
                    connector.end().await;
                }
            }
            Self::Two(two) => {
                let [source, destination] = *two;
                tokio::join!(source.end(), destination.end());
            }
        }
    }
}

impl Cp {
    pub(super) async fn push_over_ssh(
        &self,
        sources: &[PathBuf],
        destination: &Login,
        watch: &Arc<CopyWatch>,
    ) -> Result<FinishedCopy> {
        let (found, names) = Sources::local(sources, self.options.recursive)?;
        let access = if self.options.overwrite {
            Access::Write
        } else {
            Access::Create
        };
        let paths = vec![destination.path.clone()];
        let (connector, paths) = self
            .far_side(&destination.host, access, paths, watch)
            .await?;
        let request = CopyRequest::Push {
            destination: paths.into_iter().next().unwrap_or_default(),
            into: destination.is_directory() || names.len() > 1,
            overwrite: self.options.overwrite,
            fsync: self.options.fsync,
            names,
        };
        let client = self.client_over_ssh(&connector, &destination.host, request, watch)?;
        let outcome = client.push(found, shown(sources)).await?;
        let far = FarSides::One(connector);
        Ok(FinishedCopy { outcome, far })
    }

    pub(super) async fn pull_over_ssh(
        &self,
        sources: &[Login],
        destination: &Path,
        watch: &Arc<CopyWatch>,
    ) -> Result<FinishedCopy> {
        let Some(first) = sources.first() else {
            bail!("name what to copy")
        };
        let typed = sources.iter().map(|source| source.path.clone()).collect();
        let (connector, paths) = self
            .far_side(&first.host, Access::Read, typed, watch)
            .await?;
        let request = CopyRequest::Pull {
            recursive: self.options.recursive,
            sources: paths,
        };
        let client = self.client_over_ssh(&connector, &first.host, request, watch)?;
        let names = sources.iter().map(Login::name).collect();
        let options = WriteOptions {
            overwrite: self.options.overwrite,
            fsync: self.options.fsync,
            resume: !self.options.no_resume,
        };
        let destination = CopyDestination::local(destination, names, options, client.hello.token)?;
        let labels: Vec<String> = sources.iter().map(Login::to_string).collect();
        watch.expect_sources(&labels);
        let outcome = client.pull(destination, labels).await?;
        let far = FarSides::One(connector);
        Ok(FinishedCopy { outcome, far })
    }

    pub(super) async fn between(
        &self,
        sources: &[Login],
        destination: &Login,
        watch: &Arc<CopyWatch>,
    ) -> Result<FinishedCopy> {
        let Some(first) = sources.first() else {
            bail!("name what to copy")
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
            overwrite: self.options.overwrite,
            fsync: self.options.fsync,
            resume: !self.options.no_resume,
            checksum: self.options.checksum,
            hard_links: self.options.hard_links,
            streams: self.options.streams,
            patience: self.patience(),
            // The report names the hash if a single file was copied.
            report_done: self.json || (!self.options.recursive && sources.len() == 1),
            ports: self.options.ssh.port_range,
            congestion: self.options.congestion.clone(),
            no_encrypt: self.options.no_encrypt,
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
        Ok(FinishedCopy { outcome, far })
    }

    /// Returns the options for starting far sides.
    fn start(&self) -> Start {
        let mut start = ssh_options::start(&self.options.ssh);
        if self.scp.verbose {
            start.ssh.options.push("-v".into());
        }
        start
    }

    /// Logs in to `host`, has it serve `paths`, and finds a route for the data.
    async fn far_side(
        &self,
        host: &str,
        access: Access,
        paths: Vec<Vec<u8>>,
        watch: &CopyWatch,
    ) -> Result<(Arc<LoginConnector>, Vec<RelPath>)> {
        let far = FarSide::start(&self.start(), host).await?;
        let memory = home::state_dir()
            .filter(|_| self.options.routes.is_empty())
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
            routes: self.options.routes.clone(),
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
        request: CopyRequest,
        watch: &Arc<CopyWatch>,
    ) -> Result<Client<LoginConnector>> {
        watch.set_server(host.to_owned());
        let hello = self.hello(request)?;
        // ssh's connection has room for one stream.
        let only_one = connector.way() == DataRoute::InsideSsh;
        Ok(Client {
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
        })
    }
}
