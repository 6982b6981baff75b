//! The task that follows the book. It requests provisioned circuits from the network, reports their
//! state to the book, and counts the traffic of each path. Of several controllers that share a
//! store, only the leader does so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use longhaul_circuits::machine::ProvisionState;
use longhaul_circuits::time::MomentMs;
use longhaul_control_api::reservations::Carried;
use longhaul_provisioning::circuit::{EntityName, PartId};
use longhaul_provisioning::conductor::DriverRunner;
use longhaul_provisioning::driver::{Driver, counters};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::following::{ChangedReservations, ReservationTracker};
use super::judge::{TrackedReservation, judge};
use super::plan::circuit_name;
use super::view::CircuitsView;
use crate::authority::OPERATOR;
use crate::leader::{self, Leadership};
use crate::reservations::{
    CircuitResult, Clock, ReservationCaller, ReservationCommand, ReservationsHandle, api_moment,
};

/// Interval between counts of traffic.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the book, and runs the drivers while this controller leads.
pub struct CircuitController {
    book: ReservationsHandle,
    leadership: watch::Receiver<Leadership>,
    make: Box<dyn Fn() -> DriverRunner + Send + Sync>,
    /// Drivers of the current term of leading.
    conductor: Option<Arc<DriverRunner>>,
    view: CircuitsView,
    clock: Clock,
    following: ReservationTracker,
    /// Reservations whose circuits changed since they were last judged.
    different: ChangedReservations,
}

impl CircuitController {
    /// Creates the task. `make` creates the drivers for each term of leading. They must be new for
    /// each term, as another controller may have changed the nodes, and dropped drivers release
    /// their nodes.
    #[must_use]
    pub fn new(
        book: ReservationsHandle,
        leadership: watch::Receiver<Leadership>,
        make: impl Fn() -> DriverRunner + Send + Sync + 'static,
        view: CircuitsView,
        clock: Clock,
    ) -> Self {
        Self {
            book,
            leadership,
            make: Box::new(make),
            conductor: None,
            view,
            clock,
            following: ReservationTracker::default(),
            different: ChangedReservations::All,
        }
    }

    /// Follows the book until `stop` is true or its sender is gone.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.book.changes();
        // Until the journal has been read, no circuit is wanted, so existing ones would be torn
        // down.
        tokio::select! {
            is_known = wait_until_read(&mut changes) => if !is_known { return },
            () = wait_for_stop(&mut stop) => return,
        }
        let mut leads = self.book.leads();
        loop {
            let term = self.leadership.borrow_and_update().term();
            if term.is_some() && *leads.borrow_and_update() == term {
                tokio::select! {
                    () = self.conduct(changes.clone()) => {}
                    () = wait_for_stop(&mut stop) => return,
                }
                // Circuits stay set up; the new leader takes over.
                self.conductor = None;
                continue;
            }
            self.publish_states().await;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = leader::changed(&mut self.leadership) => {}
                () = leader::changed(&mut leads) => {}
                () = wait_for_stop(&mut stop) => return,
            }
        }
    }

    /// Publishes the states of reservations. The states of circuits are known to the leader only.
    async fn publish_states(&mut self) {
        let following = &mut self.following;
        // If the book cannot be read, the last states stay.
        let _ = self.book.read(|desk, _| following.update(desk)).await;
        self.view
            .set_circuits(BTreeMap::new(), self.following.states().clone());
    }

    /// Runs the drivers until another controller leads, or the book is no longer written.
    async fn conduct(&mut self, mut changes: watch::Receiver<u64>) {
        let mut leadership = self.leadership.clone();
        let term = leadership.borrow().term();
        let over = async move {
            if leadership.wait_for(|now| now.term() != term).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let conductor = Arc::new((self.make)());
        self.conductor = Some(conductor.clone());
        // New drivers know nothing of earlier requests.
        (self.following, self.different) =
            (ReservationTracker::default(), ChangedReservations::All);
        let clock = self.clock.clone();
        let (_halt, until) = watch::channel(false);
        let following = async {
            while !self.take_book(true).await {
                if changes.changed().await.is_err() {
                    return;
                }
            }
            // Dropping this cancels operations in progress.
            let conducting = conductor.run(|| clock(), until);
            tokio::select! {
                () = conducting => {}
                () = self.follow(changes) => {}
            }
        };
        tokio::select! {
            () = over => tracing::info!(
                "circuits are left as they are: another controller manages them"
            ),
            () = following => {}
        }
    }

    async fn follow(&mut self, mut changes: watch::Receiver<u64>) {
        let Some(conductor) = self.conductor.clone() else {
            return;
        };
        let mut progress = conductor.progress();
        let mut count = interval(COUNT_INTERVAL);
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut counting: JoinSet<()> = JoinSet::new();
        loop {
            self.report_results().await;
            tokio::select! {
                changed = changes.changed() => match changed {
                    Ok(()) => drop(self.take_book(false).await),
                    Err(_) => return,
                },
                // Any circuit may have changed.
                _ = progress.changed() => self.different = ChangedReservations::All,
                _ = count.tick(), if counting.is_empty() => {
                    self.count_traffic(&mut counting);
                    self.different = ChangedReservations::All;
                }
                Some(_) = counting.join_next() => {}
            }
        }
    }

    /// Takes the wanted circuits from the book. Returns true if the book could be read. Circuits
    /// that were provisioned before the start are assumed to be set up until a driver reports
    /// otherwise.
    async fn take_book(&mut self, is_first: bool) -> bool {
        let following = &mut self.following;
        let different = match self.book.read(|desk, _| following.update(desk)).await {
            Ok(different) => different,
            Err(error) => {
                tracing::warn!(%error, "circuits are left as they were");
                return false;
            }
        };
        let followed = self.following.followed();
        let provisioned = followed.iter().filter(|(_, one)| {
            is_first && one.machine.provision == Some(ProvisionState::Provisioned)
        });
        let provisioned: Vec<EntityName> = provisioned.map(|(id, _)| circuit_name(*id)).collect();
        let Some(conductor) = &self.conductor else {
            return false;
        };
        match &different {
            ChangedReservations::All => {
                let wanted = followed
                    .values()
                    .filter_map(TrackedReservation::wanted_circuit)
                    .cloned();
                let wanted: Vec<_> = wanted.collect();
                conductor.update(|reconciler| {
                    reconciler.set_wanted(wanted);
                    provisioned
                        .iter()
                        .for_each(|name| reconciler.mark_provisioned(name));
                });
            }
            // Reservations that are not on the network concern no driver.
            ChangedReservations::These(ids) if ids.is_empty() => {}
            ChangedReservations::These(ids) => {
                let wanted = |id| {
                    followed
                        .get(id)
                        .and_then(TrackedReservation::wanted_circuit)
                        .cloned()
                };
                let changed = ids.iter().map(|id| (circuit_name(*id), wanted(id)));
                let changed: Vec<_> = changed.collect();
                conductor.update(|reconciler| reconciler.update_wanted(changed));
            }
        }
        self.different.merge(different);
        true
    }

    /// Reports the results of changed circuits to the book, and publishes their states.
    async fn report_results(&mut self) {
        let now = (self.clock)();
        let mut settled = Vec::new();
        let Some(conductor) = &self.conductor else {
            return;
        };
        let followed = self.following.followed();
        let states = self.following.states().clone();
        let mut stands = |id, one, reconciler: &_| {
            let (what, circuit) = judge(id, one, reconciler, now);
            settled.extend(what.map(|what| (id, what)));
            circuit
        };
        match self.different.take() {
            ChangedReservations::All => {
                let shown = conductor.read_state(|reconciler| {
                    let shown = followed.iter();
                    shown
                        .map(|(id, one)| (*id, stands(*id, one, reconciler)))
                        .collect()
                });
                self.view.set_circuits(shown, states);
            }
            ChangedReservations::These(ids) => {
                let shown = conductor.read_state(|reconciler| {
                    let shown = ids.into_iter().map(|id| (id, followed.get(&id)));
                    shown
                        .map(|(id, one)| (id, one.map(|one| stands(id, one, reconciler))))
                        .collect()
                });
                self.view.update_circuits(shown, states);
            }
        }
        let failed = settled
            .iter()
            .filter(|(_, what)| matches!(what, CircuitResult::Failed(_)));
        for (id, what) in failed.clone() {
            tracing::warn!(reservation = id.0, ?what, "a circuit failed");
        }
        let failures = u64::try_from(failed.count()).unwrap_or(u64::MAX);
        if settled.is_empty() {
            return;
        }
        let asker = ReservationCaller {
            owner: OPERATOR.to_owned(),
            name: OPERATOR.to_owned(),
            rights: None,
        };
        match self
            .book
            .execute(asker, ReservationCommand::Settle(settled), None)
            .await
        {
            // Settled circuits are in the book now and need not be reported again.
            Ok(_) => {
                self.view.count_failures(failures);
                self.take_book(false).await;
            }
            Err(error) => {
                self.different = ChangedReservations::All;
                tracing::warn!(
                    %error,
                    "cannot record the state of circuits; retrying"
                );
            }
        }
    }

    /// Counts the traffic of all paths in the background.
    fn count_traffic(&self, counting: &mut JoinSet<()>) {
        let now = (self.clock)();
        let all: BTreeSet<PartId> = self
            .following
            .followed()
            .values()
            .flat_map(|one| one.counted.iter().cloned())
            .collect();
        let mut parts = Vec::new();
        let Some(conductor) = &self.conductor else {
            return;
        };
        conductor.read_state(|reconciler| {
            let owner = reconciler.owner().clone();
            for (id, one) in self.following.followed() {
                let there = reconciler.parts(&circuit_name(*id), now).into_iter();
                let there = there.filter(|(_, part)| one.counted.contains(&part.id));
                parts.extend(there.filter_map(|(driver, part)| {
                    Some((conductor.driver(&driver)?, owner.clone(), part.id))
                }));
            }
        });
        let (view, clock) = (self.view.clone(), self.clock.clone());
        counting.spawn(async move {
            let mut asked: JoinSet<Option<(PartId, Carried)>> = JoinSet::new();
            for (driver, owner, part) in parts {
                let clock = clock.clone();
                asked.spawn(async move { read_counters(&*driver, owner, part, &|| clock()).await });
            }
            let mut counted = BTreeMap::new();
            while let Some(answer) = asked.join_next().await {
                counted.extend(answer.ok().flatten());
            }
            view.record_traffic(&all, counted);
        });
    }
}

/// Completes when `stop` is true.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means the same.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits until the journal has been read. Returns false if it never will be.
async fn wait_until_read(changes: &mut watch::Receiver<u64>) -> bool {
    changes.wait_for(|times| *times > 0).await.is_ok()
}

/// Reads the counters of a part; `None` if its driver cannot.
async fn read_counters(
    driver: &dyn Driver,
    owner: EntityName,
    part: PartId,
    clock: &(dyn Fn() -> MomentMs + Sync),
) -> Option<(PartId, Carried)> {
    let counted = counters(driver, owner, part.clone()).await.ok()?;
    let carried = Carried {
        bytes: counted.bytes,
        packets: counted.packets,
        drops: counted.drops,
        at_ms: api_moment(clock()),
    };
    Some((part, carried))
}
