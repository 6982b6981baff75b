//! Admission gate for connections: first as pending connections, then charged to a payer once their
//! OPEN has been verified.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::{Full, PublicKey, Shares};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::newcomers::{Newcomers, network};

/// Prefix lengths of the networks to which sources without a key are charged.
const SOURCE_V4: u32 = 32;
const SOURCE_V6: u32 = 48;

/// Limits of a gate. They hold whatever the peers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateLimits {
    /// Maximum number of connections whose OPEN is not verified yet. One more evicts the oldest of
    /// the fullest source.
    pub newcomers: usize,
    /// Maximum number of connections whose OPEN is verified. A single payer may have half of them,
    /// two payers a third each, and so on.
    pub verified: usize,
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
    pub fn source(peer: IpAddr) -> Self {
        let peer = peer.to_canonical();
        Self::Source(network(
            peer,
            if peer.is_ipv4() { SOURCE_V4 } else { SOURCE_V6 },
        ))
    }
}

/// Gate that counts all current connections.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    newcomers: Newcomers,
    /// Eviction signal of each pending connection.
    evictions: HashMap<u64, oneshot::Sender<()>>,
    verified: Shares<Payer>,
}

/// An admitted connection.
#[derive(Debug)]
pub struct Entered {
    /// Permit of the connection.
    pub place: Place,
    /// Signal that the connection is evicted.
    pub eviction: Eviction,
    /// Time limit for its OPEN.
    pub header: Duration,
}

/// Permit of a connection, released when dropped.
#[derive(Debug)]
pub struct Place {
    gate: Arc<Gate>,
    held: Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Newcomer(u64),
    Verified(Payer),
}

/// Signal that a pending connection is evicted. It never fires once the OPEN has been verified.
#[derive(Debug)]
pub struct Eviction(Option<oneshot::Receiver<()>>);

/// Error: there is no permit for another verified connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// All permits are in use.
    #[error("as many sessions as it can carry")]
    All,
    /// This payer already uses its full share.
    #[error("as many sessions of this key or source as fit beside the others")]
    Share,
}

impl Gate {
    /// Creates a gate with these limits.
    #[must_use]
    pub fn new(limits: GateLimits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                newcomers: Newcomers::new(limits.newcomers, limits.header, limits.least_header),
                evictions: HashMap::new(),
                verified: Shares::new(limits.verified as u64, 1),
            }),
        })
    }

    /// Admits a connection from `peer` whose OPEN has not arrived yet. This may evict another one.
    #[must_use]
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Entered {
        let mut state = self.state();
        let admitted = state.newcomers.enter(peer);
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
        Entered {
            place: Place {
                gate: Arc::clone(self),
                held: Held::Newcomer(admitted.number),
            },
            eviction: Eviction(Some(evicted)),
            header: admitted.header,
        }
    }

    /// Returns the number of connections whose OPEN is not verified yet.
    #[must_use]
    pub fn newcomers(&self) -> usize {
        self.state().newcomers.len()
    }

    /// Returns the number of connections whose OPEN is verified.
    #[must_use]
    pub fn verified(&self) -> usize {
        usize::try_from(self.state().verified.used()).unwrap_or(usize::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Place {
    /// Returns true once the connection is charged to a payer.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        matches!(self.held, Held::Verified(_))
    }

    /// Charges the connection to `payer`, whose OPEN has been verified, if one more fits.
    ///
    /// # Errors
    /// [`NoRoom`]; the connection then stays pending.
    pub fn verified(&mut self, payer: Payer) -> Result<(), NoRoom> {
        let Held::Newcomer(number) = self.held else {
            return Ok(());
        };
        let mut state = self.gate.state();
        state.verified.take(&payer, 1).map_err(|full| match full {
            Full::All => NoRoom::All,
            Full::Share => NoRoom::Share,
        })?;
        state.newcomers.leave(number);
        state.evictions.remove(&number);
        drop(state);
        self.held = Held::Verified(payer);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        match self.held {
            Held::Newcomer(number) => {
                state.newcomers.leave(number);
                state.evictions.remove(&number);
            }
            Held::Verified(payer) => state.verified.give_back(&payer, 1),
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

    fn gate(newcomers: usize, verified: usize) -> Arc<Gate> {
        Gate::new(GateLimits {
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
    async fn reported(entered: &mut Entered) -> bool {
        tokio::select! {
            biased;
            () = entered.eviction.wait() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn excess_connections_are_evicted_but_verified_ones_stay() {
        let gate = gate(2, 10);
        let mut first = gate.enter(ip("192.0.2.1"));
        first.place.verified(key(1)).unwrap();
        let mut second = gate.enter(ip("192.0.2.1"));
        let mut third = gate.enter(ip("192.0.2.1"));
        assert!(!reported(&mut second).await);
        let mut fourth = gate.enter(ip("198.51.100.1"));
        assert!(reported(&mut second).await);
        for entered in [&mut first, &mut third, &mut fourth] {
            assert!(!reported(entered).await);
        }
        assert_eq!((gate.newcomers(), gate.verified()), (2, 1));
        drop((first, second, third, fourth));
        assert_eq!((gate.newcomers(), gate.verified()), (0, 0));
        assert!(
            gate.state().evictions.is_empty(),
            "nothing is kept of who left"
        );
    }

    #[tokio::test]
    async fn one_payer_leaves_room_for_others() {
        let gate = gate(100, 8);
        let mut held = Vec::new();
        let enter = |payer| {
            let mut entered = gate.enter(ip("192.0.2.1"));
            entered.place.verified(payer).map(|()| entered)
        };
        for _ in 0..4 {
            held.push(enter(key(1)).unwrap());
        }
        assert_eq!(enter(key(1)).unwrap_err(), NoRoom::Share);
        held.push(enter(key(2)).unwrap());
        held.push(enter(Payer::source(ip("2001:db8:1:2::3"))).unwrap());
        assert_eq!(gate.newcomers(), 0, "who found no room has gone");
        assert_eq!(
            Payer::source(ip("2001:db8:1:ffff::1")),
            Payer::source(ip("2001:db8:1::"))
        );
        assert_eq!(
            Payer::source(ip("::ffff:192.0.2.1")),
            Payer::source(ip("192.0.2.1"))
        );
    }
}
