//! State of a running depot.

use std::sync::Arc;

use longhaul_hop::{BufferPool, ConnectionGate, EventLog, Payer, PipePool};
use longhaul_policy::ActivePolicy;
use longhaul_proto::{Admission, ReplayMemory, SigningKey};
use parking_lot::Mutex;

use crate::config::DepotTimeouts;
use crate::dial::Dialler;
use crate::forwarding::Forwarding;
use crate::grants::Grants;
use crate::metrics::DepotMetrics;
use crate::observe::HopObserver;

/// State shared by all connections of a depot.
#[derive(Debug)]
pub(crate) struct DepotState {
    pub(crate) key: SigningKey,
    pub(crate) policy: ActivePolicy,
    pub(crate) forwarding: Forwarding,
    pub(crate) admission: Admission,
    pub(crate) replays: Mutex<ReplayMemory<Payer>>,
    pub(crate) dialler: Dialler,
    pub(crate) timeouts: DepotTimeouts,
    pub(crate) gate: Arc<ConnectionGate>,
    pub(crate) pipes: Arc<PipePool>,
    /// Buffers for hops that cannot be spliced.
    pub(crate) buffers: Arc<BufferPool>,
    pub(crate) metrics: Arc<DepotMetrics>,
    pub(crate) events: EventLog,
    /// Observer of the relayed hops.
    pub(crate) observer: Option<HopObserver>,
    /// Use of circuit grants.
    pub(crate) grants: Arc<Grants>,
}
