//! State of a running depot.

use std::sync::Arc;

use longhaul_accounts::AccountLog;
use longhaul_hop::{BufferPool, ConnectionGate, EventLog, PipePool};
use longhaul_policy::ActivePolicy;
use longhaul_proto::SigningKey;
use longhaul_scitags::FlowMarker;
use longhaul_service::OpenAdmission;
use longhaul_wishes::CircuitBroker;

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
    pub(crate) admission: OpenAdmission,
    pub(crate) dialler: Dialler,
    pub(crate) timeouts: DepotTimeouts,
    pub(crate) gate: Arc<ConnectionGate>,
    pub(crate) pipes: Arc<PipePool>,
    /// Buffers for hops that cannot be spliced.
    pub(crate) buffers: Arc<BufferPool>,
    pub(crate) metrics: Arc<DepotMetrics>,
    pub(crate) events: Arc<EventLog>,
    /// Observer of the relayed hops.
    pub(crate) observer: Option<HopObserver>,
    /// Use of circuit grants.
    pub(crate) grants: Arc<Grants>,
    /// Broker that reserves circuits in the name of principals.
    pub(crate) circuits: Option<Arc<dyn CircuitBroker>>,
    /// Log of the accounts, if they are kept.
    pub(crate) accounts: Option<AccountLog>,
    /// Marks the hops of copies, if they are marked.
    pub(crate) marker: Option<FlowMarker>,
}
