//! Brings what a [`Reconciler`] wants asked to the drivers, and their answers back.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use longhaul_circuits::time::Moment;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;

use crate::ask::{DriverError, Reply};
use crate::circuit::Name;
use crate::driver::Driver;
use crate::reconcile::{Ask, Reconciler};

/// How long any driver may take: more than each allows itself, for one that keeps no time of its
/// own.
const ASK_TIME: Duration = Duration::from_secs(120);

/// The longest sleep: after it the clock is read again, which somebody may have set.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// Drivers by their names.
pub type Drivers = BTreeMap<Name, Arc<dyn Driver>>;

/// A reconciler and those it asks.
pub struct Conductor {
    reconciler: Mutex<Reconciler>,
    drivers: Drivers,
    changed: Notify,
    /// Counts what was answered and what time has changed.
    progress: watch::Sender<u64>,
}

impl Conductor {
    /// Begins with what is wanted, and asks nobody yet.
    #[must_use]
    pub fn new(reconciler: Reconciler, drivers: Drivers) -> Self {
        Self {
            reconciler: Mutex::new(reconciler),
            drivers,
            changed: Notify::new(),
            progress: watch::Sender::new(0),
        }
    }

    /// Looks at how things stand.
    pub fn look<T>(&self, look: impl FnOnce(&Reconciler) -> T) -> T {
        look(&self.locked())
    }

    /// Changes whenever a driver answered, or time has changed what is to be there: then circuits
    /// may stand otherwise.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// A driver, by its name.
    #[must_use]
    pub fn driver(&self, name: &Name) -> Option<Arc<dyn Driver>> {
        self.drivers.get(name).cloned()
    }

    /// Changes what is wanted.
    pub fn with<T>(&self, look: impl FnOnce(&mut Reconciler) -> T) -> T {
        let seen = look(&mut self.locked());
        self.changed.notify_one();
        seen
    }

    fn locked(&self) -> MutexGuard<'_, Reconciler> {
        // What a panic left is no worse than what a crash leaves, and is put right by the next
        // list.
        self.reconciler.lock()
    }

    /// Asks what is to be asked as time goes on, several drivers at once, until `stop` is true or
    /// whoever could say so is gone. What is under way then is given up: a later start puts it
    /// right.
    pub async fn run(&self, clock: impl Fn() -> Moment, mut stop: watch::Receiver<bool>) {
        let mut asking: JoinSet<Result<Reply, DriverError>> = JoinSet::new();
        let mut numbers: HashMap<Id, u64> = HashMap::new();
        // What an earlier run that was ended had under way.
        self.locked().give_up(clock());
        let mut has_moved = false;
        loop {
            let now = clock();
            let (asks, wake) = {
                let mut reconciler = self.locked();
                (reconciler.next(now), reconciler.wake(now))
            };
            for ask in asks {
                let number = ask.number;
                let handle = asking.spawn(carry_out(self.drivers.get(&ask.driver).cloned(), ask));
                numbers.insert(handle.id(), number);
            }
            if std::mem::take(&mut has_moved) {
                self.progress.send_modify(|moves| *moves += 1);
            }
            let sleep = wake.map_or(MAX_SLEEP, |wake| {
                Duration::from_millis(wake.abs_diff(now)).min(MAX_SLEEP)
            });
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = self.changed.notified() => {}
                () = tokio::time::sleep(sleep) => has_moved = true,
                Some(ended) = asking.join_next_with_id() => {
                    let (id, answer) = ended.unwrap_or_else(|error| {
                        (error.id(), Err(DriverError::failed("the driver broke off: see the log")))
                    });
                    if let Some(number) = numbers.remove(&id) {
                        self.locked().answered(number, answer, clock());
                        has_moved = true;
                    }
                }
            }
        }
    }
}

/// Asks a driver, and makes of its silence an answer.
///
/// # Errors
/// What the driver says; [`DriverError::Failed`] where there is none, or it takes too long.
async fn carry_out(driver: Option<Arc<dyn Driver>>, ask: Ask) -> Result<Reply, DriverError> {
    let Some(driver) = driver else {
        let text = format!(
            "there is no driver {}: name one in the configuration",
            ask.driver
        );
        return Err(DriverError::failed(text));
    };
    let answer = timeout(ASK_TIME, driver.ask(&ask.request)).await;
    let answer = answer.unwrap_or_else(|_| {
        let text = format!("no answer within {} s", ASK_TIME.as_secs());
        Err(DriverError::failed(text))
    });
    if let Err(error) = &answer {
        tracing::warn!(driver = %ask.driver, %error, "a driver was asked in vain");
    }
    answer
}
