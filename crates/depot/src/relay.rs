//! Observes a session while its bytes move unread in both directions (LH-DEPOT-3).
//!
//! [`longhaul_hop::Duplex`] moves them. The first side is the hop on which the OPEN arrived, the
//! second the hop that was dialled. An end that has been relayed stays revocable, since only the
//! ends of the session know what was complete.

pub(crate) mod hops;

use longhaul_hop::{Conn, DuplexObserver};

use crate::metrics::Traffic;
use hops::{HopObservations, HopTallies, HopWatches};

/// Counts the bytes of a relayed session, and watches its hops once it moves bulk data.
#[derive(Debug)]
pub(crate) struct RelayObserver {
    traffic: Traffic,
    hops: Option<Box<HopWatches>>,
}

/// Observations of a relayed session.
#[derive(Debug)]
pub(crate) struct RelayObservations {
    /// Time spent under each limit at both hops.
    pub(crate) tallies: HopTallies,
    /// Further observations of the hops; `None` if too few bytes moved.
    pub(crate) hops: Option<HopObservations>,
}

impl RelayObserver {
    pub(crate) fn new(traffic: Traffic) -> Self {
        Self {
            traffic,
            hops: None,
        }
    }
}

impl DuplexObserver<Conn, Conn> for RelayObserver {
    type Observations = RelayObservations;

    fn count(&mut self, forward: u64, backward: u64) {
        self.traffic.count(forward, backward);
    }

    fn watch(&mut self, upstream: &mut Conn, downstream: &mut Conn, forward: bool) {
        self.hops
            .get_or_insert_with(|| Box::new(HopWatches::new(forward)))
            .sample(upstream, downstream);
    }

    fn finish(&mut self) -> RelayObservations {
        let hops = self.hops.as_ref();
        RelayObservations {
            tallies: hops.map(|hops| hops.tallies()).unwrap_or_default(),
            hops: hops.map(|hops| hops.observations()),
        }
    }
}
