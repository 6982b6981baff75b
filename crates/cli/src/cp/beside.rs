//! What goes on beside a copy with a server, and is brought to an end with it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul_control_client::Controller;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::deadline::{self, Deadline, Wanted};
use super::routing::Routing;

/// How long the end of a copy waits for what earlier ones have left reserved to be given back.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(3);

/// See the module.
#[derive(Default)]
pub struct Beside {
    /// Who chooses the routes.
    pub routing: OnceLock<Arc<Routing>>,
    /// By when it is to be over.
    pub wanted: Option<Wanted>,
    /// The deadline.
    pub deadline: OnceLock<Deadline>,
    giving_back: Mutex<Option<JoinHandle<()>>>,
}

impl Beside {
    /// Of a copy that is to be over by then.
    pub fn by(wanted: Option<Wanted>) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// Begins to give back what copies have left that were killed.
    pub fn give_back(&self, controller: &Arc<Controller>, state: &Path, url: &str, owner: &str) {
        let left = deadline::left(state, url, owner);
        if left.is_empty() {
            return;
        }
        let controller = controller.clone();
        let giving_back = tokio::spawn(async move { deadline::give_back(left, &controller).await });
        *self.giving_back.lock() = Some(giving_back);
    }

    /// Waits for that, for a while.
    pub async fn end(&self) {
        let giving_back = self.giving_back.lock().take();
        if let Some(giving_back) = giving_back {
            let _ = timeout(GIVE_BACK_TIMEOUT, giving_back).await;
        }
    }
}
