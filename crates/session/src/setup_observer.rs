//! Observation of a session's set-up, hop by hop.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_proto::{HopDetails, PublicKey, Status};

/// Step of a session's set-up.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum SetupEvent<'a> {
    /// The first hop is connected; the OPEN is sent now.
    Connected {
        /// Address that was dialled.
        address: SocketAddr,
        /// Details of the connection.
        details: &'a HopDetails,
    },
    /// A hop has answered, successfully or not.
    Answered {
        /// The answer.
        status: &'a Status,
        /// Key that signed the answer; `None` if nobody did (LH-STATUS-7).
        signer: Option<PublicKey>,
    },
}

/// Callback for the steps of a set-up, in their order. It must not block.
#[derive(Clone)]
pub struct SetupObserver(Arc<dyn Fn(SetupEvent<'_>) + Send + Sync>);

impl SetupObserver {
    /// Creates an observer that calls `notify` at each step.
    pub fn new(notify: impl Fn(SetupEvent<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(notify))
    }

    /// Reports a step.
    pub(crate) fn notify(&self, event: SetupEvent<'_>) {
        (self.0)(event);
    }
}

impl fmt::Debug for SetupObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupObserver").finish_non_exhaustive()
    }
}
