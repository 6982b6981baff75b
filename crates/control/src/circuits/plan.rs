//! Conversion of a reservation into a circuit: its plan, in names, with the streams of each path.

use std::collections::BTreeSet;

use longhaul_circuits::book::Reservation;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::request::ReservationPlan;
use longhaul_circuits::split::RatedPath as Planned;
use longhaul_control_api::reservations::SourcePortRange;
use longhaul_provisioning::circuit::{
    CircuitHop, CircuitPiece, CircuitRoute, CircuitSpec, EntityName, PartId,
};
use longhaul_provisioning::streams::{PortProtocol, Prefix, SourcePorts, StreamSelector};

use crate::reservations::desk::ReservationStore;
use crate::reservations::names::NetworkNames;
use crate::reservations::record::ReservationDetail;
use crate::reservations::streams;

/// Reason why a reservation has no circuit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CircuitError {
    /// The addresses of its streams are unknown.
    #[error(
        "the addresses of {0} are not known: add them to the map, or reserve again with \
         --from-address and --to-address"
    )]
    Address(String),
    /// It has no source ports, as all were taken.
    #[error(
        "all source ports between its ends were in use when it was requested: cancel reservations \
         that are not needed, and reserve again"
    )]
    Ports,
    /// A name on the map is not valid for drivers. Names for drivers are one line of at most 128
    /// bytes.
    #[error("{0}: rename it on the map")]
    Name(String),
    /// All of its paths have a link that has failed. It is set up again once the link is back, or
    /// the reservation is over other paths.
    #[error(
        "{0} has failed, and no other path was found: it is best effort until the link is back"
    )]
    Down(String),
    /// No site on its paths has a driver. Without a driver, a reservation sets nothing up.
    #[error("no site on its paths has a driver: name one in the controller's control.toml")]
    NoDriver,
}

/// Returns the name of a reservation's circuit, which is its number.
#[must_use]
pub fn circuit_name(id: ReservationId) -> EntityName {
    EntityName::from_number(id.0)
}

/// Converts a reservation into a circuit.
///
/// # Errors
/// [`CircuitError`]: nothing of it can be set up.
pub fn circuit(
    desk: &ReservationStore,
    id: ReservationId,
    detail: &ReservationDetail,
    reservation: &Reservation,
) -> Result<CircuitSpec, CircuitError> {
    let address = |place: &crate::reservations::wanted::ReservationEnd| {
        place
            .address
            .ok_or_else(|| CircuitError::Address(place.name.clone()))
    };
    let (from, to) = (address(&detail.from)?, address(&detail.to)?);
    if detail.ports.is_none() && detail.own_ports().is_none() {
        return Err(CircuitError::Ports);
    }
    if !desk.is_managed(detail, reservation) {
        return Err(CircuitError::NoDriver);
    }
    let plan = &reservation.plan;
    let ports = streams::ports_of_plan(plan, detail);
    let routes = plan.0.iter().flat_map(|piece| &piece.routes);
    let mut down = routes.map(|planned| failed_link(desk.names(), planned));
    if let Some(Some(link)) = down.next_back()
        && down.all(|link| link.is_some())
    {
        return Err(CircuitError::Down(link.to_owned()));
    }
    let pieces = plan.0.iter().zip(ports).map(|(piece, ports)| {
        let routes = piece.routes.iter().zip(ports);
        // Without parts, its streams take whatever path the routers choose.
        let routes = routes.filter(|(planned, _)| failed_link(desk.names(), planned).is_none());
        let routes = routes.map(|(planned, ports)| {
            route(
                desk.names(),
                planned,
                path_streams(from, to, ports, detail.dscp()),
            )
        });
        Ok(CircuitPiece {
            window: piece.window,
            routes: routes.collect::<Result<_, CircuitError>>()?,
        })
    });
    Ok(CircuitSpec {
        id: circuit_name(id),
        pieces: pieces.collect::<Result<_, CircuitError>>()?,
    })
}

/// Returns the name of the first link of a path that has failed.
fn failed_link<'a>(names: &'a NetworkNames, planned: &Planned) -> Option<&'a str> {
    let mut links = planned.path.0.iter().filter_map(|link| names.link(*link));
    let down = links.find(|known| known.down)?;
    Some(&down.name)
}

/// Returns the streams of a path between two ends.
#[must_use]
pub fn path_streams(
    from: Prefix,
    to: Prefix,
    ports: Option<SourcePortRange>,
    dscp: Option<u8>,
) -> StreamSelector {
    StreamSelector {
        from,
        to,
        source_ports: ports.map(|SourcePortRange { first, last }| SourcePorts {
            first,
            last,
            transport: PortProtocol::Tcp,
        }),
        dscp,
        mark: None,
    }
}

fn route(
    names: &NetworkNames,
    planned: &Planned,
    streams: StreamSelector,
) -> Result<CircuitRoute, CircuitError> {
    let name = |text: &str| {
        text.parse::<EntityName>()
            .map_err(|error| CircuitError::Name(error.to_string()))
    };
    let links = planned.path.0.iter().filter_map(|link| names.link(*link));
    let hops = links.map(|known| {
        Ok(CircuitHop {
            node: name(names.site(known.link.from))?,
            link: name(&known.name)?,
        })
    });
    Ok(CircuitRoute {
        hops: hops.collect::<Result<_, CircuitError>>()?,
        rate: planned.rate,
        streams,
    })
}

/// Returns the sites that the paths of a plan leave and that have no driver.
#[must_use]
pub fn unmanaged_sites(desk: &ReservationStore, plan: &ReservationPlan) -> BTreeSet<String> {
    desk.sending_sites(plan)
        .filter(|site| !desk.is_managed_site(site))
        .map(str::to_owned)
        .collect()
}

/// Returns the parts at which the traffic of each path is counted: those at its first node with a
/// driver.
#[must_use]
pub fn counted_parts(desk: &ReservationStore, circuit: &CircuitSpec) -> BTreeSet<PartId> {
    let routes = circuit.pieces.iter().flat_map(|piece| &piece.routes);
    let parts = routes.filter_map(|route| {
        let mut hops = route.hops.iter();
        let hop = hops.find(|hop| desk.is_managed_site(hop.node.as_str()))?;
        Some(PartId::for_streams(
            &circuit.id,
            &hop.node,
            &hop.link,
            &route.streams,
        ))
    });
    parts.collect()
}
