//! Admission gate for connections: first as pending connections, then charged to a payer once their
//! OPEN has been verified.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::{ExhaustedBound, PublicKey, Shares};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::newcomers::{PendingConnections, network};

/// Prefix lengths of the networks to which sources without a key are charged.
const SOURCE_PREFIX_V4: u32 = 32;
const SOURCE_PREFIX_V6: u32 = 48;

/// Limits of a gate. They hold whatever the peers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateLimits {
    /// Maximum number of connections whose OPEN is not verified yet. One more evicts the oldest of
    /// the fullest source.
    pub newcomers: usize,
    /// Maximum number of connections whose OPEN is verified. A single payer may have half of them,
    /// two payers a third each, and so on.
    pub verified: usize,
    /// If true, sources leave an eighth of these for listed keys, because anybody can have many
    /// sources.
    pub reserves_for_keys: bool,
    /// Time limit for the OPEN.
    pub header: Duration,
    /// Time limit for the OPEN when no permit for a pending connection is free.
    pub least_header: Duration,
}

impl Default for GateLimits {
    fn default() -> Self {
        Self {
            newcomers: 512,
            verified: 4096,
            reserves_for_keys: false,
            header: Duration::from_secs(10),
            least_header: Duration::from_secs(2),
        }
    }
}

/// Account to which resources are charged: a key if it is listed by name, or a source address if
/// anybody is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    /// A listed principal.
    Key(PublicKey),
    /// An IPv4 address, or the first address of an IPv6 /48.
    Source(IpAddr),
}

impl Payer {
    /// Returns the source to which `peer` is charged.
    #[must_use]
    pub fn from_address(peer: IpAddr) -> Self {
        let peer = peer.to_canonical();
        Self::Source(network(
            peer,
            if peer.is_ipv4() {
                SOURCE_PREFIX_V4
            } else {
                SOURCE_PREFIX_V6
            },
        ))
    }
}

/// Gate that counts all current connections.
#[derive(Debug)]
pub struct ConnectionGate {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    newcomers: PendingConnections,
    /// Eviction signal of each pending connection.
    evictions: HashMap<u64, oneshot::Sender<()>>,
    verified: Shares<Payer>,
    reserves_for_keys: bool,
}

/// An admitted connection.
#[derive(Debug)]
pub struct AdmittedConnection {
    /// Permit of the connection.
    pub permit: ConnectionPermit,
    /// Signal that the connection is evicted.
    pub eviction: Eviction,
    /// Time limit for its OPEN.
    pub header: Duration,
}

/// Permit of a connection, released when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    gate: Arc<ConnectionGate>,
    held: PermitState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PermitState {
    Pending(u64),
    Verified(Payer),
}

/// Signal that a pending connection is evicted. It never fires once the OPEN has been verified.
#[derive(Debug)]
pub struct Eviction(Option<oneshot::Receiver<()>>);

/// Error: there is no permit for another verified connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaExceeded {
    /// All permits are in use.
    #[error("the maximum number of sessions is reached")]
    All,
    /// This payer already uses its full share. Use fewer streams, or fewer copies at a time.
    #[error("this key or source address already uses its full share of sessions")]
    Share,
}

impl ConnectionGate {
    /// Creates a gate with these limits.
    #[must_use]
    pub fn new(limits: GateLimits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                newcomers: PendingConnections::new(
                    limits.newcomers,
                    limits.header,
                    limits.least_header,
                ),
                evictions: HashMap::new(),
                verified: Shares::new(limits.verified as u64, 1),
                reserves_for_keys: limits.reserves_for_keys,
            }),
        })
    }

    /// Admits a connection from `peer` whose OPEN has not arrived yet. This may evict another one.
    #[must_use]
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> AdmittedConnection {
        let mut state = self.state();
        let admitted = state.newcomers.admit(peer);
        let (evict, evicted) = oneshot::channel();
        state.evictions.insert(admitted.number, evict);
        if let Some(evict) = admitted
            .evicted
            .and_then(|number| state.evictions.remove(&number))
        {
            // A connection that has just closed needs no signal.
            let _ = evict.send(());
        }
        drop(state);
        AdmittedConnection {
            permit: ConnectionPermit {
                gate: Arc::clone(self),
                held: PermitState::Pending(admitted.number),
            },
            eviction: Eviction(Some(evicted)),
            header: admitted.header,
        }
    }

    /// Returns the number of connections whose OPEN is not verified yet.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.state().newcomers.len()
    }

    /// Returns the number of connections whose OPEN is verified.
    #[must_use]
    pub fn verified_count(&self) -> usize {
        usize::try_from(self.state().verified.units_in_use()).unwrap_or(usize::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl ConnectionPermit {
    /// Returns true once the connection is charged to a payer.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        matches!(self.held, PermitState::Verified(_))
    }

    /// Charges the connection to `payer`, whose OPEN has been verified, if one more fits.
    ///
    /// # Errors
    /// [`QuotaExceeded`]; the connection then stays pending.
    pub fn charge_to(&mut self, payer: Payer) -> Result<(), QuotaExceeded> {
        let PermitState::Pending(number) = self.held else {
            return Ok(());
        };
        let mut state = self.gate.state();
        let taken = match payer {
            Payer::Source(_) if state.reserves_for_keys => state.verified.take_unlisted(&payer, 1),
            Payer::Source(_) | Payer::Key(_) => state.verified.take(&payer, 1),
        };
        taken.map_err(|full| match full {
            ExhaustedBound::All => QuotaExceeded::All,
            ExhaustedBound::Share => QuotaExceeded::Share,
        })?;
        state.newcomers.remove(number);
        state.evictions.remove(&number);
        drop(state);
        self.held = PermitState::Verified(payer);
        Ok(())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        match self.held {
            PermitState::Pending(number) => {
                state.newcomers.remove(number);
                state.evictions.remove(&number);
            }
            PermitState::Verified(payer) => state.verified.release(&payer, 1),
        }
    }
}

impl Eviction {
    /// Completes when the connection is evicted.
    pub async fn wait(&mut self) {
        if let Some(evicted) = &mut self.0 {
            let reported = evicted.await.is_ok();
            self.0 = None;
            if reported {
                return;
            }
        }
        // The permit was released, or is no longer that of a pending connection.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(newcomers: usize, verified: usize) -> Arc<ConnectionGate> {
        ConnectionGate::new(GateLimits {
            newcomers,
            verified,
            ..GateLimits::default()
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn key(number: u8) -> Payer {
        Payer::Key(PublicKey::from_bytes([number; 32]))
    }

    /// Returns true if the connection has been evicted; polls once.
    async fn reported(entered: &mut AdmittedConnection) -> bool {
        tokio::select! {
            biased;
            () = entered.eviction.wait() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn excess_connections_are_evicted_but_verified_ones_stay() {
        let gate = gate(2, 10);
        let mut first = gate.admit(ip("192.0.2.1"));
        first.permit.charge_to(key(1)).unwrap();
        let mut second = gate.admit(ip("192.0.2.1"));
        let mut third = gate.admit(ip("192.0.2.1"));
        assert!(!reported(&mut second).await);
        let mut fourth = gate.admit(ip("198.51.100.1"));
        assert!(reported(&mut second).await);
        for entered in [&mut first, &mut third, &mut fourth] {
            assert!(!reported(entered).await);
        }
        assert_eq!((gate.pending_count(), gate.verified_count()), (2, 1));
        assert_eq!(gate.state().evictions.len(), 2, "one signal for each");
        drop((first, second, third, fourth));
        assert_eq!((gate.pending_count(), gate.verified_count()), (0, 0));
        assert!(
            gate.state().evictions.is_empty(),
            "nothing is kept of who left"
        );
    }

    #[test]
    fn sources_leave_reserved_permits_for_keys() {
        let gate = ConnectionGate::new(GateLimits {
            verified: 16,
            reserves_for_keys: true,
            ..GateLimits::default()
        });
        let enter = |payer| {
            let mut entered = gate.admit(ip("192.0.2.1"));
            entered.permit.charge_to(payer).map(|()| entered)
        };
        let source = |n: u8| Payer::from_address(ip(&format!("203.0.113.{n}")));
        let sources: Vec<_> = (1..=40).filter_map(|n| enter(source(n)).ok()).collect();
        assert_eq!(sources.len(), 14);
        assert_eq!(enter(source(41)).unwrap_err(), QuotaExceeded::All);
        let keys: Vec<_> = (1..=2).map(|n| enter(key(n)).unwrap()).collect();
        assert_eq!(enter(key(3)).unwrap_err(), QuotaExceeded::All);
        drop(keys);
        assert_eq!(gate.verified_count(), 14);
    }

    #[tokio::test]
    async fn one_payer_leaves_room_for_others() {
        let gate = gate(100, 8);
        let mut held = Vec::new();
        let enter = |payer| {
            let mut entered = gate.admit(ip("192.0.2.1"));
            entered.permit.charge_to(payer).map(|()| entered)
        };
        for _ in 0..4 {
            held.push(enter(key(1)).unwrap());
        }
        assert_eq!(enter(key(1)).unwrap_err(), QuotaExceeded::Share);
        held.push(enter(key(2)).unwrap());
        held.push(enter(Payer::from_address(ip("2001:db8:1:2::3"))).unwrap());
        assert_eq!(gate.pending_count(), 0, "who found no room has gone");
        assert_eq!(
            Payer::from_address(ip("2001:db8:1:ffff::1")),
            Payer::from_address(ip("2001:db8:1::"))
        );
        assert_eq!(
            Payer::from_address(ip("::ffff:192.0.2.1")),
            Payer::from_address(ip("192.0.2.1"))
        );
    }
}
