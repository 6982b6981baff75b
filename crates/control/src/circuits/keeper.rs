//! The task that follows the book. It requests provisioned circuits from the network, reports their
//! state to the book, and counts the traffic of each path. Of several controllers that share a
//! store, only the leader does so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use longhaul_circuits::machine::Provision;
use longhaul_circuits::time::Moment;
use longhaul_control_api::reservations::Carried;
use longhaul_setup::circuit::{Name, PartId};
use longhaul_setup::conductor::Conductor;
use longhaul_setup::driver::{Driver, counters};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::following::{Different, Following};
use super::judge::{Followed, judge};
use super::plan::circuit_name;
use super::view::CircuitsView;
use crate::authority::OPERATOR;
use crate::leader::{self, Leadership};
use crate::reservations::{Asker, Book, Clock, Command, Settled, api_moment};

/// Interval between counts of traffic.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the book, and runs the drivers while this controller leads.
pub struct Keeper {
    book: Book,
    leadership: watch::Receiver<Leadership>,
    make: Box<dyn Fn() -> Conductor + Send + Sync>,
    /// Drivers of the current term of leading.
    conductor: Option<Arc<Conductor>>,
    view: CircuitsView,
    clock: Clock,
    following: Following,
    /// Reservations whose circuits changed since they were last judged.
    different: Different,
}

impl Keeper {
    /// Creates the task. `make` creates the drivers for each term of leading. They must be new for
    /// each term, as another controller may have changed the nodes, and dropped drivers release
    /// their nodes.
    #[must_use]
    pub fn new(
        book: Book,
        leadership: watch::Receiver<Leadership>,
        make: impl Fn() -> Conductor + Send + Sync + 'static,
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
            following: Following::default(),
            different: Different::All,
        }
    }

    /// Follows the book until `stop` is true or its sender is gone.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.book.changes();
        // Until the journal has been read, no circuit is wanted, so existing ones would be torn
        // down.
        tokio::select! {
            is_known = read_first(&mut changes) => if !is_known { return },
            () = ended(&mut stop) => return,
        }
        let mut leads = self.book.leads();
        loop {
            let term = self.leadership.borrow_and_update().term();
            if term.is_some() && *leads.borrow_and_update() == term {
                tokio::select! {
                    () = self.conduct(changes.clone()) => {}
                    () = ended(&mut stop) => return,
                }
                // Circuits stay set up; the new leader takes over.
                self.conductor = None;
                continue;
            }
            self.look_on().await;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = leader::changed(&mut self.leadership) => {}
                () = leader::changed(&mut leads) => {}
                () = ended(&mut stop) => return,
            }
        }
    }

    /// Publishes the states of reservations. The states of circuits are known to the leader only.
    async fn look_on(&mut self) {
        let following = &mut self.following;
        // If the book cannot be read, the last states stay.
        let _ = self.book.read(|desk, _| following.take(desk)).await;
        self.view
            .stand(BTreeMap::new(), self.following.states().clone());
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
        (self.following, self.different) = (Following::default(), Different::All);
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
                "circuits stay as they are: another controller sees to them"
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
            self.settle().await;
            tokio::select! {
                changed = changes.changed() => match changed {
                    Ok(()) => drop(self.take_book(false).await),
                    Err(_) => return,
                },
                // Any circuit may have changed.
                _ = progress.changed() => self.different = Different::All,
                _ = count.tick(), if counting.is_empty() => {
                    self.count(&mut counting);
                    self.different = Different::All;
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
        let different = match self.book.read(|desk, _| following.take(desk)).await {
            Ok(different) => different,
            Err(error) => {
                tracing::warn!(%error, "circuits stay as they were");
                return false;
            }
        };
        let followed = self.following.followed();
        let provisioned = followed
            .iter()
            .filter(|(_, one)| is_first && one.machine.provision == Some(Provision::Provisioned));
        let provisioned: Vec<Name> = provisioned.map(|(id, _)| circuit_name(*id)).collect();
        let Some(conductor) = &self.conductor else {
            return false;
        };
        match &different {
            Different::All => {
                let wanted = followed.values().filter_map(Followed::wanted).cloned();
                let wanted: Vec<_> = wanted.collect();
                conductor.with(|reconciler| {
                    reconciler.want(wanted);
                    provisioned
                        .iter()
                        .for_each(|name| reconciler.was_provisioned(name));
                });
            }
            // Reservations that are not on the network concern no driver.
            Different::These(ids) if ids.is_empty() => {}
            Different::These(ids) => {
                let wanted = |id| followed.get(id).and_then(Followed::wanted).cloned();
                let changed = ids.iter().map(|id| (circuit_name(*id), wanted(id)));
                let changed: Vec<_> = changed.collect();
                conductor.with(|reconciler| reconciler.want_instead(changed));
            }
        }
        self.different.and(different);
        true
    }

    /// Reports the results of changed circuits to the book, and publishes their states.
    async fn settle(&mut self) {
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
        match self.different.taken() {
            Different::All => {
                let shown = conductor.look(|reconciler| {
                    let shown = followed.iter();
                    shown
                        .map(|(id, one)| (*id, stands(*id, one, reconciler)))
                        .collect()
                });
                self.view.stand(shown, states);
            }
            Different::These(ids) => {
                let shown = conductor.look(|reconciler| {
                    let shown = ids.into_iter().map(|id| (id, followed.get(&id)));
                    shown
                        .map(|(id, one)| (id, one.map(|one| stands(id, one, reconciler))))
                        .collect()
                });
                self.view.stand_otherwise(shown, states);
            }
        }
        let failed = settled
            .iter()
            .filter(|(_, what)| matches!(what, Settled::Failed(_)));
        for (id, what) in failed.clone() {
            tracing::warn!(
                reservation = crate::reservations::reported::number(*id),
                ?what,
                "a circuit failed"
            );
        }
        let failures = u64::try_from(failed.count()).unwrap_or(u64::MAX);
        if settled.is_empty() {
            return;
        }
        let asker = Asker {
            owner: OPERATOR.to_owned(),
            name: OPERATOR.to_owned(),
            rights: None,
        };
        match self.book.ask(asker, Command::Settle(settled), None).await {
            // Settled circuits are in the book now and need not be reported again.
            Ok(_) => {
                self.view.failed(failures);
                self.take_book(false).await;
            }
            Err(error) => {
                self.different = Different::All;
                tracing::warn!(
                    %error,
                    "what became of circuits could not be written: it is tried again"
                );
            }
        }
    }

    /// Counts the traffic of all paths in the background.
    fn count(&self, counting: &mut JoinSet<()>) {
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
        conductor.look(|reconciler| {
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
                asked.spawn(async move { carried(&*driver, owner, part, &|| clock()).await });
            }
            let mut counted = BTreeMap::new();
            while let Some(answer) = asked.join_next().await {
                counted.extend(answer.ok().flatten());
            }
            view.count(&all, counted);
        });
    }
}

/// Completes when `stop` is true.
async fn ended(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means the same.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits until the journal has been read. Returns false if it never will be.
async fn read_first(changes: &mut watch::Receiver<u64>) -> bool {
    changes.wait_for(|times| *times > 0).await.is_ok()
}

/// Reads the counters of a part; `None` if its driver cannot.
async fn carried(
    driver: &dyn Driver,
    owner: Name,
    part: PartId,
    clock: &(dyn Fn() -> Moment + Sync),
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
