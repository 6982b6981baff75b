//! The grants and issuers of a server: read at the start, and again when it is told to.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use anyhow::Result;
use longhaul_identity::Identities;
use longhaul_tokens::{Authority, IssuerPolicies};
use longhaul_transfer::{Access, Grants, Server};

use super::ServeCommand;
use crate::account_workers::WorkerPool;
use crate::failure;
use crate::metrics::ServeMetrics;

impl ServeCommand {
    /// Reads the principals, grants and issuers again. Grants of the command line stay; if a file
    /// has an error, what it said before stays in force too.
    pub(super) async fn reload(
        &self,
        server: &Arc<Server>,
        workers: &WorkerPool,
        authority: Option<&Authority>,
        metrics: &ServeMetrics,
    ) {
        if let Some(authority) = authority {
            self.reload_issuers(authority);
        }
        match self.reload_grants(server).await {
            Ok(grants) => {
                if grants.is_empty() && authority.is_none() {
                    tracing::warn!("no key has any rights any more");
                }
                server.replace_grants(grants);
                metrics.count_reload("loaded");
                tracing::info!("the grants were reloaded");
            }
            Err(error) => {
                metrics.count_reload("refused");
                tracing::error!(
                    "the grants were not reloaded, the previous ones stay in force: {}",
                    failure::format_line(&error)
                )
            }
        }
        workers.reload().await;
        let server = server.clone();
        // If this panics, the server continues with the old root.
        let _ = tokio::task::spawn_blocking(move || server.reopen_root()).await;
    }

    fn reload_issuers(&self, authority: &Authority) {
        let loaded = self.trusted_issuers().and_then(|issuers| {
            authority.replace(issuers.unwrap_or_default())?;
            Ok(())
        });
        match loaded {
            Ok(()) => tracing::info!("the issuers were reloaded"),
            Err(error) => tracing::error!(
                "the issuers were not reloaded, the previous ones stay trusted: {}",
                failure::format_line(&error)
            ),
        }
    }

    async fn reload_grants(&self, server: &Server) -> Result<Grants> {
        let identities = server.grants().current().identities().clone();
        let reloaded = identities.clone();
        tokio::task::spawn_blocking(move || reloaded.reload()).await??;
        self.grants(identities)
    }

    /// Returns the issuers that are trusted, if the user named a file of them.
    pub(super) fn trusted_issuers(&self) -> Result<Option<IssuerPolicies>> {
        let file = self.issuers.as_deref();
        Ok(file.map(IssuerPolicies::load).transpose()?)
    }

    pub(super) fn grants(&self, identities: Arc<Identities>) -> Result<Grants> {
        let mut grants = Grants::new(identities);
        for grant in &self.read {
            grants.add(Access::Read, grant)?;
        }
        for grant in &self.create {
            grants.add(Access::Create, grant)?;
        }
        for grant in &self.write {
            grants.add(Access::Write, grant)?;
        }
        if let Some(file) = &self.grants {
            grants.add_file(file)?;
        }
        Ok(grants)
    }
}

/// Ends copies and sessions whose principals have lost the name or group that permitted them.
pub(super) async fn enforce_names(
    server: &Server,
    workers: &WorkerPool,
    identities: &Identities,
) -> Infallible {
    let mut changes = identities.subscribe();
    loop {
        match changes.changed().await {
            Ok(()) => {
                server.enforce_grants();
                workers.renew_grants().await;
            }
            // The identities outlive the server.
            Err(_) => pending().await,
        }
    }
}
