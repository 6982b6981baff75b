//! Work that accompanies a copy with a server, and ends with it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul_control_client::ControllerClient;
use longhaul_deadline_driver::{Deadline, DeadlineSettings, leftover_records, return_leftovers};
use longhaul_endpoints::EndpointCopy;
use longhaul_sftp::SftpCopy;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::impossible::{SFTP_UNVERIFIED, STORE_UNVERIFIED};
use super::routing::Routing;

/// Time for which the end of a copy waits while leftover reservations of earlier copies are
/// returned.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(3);

/// Routing, deadline and cleanup that accompany one copy.
#[derive(Default)]
pub struct CopyCompanion {
    /// The routing, if it chooses or reports routes.
    pub routing: OnceLock<Arc<Routing>>,
    /// The deadline and reservation mode that were requested.
    pub wanted: Option<DeadlineSettings>,
    /// The running deadline, once it has begun.
    pub deadline: OnceLock<Deadline>,
    /// The connections of a copy by SFTP, once they are open.
    pub sftp: OnceLock<Arc<SftpCopy>>,
    /// The copy with a store, once it is prepared.
    pub store: OnceLock<EndpointCopy>,
    giving_back: Mutex<Option<JoinHandle<()>>>,
}

impl CopyCompanion {
    /// Creates the companion of a copy with this deadline.
    pub fn with_deadline(wanted: Option<DeadlineSettings>) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// Starts to return the reservations that killed copies left.
    pub fn give_back(
        &self,
        controller: &Arc<ControllerClient>,
        state: &Path,
        url: &str,
        owner: &str,
    ) {
        let left = leftover_records(state, url, owner);
        if left.is_empty() {
            return;
        }
        let controller = controller.clone();
        let giving_back = tokio::spawn(async move { return_leftovers(left, &controller).await });
        *self.giving_back.lock() = Some(giving_back);
    }

    /// Returns why the copy is not verified, if an end has no hashes.
    pub fn unverified(&self) -> Option<&'static str> {
        match (self.store.get(), self.sftp.get()) {
            (Some(_), _) => Some(STORE_UNVERIFIED),
            (None, Some(_)) => Some(SFTP_UNVERIFIED),
            (None, None) => None,
        }
    }

    /// Waits until they are returned, for at most [`GIVE_BACK_TIMEOUT`], and ends the copy by SFTP
    /// or with a store.
    pub async fn end(&self) {
        if let Some(sftp) = self.sftp.get() {
            sftp.end().await;
        }
        if let Some(store) = self.store.get() {
            store.end().await;
        }
        let giving_back = self.giving_back.lock().take();
        if let Some(giving_back) = giving_back {
            let _ = timeout(GIVE_BACK_TIMEOUT, giving_back).await;
        }
    }
}
