//! One copy with a store, or between two.

use std::sync::Arc;
use std::time::Duration;

use longhaul_transfer::local_end::{EntryReporter, ExistingOptions, LocalTarget, push_entries};
use longhaul_transfer::{ProcessLimits, Sources, StreamCounters};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::connect::Purpose;
use crate::destination::Destination;
use crate::download::Downloader;
use crate::error::Error;
use crate::gate::RequestGate;
use crate::limit::MAX_REQUESTS;
use crate::location::{EndpointPath, Scheme};
use crate::push::Push;
use crate::request::{CopySettings, CopySources, CopyTarget};
use crate::store::Store;
use crate::tree::{StoreTree, refuse_file_systems};
use crate::upload::{Uploader, UploaderParts};
use crate::walk::{Sink, Walk};

/// Entries that are copied at the same time, for each request, if the number of requests is fixed
/// and if it is not. Each has a file open.
const ENTRIES_PER_REQUEST: usize = 4;
const ENTRIES_PER_ADAPTIVE_REQUEST: usize = 2;
/// Time for removing what no later copy resumes.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A copy in which a store is one end, or both ends.
pub struct EndpointCopy {
    settings: CopySettings,
    reporter: Arc<EntryReporter>,
    source: Option<Arc<Store>>,
    destination: Option<Arc<Store>>,
    counters: Arc<StreamCounters>,
    gate: Arc<RequestGate>,
    uploader: Mutex<Option<Arc<Uploader>>>,
}

impl std::fmt::Debug for EndpointCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointCopy").finish_non_exhaustive()
    }
}

impl EndpointCopy {
    /// Prepares a copy from and to these paths, each `None` if that end is this machine. Nothing is
    /// sent. `names` are the sources as the user knows them.
    ///
    /// # Errors
    /// There are no credentials, or a setting or option cannot be used.
    pub async fn open(
        source: Option<&EndpointPath>,
        destination: Option<&EndpointPath>,
        settings: CopySettings,
        names: Vec<String>,
    ) -> Result<Self, Error> {
        let place = source
            .or(destination)
            .map(EndpointPath::place)
            .unwrap_or_default();
        if let Some(source) = source {
            refuse_file_systems(&source.place(), &settings.filter)?;
        }
        if let Some(destination) = destination
            && matches!(destination.scheme(), Scheme::Web(_))
            && settings.recursive
        {
            return Err(Error::Unsupported {
                option: "-r",
                place: destination.place(),
                reason: "a web server has no directories: name the tree as webdavs://",
            });
        }
        let open = async |path: Option<&EndpointPath>, purpose| match path {
            Some(path) => {
                let store = Store::open(path, purpose, settings.patience).await?;
                Ok::<_, Error>(Some(Arc::new(store)))
            }
            None => Ok(None),
        };
        let source = open(source, Purpose::Read).await?;
        let destination = open(destination, Purpose::Write).await?;
        let progress = settings.progress.clone();
        let reporter = EntryReporter::new(progress, settings.observer.clone(), names);
        let reporter = Arc::new(reporter);
        Ok(Self {
            counters: reporter.add_stream(&place),
            gate: gate(&settings, &source, &destination),
            settings,
            reporter,
            source,
            destination,
            uploader: Mutex::default(),
        })
    }

    /// Prepares a copy with stores that are open.
    #[cfg(test)]
    pub(crate) fn with_stores(
        source: Option<Arc<Store>>,
        destination: Option<Arc<Store>>,
        settings: CopySettings,
    ) -> Self {
        let (progress, observer) = (settings.progress.clone(), settings.observer.clone());
        let reporter = EntryReporter::new(progress, observer, vec!["source".to_owned()]);
        let reporter = Arc::new(reporter);
        Self {
            counters: reporter.add_stream("s3://bucket"),
            gate: gate(&settings, &source, &destination),
            settings,
            reporter,
            source,
            destination,
            uploader: Mutex::default(),
        }
    }

    /// Copies. Failures of single entries are reported to the observer.
    ///
    /// # Errors
    /// An end cannot be used, or the copy broke off.
    pub async fn run(&self, sources: CopySources<'_>, target: CopyTarget<'_>) -> Result<(), Error> {
        tokio::select! {
            copied = self.copy(sources, target) => copied,
            error = self.outage(self.source.as_ref()) => Err(error),
            error = self.outage(self.destination.as_ref()) => Err(error),
        }
    }

    async fn copy(&self, sources: CopySources<'_>, target: CopyTarget<'_>) -> Result<(), Error> {
        match (sources, target) {
            (CopySources::Local(found, names), CopyTarget::Endpoint(path)) => {
                let uploader = self.uploader(path, names).await?;
                self.push(found, uploader).await;
                Ok(())
            }
            (CopySources::Endpoint(paths), CopyTarget::Endpoint(path)) => {
                let names = paths.iter().map(EndpointPath::name).collect();
                let uploader = self.uploader(path, names).await?;
                self.walk(paths, Sink::Endpoint(uploader)).await
            }
            (CopySources::Endpoint(paths), CopyTarget::Local(target)) => {
                let sink = Sink::Local(self.downloader(*target));
                self.walk(paths, sink).await
            }
            (CopySources::Local(..), CopyTarget::Local(_)) => Ok(()),
        }
    }

    async fn push(&self, found: Sources, uploader: Arc<Uploader>) {
        let sources = Arc::new(found);
        let push = Push {
            sources: sources.clone(),
            progress: self.reporter.progress().clone(),
            uploader: uploader.clone(),
        };
        let (push, max_entries) = (Arc::new(push), self.max_entries());
        push_entries(sources, &push, &self.reporter, max_entries).await;
        uploader.remove_unfinished().await;
    }

    async fn walk(&self, paths: &[EndpointPath], sink: Sink) -> Result<(), Error> {
        let Some(store) = self.source.clone() else {
            return Ok(());
        };
        let walk = Walk {
            tree: StoreTree::new(store, paths.to_vec()),
            reporter: self.reporter.clone(),
            sink,
            filter: self.settings.filter.clone(),
            is_recursive: self.settings.recursive,
        };
        Arc::new(walk).copy(self.max_entries()).await
    }

    async fn uploader(
        &self,
        path: &EndpointPath,
        names: Vec<Vec<u8>>,
    ) -> Result<Arc<Uploader>, Error> {
        let Some(store) = self.destination.clone() else {
            return Err(Error::Unsupported {
                option: "this copy",
                place: path.place(),
                reason: "it was opened for another destination",
            });
        };
        let settings = &self.settings;
        let uploader = Arc::new(Uploader::new(UploaderParts {
            destination: Destination::find(store.clone(), path, names).await?,
            store,
            reporter: self.reporter.clone(),
            options: settings.options,
            existing: ExistingOptions {
                overwrite: settings.options.overwrite,
                checksum: settings.checksum,
                policy: settings.existing,
            },
            counters: self.counters.clone(),
            records: settings.state.as_ref().map(|state| state.join("uploads")),
            token: settings.token.0,
            requests: self.gate.clone(),
        }));
        *self.uploader.lock() = Some(uploader.clone());
        Ok(uploader)
    }

    fn downloader(&self, target: LocalTarget) -> Downloader {
        let (reporter, counters) = (self.reporter.clone(), self.counters.clone());
        let mut downloader = Downloader::new(target, reporter, counters, self.gate.clone());
        downloader.compares_content = self.settings.checksum;
        downloader.resumes = self.settings.options.resume;
        downloader
    }

    fn max_entries(&self) -> usize {
        let per_request = match self.settings.requests {
            Some(_) => ENTRIES_PER_REQUEST,
            None => ENTRIES_PER_ADAPTIVE_REQUEST,
        };
        self.gate.max_requests().saturating_mul(per_request)
    }

    /// Waits until a store does not answer any more.
    async fn outage(&self, store: Option<&Arc<Store>>) -> Error {
        match store {
            Some(store) => store.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Removes what no later copy resumes. It does so for a few seconds at most.
    pub async fn end(&self) {
        let uploader = self.uploader.lock().take();
        if let Some(uploader) = uploader {
            let _ = timeout(CLEANUP_TIMEOUT, uploader.remove_unfinished()).await;
        }
    }
}

/// Returns the gate of the requests for content.
fn gate(
    settings: &CopySettings,
    source: &Option<Arc<Store>>,
    destination: &Option<Arc<Store>>,
) -> Arc<RequestGate> {
    if let Some(requests) = settings.requests {
        return Arc::new(RequestGate::fixed(requests as usize));
    }
    let stores = [source, destination].into_iter().flatten();
    let overloads = stores.map(|store| store.overloads.clone()).collect();
    let max = ProcessLimits::current().requests(MAX_REQUESTS);
    Arc::new(RequestGate::adaptive(max, overloads))
}
