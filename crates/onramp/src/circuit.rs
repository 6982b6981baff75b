//! Circuits around the on-ramp's connections: reserved when a program states a rate, or when a rule
//! reserves for long flows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_config::routes::RouteRule;
use longhaul_hop::{Conn, DuplexObserver, EventLog, RateLimits, TcpConn, unix_ms};
use longhaul_proto::{
    DelegatedAction, Delegation, Endpoint, MAX_DELEGATION_LIFETIME, MAX_OPEN_DELEGATIONS,
    PublicKey, Route, SessionId,
};
use longhaul_session::{Identity, Session};
use longhaul_wishes::{
    CircuitBroker, DrivenFlow, FlowDirection, FlowLink, HeldHop, HeldRate, ReserveTerms,
    StatedWish, drive, terms,
};

use crate::asker::OnrampClient;
use crate::destination::{OnrampDestination, SessionWish};

/// Connection of the on-ramp towards a destination, by its socket.
pub(crate) trait FarHop {
    /// Returns the TCP connection, if the hop has one.
    fn tcp(&self) -> Option<&TcpConn>;
}

impl FarHop for Conn {
    fn tcp(&self) -> Option<&TcpConn> {
        Self::tcp(self)
    }
}

impl FarHop for Session {
    fn tcp(&self) -> Option<&TcpConn> {
        Self::tcp(self)
    }
}

/// A connection that may get a circuit, for reservations and logs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CircuitFlow<'a> {
    /// Name of the entry.
    pub(crate) entry: &'static str,
    pub(crate) asker: OnrampClient,
    pub(crate) destination: &'a OnrampDestination,
    /// Stated purpose.
    pub(crate) purpose: Option<&'a str>,
}

/// Returns what a request may reserve, by what its program states and by the rule for its
/// destination.
///
/// Only programs of this machine act for its user. For others, only a rule can reserve.
pub(crate) fn reserve_terms(
    asker: OnrampClient,
    wish: &SessionWish,
    rule: Option<&RouteRule>,
) -> Option<ReserveTerms> {
    let stated = match asker {
        OnrampClient::Machine => StatedWish {
            rate: wish.rate,
            duration: wish.duration,
            size: wish.size,
        },
        OnrampClient::Guest(_) => StatedWish::default(),
    };
    terms::terms(stated, rule.map(|rule| rule.reserve).unwrap_or_default())
}

/// Time for which a delegation is valid before and after the circuit that it permits.
const DELEGATION_MARGIN: Duration = Duration::from_secs(60);

/// Returns this user's permissions for the depots of a route whose keys it names. Each may reserve
/// the hop that it dials. `end` is where the session ends.
pub(crate) fn delegations(
    identity: &Identity,
    audience: Option<PublicKey>,
    terms: &ReserveTerms,
    via: &Route,
    end: &Endpoint,
) -> Vec<Delegation> {
    let now = unix_ms();
    let lasts = terms.reserve.duration.saturating_add(DELEGATION_MARGIN);
    let lasts = lasts.min(MAX_DELEGATION_LIFETIME).as_millis();
    let onward = via.hops().iter().skip(1).map(|hop| &hop.endpoint);
    let hops = via.hops().iter().zip(onward.chain([end]));
    let given = hops.filter_map(|(hop, next)| {
        let mut given = Delegation {
            id: *SessionId::random().ok()?.as_bytes(),
            action: DelegatedAction::Circuit,
            principal: identity.public(),
            delegate: hop.key?,
            audience,
            from: hop.key?.to_string(),
            to: next.host.to_string(),
            both_ways: terms.reserve.direction != Some(FlowDirection::Send),
            max_rate: terms.reserve.rate,
            start_unix_ms: now,
            end_unix_ms: now.saturating_add(u64::try_from(lasts).unwrap_or(u64::MAX)),
            signature: [0; 64],
        };
        given.sign(identity.signing_key()).ok()?;
        Some(given)
    });
    given.take(MAX_OPEN_DELEGATIONS).collect()
}

/// Starts to manage the circuit of a connection. `None` if its hop is not TCP.
pub(crate) fn drive_circuit(
    broker: &Arc<dyn CircuitBroker>,
    events: &Arc<EventLog>,
    flow: CircuitFlow<'_>,
    terms: ReserveTerms,
    far: &impl FarHop,
) -> Option<DrivenFlow> {
    let tcp = far.tcp()?;
    let addresses = tcp.local_addr().ok().zip(tcp.peer_addr().ok());
    let (local, peer): (SocketAddr, SocketAddr) = addresses?;
    let link = FlowLink {
        local,
        peer,
        purpose: flow.purpose.map(str::to_owned),
        delegation: None,
    };
    let (entry, destination) = (flow.entry, flow.destination.clone());
    let (events, payer) = (Arc::clone(events), flow.asker.payer());
    let report = move |event| {
        events.log(Some(payer), |left_out| {
            tracing::info!(entry, %destination, left_out, "{event}");
        });
    };
    Some(drive(Arc::clone(broker), terms, link, report))
}

/// Waits until a circuit begins or ends, and returns the limits from then on. Never completes
/// without a circuit.
pub(crate) async fn changed_limits(flow: &mut Option<DrivenFlow>) -> RateLimits {
    let Some(flow) = flow else {
        return std::future::pending().await;
    };
    let usual = RateLimits::new(None);
    match flow.changed().await {
        // The far end is the first side.
        Some(held) => HeldRate::limits(held, FlowDirection::Receive, usual),
        None => usual,
    }
}

/// Observer that holds a connection to its circuit. `inner` right-sizes it at other times.
pub(crate) struct CircuitObserver<O> {
    inner: O,
    hop: Option<HeldHop>,
}

impl<O> CircuitObserver<O> {
    pub(crate) fn new(inner: O, flow: Option<&DrivenFlow>) -> Self {
        Self {
            inner,
            hop: flow.map(DrivenFlow::held_hop),
        }
    }
}

impl<F, O> DuplexObserver<F, Conn> for CircuitObserver<O>
where
    F: FarHop,
    O: DuplexObserver<F, Conn>,
{
    fn count(&mut self, received: u64, sent: u64) {
        self.inner.count(received, sent);
        if let Some(hop) = &self.hop {
            hop.count(sent, received);
        }
    }

    fn watch(&mut self, far: &mut F, program: &mut Conn, received_most: bool) {
        let hop = self.hop.as_mut();
        let is_held = hop.is_some_and(|hop| hop.pace(far.tcp()));
        // A fitted rate would replace that of the circuit.
        if !is_held {
            self.inner.watch(far, program, received_most);
        }
    }
}
