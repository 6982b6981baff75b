//! Connections in the form of the API.

use std::collections::BTreeMap;

use longhaul_control_api::domains::{DomainReservation, DomainReservationState, DomainSegment};
use longhaul_control_api::reservations::Reservation;
use longhaul_domains::connection::{Connection, Phase, Provider, Requester};

use crate::controller::Controller;
use crate::domains::DomainsHandle;

/// Returns the owner of a connection: a key, or `operator`.
pub(super) fn owner(domains: &DomainsHandle, connection: &Connection) -> String {
    match &connection.requester {
        Requester::User(user) => user.clone(),
        Requester::Peer(domain) => {
            let peer = domains.settings().peers.get(domain);
            peer.map_or_else(|| domain.to_string(), |peer| peer.key.to_string())
        }
    }
}

/// Adds to reservations what they are segments of.
pub(in crate::http) fn add_domain_state(controller: &Controller, reservations: &mut [Reservation]) {
    let Some(domains) = controller.domains() else {
        return;
    };
    let mut by_number: BTreeMap<u64, Connection> = BTreeMap::new();
    for connection in domains.connections() {
        let numbers = connection.legs.iter().filter_map(|leg| leg.reservation);
        for number in numbers.collect::<Vec<_>>() {
            by_number.insert(number, connection.clone());
        }
    }
    for reservation in reservations {
        let found = by_number.get(&reservation.id);
        reservation.across = found.map(|connection| Box::new(shown(domains, connection)));
    }
}

/// Returns a connection in the form of the API.
pub(super) fn shown(domains: &DomainsHandle, connection: &Connection) -> DomainReservation {
    let segments = connection.legs.iter().flat_map(|leg| {
        let reported = leg.segments.iter().map(|segment| DomainSegment {
            domain: segment.source.domain.clone(),
            from: segment.source.clone(),
            to: segment.destination.clone(),
            connection_id: leg.connection_id.clone().filter(
                |_| matches!(&leg.provider, Provider::Peer(peer) if *peer == segment.source.domain),
            ),
            reservation: leg.reservation,
        });
        reported.collect::<Vec<_>>()
    });
    DomainReservation {
        id: connection.global.clone(),
        connection_id: connection.id.clone(),
        requester: match &connection.requester {
            Requester::User(_) => None,
            Requester::Peer(domain) => Some(domain.clone()),
        },
        owner: owner(domains, connection),
        from: connection.criteria.source.clone(),
        to: connection.criteria.destination.clone(),
        rate_bps: connection.criteria.capacity_bps,
        start_ms: connection.criteria.start_ms,
        end_ms: connection.criteria.end_ms,
        shape: connection.criteria.shape,
        state: match connection.phase {
            Phase::Reserving => DomainReservationState::Reserving,
            Phase::Held => DomainReservationState::Held,
            Phase::Committing => DomainReservationState::Committing,
            Phase::Committed => DomainReservationState::Committed,
            Phase::Active => DomainReservationState::Reserved,
            Phase::Terminating => DomainReservationState::Terminating,
            Phase::Terminated => DomainReservationState::Terminated,
        },
        provision: connection.is_provisioned,
        segments: segments.collect(),
        problem: connection.problem.clone(),
    }
}
