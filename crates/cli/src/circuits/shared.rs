//! Circuits that several connections use: those whose packets come from the same port of a server
//! to the same address here, which routers cannot tell apart.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use longhaul_wishes::ReservedCircuit;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Server's address and port, and address here.
pub type SharedKey = (SocketAddr, IpAddr);

/// Maximum number of remembered keys; those without a circuit are forgotten beyond it.
const MAX_KEYS: usize = 4096;

/// The circuits in use, with their numbers of users.
#[derive(Debug, Default)]
pub struct SharedCircuits {
    keys: Mutex<HashMap<SharedKey, Arc<tokio::sync::Mutex<()>>>>,
    used: Arc<Mutex<HashMap<SharedKey, UsedCircuit>>>,
}

#[derive(Debug)]
struct UsedCircuit {
    circuit: ReservedCircuit,
    start: Instant,
    end: Instant,
    users: usize,
}

/// Exclusive access to the circuit of one key.
pub struct LockedCircuit {
    key: SharedKey,
    used: Arc<Mutex<HashMap<SharedKey, UsedCircuit>>>,
    _lock: OwnedMutexGuard<()>,
}

impl SharedCircuits {
    /// Waits for other requests with the same key.
    pub async fn lock(&self, key: SharedKey) -> LockedCircuit {
        let lock = {
            let mut keys = self.keys.lock();
            if keys.len() >= MAX_KEYS {
                // A lock that somebody holds has another owner.
                keys.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            Arc::clone(keys.entry(key).or_default())
        };
        LockedCircuit {
            key,
            used: Arc::clone(&self.used),
            _lock: lock.lock_owned().await,
        }
    }

    /// Removes a user of a circuit. Returns true if nobody else uses it.
    pub fn leave(&self, id: u64) -> bool {
        let mut used = self.used.lock();
        let found = used.iter_mut().find(|(_, used)| used.circuit.id == id);
        let Some((key, circuit)) = found else {
            return true;
        };
        circuit.users = circuit.users.saturating_sub(1);
        if circuit.users > 0 {
            return false;
        }
        let key = *key;
        used.remove(&key);
        true
    }
}

impl LockedCircuit {
    /// Joins the circuit of this key, if there is one in force or to come.
    pub fn join(&mut self) -> Option<ReservedCircuit> {
        let mut used = self.used.lock();
        let found = used.get_mut(&self.key)?;
        let now = Instant::now();
        if now >= found.end {
            used.remove(&self.key);
            return None;
        }
        found.users = found.users.saturating_add(1);
        let start = found.start.max(now);
        Some(ReservedCircuit {
            starts_in: start.saturating_duration_since(now),
            lasts: found.end.saturating_duration_since(start),
            ..found.circuit
        })
    }

    /// Records a circuit with one user.
    pub fn begin(&mut self, circuit: ReservedCircuit) {
        let start = after(Instant::now(), circuit.starts_in);
        let used = UsedCircuit {
            circuit,
            start,
            end: after(start, circuit.lasts),
            users: 1,
        };
        self.used.lock().insert(self.key, used);
    }
}

fn after(at: Instant, time: Duration) -> Instant {
    at.checked_add(time).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn key(port: u16) -> SharedKey {
        (([192, 0, 2, 1], port).into(), [192, 0, 2, 9].into())
    }

    const fn circuit(id: u64) -> ReservedCircuit {
        ReservedCircuit {
            id,
            rate: 100,
            starts_in: Duration::from_secs(5),
            lasts: Duration::from_secs(60),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_user_returns_a_circuit() {
        let shared = SharedCircuits::default();
        let mut first = shared.lock(key(80)).await;
        assert_eq!(first.join(), None);
        first.begin(circuit(7));
        drop(first);
        tokio::time::advance(Duration::from_secs(15)).await;
        let joined = shared.lock(key(80)).await.join().unwrap();
        assert_eq!((joined.id, joined.starts_in), (7, Duration::ZERO));
        assert_eq!(joined.lasts, Duration::from_secs(50));
        assert_eq!(shared.lock(key(81)).await.join(), None, "another port");
        assert!(!shared.leave(7));
        assert!(shared.leave(7));
        assert!(shared.leave(8), "a circuit of one connection");
        shared.lock(key(80)).await.begin(circuit(9));
        tokio::time::advance(Duration::from_secs(66)).await;
        assert_eq!(shared.lock(key(80)).await.join(), None, "it is over");
    }
}
