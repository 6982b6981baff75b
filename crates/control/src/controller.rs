//! The controller's state in memory, and its updates from the store.

mod access;
pub mod domains;
mod following;
mod leading;
mod reserving;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_api::database::system_now;
use longhaul_api::{CallerLog, KeyGate};
use longhaul_control_api::map::{Map, Registration};
use longhaul_control_api::principals::Right;
use longhaul_identity::{Identities, PrincipalPattern};
use longhaul_map::{LiveNetwork, RegistrationPolicy};
use longhaul_proto::{PublicKey, SigningKey};
use longhaul_provisioning::conductor::DriverRunner;
use longhaul_provisioning::nodes::{SetupConfig, SetupFault};
use longhaul_provisioning::reconcile::Reconciler;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::circuits::CircuitsView;
use crate::circuits::keeper::CircuitController;
use crate::domains::peers::PeerClients;
use crate::domains::{DomainSettings, DomainsHandle};
use crate::leader::candidate::Candidate;
use crate::leader::{Leader, Leadership};
use crate::metrics::counters::Metrics;
use crate::places::MapIndex;
use crate::reservations::document::Roots;
use crate::reservations::writer::open;
use crate::reservations::{Clock, ReservationsHandle};
use crate::store::measurements::{Ingest, ingest};
use crate::store::retention::Retention;
use crate::store::{ChangeNumbers, ControllerStore, StoreError};
use crate::topology::{OspfConfig, OspfFault};
use crate::weather::RoutingState;

/// Maximum wait at the start for the election of a leader.
const FIRST_LEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of a controller.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// Name of the controller.
    pub name: String,
    /// Public key of the controller.
    pub key: PublicKey,
    /// Names and groups of keys.
    pub identities: Arc<Identities>,
    /// Private key, which signs circuit grants.
    pub signer: SigningKey,
    /// Retention of stored data.
    pub retention: Retention,
    /// Policy for registrations of depots.
    pub registrations: RegistrationPolicy,
    /// Nodes to set up, and their drivers.
    pub setup: SetupConfig,
    /// Live topology to follow, if any.
    pub ospf: OspfConfig,
    /// Root certificates for signed requests.
    pub roots: Roots,
    /// URL at which other machines reach this controller. Other controllers refer callers to it
    /// while this one leads.
    pub advertise: Option<String>,
    /// Domain of the controller, if it reserves segments for other domains.
    pub domain: Option<DomainSettings>,
}

/// A controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The store does not answer, or its content cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configuration of nodes and drivers is invalid.
    #[error(transparent)]
    Setup(#[from] SetupFault),
    /// The configuration of live topology is invalid.
    #[error(transparent)]
    Ospf(#[from] OspfFault),
    /// Connections to other domains cannot be secured.
    #[error("cannot connect to the peers of this domain: {0}")]
    Peers(#[from] longhaul_api::tls::TlsError),
}

/// Rights of all principals, as stored.
#[derive(Debug, Default)]
struct Authorities {
    by_key: BTreeMap<PublicKey, (String, Vec<Right>)>,
    /// Rights of names and groups.
    named: Vec<(PrincipalPattern, Vec<Right>)>,
}

/// Stored map, registrations and names of depots.
#[derive(Debug, Default)]
struct MapSources {
    map: Map,
    registrations: BTreeMap<PublicKey, Registration>,
    /// Names that depots registered, with the keys that own them.
    names: BTreeMap<String, PublicKey>,
}

#[derive(Debug)]
struct ControllerState {
    settings: ControllerConfig,
    store: ControllerStore,
    ingest: Ingest,
    book: ReservationsHandle,
    circuits: CircuitsView,
    domains: Option<DomainsHandle>,
    leadership: watch::Receiver<Leadership>,
    /// The operator's map, for the writer of reservations.
    maps: watch::Sender<Arc<Map>>,
    metrics: Metrics,
    log: CallerLog,
    authorities: RwLock<Arc<Authorities>>,
    /// Gate that is updated with the keys of all principals.
    gate: RwLock<Option<Arc<KeyGate>>>,
    /// Inputs from which `places` is made.
    file: Mutex<MapSources>,
    places: RwLock<Arc<MapIndex>>,
    /// States of links in the running network.
    live: RwLock<Arc<LiveNetwork>>,
    /// Number of changes of these states.
    live_changes: watch::Sender<u64>,
    weather: Mutex<RoutingState>,
    /// Change numbers of the store that are known; `None` before the first read.
    changes: Mutex<Option<ChangeNumbers>>,
    map_version: AtomicU64,
    started_ms: u64,
    is_ready: AtomicBool,
}

/// State of the controller. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Controller(Arc<ControllerState>);

/// Tasks of a running controller; see [`Controller::begin`].
#[derive(Debug)]
pub struct ControllerTasks {
    writers: tokio::task::JoinSet<()>,
    end_writers: watch::Sender<bool>,
    others: tokio::task::JoinSet<()>,
    candidate: tokio::task::JoinSet<()>,
    end_candidate: watch::Sender<bool>,
}

impl ControllerState {
    fn file(&self) -> MutexGuard<'_, MapSources> {
        self.file.lock()
    }
}

fn read<T: Clone>(lock: &RwLock<T>) -> T {
    lock.read().clone()
}

fn set<T>(lock: &RwLock<T>, value: T) {
    *lock.write() = value;
}

impl Controller {
    /// Loads the state from the store, and starts the controller's tasks: writing, following the
    /// store, and removing old data. Forecasts are rebuilt in the background; [`Self::is_ready`]
    /// reports when they are.
    ///
    /// # Errors
    /// [`BeginError`].
    pub async fn begin(
        store: ControllerStore,
        settings: ControllerConfig,
        stop: watch::Receiver<bool>,
    ) -> Result<(Self, ControllerTasks), BeginError> {
        let (nodes, _) = settings.setup.drivers()?;
        let routers = settings.ospf.sources()?;
        let managed = nodes.keys().map(ToString::to_string).collect();
        let me = Leader {
            name: settings.name.clone(),
            url: settings.advertise.clone(),
        };
        let (candidate, elected) = Candidate::new(store.clone(), me);
        let (lead, leadership) = watch::channel(elected.borrow().clone());
        let circuits = CircuitsView::default();
        let (kept, received) = mpsc::unbounded_channel();
        let (ingest, writer) = ingest(store.clone(), kept);
        let (maps, of_book) = watch::channel(Arc::default());
        let clock: Clock = Arc::new(system_now);
        let (book, book_writer) = open(store.clone(), of_book, clock.clone());
        let book_writer = book_writer
            .with_managed_sites(managed)
            .with_leadership(leadership.clone());
        let setup = settings.setup.clone();
        let keeper = CircuitController::new(
            book.clone(),
            leadership.clone(),
            move || {
                // The configuration was validated above.
                let (nodes, drivers) = setup.drivers().unwrap_or_default();
                DriverRunner::new(Reconciler::new(setup.owner(), nodes), drivers)
            },
            circuits.clone(),
            clock,
        );
        let started_ms = now_ms();
        let (domains, agent) = match &settings.domain {
            None => (None, None),
            Some(domain) => {
                let clients = PeerClients::new(domain, &settings.signer)?;
                let (handle, inputs) = DomainsHandle::new(domain.clone());
                (Some(handle.clone()), Some((handle, inputs, clients)))
            }
        };
        let this = Self(Arc::new(ControllerState {
            settings,
            ingest,
            book,
            circuits,
            domains,
            leadership: leadership.clone(),
            maps,
            metrics: Metrics::new(),
            log: CallerLog::default(),
            authorities: RwLock::default(),
            gate: RwLock::default(),
            file: Mutex::default(),
            places: RwLock::default(),
            live: RwLock::default(),
            live_changes: watch::channel(0).0,
            weather: Mutex::default(),
            changes: Mutex::default(),
            map_version: AtomicU64::new(0),
            started_ms,
            is_ready: AtomicBool::new(false),
            store,
        }));
        this.follow().await?;
        this.bind_registered_names().await?;
        let mut others = tokio::task::JoinSet::new();
        others.spawn(this.clone().follow_measurements(received, stop.clone()));
        others.spawn(this.clone().watch_store(stop.clone()));
        others.spawn(this.clone().prune_old_data(stop.clone()));
        others.spawn(keeper.run(stop.clone()));
        others.spawn(this.clone().take_lead(elected, lead, stop.clone()));
        others.spawn(this.clone().count_terms(leadership, stop.clone()));
        if !routers.is_empty() {
            others.spawn(this.clone().follow_topology(routers, stop.clone()));
            others.spawn(this.clone().reroute_reservations(stop.clone()));
        }
        if let Some((handle, inputs, clients)) = agent {
            let agent = domains::runner::AgentTask::new(this.clone(), handle, inputs, clients);
            others.spawn(agent.run(stop.clone()));
        }
        let (end_candidate, candidate_end) = watch::channel(false);
        let mut candidates = tokio::task::JoinSet::new();
        candidates.spawn(candidate.run(candidate_end));
        let (end_writers, writers_end) = watch::channel(false);
        let mut writers = tokio::task::JoinSet::new();
        writers.spawn(writer.run(writers_end.clone()));
        writers.spawn(book_writer.run(writers_end));
        // From now on, callers learn who leads, if that can be known.
        let mut first = this.0.leadership.clone();
        let _ = timeout(
            FIRST_LEADER_TIMEOUT,
            first.wait_for(|now| *now != Leadership::Lost),
        )
        .await;
        let work = ControllerTasks {
            writers,
            end_writers,
            others,
            candidate: candidates,
            end_candidate,
        };
        Ok((this, work))
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &ControllerConfig {
        &self.0.settings
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &ControllerStore {
        &self.0.store
    }

    /// Returns the queue for measurements to store.
    #[must_use]
    pub fn ingest(&self) -> &Ingest {
        &self.0.ingest
    }

    /// Returns the book of reservations.
    #[must_use]
    pub fn book(&self) -> &ReservationsHandle {
        &self.0.book
    }

    /// Returns the current state of circuits.
    #[must_use]
    pub fn circuits(&self) -> &CircuitsView {
        &self.0.circuits
    }

    /// Returns the handle of the domain's agent, if the controller has a domain.
    #[must_use]
    pub fn domains(&self) -> Option<&DomainsHandle> {
        self.0.domains.as_ref()
    }

    /// Returns whether this controller leads, or which one does.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.0.leadership.borrow().clone()
    }

    /// Returns the metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Returns the bounded log of requests.
    pub(crate) fn log(&self) -> &CallerLog {
        &self.0.log
    }

    /// Returns the current map.
    #[must_use]
    pub fn places(&self) -> Arc<MapIndex> {
        read(&self.0.places)
    }

    /// Locks the forecasts and routes. Hold the lock only briefly.
    pub fn routing(&self) -> MutexGuard<'_, RoutingState> {
        self.0.weather.lock()
    }

    /// Returns the time of the start.
    #[must_use]
    pub fn started_ms(&self) -> u64 {
        self.0.started_ms
    }

    /// Returns true once forecasts have been rebuilt from the store.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::Acquire)
    }
}

impl ControllerTasks {
    /// Waits for all tasks and closes the store. `stop` must be true already, and no requests may
    /// follow.
    pub async fn end(mut self, controller: &Controller) {
        while self.others.join_next().await.is_some() {}
        self.end_writers.send_replace(true);
        while self.writers.join_next().await.is_some() {}
        // Until now this controller was the only writer; from here another may lead.
        self.end_candidate.send_replace(true);
        while self.candidate.join_next().await.is_some() {}
        controller.store().close().await;
    }
}

/// Completes when `stop` is true.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means the same.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Returns milliseconds since the Unix epoch, by this machine's clock.
pub(crate) fn now_ms() -> u64 {
    crate::reservations::api_moment(system_now())
}
