//! The controller: what it knows at the moment, and how that follows the store.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use longhaul_api::authorized_keys::{Authorized, AuthorizedKeys, Role as KeyRole};
use longhaul_api::database::system_now;
use longhaul_api::{Caller, KeyGate};
use longhaul_control_api::map::{Map, Registration};
use longhaul_control_api::measurements::{KeptMeasurement, MeasurementQuery};
use longhaul_control_api::principals::{Permission, Resource, Right};
use longhaul_control_api::transfers::TransferReport;
use longhaul_map::RegistrationPolicy;
use longhaul_proto::{PublicKey, SigningKey};
use longhaul_setup::conductor::Conductor;
use longhaul_setup::nodes::{SetupConfig, SetupFault};
use longhaul_setup::reconcile::Reconciler;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::authority::{OPERATOR, Refused, Subject, decide};
use crate::circuits::CircuitsView;
use crate::circuits::keeper::Keeper;
use crate::leader::candidate::Candidate;
use crate::leader::{self, Leader, Leadership};
use crate::metrics::Metrics;
use crate::places::{Places, Speaker, seconds};
use crate::reservations::document::Roots;
use crate::reservations::writer::open;
use crate::reservations::{Asker, Book, Clock};
use crate::store::measurements::{Ingest, Kept, ingest};
use crate::store::retention::Retention;
use crate::store::{Changes, Store, StoreError};
use crate::weather::Weather;

/// How often it is looked whether depots have become stale, and whether others have changed the store.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause between two steps of bringing old measurements together, while there is more to do.
const RETENTION_PAUSE: Duration = Duration::from_millis(200);
/// And when there was nothing to do.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// How long the start waits until it is known who leads.
const FIRST_LEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before the map and rights are read again by one that is to lead and could not read them.
const FOLLOW_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Measurements that forecasts are rebuilt from at the start: the newest.
const REBUILD_MEASUREMENTS: i64 = 1_000_000;
/// Reports that scores are rebuilt from at the start: the newest.
const REBUILD_REPORTS: i64 = 10_000;
/// Measurements that are read at once.
const READ_AT_ONCE: i64 = 5_000;

/// What a controller is told when it starts.
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
    /// Where it answers other machines, as a URL: for those who ask another controller while this one leads.
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

/// The map and registrations as the store has them.
#[derive(Debug, Default)]
struct Sources {
    map: Map,
    registrations: BTreeMap<PublicKey, Registration>,
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
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read<T: Clone>(lock: &RwLock<T>) -> T {
    // What is in there is whole at any moment.
    lock.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn set<T>(lock: &RwLock<T>, value: T) {
    *lock.write().unwrap_or_else(PoisonError::into_inner) = value;
}

impl Controller {
    /// Reads what it must know before anybody asks, and begins to work: writing what comes, following the store, forgetting what is old. Forecasts are
    /// rebuilt in the background; [`Self::is_ready`] says when they are.
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
        let (kept, hears) = mpsc::unbounded_channel();
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
        let mut others = tokio::task::JoinSet::new();
        others.spawn(this.clone().keep_up(hears, stop.clone()));
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
        // Whoever asks from now on is told who leads, if that can be known.
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

    /// What it was told when it started.
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

    /// Whoever asks for or after reservations.
    #[must_use]
    pub fn asker(&self, caller: &Caller) -> Asker {
        let Some(key) = &caller.key else {
            return Asker {
                owner: OPERATOR.to_owned(),
                name: caller.user.clone(),
                rights: None,
            };
        };
        let authorities = read(&self.0.authorities);
        let rights = authorities.by_key.get(key).map(|(_, rights)| rights.clone());
        Asker {
            owner: key.to_string(),
            name: caller.user.clone(),
            rights: Some(rights.unwrap_or_default()),
        }
    }

    /// Whoever has signed a document with this key.
    #[must_use]
    pub fn caller(&self, key: PublicKey) -> Caller {
        let authorities = read(&self.0.authorities);
        let name = authorities.by_key.get(&key).map(|(name, _)| name.clone());
        Caller {
            user: name.unwrap_or_else(|| key.to_string()),
            key: Some(key),
        }
    }

    /// What it counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The map as it is now.
    #[must_use]
    pub fn places(&self) -> Arc<Places> {
        read(&self.0.places)
    }

    /// What the network is like. Hold it shortly.
    pub fn weather(&self) -> MutexGuard<'_, Weather> {
        self.0.weather.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The keys that may ask at all, for a gate.
    #[must_use]
    pub fn keys(&self) -> AuthorizedKeys {
        let authorities = read(&self.0.authorities);
        AuthorizedKeys::of(authorities.by_key.iter().map(|(key, (name, _))| {
            let authorized = Authorized {
                name: name.clone(),
                // What it may is decided for each thing that is asked.
                role: KeyRole::All,
            };
            (*key, authorized)
        }))
    }

    /// Has a gate let in the keys that may ask, from now on.
    pub fn serve_gate(&self, gate: Arc<KeyGate>) {
        gate.replace_keys(self.keys());
        set(&self.0.gate, Some(gate));
    }

    /// Decides whether `caller` may do that. Whoever runs the controller, and asks over its socket, may do all.
    ///
    /// # Errors
    /// It may not.
    pub fn allow(
        &self,
        caller: &Caller,
        resource: Resource,
        permission: Permission,
        subject: &Subject,
    ) -> Result<(), Refused> {
        let Some(key) = &caller.key else {
            return Ok(());
        };
        let authorities = read(&self.0.authorities);
        // Whom a role was taken from in this moment has none.
        let rights = authorities.by_key.get(key).map_or(&[][..], |(_, rights)| rights);
        decide(&caller.user, rights, resource, permission, subject)
    }

    /// For which ends `caller` speaks; none of whoever runs the controller.
    #[must_use]
    pub fn speaker(&self, caller: &Caller) -> Option<Speaker> {
        let key = caller.key?;
        Some(self.places().speaker(&key, &caller.user))
    }

    /// What an end is called: the depot or the host of the map that a key, a name or an address stands for, and itself where there is none.
    #[must_use]
    pub fn called(&self, end: &str) -> String {
        if end.parse::<PublicKey>().is_ok() {
            return self.speaker_of(end).name().to_owned();
        }
        self.places().meant(end).unwrap_or(end).to_owned()
    }

    /// For which ends whoever has that key as text speaks.
    fn speaker_of(&self, reporter: &str) -> Speaker {
        let Ok(key) = PublicKey::from_str(reporter) else {
            return Speaker::default();
        };
        let authorities = read(&self.0.authorities);
        let name = authorities.by_key.get(&key).map_or("", |(name, _)| name);
        self.places().speaker(&key, name)
    }

    /// Takes over what the store has, if it has changed.
    ///
    /// # Errors
    /// The store does not answer, or has what cannot be read.
    pub async fn follow(&self) -> Result<(), StoreError> {
        let changes = self.0.store.changes().await?;
        let known = *self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if known == Some(changes) {
            return Ok(());
        }
        if known.is_none_or(|known| known.by_operator != changes.by_operator) {
            self.follow_operator().await?;
        }
        let registrations = self.0.store.registrations().await?;
        let by_key = registrations
            .into_iter()
            .map(|registration| (registration.key, registration));
        self.0.file().registrations = by_key.collect();
        self.make_places();
        *self.0.changes.lock().unwrap_or_else(PoisonError::into_inner) = Some(changes);
        Ok(())
    }

    /// Takes over rights and the operator's map.
    async fn follow_operator(&self) -> Result<(), StoreError> {
        let mut by_key = BTreeMap::new();
        for (key, authority) in self.0.store.authorities().await? {
            match key.parse() {
                Ok(key) => _ = by_key.insert(key, authority),
                Err(_) => tracing::error!(key, "the store has a principal whose key is none"),
            }
        }
        set(&self.0.authorities, Arc::new(Authorities { by_key }));
        if let Some(gate) = read(&self.0.gate) {
            gate.replace_keys(self.keys());
        }
        let map = self.0.store.map().await?;
        self.0.maps.send_if_modified(|known| {
            let is_new = **known != map;
            if is_new {
                *known = Arc::new(map.clone());
            }
            is_new
        });
        self.0.file().map = map;
        Ok(())
    }

    /// Takes what a depot said of itself, once it is kept. Where it only says again that it is there, the map is made anew when somebody becomes stale by
    /// the one that is known: a thousand depots do not have it made all the time.
    pub fn take_registration(&self, registration: Registration) {
        let policy = &self.0.settings.registrations;
        let now = seconds(now_ms());
        let before = self
            .0
            .file()
            .registrations
            .insert(registration.key, registration.clone());
        let says_the_same = before.is_some_and(|before| {
            let is_live = now < before.until(policy) && before.until(policy) <= registration.until(policy);
            let same = Registration {
                sent_at: before.sent_at,
                valid_for: before.valid_for,
                ..registration
            };
            is_live && same == before
        });
        if !says_the_same {
            self.make_places();
        }
    }

    /// Makes the map anew of what is known.
    fn make_places(&self) {
        let file = self.0.file();
        let version = self.0.map_version.fetch_add(1, Ordering::AcqRel) + 1;
        let registrations: Vec<Registration> = file.registrations.values().cloned().collect();
        let places = Places::of(
            &file.map,
            &registrations,
            now_ms(),
            &self.0.settings.registrations,
            version,
        );
        self.weather().take_map(&places.known.map, version);
        set(&self.0.places, Arc::new(places));
    }

    /// Scores a report that was kept.
    pub fn take_report(&self, reporter: &str, report: &TransferReport) {
        let speaker = self.speaker_of(reporter);
        self.weather().take_report(&speaker, report, seconds(now_ms()));
    }

    /// Follows what is measured: from the writer here, or, where others write too, from the store.
    async fn keep_up(self, mut hears: mpsc::UnboundedReceiver<Kept>, mut stop: watch::Receiver<bool>) {
        let mut seen = match self.rebuild().await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::error!(%error, "forecasts could not be rebuilt: they begin with what comes now");
                self.0.store.last_measurement().await.unwrap_or_default()
            }
        };
        self.0.is_ready.store(true, Ordering::Release);
        let is_shared = self.0.store.is_shared();
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                kept = hears.recv() => match kept {
                    None => return,
                    Some(kept) if !is_shared => self.take(&kept),
                    Some(_) => {}
                },
                _ = look.tick(), if is_shared => {
                    let reading = self.read_from(&mut seen);
                    if let Err(error) = self.0.store.unless_given_up(reading).await {
                        tracing::warn!(%error, "what others measured could not be read");
                    }
                }
                () = told(&mut stop) => return,
            }
        }
    }

    fn take(&self, kept: &Kept) {
        let speaker = self.speaker_of(&kept.reporter);
        let mut weather = self.weather();
        for measurement in &kept.measurements {
            weather.take(&kept.reporter, &speaker, measurement);
        }
    }

    /// Rebuilds forecasts and scores, and says up to which number.
    async fn rebuild(&self) -> Result<i64, StoreError> {
        let last = self.0.store.last_measurement().await?;
        let mut seen = last.saturating_sub(REBUILD_MEASUREMENTS);
        self.read_from(&mut seen).await?;
        for (_, kept) in self.0.store.newest_reports(REBUILD_REPORTS).await? {
            self.take_report(&kept.reporter, &kept.report);
        }
        Ok(seen)
    }

    /// Takes what was kept behind `seen`, which moves on.
    async fn read_from(&self, seen: &mut i64) -> Result<(), StoreError> {
        let all = MeasurementQuery::default();
        loop {
            let found = self.0.store.measurements(&all, None, *seen, READ_AT_ONCE).await?;
            let Some((last, _)) = found.last() else {
                return Ok(());
            };
            *seen = *last;
            self.take_all(found.iter().map(|(_, kept)| kept));
        }
    }

    fn take_all<'a>(&self, found: impl Iterator<Item = &'a KeptMeasurement> + Clone) {
        let mut speakers: BTreeMap<&str, Speaker> = BTreeMap::new();
        for kept in found.clone() {
            let speaker = || self.speaker_of(&kept.reporter);
            speakers.entry(&kept.reporter).or_insert_with(speaker);
        }
        let mut weather = self.weather();
        for kept in found {
            if let Some(speaker) = speakers.get(kept.reporter.as_str()) {
                weather.take(&kept.reporter, speaker, &kept.measurement);
            }
        }
    }

    async fn look(self, mut stop: watch::Receiver<bool>) {
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = told(&mut stop) => return,
            }
            if self.0.store.is_shared()
                && let Err(error) = self.0.store.unless_given_up(self.follow()).await
            {
                tracing::warn!(%error, "it could not be read what others have changed");
            }
            if self.places().is_old(now_ms()) {
                self.make_places();
            }
        }
    }

    /// Has it lead when it was elected, once it knows the map and the rights that the one before it knew: they decide what is granted.
    async fn take_lead(
        self,
        mut elected: watch::Receiver<Leadership>,
        lead: watch::Sender<Leadership>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let now = elected.borrow_and_update().clone();
            let known = async {
                if matches!(now, Leadership::Leading { .. }) {
                    self.follow_at_last().await;
                }
            };
            tokio::select! {
                () = known => lead.send_if_modified(|known| {
                    let is_new = *known != now;
                    known.clone_from(&now);
                    is_new
                }),
                () = leader::changed(&mut elected) => {
                    elected.mark_changed();
                    false
                }
                () = told(&mut stop) => return,
            };
            tokio::select! {
                () = leader::changed(&mut elected) => {}
                () = told(&mut stop) => return,
            }
        }
    }

    /// Knows what others have changed, however long that takes.
    async fn follow_at_last(&self) {
        loop {
            match self.0.store.unless_given_up(self.follow()).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "it does not lead yet: the map and rights could not be read");
                }
            }
            sleep(FOLLOW_RETRY_PAUSE).await;
        }
    }

    /// Counts how often it begins to lead, and ends.
    async fn count_terms(self, mut leadership: watch::Receiver<Leadership>, mut stop: watch::Receiver<bool>) {
        let mut before = None;
        loop {
            let now = leadership.borrow_and_update().term();
            if now != before {
                self.0.metrics.led(before.is_some(), now.is_some());
                before = now;
            }
            tokio::select! {
                () = leader::changed(&mut leadership) => {}
                () = told(&mut stop) => return,
            }
        }
    }

    async fn keep_forgetting(self, mut stop: watch::Receiver<bool>) {
        let mut leadership = self.0.leadership.clone();
        loop {
            // Of several that share a store one does it.
            tokio::select! {
                _ = leadership.wait_for(|now| now.term().is_some()) => {}
                () = told(&mut stop) => return,
            }
            let forgetting = self.0.store.forget(&self.0.settings.retention);
            let pause = match self.0.store.unless_given_up(forgetting).await {
                Ok(true) => RETENTION_PAUSE,
                Ok(false) => RETENTION_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "old measurements could not be brought together");
                    RETENTION_INTERVAL
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = told(&mut stop) => return,
            }
        }
    }
}

impl Work {
    /// Waits until all that was begun has ended, and closes the store. The controller must have been told to stop, and nobody ask it any more.
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
async fn told(stop: &mut watch::Receiver<bool>) {
    // Who could have said so is gone: that is an end, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Milliseconds since the Unix epoch, by this machine's clock.
pub(crate) fn now_ms() -> u64 {
    crate::store::told(system_now())
}
