//! Carries the requests of a [`Reconciler`] to the drivers, and their answers back.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use longhaul_circuits::time::MomentMs;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;

use crate::ask::{DriverError, DriverReply};
use crate::circuit::EntityName;
use crate::driver::Driver;
use crate::reconcile::{DueRequest, Reconciler};

/// Time limit of any driver. It is longer than each driver's own limit, and serves those without
/// one.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum sleep. After it the clock is read again, in case it was set.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// Drivers by name.
pub type Drivers = BTreeMap<EntityName, Arc<dyn Driver>>;

/// A reconciler and the drivers that it controls.
pub struct DriverRunner {
    reconciler: Mutex<Reconciler>,
    drivers: Drivers,
    changed: Notify,
    /// Number of answers, and of changes due to time.
    progress: watch::Sender<u64>,
}

impl DriverRunner {
    /// Creates it from a reconciler and its drivers. No requests are sent yet.
    #[must_use]
    pub fn new(reconciler: Reconciler, drivers: Drivers) -> Self {
        Self {
            reconciler: Mutex::new(reconciler),
            drivers,
            changed: Notify::new(),
            progress: watch::Sender::new(0),
        }
    }

    /// Reads the state of the reconciler.
    pub fn read_state<T>(&self, look: impl FnOnce(&Reconciler) -> T) -> T {
        look(&self.lock_reconciler())
    }

    /// Returns a receiver that changes whenever a driver answered, or time changed what has to be
    /// set up. Then the status of circuits may have changed.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// Returns a driver by name.
    #[must_use]
    pub fn driver(&self, name: &EntityName) -> Option<Arc<dyn Driver>> {
        self.drivers.get(name).cloned()
    }

    /// Changes the wanted circuits.
    pub fn update<T>(&self, look: impl FnOnce(&mut Reconciler) -> T) -> T {
        let seen = look(&mut self.lock_reconciler());
        self.changed.notify_one();
        seen
    }

    fn lock_reconciler(&self) -> MutexGuard<'_, Reconciler> {
        // A panic leaves no worse a state than a crash does, and the next list repairs it.
        self.reconciler.lock()
    }

    /// Sends requests to the drivers as they become due, several drivers at once, until `stop` is
    /// true or its sender is dropped. Requests in progress are then abandoned; the next start
    /// repairs the state.
    pub async fn run(&self, clock: impl Fn() -> MomentMs, mut stop: watch::Receiver<bool>) {
        let mut asking: JoinSet<Result<DriverReply, DriverError>> = JoinSet::new();
        let mut numbers: HashMap<Id, u64> = HashMap::new();
        // Requests of an earlier run that was ended.
        self.lock_reconciler().abandon_requests(clock());
        let mut has_moved = false;
        loop {
            let now = clock();
            let (asks, wake) = {
                let mut reconciler = self.lock_reconciler();
                (reconciler.next_requests(now), reconciler.next_wake(now))
            };
            for ask in asks {
                let number = ask.number;
                let handle = asking.spawn(ask_driver(self.drivers.get(&ask.driver).cloned(), ask));
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
                        (error.id(), Err(DriverError::failed("the driver failed: see the log")))
                    });
                    if let Some(number) = numbers.remove(&id) {
                        self.lock_reconciler().take_answer(number, answer, clock());
                        has_moved = true;
                    }
                }
            }
        }
    }
}

/// Sends a request to a driver. Silence becomes an error.
///
/// # Errors
/// The driver's error; [`DriverError::Failed`] if there is no driver, or it takes too long.
async fn ask_driver(
    driver: Option<Arc<dyn Driver>>,
    ask: DueRequest,
) -> Result<DriverReply, DriverError> {
    let Some(driver) = driver else {
        let text = format!(
            "there is no driver {}: name one in the configuration",
            ask.driver
        );
        return Err(DriverError::failed(text));
    };
    let answer = timeout(DRIVER_TIMEOUT, driver.ask(&ask.request)).await;
    let answer = answer.unwrap_or_else(|_| {
        let text = format!("no answer within {} s", DRIVER_TIMEOUT.as_secs());
        Err(DriverError::failed(text))
    });
    if let Err(error) = &answer {
        tracing::warn!(driver = %ask.driver, %error, "a request to a driver failed");
    }
    answer
}
