//! Answers in the terms of the API.

use std::collections::BTreeSet;

use longhaul_circuits::admit::{self, CutLink, Shortfall};
use longhaul_circuits::book;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::ReservationMachine;
use longhaul_circuits::network::{LinkId, NodeId};
use longhaul_circuits::proof::Proof as CircuitProof;
use longhaul_circuits::request::{self, CircuitRequest, ReservationPlan};
use longhaul_circuits::split::RatedPath;
use longhaul_circuits::time::MomentMs;
use longhaul_control_api::reservations::{
    ConstraintCause, Delegate, FullLink, HeldReservation, LinkDirection, NamedPath, Offer, Offers,
    PacketFilter, Piece, Proof, Refusal, RefusalCause, Reservation, ReservationRequest,
    ReservationState, ReservedPath, RouteConstraints, SourcePortRange, Wish,
};

use super::api_moment;
use super::names::NetworkNames;
use super::record::ReservationDetail;
use super::streams;

/// Returns a reservation in the form of the API.
#[must_use]
pub fn reservation(
    names: &NetworkNames,
    id: ReservationId,
    detail: &ReservationDetail,
    reservation: &book::Reservation,
    impaired: &[LinkId],
) -> Reservation {
    let request = &reservation.request;
    let held = reservation.held.as_ref().map(|held| HeldReservation {
        until_ms: api_moment(held.until),
        wish: wish(held.request.wish),
        start_ms: api_moment(held.request.window.start),
        end_ms: api_moment(held.request.window.end),
        pieces: pieces(names, &held.plan, Some(detail)),
    });
    Reservation {
        id: id.0,
        series: detail.series.map(|id| id.0),
        owner: detail.owner.clone(),
        owner_name: detail.owner_name.clone(),
        from: detail.from.name.clone(),
        to: detail.to.name.clone(),
        wish: wish(request.wish),
        start_ms: api_moment(request.window.start),
        end_ms: api_moment(request.window.end),
        paths: u32::try_from(request.paths).unwrap_or(u32::MAX),
        disjoint: request.diversity,
        preference: request.preference,
        constraints: route_constraints(names, detail, request),
        filter: filter(detail),
        description: detail.description.clone(),
        delegate: detail.delegation.as_ref().map(|given| Delegate {
            key: given.delegate.clone(),
            name: given.delegate_name.clone(),
            delegation: given.text.clone(),
        }),
        state: state(reservation.machine),
        pieces: pieces(names, &reservation.plan, Some(detail)),
        held,
        impaired: directions(names, impaired),
        from_address: detail.from.address.map(|address| address.to_string()),
        to_address: detail.to.address.map(|address| address.to_string()),
        circuit: None,
        failure: detail.failure.clone(),
        across: None,
        created_ms: api_moment(detail.created),
    }
}

/// Returns a refusal without offers. The proof names reservations for which `seen` returns true, as
/// the caller may see them.
#[must_use]
pub fn refusal(
    names: &NetworkNames,
    asked: &ReservationRequest,
    place: Option<usize>,
    window: longhaul_circuits::time::Window,
    short: &Shortfall,
    seen: &dyn Fn(ReservationId) -> bool,
) -> Refusal {
    Refusal {
        occurrence: place.map(|place| u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1)),
        start_ms: api_moment(window.start),
        end_ms: api_moment(window.end),
        proof: proof(names, &short.proof, seen),
        cause: short.cause.as_ref().map(|found| cause(asked, names, found)),
        offers: Offers::default(),
    }
}

/// Returns the cause of a refusal, in the words of the request.
fn cause(
    asked: &ReservationRequest,
    names: &NetworkNames,
    found: &admit::RefusalCause,
) -> RefusalCause {
    let constraints = &asked.constraints;
    let described = |constraint: &admit::PathConstraint| match *constraint {
        admit::PathConstraint::Via => ConstraintCause::Via {
            sites: constraints.via.clone(),
        },
        // Requests limit paths to links only.
        admit::PathConstraint::OnlyNodes | admit::PathConstraint::OnlyLinks => {
            ConstraintCause::OnlyLinks {
                links: constraints.only_links.clone(),
            }
        }
        admit::PathConstraint::AvoidedNodes => ConstraintCause::AvoidSite {
            sites: asked.avoid_sites.clone(),
        },
        admit::PathConstraint::AvoidedLinks => ConstraintCause::AvoidLink {
            links: asked.avoid_links.clone(),
        },
        admit::PathConstraint::MaxHops {
            needed,
            is_unreachable,
        } => ConstraintCause::MaxHops {
            most: constraints.max_hops.unwrap_or_default(),
            needed,
            unreachable: is_unreachable,
        },
        admit::PathConstraint::MaxLatency {
            needed,
            is_unreachable,
        } => ConstraintCause::MaxLatency {
            most_us: constraints.max_latency_us.unwrap_or_default(),
            needed_us: needed,
            unreachable: is_unreachable,
        },
        admit::PathConstraint::Disjoint => ConstraintCause::Disjoint,
        admit::PathConstraint::Explicit {
            path,
            from,
            to,
            needed,
            left,
        } => ConstraintCause::Path {
            path: u32::try_from(path).unwrap_or(u32::MAX),
            from: names.site(from).to_owned(),
            to: names.site(to).to_owned(),
            needed_bps: needed,
            left_bps: left,
        },
    };
    RefusalCause {
        constraints: found.constraints.iter().map(described).collect(),
        together: found.together,
        asked_bps: match asked.wish {
            Wish::Rate { rate_bps } => Some(rate_bps),
            Wish::Volume { .. } => None,
        },
        most_bps: found.found,
    }
}

/// Returns the packets that use a reservation.
fn filter(detail: &ReservationDetail) -> PacketFilter {
    PacketFilter {
        source_ports: detail.own_ports(),
        dscp: detail.dscp(),
    }
}

/// Returns the constraints of a request on each path, by name.
fn route_constraints(
    names: &NetworkNames,
    detail: &ReservationDetail,
    request: &CircuitRequest,
) -> RouteConstraints {
    let sites = |nodes: &[NodeId]| -> Vec<String> {
        nodes
            .iter()
            .map(|node| names.site(*node).to_owned())
            .collect()
    };
    let bounds = &request.bounds;
    let paths = bounds.explicit.iter().map(|path| NamedPath {
        sites: sites(&path.nodes),
        rate_bps: path.rate,
    });
    RouteConstraints {
        via: sites(&bounds.via),
        only_links: link_names(names, request.elements.only_links.iter().flatten()),
        max_hops: bounds.max_hops,
        max_latency_us: bounds.max_latency,
        ingress: detail.from.path_site.clone(),
        egress: detail.to.path_site.clone(),
        paths: paths.collect(),
    }
}

/// Returns the names of links, each once.
fn link_names<'a>(
    names: &NetworkNames,
    links: impl IntoIterator<Item = &'a LinkId>,
) -> Vec<String> {
    let links = links.into_iter().filter_map(|link| names.link(*link));
    let mut found: Vec<String> = Vec::new();
    for link in links {
        if !found.contains(&link.name) {
            found.push(link.name.clone());
        }
    }
    found
}

/// Returns counter-offers in the form of the API.
#[must_use]
pub fn offers(
    names: &NetworkNames,
    asked: &ReservationRequest,
    found: &admit::CounterOffers,
) -> Offers {
    let offer = |offer: &Option<admit::CounterOffer>| {
        offer.as_ref().map(|found| self::offer(names, asked, found))
    };
    Offers {
        later: offer(&found.later),
        slower: offer(&found.slower),
        volume: offer(&found.volume),
        ..Offers::default()
    }
}

fn proof(
    names: &NetworkNames,
    proof: &CircuitProof<CutLink>,
    seen: &dyn Fn(ReservationId) -> bool,
) -> Proof {
    let full = |links: &[CutLink]| -> Vec<FullLink> {
        // Links without capacity are not on the map, so they are not reported as full.
        let links = links.iter().filter(|full| {
            names
                .link(full.link)
                .is_some_and(|known| known.link.capacity > 0)
        });
        links
            .filter_map(|full| full_link(names, full, seen))
            .collect()
    };
    match proof {
        CircuitProof::Cut { links, rate, until } => Proof::Cut {
            links: full(links),
            rate_bps: *rate,
            until_ms: until.map(api_moment),
        },
        CircuitProof::Volume { links, volume } => Proof::Volume {
            links: full(links),
            bytes: volume.bytes(),
        },
        CircuitProof::Stretches { volume } => Proof::Stretches {
            bytes: volume.bytes(),
        },
        CircuitProof::Searched { all } => Proof::Searched { all_bps: *all },
        CircuitProof::Constrained { found, complete } => Proof::Constrained {
            most_bps: *found,
            complete: *complete,
        },
        CircuitProof::Unknown => Proof::Unknown,
    }
}

fn full_link(
    names: &NetworkNames,
    full: &CutLink,
    seen: &dyn Fn(ReservationId) -> bool,
) -> Option<FullLink> {
    let by: BTreeSet<ReservationId> = full.by.iter().copied().filter(|id| seen(*id)).collect();
    Some(FullLink {
        link: names.link_direction(full.link)?,
        left_bps: full.left,
        at_ms: api_moment(full.at),
        by_others: u32::try_from(full.by.len().saturating_sub(by.len())).unwrap_or(u32::MAX),
        by: by.into_iter().map(|id| id.0).collect(),
    })
}

/// Returns an offer with the request to send for it.
fn offer(names: &NetworkNames, asked: &ReservationRequest, found: &admit::CounterOffer) -> Offer {
    let request: &CircuitRequest = &found.request;
    Offer {
        request: ReservationRequest {
            wish: wish(request.wish),
            start_ms: Some(api_moment(request.window.start)),
            end_ms: api_moment(request.window.end),
            recurrence: None,
            ..asked.clone()
        },
        pieces: pieces(names, &found.plan, None),
    }
}

/// Returns a plan with links by name, and with source ports from `detail`.
#[must_use]
pub fn pieces(
    names: &NetworkNames,
    plan: &ReservationPlan,
    detail: Option<&ReservationDetail>,
) -> Vec<Piece> {
    let path = |(route, source_ports): (&RatedPath, Option<SourcePortRange>)| ReservedPath {
        rate_bps: route.rate,
        links: directions(names, &route.path.0),
        source_ports,
        carried: None,
    };
    let piece = |(piece, ports): (&request::PlanPiece, Vec<Option<SourcePortRange>>)| {
        let mut paths: Vec<ReservedPath> = piece.routes.iter().zip(ports).map(path).collect();
        paths.sort_by_key(|path| std::cmp::Reverse(path.rate_bps));
        Piece {
            start_ms: api_moment(piece.window.start),
            end_ms: api_moment(piece.window.end),
            paths,
        }
    };
    let ports = match detail {
        Some(detail) => streams::ports_of_plan(plan, detail),
        None => streams::path_ports(plan, None, false),
    };
    plan.0.iter().zip(ports).map(piece).collect()
}

fn directions(names: &NetworkNames, links: &[LinkId]) -> Vec<LinkDirection> {
    links
        .iter()
        .filter_map(|link| names.link_direction(*link))
        .collect()
}

/// Returns a wish in the form of the API.
#[must_use]
pub const fn wish(wish: request::Demand) -> Wish {
    match wish {
        request::Demand::Rate(rate_bps) => Wish::Rate { rate_bps },
        request::Demand::Volume { bytes, most, pace } => Wish::Volume {
            bytes,
            at_most_bps: most,
            pace,
        },
    }
}

/// Returns a known request in the form of the API, for refusals of a change.
#[must_use]
pub fn known_request(
    names: &NetworkNames,
    detail: &ReservationDetail,
    request: &CircuitRequest,
    hold: bool,
) -> ReservationRequest {
    let sites = request.elements.no_nodes.iter();
    ReservationRequest {
        from: detail.from.name.clone(),
        to: detail.to.name.clone(),
        wish: wish(request.wish),
        start_ms: Some(api_moment(request.window.start)),
        end_ms: api_moment(request.window.end),
        paths: u32::try_from(request.paths).unwrap_or(u32::MAX),
        disjoint: request.diversity,
        preference: request.preference,
        avoid_sites: sites.map(|node| names.site(*node).to_owned()).collect(),
        avoid_links: link_names(names, &request.elements.no_links),
        constraints: route_constraints(names, detail, request),
        filter: filter(detail),
        recurrence: None,
        hold,
        provision: false,
        pin: detail.pinned,
        from_address: detail.from.address.map(|address| address.to_string()),
        to_address: detail.to.address.map(|address| address.to_string()),
        description: detail.description.clone(),
        delegation: None,
    }
}

const fn state(machine: ReservationMachine) -> ReservationState {
    ReservationState {
        reserve: machine.reserve,
        provision: machine.provision,
        life: machine.life,
    }
}

/// Returns the earliest start and the latest end of what is promised and held; those of the request
/// if there is neither.
#[must_use]
pub fn span(reservation: &book::Reservation) -> (MomentMs, MomentMs) {
    let held = reservation.held.as_ref().map(|held| held.plan.window());
    let promised = (!reservation.plan.0.is_empty()).then(|| reservation.plan.window());
    let both = held.into_iter().chain(promised);
    let all = both.reduce(|one, other| {
        longhaul_circuits::time::Window::new(one.start.min(other.start), one.end.max(other.end))
    });
    let window = all.unwrap_or(reservation.request.window);
    (window.start, window.end)
}
