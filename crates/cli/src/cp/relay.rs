//! Copies between two ends that cannot reach each other by themselves: what one end gives passes
//! through this machine, a few MiB at a time, and goes where local files could go.

mod login_source;
mod place_pool;
mod place_tree;
mod pool_failure;
mod shared_login;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use longhaul_endpoints::StoreSources;
use longhaul_transfer::{Filter, Sources};

use self::place_pool::PlacePool;
use self::place_tree::PlaceTree;
use super::beside::CopyCompanion;
use super::job::RemoteSources;
use super::over_sftp::SftpContext;
use super::over_ssh::SshContext;
use super::stdin::LocalSources;
use super::to_server::PushContext;
use super::with_store::StoreContext;
use super::{Cp, FinishedCopy, NO_SOURCE};
use crate::overlap;
use crate::place::{Location, Place, PlaceOptions};
use crate::target::Target;
use crate::watch::CopyWatch;

/// An end that is read, until the copy is over.
enum OpenSource {
    Store(StoreSources),
    Place(Arc<PlacePool>),
}

impl OpenSource {
    /// Waits until the end does not answer any more.
    async fn ended(&self) -> anyhow::Error {
        match self {
            Self::Store(store) => store.outage().await.into(),
            Self::Place(places) => places.ended().await,
        }
    }

    /// Returns true if the end computes BLAKE3 hashes.
    fn has_hashes(&self) -> bool {
        match self {
            Self::Store(_) => false,
            Self::Place(places) => places.has_checksums(),
        }
    }

    /// Closes it in good order.
    async fn end(self) {
        match self {
            Self::Store(_) => {}
            Self::Place(places) => places.end().await,
        }
    }
}

impl Cp {
    /// Copies from one remote end to another.
    pub(super) async fn relay(
        &self,
        sources: &RemoteSources,
        destination: &Target,
        filter: &Arc<Filter>,
        (watch, beside): (&Arc<CopyWatch>, &CopyCompanion),
    ) -> Result<FinishedCopy> {
        if let (RemoteSources::Sftp(sources), Target::Sftp(destination)) = (sources, destination) {
            let options = PlaceOptions::for_copy(&self.options);
            overlap::refuse_into_itself(sources, destination, &options).await?;
        }
        let labels = sources.labels();
        if let Some(host) = host_beside_server(sources, destination) {
            watch.notice(&format!(
                "the data passes through this machine: run the copy at {host} to avoid that"
            ));
        }
        let (open, found) = self
            .open_relayed(sources, destination, filter, watch)
            .await?;
        let has_hashes = open.has_hashes();
        watch.expect_sources(&labels);
        let opened = LocalSources::relayed(found, sources.names(), labels);
        // At `lh://` it is the server that routes lead to.
        let routes = match sources {
            RemoteSources::Server(_) => &[],
            _ => &self.options.routes[..],
        };
        let context = SshContext {
            watch,
            beside,
            receipt: None,
            routes,
        };
        let copying = self.push_relayed(opened, destination, filter, context);
        let copied = tokio::select! {
            copied = copying => copied,
            error = open.ended() => Err(error),
        };
        open.end().await;
        let mut finished = copied?;
        let resumed = watch.progress.bytes_resumed.load(Ordering::Relaxed);
        finished.unverified = unverified(has_hashes, finished.unverified, resumed);
        Ok(finished)
    }

    /// Finds what is to be copied.
    async fn open_relayed(
        &self,
        sources: &RemoteSources,
        destination: &Target,
        filter: &Arc<Filter>,
        watch: &CopyWatch,
    ) -> Result<(OpenSource, Sources)> {
        let recursive = self.options.recursive;
        if let RemoteSources::Store(paths) = sources {
            let Some(first) = paths.first() else {
                bail!(NO_SOURCE)
            };
            let store = StoreSources::open(first, paths, self.patience()).await?;
            let found = store.find(recursive, filter.clone()).await?;
            return Ok((OpenSource::Store(store), found));
        }
        if filter.rules().one_file_system {
            bail!(
                "--one-file-system is not possible in a copy that passes through this machine: \
                 exclude what is mounted there"
            );
        }
        let options = PlaceOptions::for_copy(&self.options);
        let opened = self.open_place(sources, destination, &options, watch);
        let (location, place, paths) = opened.await?;
        let places = PlacePool::new(place, location, options, self.patience());
        let places = Arc::new(places);
        let tree = Arc::new(PlaceTree::new(places.clone(), paths));
        let roots = tree.roots(recursive).await?;
        places.open_others().await?;
        let found = Sources::relayed(tree, roots, filter.clone());
        Ok((OpenSource::Place(places), found))
    }

    /// Opens the place of sources, and returns their paths there.
    async fn open_place(
        &self,
        sources: &RemoteSources,
        destination: &Target,
        options: &PlaceOptions,
        watch: &CopyWatch,
    ) -> Result<(Location, Place, Vec<Vec<u8>>)> {
        let (location, paths) = match sources {
            RemoteSources::Store(_) => bail!("a store is read by its own requests"),
            RemoteSources::Login(paths) => {
                return self.open_login(paths, destination, options, watch).await;
            }
            RemoteSources::Server(paths) => {
                let server = paths.first().map(|path| path.server.clone());
                let paths = paths.iter().map(|path| path.path.as_bytes().to_vec());
                (server.map(Location::Server), paths.collect::<Vec<_>>())
            }
            RemoteSources::Sftp(paths) => {
                let host = paths.first().map(|path| path.root());
                let paths = paths.iter().map(|path| path.path().to_vec());
                (host.map(Location::Sftp), paths.collect())
            }
        };
        let Some(location) = location else {
            bail!(NO_SOURCE)
        };
        let place = Place::open(&location, options).await?;
        Ok((location, place, paths))
    }

    async fn push_relayed(
        &self,
        opened: LocalSources,
        destination: &Target,
        filter: &Arc<Filter>,
        context: SshContext<'_>,
    ) -> Result<FinishedCopy> {
        let SshContext { watch, beside, .. } = context;
        match destination {
            Target::Remote(server) => {
                let context = PushContext {
                    watch,
                    beside,
                    receipt: None,
                    size: None,
                };
                let outcome = self
                    .push_to_server(opened, server, filter.clone(), context)
                    .await?;
                Ok(outcome.into())
            }
            Target::Login(login) => {
                self.push_over_ssh(opened, login, filter.clone(), context)
                    .await
            }
            Target::Sftp(path) => {
                let context = SftpContext::requested(watch, beside);
                self.push_over_sftp(opened, path, filter.clone(), context)
                    .await
            }
            Target::Endpoint(path) => {
                let context = StoreContext {
                    filter,
                    watch,
                    beside,
                };
                self.copy_to_store(opened, path, context).await
            }
            Target::Local(_) => bail!("name two ends that are not this machine"),
        }
    }
}

/// Returns the ssh host of a copy between one and a server, each of which has longhaul.
fn host_beside_server<'a>(sources: &'a RemoteSources, destination: &'a Target) -> Option<&'a str> {
    match (sources, destination) {
        (RemoteSources::Server(_), Target::Login(login)) => Some(&login.host),
        (RemoteSources::Login(paths), Target::Remote(_)) => {
            paths.first().map(|login| login.host.as_str())
        }
        _ => None,
    }
}

/// Returns why a copy is not verified from end to end, and what of the way is. `has_hashes` is true
/// if the source computes them, `unverified` is the reason at the destination, and `resumed` is the
/// number of bytes that earlier copies sent.
fn unverified(
    has_hashes: bool,
    unverified: Option<&'static str>,
    resumed: u64,
) -> Option<&'static str> {
    match (has_hashes, unverified) {
        (true, None) => None,
        (true, Some(_)) if resumed > 0 => Some(
            "the destination has no BLAKE3 checksums, so files that were resumed were not verified",
        ),
        (true, Some(_)) => Some(
            "the destination has no BLAKE3 checksums; what was read from the source was verified",
        ),
        (false, None) => Some(
            "the source has no BLAKE3 checksums; what was read from it was verified at the \
             destination",
        ),
        (false, Some(_)) => Some("neither end has BLAKE3 checksums"),
    }
}
