//! Following the store: the map, the rights, and measurements.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_control_api::map::Registration;
use longhaul_control_api::measurements::{KeptMeasurement, MeasurementQuery};
use longhaul_control_api::transfers::TransferReport;
use longhaul_identity::PrincipalPattern;
use longhaul_map::{DepotNames, fold_name};
use longhaul_proto::PublicKey;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::{Authorities, Controller, now_ms, read, set, wait_for_stop};
use crate::authority::may_register;
use crate::places::{MapIndex, Speaker, seconds};
use crate::store::StoreError;
use crate::store::measurements::StoredBatch;

/// Interval between checks for stale depots and for changes by other controllers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of measurements, the newest, from which forecasts are rebuilt at the start.
const REBUILD_MEASUREMENTS: i64 = 1_000_000;
/// Maximum number of reports, the newest, from which scores are rebuilt at the start.
const REBUILD_REPORTS: i64 = 10_000;
/// Number of measurements that are read at a time.
const READ_BATCH: i64 = 5_000;

impl Controller {
    /// Loads what has changed in the store.
    ///
    /// # Errors
    /// The store does not answer, or its content cannot be read.
    pub async fn follow(&self) -> Result<(), StoreError> {
        let changes = self.0.store.changes().await?;
        let known = *self.0.changes.lock();
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
        let mut names = BTreeMap::new();
        for known in self.0.store.depot_names().await? {
            match known.key.parse() {
                Ok(key) => _ = names.insert(known.name, key),
                Err(_) => tracing::error!(
                    name = known.name,
                    "the store has a name of a depot with an invalid key"
                ),
            }
        }
        {
            let mut file = self.0.file();
            file.registrations = by_key.collect();
            file.names = names;
        }
        self.rebuild_places();
        *self.0.changes.lock() = Some(changes);
        Ok(())
    }

    /// Binds the names of registrations that were stored by a release without name binding.
    pub(super) async fn bind_registered_names(&self) -> Result<(), StoreError> {
        let places = self.places();
        let may_bind = |registration: &Registration| {
            let (name, key) = (&registration.name, &registration.key);
            !places.is_listed(key) && places.names().check(name, key).is_ok()
        };
        self.0.store.bind_registered_names(may_bind).await?;
        self.follow().await
    }

    /// Loads rights and the operator's map.
    async fn follow_operator(&self) -> Result<(), StoreError> {
        let mut by_key = BTreeMap::new();
        let mut named = Vec::new();
        for (who, authority) in self.0.store.authorities().await? {
            match who.parse() {
                Ok(PrincipalPattern::Key(key)) => _ = by_key.insert(key, authority),
                Ok(pattern) => named.push((pattern, authority.1)),
                Err(_) => tracing::error!(who, "the store has an invalid principal"),
            }
        }
        set(&self.0.authorities, Arc::new(Authorities { by_key, named }));
        if let Some(gate) = read(&self.0.gate) {
            gate.replace_keys(self.keys());
        }
        let map = self.0.store.map().await?;
        self.0.file().map = map;
        self.publish_map();
        Ok(())
    }

    /// Passes the operator's map, with the live states of its links, to the writer of reservations.
    pub(super) fn publish_map(&self) {
        let file = self.0.file();
        let map = read(&self.0.live).attach(&file.map);
        self.0.maps.send_if_modified(|known| {
            let is_new = **known != map;
            if is_new {
                *known = Arc::new(map);
            }
            is_new
        });
    }

    /// Processes a stored registration, with the name that was bound to its key. A registration
    /// without news does not rebuild the map, so a thousand depots do not cause constant rebuilds.
    /// The map is also rebuilt when a depot becomes stale.
    pub fn take_registration(&self, registration: Registration, name: Option<&str>) {
        let policy = &self.0.settings.registrations;
        let now = seconds(now_ms());
        let before = {
            let mut file = self.0.file();
            if let Some(name) = name
                && !file
                    .names
                    .keys()
                    .any(|known| fold_name(known) == fold_name(name))
            {
                file.names.insert(name.to_owned(), registration.key);
            }
            file.registrations
                .insert(registration.key, registration.clone())
        };
        let says_the_same = before.is_some_and(|before| {
            let is_live = now < before.valid_until(policy)
                && before.valid_until(policy) <= registration.valid_until(policy);
            let same = Registration {
                sent_at: before.sent_at,
                valid_for: before.valid_for,
                ..registration
            };
            is_live && same == before
        });
        if !says_the_same {
            self.rebuild_places();
        }
    }

    /// Rebuilds the map.
    pub(super) fn rebuild_places(&self) {
        let file = self.0.file();
        let version = self.0.map_version.fetch_add(1, Ordering::AcqRel) + 1;
        let authorities = read(&self.0.authorities);
        // A key that may no longer register is no longer a depot, whatever it registered before.
        let may_register = |key: &PublicKey| {
            let rights = authorities
                .by_key
                .get(key)
                .map(|(_, rights)| rights.as_slice());
            rights.is_some_and(may_register)
        };
        let in_force = file
            .registrations
            .values()
            .filter(|one| may_register(&one.key));
        let registrations: Vec<Registration> = in_force.cloned().collect();
        let mut names = DepotNames::from_map(&file.map);
        for (key, (name, _)) in &authorities.by_key {
            names.grant(name, *key);
        }
        for (name, key) in &file.names {
            names.bind_first(name, *key);
        }
        let live = read(&self.0.live);
        let mut places = MapIndex::build(
            &live.attach(&file.map),
            &registrations,
            names,
            now_ms(),
            &self.0.settings.registrations,
            version,
        );
        let problems = live.problems.iter().cloned();
        places.known.problems.extend(problems);
        self.routing().take_map(&places.known.map, version);
        set(&self.0.places, Arc::new(places));
    }

    /// Scores a stored report.
    pub fn take_report(&self, reporter: &str, report: &TransferReport) {
        let speaker = self.reporter_of(reporter);
        self.routing()
            .take_report(&speaker, report, seconds(now_ms()));
    }

    /// Follows measurements: from the local writer or, if others write too, from the store.
    pub(super) async fn follow_measurements(
        self,
        mut received: mpsc::UnboundedReceiver<StoredBatch>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut seen = match self.rebuild().await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::error!(
                    %error,
                    "cannot rebuild forecasts: they start with new measurements"
                );
                self.0.store.last_measurement().await.unwrap_or_default()
            }
        };
        self.0.is_ready.store(true, Ordering::Release);
        let is_shared = self.0.store.is_shared();
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                kept = received.recv() => match kept {
                    None => return,
                    Some(kept) if !is_shared => self.process_measurements(&kept),
                    Some(_) => {}
                },
                _ = look.tick(), if is_shared => {
                    let reading = self.read_from(&mut seen);
                    if let Err(error) = self.0.store.unless_given_up(reading).await {
                        tracing::warn!(%error, "cannot read the measurements of other controllers");
                    }
                }
                () = wait_for_stop(&mut stop) => return,
            }
        }
    }

    fn process_measurements(&self, kept: &StoredBatch) {
        let speaker = self.reporter_of(&kept.reporter);
        let mut weather = self.routing();
        for measurement in &kept.measurements {
            weather.record_measurement(&kept.reporter, &speaker, measurement);
        }
    }

    /// Rebuilds forecasts and scores. Returns the number of the last measurement used.
    async fn rebuild(&self) -> Result<i64, StoreError> {
        let last = self.0.store.last_measurement().await?;
        let mut seen = last.saturating_sub(REBUILD_MEASUREMENTS);
        self.read_from(&mut seen).await?;
        for (_, kept) in self.0.store.newest_reports(REBUILD_REPORTS).await? {
            self.take_report(&kept.reporter, &kept.report);
        }
        Ok(seen)
    }

    /// Processes measurements stored after `seen`, and advances it.
    async fn read_from(&self, seen: &mut i64) -> Result<(), StoreError> {
        let all = MeasurementQuery::default();
        loop {
            let found = self
                .0
                .store
                .measurements(&all, None, *seen, READ_BATCH)
                .await?;
            let Some((last, _)) = found.last() else {
                return Ok(());
            };
            *seen = *last;
            self.process_stored(found.iter().map(|(_, kept)| kept));
        }
    }

    fn process_stored<'a>(&self, found: impl Iterator<Item = &'a KeptMeasurement> + Clone) {
        let mut speakers: BTreeMap<&str, Speaker> = BTreeMap::new();
        for kept in found.clone() {
            let speaker = || self.reporter_of(&kept.reporter);
            speakers.entry(&kept.reporter).or_insert_with(speaker);
        }
        let mut weather = self.routing();
        for kept in found {
            if let Some(speaker) = speakers.get(kept.reporter.as_str()) {
                weather.record_measurement(&kept.reporter, speaker, &kept.measurement);
            }
        }
    }

    pub(super) async fn watch_store(self, mut stop: watch::Receiver<bool>) {
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = wait_for_stop(&mut stop) => return,
            }
            if self.0.store.is_shared()
                && let Err(error) = self.0.store.unless_given_up(self.follow()).await
            {
                tracing::warn!(%error, "cannot read the changes of other controllers");
            }
            if self.places().is_outdated(now_ms()) {
                self.rebuild_places();
            }
        }
    }
}
