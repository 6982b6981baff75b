//! The gate that every connection passes: newcomers up to their OPEN, then what is accounted to
//! whoever showed who it is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::{Full, PublicKey, Shares};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::newcomers::{Newcomers, network};

/// Prefix lengths by which sources are accounted where no key is.
const SOURCE_V4: u32 = 32;
const SOURCE_V6: u32 = 48;

/// Bounds of a gate. They hold whatever the peers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateLimits {
    /// Connections at a time whose OPEN has not been verified. One more makes the oldest of the
    /// fullest source go.
    pub newcomers: usize,
    /// Connections at a time whose OPEN has been verified. One payer has a half of them at most,
    /// two a third each, and so on.
    pub verified: usize,
    /// Time for the OPEN.
    pub header: Duration,
    /// The same when all places for newcomers are taken.
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

/// On whose account something goes: a key, where it is let in by name, or a source address, where
/// anybody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    /// A principal that is listed.
    Key(PublicKey),
    /// An IPv4 address, or the first address of an IPv6 /48.
    Source(IpAddr),
}

impl Payer {
    /// The source that `peer` is accounted to.
    #[must_use]
    pub fn source(peer: IpAddr) -> Self {
        let peer = peer.to_canonical();
        Self::Source(network(
            peer,
            if peer.is_ipv4() { SOURCE_V4 } else { SOURCE_V6 },
        ))
    }
}

/// Everybody now connected.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    newcomers: Newcomers,
    /// How to order each newcomer to go.
    evictions: HashMap<u64, oneshot::Sender<()>>,
    verified: Shares<Payer>,
}

/// A connection that was let in.
#[derive(Debug)]
pub struct Entered {
    /// Its place.
    pub place: Place,
    /// When it must go to make room.
    pub eviction: Eviction,
    /// How long its OPEN may take.
    pub header: Duration,
}

/// A connection's place; given back when dropped.
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

/// Comes when a newcomer must make room for others; never once its OPEN has been verified.
#[derive(Debug)]
pub struct Eviction(Option<oneshot::Receiver<()>>);

/// There is no room for another verified connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// For nobody.
    #[error("as many sessions as it can carry")]
    All,
    /// For this payer.
    #[error("as many sessions of this key or source as fit beside the others")]
    Share,
}

impl Gate {
    /// A gate with these bounds.
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

    /// Lets a connection from `peer` in, whose OPEN is yet to come. Somebody else may have to go
    /// for it.
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
            // Who has just left by itself needs no order.
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

    /// Connections whose OPEN is yet to be verified.
    #[must_use]
    pub fn newcomers(&self) -> usize {
        self.state().newcomers.len()
    }

    /// Connections whose OPEN has been verified.
    #[must_use]
    pub fn verified(&self) -> usize {
        usize::try_from(self.state().verified.used()).unwrap_or(usize::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Place {
    /// Returns true once the connection is on somebody's account.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        matches!(self.held, Held::Verified(_))
    }

    /// The OPEN has been verified: from now on the connection goes on `payer`'s account, if there
    /// is room for one more.
    ///
    /// # Errors
    /// [`NoRoom`]; it is then a newcomer as before.
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
    /// Completes when the connection must go.
    pub async fn wait(&mut self) {
        if let Some(evicted) = &mut self.0 {
            let reported = evicted.await.is_ok();
            self.0 = None;
            if reported {
                return;
            }
        }
        // The place was given back, or is a newcomer's no more.
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

    /// Whether it has been told to go; asks once.
    async fn reported(entered: &mut Entered) -> bool {
        tokio::select! {
            biased;
            () = entered.eviction.wait() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn who_is_one_too_many_is_refused_and_who_is_verified_is_not() {
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
