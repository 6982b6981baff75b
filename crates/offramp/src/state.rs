//! State of a running off-ramp.

use std::sync::Arc;

use drs::Mode;
use longhaul_accounts::AccountLog;
use longhaul_hop::{BufferPool, ConnectionGate, EventLog};
use longhaul_policy::{ActivePolicy, Finder};
use longhaul_session::{Acceptor, ResumeMemory};

use crate::config::OfframpTimeouts;
use crate::metrics::OfframpMetrics;

/// State shared by all connections of an off-ramp.
pub(crate) struct OfframpState {
    pub(crate) acceptor: Acceptor,
    pub(crate) policy: Arc<ActivePolicy>,
    pub(crate) finder: Finder,
    pub(crate) timeouts: OfframpTimeouts,
    pub(crate) sizing: Mode,
    pub(crate) gate: Arc<ConnectionGate>,
    pub(crate) buffers: Arc<BufferPool>,
    pub(crate) metrics: Arc<OfframpMetrics>,
    pub(crate) events: Arc<EventLog>,
    /// Memory of resumable sessions; `None` if there are none.
    pub(crate) resume_memory: Option<Arc<ResumeMemory>>,
    /// Log of the accounts, if they are kept.
    pub(crate) accounts: Option<AccountLog>,
}
