//! Copies to a server.

use std::sync::Arc;

use anyhow::Result;
use longhaul_transfer::{CopyOutcome, CopyRequest, Filter};

use super::Cp;
use super::beside::CopyCompanion;
use super::receipt::PendingReceipt;
use super::stdin::LocalSources;
use crate::target::Remote;
use crate::watch::CopyWatch;

/// Observer and companion of a copy to a server.
#[derive(Clone, Copy)]
pub(super) struct PushContext<'a> {
    pub watch: &'a Arc<CopyWatch>,
    pub beside: &'a CopyCompanion,
    pub receipt: Option<&'a PendingReceipt>,
    /// Size of the sources in bytes, if it is known.
    pub size: Option<u64>,
}

impl Cp {
    /// Sends what this machine reads to a server.
    pub(super) async fn push_to_server(
        &self,
        opened: LocalSources,
        destination: &Remote,
        filter: Arc<Filter>,
        context: PushContext<'_>,
    ) -> Result<CopyOutcome> {
        let PushContext {
            watch,
            beside,
            receipt,
            size,
        } = context;
        let names = opened.names.clone();
        let request = CopyRequest::Push {
            destination: destination.path.clone(),
            into: destination.is_directory || names.len() > 1,
            overwrite: self.options.replaces(),
            fsync: self.options.fsync,
            names,
        };
        let hello = self.hello(request, &filter)?;
        let mut client = self.client(destination, hello, watch, size, beside).await?;
        client.receipt = receipt.map(PendingReceipt::recorder);
        let connector = client.connector.clone();
        client
            .push(opened.found.filtered(Some(filter)), opened.labels)
            .await
            .map_err(|error| self.advise(error, &connector, destination))
    }
}
