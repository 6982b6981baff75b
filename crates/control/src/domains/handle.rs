//! Requests to the agent's task, and what it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_control_api::domains::{
    ConnectionId, DomainName, Message, ProblemReason, SegmentProblem,
};
use longhaul_domains::agent::{MessageFault, UserRequest};
use longhaul_domains::connection::{Connection, Phase};
use longhaul_domains::graph::GraphPlanner;
use longhaul_domains::publication::AcceptedTopology;
use longhaul_hop::{HeldPermit, SharedPermits};
use parking_lot::RwLock;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::settings::DomainSettings;
use crate::store::StoreError;

/// Maximum number of requests that wait for the agent. A peer or user gets half of them at most.
const MAX_WAITING: usize = 1_024;

/// A request to the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// The agent refused it.
    #[error(transparent)]
    Refused(#[from] MessageFault),
    /// The store failed, or another controller leads.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Request to the agent.
#[derive(Debug)]
pub(crate) enum AgentRequest {
    /// A message of a peer.
    Receive(DomainName, Box<Message>),
    /// A reservation of a user.
    Reserve(Box<UserRequest>),
    /// The end of a connection.
    Terminate(ConnectionId, SegmentProblem),
}

/// Request that waits for the agent.
pub(crate) struct Waiting {
    pub request: AgentRequest,
    pub answer: oneshot::Sender<Result<Option<ConnectionId>, DomainError>>,
    _permit: HeldPermit<String>,
}

/// State that the agent's task and the HTTP API share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Connections as they are stored.
    pub connections: RwLock<BTreeMap<ConnectionId, Connection>>,
    /// Trusted topologies, the domain's own included.
    pub topologies: RwLock<Arc<BTreeMap<DomainName, AcceptedTopology>>>,
    /// Wakes the exchange of topologies.
    pub refresh: Notify,
}

/// Receiving ends for the agent's task.
pub struct AgentInputs {
    pub(crate) waiting: mpsc::Receiver<Waiting>,
    pub(crate) changed: watch::Sender<u64>,
    pub(crate) exchanged: watch::Sender<u64>,
}

/// Handle of the domain's agent. Cheap to clone.
#[derive(Clone)]
pub struct DomainsHandle {
    settings: Arc<DomainSettings>,
    sender: mpsc::Sender<Waiting>,
    permits: Arc<SharedPermits<String>>,
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    exchanges: watch::Receiver<u64>,
}

impl std::fmt::Debug for DomainsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DomainsHandle")
            .field("domain", &self.settings.name)
            .finish_non_exhaustive()
    }
}

impl DomainsHandle {
    /// Creates a handle, and the receiving ends for the agent's task.
    #[must_use]
    pub fn new(settings: DomainSettings) -> (Self, AgentInputs) {
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        let (changed, changes) = watch::channel(0);
        let (exchanged, exchanges) = watch::channel(0);
        let handle = Self {
            settings: Arc::new(settings),
            sender,
            permits: SharedPermits::new(MAX_WAITING),
            shared: Arc::default(),
            changes,
            exchanges,
        };
        let inputs = AgentInputs {
            waiting,
            changed,
            exchanged,
        };
        (handle, inputs)
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &DomainSettings {
        &self.settings
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the trusted topologies.
    #[must_use]
    pub fn topologies(&self) -> Arc<BTreeMap<DomainName, AcceptedTopology>> {
        self.shared.topologies.read().clone()
    }

    /// Returns a planner over the known topologies.
    #[must_use]
    pub fn planner(&self) -> GraphPlanner {
        let topologies = self.topologies();
        let topologies = topologies.iter();
        GraphPlanner {
            domain: self.settings.name.clone(),
            peers: self.settings.peers.keys().cloned().collect(),
            topologies: topologies
                .map(|(name, known)| (name.clone(), known.topology.clone()))
                .collect(),
            avoided: std::collections::BTreeSet::new(),
        }
    }

    /// Has the topologies of all peers requested now, if a domain is not known. Completes when they
    /// have been.
    pub async fn refresh_unless_known(&self, domain: &DomainName) {
        if self.topologies().contains_key(domain) {
            return;
        }
        let mut exchanges = self.exchanges.clone();
        exchanges.mark_unchanged();
        self.shared.refresh.notify_one();
        // If the task has ended, the known ones stay.
        let _ = exchanges.changed().await;
    }

    /// Subscribes to the number of changes of connections.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Returns a connection.
    #[must_use]
    pub fn connection(&self, id: &ConnectionId) -> Option<Connection> {
        self.shared.connections.read().get(id).cloned()
    }

    /// Returns all connections.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.connections.read().values().cloned().collect()
    }

    /// Waits until a connection is reserved from end to end, or has ended.
    pub async fn wait_for_outcome(&self, id: &ConnectionId) -> Option<Connection> {
        let mut changes = self.changes.clone();
        loop {
            changes.mark_unchanged();
            let connection = self.connection(id)?;
            if connection.phase >= Phase::Active {
                return Some(connection);
            }
            changes.changed().await.ok()?;
        }
    }

    /// Gives a message of a peer to the agent, which has stored its effect on success.
    ///
    /// # Errors
    /// [`DomainError`].
    pub async fn receive(&self, peer: &DomainName, message: Message) -> Result<(), DomainError> {
        let request = AgentRequest::Receive(peer.clone(), Box::new(message));
        self.ask(peer.to_string(), request).await.map(drop)
    }

    /// Begins a reservation of a user. Returns its connection.
    ///
    /// # Errors
    /// [`DomainError`].
    pub async fn reserve(&self, request: UserRequest) -> Result<Option<ConnectionId>, DomainError> {
        let user = request.user.clone();
        self.ask(user, AgentRequest::Reserve(Box::new(request)))
            .await
    }

    /// Ends a connection, as its owner wants it no more.
    ///
    /// # Errors
    /// [`DomainError`].
    pub async fn terminate(&self, user: &str, id: &ConnectionId) -> Result<(), DomainError> {
        let problem = SegmentProblem {
            reason: ProblemReason::Terminated,
            domain: self.settings.name.clone(),
            text: "its owner cancelled it".to_owned(),
        };
        let request = AgentRequest::Terminate(id.clone(), problem);
        self.ask(user.to_owned(), request).await.map(drop)
    }

    async fn ask(
        &self,
        who: String,
        request: AgentRequest,
    ) -> Result<Option<ConnectionId>, DomainError> {
        let permit = self.permits.take(who).map_err(|_| StoreError::Busy)?;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            request,
            answer,
            _permit: permit,
        };
        self.sender.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Ending,
        })?;
        answered.await.unwrap_or(Err(StoreError::Ending.into()))
    }
}
