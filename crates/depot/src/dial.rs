//! Dialling: from an OPEN that the policy admits to a connection with the next hop.

use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{DialError, DialledConnection, HopOptions, Payer, dial, dial_stream};
use longhaul_policy::{
    AccessRequest, Candidates, Finder, OwnAddressReader, OwnAddresses, ResolvedTarget, Unreachable,
};
use longhaul_proto::{Endpoint, Open, PublicKey, StatusCode, Transport, payload_rate};
use longhaul_quic::QuicDialler;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::{HopTransport, NextCongestion, NextTransport};
use crate::experience::HopExperiences;
use crate::observe::HopObservation;
use crate::refusal::DepotRefusal;

/// State of the depot that dialling needs.
#[derive(Debug)]
pub(crate) struct Dialler {
    finder: Finder,
    next_congestion: Vec<NextCongestion>,
    next_transport: Vec<NextTransport>,
    quic: Option<Arc<QuicDialler>>,
    unacknowledged: Duration,
    experiences: Mutex<HopExperiences>,
    created: Instant,
}

impl Dialler {
    pub(crate) fn new(
        lookups: usize,
        next_congestion: Vec<NextCongestion>,
        next_transport: Vec<NextTransport>,
        quic: Option<Arc<QuicDialler>>,
        unacknowledged: Duration,
        own: OwnAddressReader,
    ) -> Self {
        Self {
            finder: Finder::new(lookups, own),
            next_congestion,
            next_transport,
            quic,
            unacknowledged,
            experiences: Mutex::default(),
            created: Instant::now(),
        }
    }

    /// Returns this machine's addresses, for the policy.
    pub(crate) fn own_addresses(&self) -> Arc<OwnAddresses> {
        self.finder.own_addresses()
    }

    /// Finds the addresses to which the `candidates` let a session go that `asked` (LH-ADMIT-3).
    pub(crate) async fn authorise(
        &self,
        candidates: Candidates,
        asked: AccessRequest<'_>,
        payer: Payer,
        deadline: Instant,
    ) -> Result<ResolvedTarget, DepotRefusal> {
        Ok(self.finder.find(candidates, asked, payer, deadline).await?)
    }

    /// Connects to the first address of `way` that answers, by `transport`, or else by the one that
    /// the configuration names or that earlier sessions recommend. Over QUIC, it must prove `key`.
    /// A paced hop carries at most the session's `rate`, in bit/s.
    pub(crate) async fn dial(
        &self,
        way: &ResolvedTarget,
        key: Option<PublicKey>,
        transport: Option<Transport>,
        rate: Option<u64>,
        deadline: Instant,
    ) -> Result<DialledConnection, DepotRefusal> {
        let options = |address| {
            let mut choices = self.next_congestion.iter();
            HopOptions {
                user_timeout: self.unacknowledged,
                congestion: choices
                    .find(|choice| choice.applies(&way.endpoint, address))
                    .map(|choice| choice.value.clone()),
                source: None,
                source_ports: None,
            }
        };
        let tcp = dial(&way.addresses, options, deadline);
        let chosen = transport.map_or_else(|| self.chosen_transport(way), HopTransport::from);
        let dialled = match (&self.quic, chosen.transport) {
            (Some(quic), Transport::Quic) if transport.is_some() => {
                dial_stream(&way.addresses, quic.as_ref(), key, deadline).await
            }
            (Some(quic), Transport::Quic) => {
                quic.dial_or_tcp(&way.addresses, key, deadline, tcp).await
            }
            (None, Transport::Quic) if transport.is_some() => Err(DialError::NoQuic),
            (_, Transport::Quic | Transport::Tcp | Transport::Paced) => tcp.await,
        };
        let dialled = dialled
            .map_err(|error: DialError| DepotRefusal::new(error.code(), error.to_string()))?;
        if chosen.transport == Transport::Paced
            && let Some(rate) = rate.into_iter().chain(chosen.max_rate).min()
        {
            dialled.conn.pace(payload_rate(rate));
        }
        Ok(dialled)
    }

    /// Returns the transport for a target for which the route names none.
    fn chosen_transport(&self, way: &ResolvedTarget) -> HopTransport {
        let applies = |choice: &&NextTransport| {
            let mut addresses = way.addresses.iter();
            addresses.any(|address| choice.applies(&way.endpoint, *address))
        };
        if let Some(configured) = self.next_transport.iter().find(applies) {
            return configured.value;
        }
        let now = self.created.elapsed();
        let choice = self.experiences.lock().choose(&way.endpoint, now);
        tracing::debug!(hop = %way.endpoint, %choice, "transport chosen");
        choice.transport.into()
    }

    /// Learns from a session that was dialled to `hop`. `sent` is what TCP experienced while it
    /// sent there; QUIC carried `bytes` in `time`.
    pub(crate) fn learn(
        &self,
        hop: &Endpoint,
        transport: Transport,
        sent: Option<&HopObservation>,
        (bytes, time): (u64, Duration),
    ) {
        let now = self.created.elapsed();
        let mut experiences = self.experiences.lock();
        match (transport, sent) {
            (Transport::Quic, _) => experiences.record_quic(hop, bytes, time, now),
            (Transport::Tcp, Some(sent)) => experiences.record_tcp(hop, sent, now),
            // Its rate limit, and not the hop, decides what a paced session experiences.
            (Transport::Tcp, None) | (Transport::Paced, _) => {}
        }
    }
}

/// Returns the request that `open` makes of a depot's policy.
pub(crate) fn policy_request(open: &Open) -> Result<AccessRequest<'_>, DepotRefusal> {
    match AccessRequest::from_open(open) {
        Some(asked @ AccessRequest::Relay { .. }) => Ok(asked),
        _ => Err(DepotRefusal::new(
            StatusCode::Misrouted,
            "this is a depot, and the request is for a server: check the destination's host and \
             port",
        )),
    }
}

/// Returns the refusal of an OPEN that the policy does not allow.
pub(crate) fn policy_refusal(open: &Open) -> DepotRefusal {
    policy_request(open).map_or_else(
        |refused| refused,
        |asked| Unreachable::not_allowed(asked).into(),
    )
}

/// Returns the deadline of an OPEN's set-up at this depot.
pub(crate) fn deadline(open: &Open, since: Instant, dial: Duration) -> Instant {
    (since + open.setup_budget).min(Instant::now() + dial)
}
