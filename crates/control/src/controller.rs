//! The controller: what it knows at the moment, and how that follows the store.

mod access;
mod following;
mod leading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_api::database::system_now;
use longhaul_api::{CallerLog, KeyGate};
use longhaul_control_api::map::{Map, Registration};
use longhaul_control_api::principals::Right;
use longhaul_map::RegistrationPolicy;
use longhaul_proto::{PublicKey, SigningKey};
use longhaul_setup::conductor::Conductor;
use longhaul_setup::nodes::{SetupConfig, SetupFault};
use longhaul_setup::reconcile::Reconciler;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::circuits::CircuitsView;
use crate::circuits::keeper::Keeper;
use crate::leader::candidate::Candidate;
use crate::leader::{Leader, Leadership};
use crate::metrics::Metrics;
use crate::places::Places;
use crate::reservations::document::Roots;
use crate::reservations::writer::open;
use crate::reservations::{Book, Clock};
use crate::store::measurements::{Ingest, ingest};
use crate::store::retention::Retention;
use crate::store::{Changes, Store, StoreError};
use crate::weather::Weather;

/// How long the start waits until it is known who leads.
const FIRST_LEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a controller is given when it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it is known by.
    pub name: String,
    /// Its key.
    pub key: PublicKey,
    /// Its private half, with which it signs grants of circuits.
    pub signer: SigningKey,
    /// How long what is kept.
    pub retention: Retention,
    /// What is made of registrations.
    pub registrations: RegistrationPolicy,
    /// Which nodes are set up, and how.
    pub setup: SetupConfig,
    /// Roots that certificates in signed requests may lead to.
    pub roots: Roots,
    /// Where it answers other machines, as a URL: for those who ask another controller while this
    /// one leads.
    pub advertise: Option<String>,
}

/// A controller can't begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The store does not answer, or has what cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What nodes are set up, and how, makes no sense.
    #[error(transparent)]
    Setup(#[from] SetupFault),
}

/// Who may do what, as the store has it.
#[derive(Debug, Default)]
struct Authorities {
    by_key: BTreeMap<PublicKey, (String, Vec<Right>)>,
}

/// The map, registrations and names of depots as the store has them.
#[derive(Debug, Default)]
struct Sources {
    map: Map,
    registrations: BTreeMap<PublicKey, Registration>,
    /// Names that depots registered, with the keys they belong to.
    names: BTreeMap<String, PublicKey>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    store: Store,
    ingest: Ingest,
    book: Book,
    circuits: CircuitsView,
    leadership: watch::Receiver<Leadership>,
    /// The operator's map, for the writer of reservations.
    maps: watch::Sender<Arc<Map>>,
    metrics: Metrics,
    log: CallerLog,
    authorities: RwLock<Arc<Authorities>>,
    /// Keys that are let in at all.
    gate: RwLock<Option<Arc<KeyGate>>>,
    /// What the map of `places` is made of.
    file: Mutex<Sources>,
    places: RwLock<Arc<Places>>,
    weather: Mutex<Weather>,
    /// The last changes that are known; none before anything is.
    changes: Mutex<Option<Changes>>,
    map_version: AtomicU64,
    started_ms: u64,
    is_ready: AtomicBool,
}

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Controller(Arc<Inner>);

/// What goes on while it serves; see [`Controller::begin`].
#[derive(Debug)]
pub struct Work {
    writers: tokio::task::JoinSet<()>,
    end_writers: watch::Sender<bool>,
    others: tokio::task::JoinSet<()>,
    candidate: tokio::task::JoinSet<()>,
    end_candidate: watch::Sender<bool>,
}

impl Inner {
    fn file(&self) -> MutexGuard<'_, Sources> {
        self.file.lock()
    }
}

fn read<T: Clone>(lock: &RwLock<T>) -> T {
    // What is in there is whole at any moment.
    lock.read().clone()
}

fn set<T>(lock: &RwLock<T>, value: T) {
    *lock.write() = value;
}

impl Controller {
    /// Reads what it must know before anybody asks, and begins to work: writing what comes,
    /// following the store, forgetting what is old. Forecasts are rebuilt in the background;
    /// [`Self::is_ready`] says when they are.
    ///
    /// # Errors
    /// [`BeginError`].
    pub async fn begin(
        store: Store,
        settings: Settings,
        stop: watch::Receiver<bool>,
    ) -> Result<(Self, Work), BeginError> {
        let (nodes, _) = settings.setup.drivers()?;
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
        let book_writer = book_writer.managing(managed).led_by(leadership.clone());
        let setup = settings.setup.clone();
        let keeper = Keeper::new(
            book.clone(),
            leadership.clone(),
            move || {
                // That it makes sense was seen above.
                let (nodes, drivers) = setup.drivers().unwrap_or_default();
                Conductor::new(Reconciler::new(setup.owner(), nodes), drivers)
            },
            circuits.clone(),
            clock,
        );
        let started_ms = now_ms();
        let this = Self(Arc::new(Inner {
            settings,
            ingest,
            book,
            circuits,
            leadership: leadership.clone(),
            maps,
            metrics: Metrics::new(),
            log: CallerLog::default(),
            authorities: RwLock::default(),
            gate: RwLock::default(),
            file: Mutex::default(),
            places: RwLock::default(),
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
        others.spawn(this.clone().keep_up(received, stop.clone()));
        others.spawn(this.clone().look(stop.clone()));
        others.spawn(this.clone().keep_forgetting(stop.clone()));
        others.spawn(keeper.run(stop.clone()));
        others.spawn(this.clone().take_lead(elected, lead, stop.clone()));
        others.spawn(this.clone().count_terms(leadership, stop.clone()));
        let (end_candidate, candidate_end) = watch::channel(false);
        let mut candidates = tokio::task::JoinSet::new();
        candidates.spawn(candidate.run(candidate_end));
        let (end_writers, writers_end) = watch::channel(false);
        let mut writers = tokio::task::JoinSet::new();
        writers.spawn(writer.run(writers_end.clone()));
        writers.spawn(book_writer.run(writers_end));
        // Whoever asks from now on learns who leads, if that can be known.
        let mut first = this.0.leadership.clone();
        let _ = timeout(
            FIRST_LEADER_TIMEOUT,
            first.wait_for(|now| *now != Leadership::Lost),
        )
        .await;
        let work = Work {
            writers,
            end_writers,
            others,
            candidate: candidates,
            end_candidate,
        };
        Ok((this, work))
    }

    /// What it was given when it started.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// What it keeps.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Where measurements are given to be kept.
    #[must_use]
    pub fn ingest(&self) -> &Ingest {
        &self.0.ingest
    }

    /// The book of reservations.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.0.book
    }

    /// What is known of circuits.
    #[must_use]
    pub fn circuits(&self) -> &CircuitsView {
        &self.0.circuits
    }

    /// Whether it leads, or who does.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.0.leadership.borrow().clone()
    }

    /// What it counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The bounded log of what callers have it do.
    pub(crate) fn log(&self) -> &CallerLog {
        &self.0.log
    }

    /// The map as it is now.
    #[must_use]
    pub fn places(&self) -> Arc<Places> {
        read(&self.0.places)
    }

    /// What the network is like. Hold it shortly.
    pub fn weather(&self) -> MutexGuard<'_, Weather> {
        self.0.weather.lock()
    }

    /// When it started.
    #[must_use]
    pub fn started_ms(&self) -> u64 {
        self.0.started_ms
    }

    /// Whether it knows all that the store has.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::Acquire)
    }
}

impl Work {
    /// Waits until all that was begun has ended, and closes the store. The controller must have
    /// been told to stop, and nobody ask it any more.
    pub async fn end(mut self, controller: &Controller) {
        while self.others.join_next().await.is_some() {}
        self.end_writers.send_replace(true);
        while self.writers.join_next().await.is_some() {}
        // To the last it alone writes; then another may lead.
        self.end_candidate.send_replace(true);
        while self.candidate.join_next().await.is_some() {}
        controller.store().close().await;
    }
}

/// Completes when it is time to end.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Who could have said so is gone: that is an end, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Milliseconds since the Unix epoch, by this machine's clock.
pub(crate) fn now_ms() -> u64 {
    crate::reservations::api_moment(system_now())
}
