//! The forwarding table in force, reloaded from its file.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use longhaul_policy::{ForwardingError, ForwardingTable};
use longhaul_proto::{Endpoint, Hop};
use parking_lot::{Mutex, RwLock};

use crate::refusal::DepotRefusal;

/// The forwarding table in force, and which of its depots are out of reach.
#[derive(Debug)]
pub(crate) struct Forwarding {
    table: RwLock<Arc<ForwardingTable>>,
    /// Depots of the table that could not be dialled at the last attempt, so that this is logged
    /// once.
    unreachable: Mutex<HashSet<Endpoint>>,
}

impl Forwarding {
    pub(crate) fn new(table: ForwardingTable) -> Self {
        Self {
            table: RwLock::new(Arc::new(table)),
            unreachable: Mutex::default(),
        }
    }

    /// Returns the table in force.
    pub(crate) fn table(&self) -> Arc<ForwardingTable> {
        Arc::clone(&self.table.read())
    }

    /// Reloads the table from its file. A file with an error changes nothing. Returns `None` if the
    /// table has no file, or the task that reads it failed.
    pub(crate) async fn reload(&self) -> Option<Result<Arc<ForwardingTable>, ForwardingError>> {
        let file = self.table().file().map(Path::to_owned)?;
        let loaded = tokio::task::spawn_blocking(move || ForwardingTable::load(&file)).await;
        let table = match loaded.ok()? {
            Ok(table) => Arc::new(table),
            Err(error) => return Some(Err(error)),
        };
        *self.table.write() = Arc::clone(&table);
        self.unreachable
            .lock()
            .retain(|endpoint| table.names(endpoint));
        Some(Ok(table))
    }

    /// Records that `hop` could not be dialled. Logs it if the last attempt succeeded.
    pub(crate) fn record_failure(&self, hop: &Hop, why: &DepotRefusal) {
        if self.unreachable.lock().insert(hop.endpoint.clone()) {
            tracing::warn!(
                depot = %hop, status = why.code.word(), detail = why.detail,
                "cannot dial a depot of the forwarding table: sessions go on without it"
            );
        }
    }

    /// Records that `hop` was dialled. Logs it if the last attempt failed.
    pub(crate) fn record_success(&self, hop: &Hop) {
        if self.unreachable.lock().remove(&hop.endpoint) {
            tracing::info!(depot = %hop, "a depot of the forwarding table is dialled again");
        }
    }
}
