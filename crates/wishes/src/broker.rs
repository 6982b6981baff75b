//! Interface to the broker that reserves circuits: a controller's client, implemented by the
//! caller.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use longhaul_proto::Delegation;

use crate::terms::FlowDirection;

/// Answer of a broker that is on its way.
pub type BrokerFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Reserves circuits around connections. Every method answers in bounded time.
pub trait CircuitBroker: fmt::Debug + Send + Sync {
    /// Asks for a circuit around a connection.
    fn reserve(&self, wanted: WantedCircuit) -> BrokerFuture<CircuitAnswer>;

    /// Takes an offer that came with a refusal.
    fn take_offer(&self, offer: OfferedCircuit) -> BrokerFuture<CircuitAnswer>;

    /// Asks for the state of a reserved circuit.
    fn state(&self, id: u64) -> BrokerFuture<CircuitState>;

    /// Returns a reserved circuit.
    fn give_back(&self, id: u64) -> BrokerFuture<()>;
}

/// Circuit to reserve around a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCircuit {
    /// Direction of its bytes.
    pub direction: FlowDirection,
    /// Address and port of this end of the connection.
    pub local: SocketAddr,
    /// Address and port of the far end.
    pub peer: SocketAddr,
    /// Rate, in bit/s. Packet headers count.
    pub rate: u64,
    /// Duration from now on.
    pub duration: Duration,
    /// Purpose, for people to read.
    pub purpose: Option<String>,
    /// Permission of the principal in whose name to ask; the broker's own key asks if `None`.
    pub delegation: Option<Box<Delegation>>,
}

/// Answer to a request for a circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitAnswer {
    /// The circuit is reserved.
    Reserved(ReservedCircuit),
    /// There is not enough bandwidth.
    Refused {
        /// Offers instead.
        offers: Vec<OfferedCircuit>,
        /// Reason, in one line.
        why: String,
    },
    /// Nothing can be reserved: no controller answers, the ends are not on its map, or the right is
    /// missing.
    Failed {
        /// Reason, in one line.
        why: String,
        /// True if another attempt may succeed.
        is_transient: bool,
    },
}

/// A reserved circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedCircuit {
    /// Number of the reservation.
    pub id: u64,
    /// Rate, in bit/s. Packet headers count.
    pub rate: u64,
    /// Time until it begins.
    pub starts_in: Duration,
    /// Time from its start to its end.
    pub lasts: Duration,
}

/// Circuit that is offered instead of the wanted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedCircuit {
    /// Rate, in bit/s.
    pub rate: u64,
    /// Time until it begins.
    pub starts_in: Duration,
    /// Time from its start to its end.
    pub lasts: Duration,
    /// Request that takes the offer, in the broker's own form.
    pub request: String,
}

/// State of a reserved circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitState {
    /// It is promised.
    Promised,
    /// It was cancelled or has failed, for this reason in one line.
    Lost(String),
    /// The controller did not answer.
    Unknown,
}
