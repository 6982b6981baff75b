//! Copies between two ends that cannot reach each other by themselves: what one end gives passes
//! through this machine, a few MiB at a time, and goes where local files could go.

mod place_pool;
mod place_tree;

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
use super::stdin::LocalSources;
use super::to_server::PushContext;
use super::with_store::StoreContext;
use super::{Cp, FinishedCopy};
use crate::overlap;
use crate::place::{Location, PlaceOptions};
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
        let (open, found) = self.open_relayed(sources, filter).await?;
        watch.expect_sources(&labels);
        let opened = LocalSources::relayed(found, sources.names(), labels);
        let copying = self.push_relayed(opened, destination, filter, (watch, beside));
        let copied = tokio::select! {
            copied = copying => copied,
            error = open.ended() => Err(error),
        };
        open.end().await;
        let mut finished = copied?;
        let resumed = watch.progress.bytes_resumed.load(Ordering::Relaxed);
        finished.unverified = unverified(sources, finished.unverified, resumed);
        Ok(finished)
    }

    /// Finds what is to be copied.
    async fn open_relayed(
        &self,
        sources: &RemoteSources,
        filter: &Arc<Filter>,
    ) -> Result<(OpenSource, Sources)> {
        let recursive = self.options.recursive;
        let (location, paths) = match sources {
            RemoteSources::Store(paths) => {
                let Some(first) = paths.first() else {
                    bail!("name what to copy")
                };
                let store = StoreSources::open(first, paths, self.patience()).await?;
                let found = store.find(recursive, filter.clone()).await?;
                return Ok((OpenSource::Store(store), found));
            }
            RemoteSources::Server(paths) => {
                let server = paths.first().map(|path| path.server.clone());
                let paths = paths.iter().map(|path| path.path.as_bytes().to_vec());
                (server.map(Location::Server), paths.collect::<Vec<_>>())
            }
            RemoteSources::Login(paths) => {
                let host = paths.first().map(|path| path.host.clone());
                let paths = paths.iter().map(|path| path.path.clone());
                (host.map(Location::Login), paths.collect())
            }
            RemoteSources::Sftp(paths) => {
                let host = paths.first().map(|path| path.root());
                let paths = paths.iter().map(|path| path.path().to_vec());
                (host.map(Location::Sftp), paths.collect())
            }
        };
        let Some(location) = location else {
            bail!("name what to copy")
        };
        if filter.rules().one_file_system {
            bail!(
                "--one-file-system is not possible in a copy that passes through this machine: \
                 exclude what is mounted there"
            );
        }
        let options = PlaceOptions::for_copy(&self.options);
        let places = PlacePool::open(location, options, self.patience()).await?;
        let places = Arc::new(places);
        let tree = Arc::new(PlaceTree::new(places.clone(), paths));
        let roots = tree.roots(recursive).await?;
        places.open_others().await?;
        let found = Sources::relayed(tree, roots, filter.clone());
        Ok((OpenSource::Place(places), found))
    }

    async fn push_relayed(
        &self,
        opened: LocalSources,
        destination: &Target,
        filter: &Arc<Filter>,
        (watch, beside): (&Arc<CopyWatch>, &CopyCompanion),
    ) -> Result<FinishedCopy> {
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
                self.push_over_ssh(opened, login, filter.clone(), (watch, beside), None)
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

/// Returns why a copy is not verified from end to end, and what of the way is. `unverified` is the
/// reason at the destination, and `resumed` is the number of bytes that earlier copies sent.
fn unverified(
    sources: &RemoteSources,
    unverified: Option<&'static str>,
    resumed: u64,
) -> Option<&'static str> {
    let has_hashes = matches!(sources, RemoteSources::Server(_) | RemoteSources::Login(_));
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
