//! Conversion of a reservation into a circuit: its plan, in names, with the streams of each path.

use std::collections::BTreeSet;

use longhaul_circuits::book::Reservation;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::request::Plan;
use longhaul_circuits::split::Route as Planned;
use longhaul_control_api::reservations::SourcePortRange;
use longhaul_setup::circuit::{Circuit, Hop, Name, PartId, Piece, Route};
use longhaul_setup::streams::{Prefix, SourcePorts, Streams, Transport};

use crate::reservations::desk::{Desk, Detail};
use crate::reservations::names::Names;
use crate::reservations::{reported, streams};

/// Reason why a reservation has no circuit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCircuit {
    /// The addresses of its streams are unknown.
    #[error(
        "the addresses of {0} are not known: name them on the map, or ask for it anew with \
        --from-address and --to-address"
    )]
    Address(String),
    /// It has no source ports, as all were taken.
    #[error(
        "all source ports between its ends were taken when it was asked for: cancel what is not \
        needed, and ask for it anew"
    )]
    Ports,
    /// A name on the map is not valid for drivers.
    #[error("{0}: rename it on the map")]
    Name(String),
    /// No site on its paths has a driver.
    #[error("no site on its paths has a driver: name one in the controller's control.toml")]
    NoDriver,
}

/// Returns the name of a reservation's circuit, which is its number.
#[must_use]
pub fn circuit_name(id: ReservationId) -> Name {
    Name::of_number(reported::number(id))
}

/// Converts a reservation into a circuit.
///
/// # Errors
/// [`NoCircuit`]: nothing of it can be set up.
pub fn circuit(
    desk: &Desk,
    id: ReservationId,
    detail: &Detail,
    reservation: &Reservation,
) -> Result<Circuit, NoCircuit> {
    let address = |place: &crate::reservations::wanted::Place| {
        place
            .address
            .ok_or_else(|| NoCircuit::Address(place.name.clone()))
    };
    let (from, to) = (address(&detail.from)?, address(&detail.to)?);
    if detail.ports.is_none() {
        return Err(NoCircuit::Ports);
    }
    if !desk.is_managed(detail, reservation) {
        return Err(NoCircuit::NoDriver);
    }
    let plan = &reservation.plan;
    let ports = streams::ports(plan, detail.ports, detail.pinned);
    let pieces = plan.0.iter().zip(ports).map(|(piece, ports)| {
        let routes = piece.routes.iter().zip(ports);
        let routes = routes
            .map(|(planned, ports)| route(desk.names(), planned, streams_of(from, to, ports)));
        Ok(Piece {
            window: piece.window,
            routes: routes.collect::<Result<_, NoCircuit>>()?,
        })
    });
    Ok(Circuit {
        id: circuit_name(id),
        pieces: pieces.collect::<Result<_, NoCircuit>>()?,
    })
}

/// Returns the streams of a path between two ends.
#[must_use]
pub fn streams_of(from: Prefix, to: Prefix, ports: Option<SourcePortRange>) -> Streams {
    Streams {
        from,
        to,
        source_ports: ports.map(|SourcePortRange { first, last }| SourcePorts {
            first,
            last,
            transport: Transport::Tcp,
        }),
        mark: None,
    }
}

fn route(names: &Names, planned: &Planned, streams: Streams) -> Result<Route, NoCircuit> {
    let name = |text: &str| {
        text.parse::<Name>()
            .map_err(|error| NoCircuit::Name(error.to_string()))
    };
    let links = planned.path.0.iter().filter_map(|link| names.link(*link));
    let hops = links.map(|known| {
        Ok(Hop {
            node: name(names.site(known.link.from))?,
            link: name(&known.name)?,
        })
    });
    Ok(Route {
        hops: hops.collect::<Result<_, NoCircuit>>()?,
        rate: planned.rate,
        streams,
    })
}

/// Returns the sites that the paths of a plan leave and that have no driver.
#[must_use]
pub fn not_set_up(desk: &Desk, plan: &Plan) -> BTreeSet<String> {
    desk.sending_sites(plan)
        .filter(|site| !desk.manages(site))
        .map(str::to_owned)
        .collect()
}

/// Returns the parts at which the traffic of each path is counted: those at its first node with a
/// driver.
#[must_use]
pub fn counted(desk: &Desk, circuit: &Circuit) -> BTreeSet<PartId> {
    let routes = circuit.pieces.iter().flat_map(|piece| &piece.routes);
    let parts = routes.filter_map(|route| {
        let mut hops = route.hops.iter();
        let hop = hops.find(|hop| desk.manages(hop.node.as_str()))?;
        Some(PartId::of(
            &circuit.id,
            &hop.node,
            &hop.link,
            &route.streams,
        ))
    });
    parts.collect()
}
