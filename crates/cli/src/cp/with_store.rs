//! Copies with object stores and web servers: see [`longhaul_endpoints`].

use std::sync::Arc;

use anyhow::{Result, bail};
use longhaul_endpoints::{CopySettings, CopySources, CopyTarget, EndpointCopy, EndpointPath};
use longhaul_transfer::local_end::LocalTarget;
use longhaul_transfer::{CopyDestination, CopyToken, Filter};

use super::beside::CopyCompanion;
use super::impossible::STORE_UNVERIFIED;
use super::job::CopyJob;
use super::stdin::LocalSources;
use super::{Cp, FinishedCopy, NO_SOURCE};
use crate::home;
use crate::watch::CopyWatch;

/// Filter, observer and companion of a copy with a store.
#[derive(Clone, Copy)]
pub(super) struct StoreContext<'a> {
    pub filter: &'a Arc<Filter>,
    pub watch: &'a Arc<CopyWatch>,
    pub beside: &'a CopyCompanion,
}

/// Ends of a copy that are stores.
#[derive(Clone, Copy)]
struct StoreEnds<'a> {
    source: Option<&'a EndpointPath>,
    destination: Option<&'a EndpointPath>,
}

impl Cp {
    /// Copies to a store, from one, or between two.
    pub(super) async fn copy_with_store(
        &self,
        job: &CopyJob,
        context: StoreContext<'_>,
    ) -> Result<FinishedCopy> {
        match job {
            CopyJob::PushToStore {
                sources,
                destination,
            } => {
                let opened = self.local_sources(sources, context.watch)?;
                self.copy_to_store(opened, destination, context).await
            }
            CopyJob::PullFromStore {
                sources,
                destination,
            } => {
                let names = sources.iter().map(EndpointPath::name).collect();
                let options = self.write_options();
                let token = CopyToken::random()?;
                let target = CopyDestination::local(destination, names, options, token)?
                    .with_existing(self.options.existing_policy());
                let target = CopyTarget::Local(Box::new(LocalTarget::new(target)));
                self.copy_from_store(sources, None, target, context).await
            }
            CopyJob::BetweenStores {
                sources,
                destination,
            } => {
                let target = CopyTarget::Endpoint(destination);
                self.copy_from_store(sources, Some(destination), target, context)
                    .await
            }
            _ => bail!("neither end is a store or a web server"),
        }
    }

    pub(super) async fn copy_to_store(
        &self,
        sources: LocalSources,
        destination: &EndpointPath,
        context: StoreContext<'_>,
    ) -> Result<FinishedCopy> {
        let ends = StoreEnds {
            source: None,
            destination: Some(destination),
        };
        let copy = self
            .open_store(ends, sources.labels.clone(), context)
            .await?;
        // What came by standard input is kept until the end.
        let names = sources.names.clone();
        let found = sources.found.filtered(Some(context.filter.clone()));
        let target = CopyTarget::Endpoint(destination);
        copy.run(CopySources::Local(found, names), target).await?;
        Ok(FinishedCopy::unverified(STORE_UNVERIFIED))
    }

    async fn copy_from_store(
        &self,
        sources: &[EndpointPath],
        destination: Option<&EndpointPath>,
        target: CopyTarget<'_>,
        context: StoreContext<'_>,
    ) -> Result<FinishedCopy> {
        let Some(source) = sources.first() else {
            bail!(NO_SOURCE)
        };
        let labels: Vec<String> = sources.iter().map(EndpointPath::to_string).collect();
        let ends = StoreEnds {
            source: Some(source),
            destination,
        };
        let copy = self.open_store(ends, labels.clone(), context).await?;
        context.watch.expect_sources(&labels);
        copy.run(CopySources::Endpoint(sources), target).await?;
        Ok(FinishedCopy::unverified(STORE_UNVERIFIED))
    }

    async fn open_store<'a>(
        &self,
        ends: StoreEnds<'_>,
        names: Vec<String>,
        context: StoreContext<'a>,
    ) -> Result<&'a EndpointCopy> {
        let StoreContext {
            filter,
            watch,
            beside,
        } = context;
        if let Some(path) = ends.source.or(ends.destination) {
            watch.set_server(path.place());
        }
        let settings = CopySettings {
            requests: self.options.streams,
            patience: self.patience(),
            state: home::state_dir(),
            progress: watch.progress.clone(),
            observer: watch.clone(),
            token: CopyToken::random()?,
            options: self.write_options(),
            existing: self.options.existing_policy(),
            checksum: self.options.checksum,
            recursive: self.options.recursive,
            filter: filter.clone(),
        };
        let copy = EndpointCopy::open(ends.source, ends.destination, settings, names).await?;
        // What it leaves is removed with the companion, however the copy ends.
        Ok(beside.store.get_or_init(|| copy))
    }
}
