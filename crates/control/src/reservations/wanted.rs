//! Requests in the terms of the network.

use std::collections::BTreeSet;

use longhaul_circuits::network::{LinkId, NodeId};
use longhaul_circuits::path::{ExplicitPath, PathBounds, PathEnds};
use longhaul_circuits::request::{self, CircuitRequest, PathElements};
use longhaul_circuits::time::{MomentMs, Window};
use longhaul_control_api::principals::PathOption;
use longhaul_control_api::reservations::{
    OptionConflict, ReservationChange, ReservationRequest, Wish,
};
use longhaul_provisioning::streams::Prefix;
use serde::{Deserialize, Serialize};

use super::book_moment;
use super::names::NetworkNames;
use super::recurrence::RuleFault;

/// Maximum age of a window's start that is moved to now, in milliseconds. It covers the time in
/// transit and clock differences.
pub const CLOCK_TOLERANCE_MS: i64 = 60_000;

/// The request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReservation {
    /// A field is too long, or has too many items: shorten it.
    #[error("{fields}: {limit}")]
    Field {
        /// Names of the fields.
        fields: &'static str,
        /// Limit.
        limit: String,
    },
    /// An end, or a site of a constraint, is not on the map. Check the spelling.
    #[error(
        "{option}: no host, depot or site of the map is called {name}: longhaul map lists them"
    )]
    NoEnd {
        /// Field or option that names it.
        option: &'static str,
        /// Name of the end.
        name: String,
    },
    /// The recurrence is invalid.
    #[error(transparent)]
    Recurrence(#[from] RuleFault),
    /// A request with a delegation came from a caller without a key, such as the operator.
    #[error("delegation: a delegate signs its request with its key")]
    UnsignedDelegate,
    /// An end has no site.
    #[error("{0} is at no site with links: name a host, a depot or a site on the map")]
    Site(String),
    /// Both ends are at one site.
    #[error("both ends are at site {0}: there is no link between them to reserve")]
    OneSite(String),
    /// A site or a link to avoid is not on the map. Check the spelling.
    #[error("avoid: there is no {what} {name} on the map: leave it out")]
    Avoid {
        /// Kind: a site or a link.
        what: &'static str,
        /// Name of the site or link.
        name: String,
    },
    /// A site or a link that paths are to use is not on the map. Check the spelling.
    #[error("{option}: there is no {what} {name} on the map: longhaul map lists them")]
    Unknown {
        /// Option that names it.
        option: PathOption,
        /// Kind: a site or a link.
        what: &'static str,
        /// Name of the site or link.
        name: String,
    },
    /// A site to pass is one at which the paths begin or end.
    #[error("via: the paths begin or end at {0}: leave it out")]
    ViaEnd(String),
    /// A named path does not lead from end to end over links of the map.
    #[error("path {number}: {why}")]
    NamedPath {
        /// Number of the path, from 1.
        number: usize,
        /// Description of the error, and what to do.
        why: String,
    },
    /// Options exclude each other, or one is out of range.
    #[error(transparent)]
    Options(#[from] OptionConflict),
    /// An end is slower than the requested rate. The map has it as `access` of a host, or as a
    /// limit of a depot.
    #[error("the ends can send and receive at most {most} bit/s: ask for less")]
    Access {
        /// Maximum rate of the slower end, in bit/s.
        most: u64,
    },
    /// A requested address is malformed, or is not one of that end's.
    #[error("{option}: {why}")]
    Address {
        /// Name of the field: `from_address` or `to_address`.
        option: &'static str,
        /// Description of the error.
        why: String,
    },
    /// `pin` was requested, but the addresses of the ends are unknown. Ports alone do not identify
    /// a stream.
    #[error(
        "pin: the map has no addresses of the ends: name them with from_address and to_address"
    )]
    Unaddressed,
    /// A packet filter was requested, but the addresses of the ends are unknown.
    #[error(
        "{0}: the map has no addresses of the ends: name them with from_address and to_address"
    )]
    UnaddressedFilter(PathOption),
    /// Another reservation between the same addresses carries packets with these source ports.
    #[error(
        "ports: reservation {other} has source ports {first}-{last} between these ends at that \
         time: choose others"
    )]
    FilterTaken {
        /// Number of the other reservation.
        other: u64,
        /// Its first source port.
        first: u16,
        /// Its last source port.
        last: u16,
    },
    /// The number of paths changes, but they share source ports that the request named.
    #[error(
        "paths: the reservation's source ports are shared by {0} paths: make a new reservation \
         instead"
    )]
    SharedPorts(u16),
    /// All source ports are taken.
    #[error(
        "all source ports for circuits between {from} and {to} are in use at that time: choose \
         another time, or cancel reservations that are not needed"
    )]
    Ports {
        /// Source of the streams.
        from: String,
        /// Destination of the streams.
        to: String,
    },
    /// Another reservation has the same source ports in the changed window.
    #[error(
        "reservation {0} has the same source ports at that time: make a new reservation instead"
    )]
    SamePorts(u64),
    /// The window is empty or out of range.
    #[error(
        "the window ends before it begins, or is too far away: write start_ms and end_ms in \
         milliseconds"
    )]
    Window,
    /// The window began too long ago. Check this machine's clock.
    #[error("the window began {} s ago: begin it now or later", .0 / 1000)]
    Past(i64),
}

/// End of a reservation, as on the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationEnd {
    /// Name of the host, depot or site.
    pub name: String,
    /// Site of the end.
    pub site: String,
    /// Maximum rate of the end, in bit/s, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<u64>,
    /// Address or prefix by which its streams are recognised, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Prefix>,
    /// Site at which the paths begin or end, if not that of the end: its ingress or egress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_site: Option<String>,
}

impl ReservationEnd {
    /// Returns the site at which the paths begin or end.
    #[must_use]
    pub fn path_site(&self) -> &str {
        self.path_site.as_ref().unwrap_or(&self.site)
    }
}

/// Returns the sites at which the paths between two ends begin and end.
#[must_use]
pub fn path_sites(from: &ReservationEnd, to: &ReservationEnd) -> BTreeSet<String> {
    [from, to].map(|end| end.path_site().to_owned()).into()
}

/// Returns the window of a request that arrives now. A start just before now is moved to now.
///
/// # Errors
/// [`InvalidReservation`].
pub fn request_window(
    start: Option<u64>,
    end: u64,
    now: MomentMs,
) -> Result<Window, InvalidReservation> {
    let asked = start.map_or(now, book_moment);
    if asked < now - CLOCK_TOLERANCE_MS {
        return Err(InvalidReservation::Past(now - asked));
    }
    let window = Window::new(asked.max(now), book_moment(end));
    if window.is_empty() || !window.is_in_range() {
        return Err(InvalidReservation::Window);
    }
    Ok(window)
}

/// Returns the maximum rate between both ends.
#[must_use]
pub fn max_rate(from: &ReservationEnd, to: &ReservationEnd) -> Option<u64> {
    from.access.into_iter().chain(to.access).min()
}

/// Converts a request for one window.
///
/// # Errors
/// [`InvalidReservation`].
pub fn request(
    names: &NetworkNames,
    asked: &ReservationRequest,
    from: &ReservationEnd,
    to: &ReservationEnd,
    window: Window,
) -> Result<CircuitRequest, InvalidReservation> {
    let node = |place: &ReservationEnd| {
        let node = names.node(place.path_site());
        node.ok_or_else(|| InvalidReservation::Site(place.name.clone()))
    };
    let ends = PathEnds {
        from: node(from)?,
        to: node(to)?,
    };
    if ends.from == ends.to {
        return Err(InvalidReservation::OneSite(from.path_site().to_owned()));
    }
    Ok(CircuitRequest {
        ends,
        window,
        wish: wish(asked.wish, max_rate(from, to))?,
        paths: usize::try_from(asked.paths).unwrap_or(usize::MAX),
        diversity: asked.disjoint,
        preference: asked.preference,
        elements: elements(names, asked)?,
        bounds: bounds(names, asked, ends)?,
    })
}

/// Returns a request with a change applied.
///
/// # Errors
/// [`InvalidReservation`].
pub fn changed(
    before: &CircuitRequest,
    change: &ReservationChange,
    most: Option<u64>,
    now: MomentMs,
) -> Result<CircuitRequest, InvalidReservation> {
    let start = change
        .start_ms
        .map_or(before.window.start, book_moment)
        .max(now);
    let window = Window::new(start, change.end_ms.map_or(before.window.end, book_moment));
    if window.is_empty() || !window.is_in_range() {
        return Err(InvalidReservation::Window);
    }
    Ok(CircuitRequest {
        window,
        wish: change
            .wish
            .map_or(Ok(before.wish), |asked| wish(asked, most))?,
        paths: change.paths.map_or(before.paths, |paths| {
            usize::try_from(paths).unwrap_or(usize::MAX)
        }),
        diversity: change.disjoint.unwrap_or(before.diversity),
        preference: change.preference.unwrap_or(before.preference),
        ..before.clone()
    })
}

fn wish(asked: Wish, access: Option<u64>) -> Result<request::Demand, InvalidReservation> {
    match asked {
        Wish::Rate { rate_bps } => match access.filter(|most| rate_bps > *most) {
            Some(most) => Err(InvalidReservation::Access { most }),
            None => Ok(request::Demand::Rate(rate_bps)),
        },
        Wish::Volume {
            bytes,
            at_most_bps,
            pace,
        } => Ok(request::Demand::Volume {
            bytes,
            most: at_most_bps.into_iter().chain(access).min(),
            pace,
        }),
    }
}

fn elements(
    names: &NetworkNames,
    asked: &ReservationRequest,
) -> Result<PathElements, InvalidReservation> {
    let mut elements = PathElements::default();
    for site in &asked.avoid_sites {
        let node: Option<NodeId> = names.node(site);
        elements
            .no_nodes
            .insert(node.ok_or_else(|| unknown_element("site", site))?);
    }
    for link in &asked.avoid_links {
        let named: Vec<LinkId> = names.links_named(link).collect();
        if named.is_empty() {
            return Err(unknown_element("link", link));
        }
        elements.no_links.extend(named);
    }
    let only = &asked.constraints.only_links;
    let mut only_links = BTreeSet::new();
    for link in only {
        let before = only_links.len();
        only_links.extend(names.links_named(link));
        if only_links.len() == before {
            return Err(InvalidReservation::Unknown {
                option: PathOption::OnlyLinks,
                what: "link",
                name: link.clone(),
            });
        }
    }
    elements.only_links = (!only.is_empty()).then_some(only_links);
    Ok(elements)
}

fn bounds(
    names: &NetworkNames,
    asked: &ReservationRequest,
    ends: PathEnds,
) -> Result<PathBounds, InvalidReservation> {
    let constraints = &asked.constraints;
    let node = |option: PathOption, site: &String| {
        names.node(site).ok_or_else(|| InvalidReservation::Unknown {
            option,
            what: "site",
            name: site.clone(),
        })
    };
    let mut via = Vec::with_capacity(constraints.via.len());
    for site in &constraints.via {
        let found = node(PathOption::Via, site)?;
        if found == ends.from || found == ends.to {
            return Err(InvalidReservation::ViaEnd(site.clone()));
        }
        via.push(found);
    }
    let mut explicit: Vec<ExplicitPath> = Vec::with_capacity(constraints.paths.len());
    for (number, path) in (1..).zip(&constraints.paths) {
        let nodes = path.sites.iter().map(|site| node(PathOption::Path, site));
        let nodes = nodes.collect::<Result<Vec<NodeId>, _>>()?;
        let fault = named_path_fault(names, &nodes, ends).or_else(|| {
            let is_twice = explicit.iter().any(|other| other.nodes == nodes);
            is_twice.then(|| "it is named twice: name it once with both rates".to_owned())
        });
        if let Some(why) = fault {
            return Err(InvalidReservation::NamedPath { number, why });
        }
        explicit.push(ExplicitPath {
            nodes,
            rate: path.rate_bps,
        });
    }
    Ok(PathBounds {
        via,
        max_hops: constraints.max_hops,
        max_latency: constraints.max_latency_us,
        explicit,
    })
}

/// Returns the reason why nodes are not a path between two ends.
fn named_path_fault(names: &NetworkNames, nodes: &[NodeId], ends: PathEnds) -> Option<String> {
    let (first, last) = (nodes.first()?, nodes.last()?);
    let (from, to) = (names.site(ends.from), names.site(ends.to));
    if *first != ends.from || *last != ends.to {
        return Some(format!(
            "it leads from {} to {}, and the reservation from {from} to {to}: name all sites from \
             one end to the other",
            names.site(*first),
            names.site(*last)
        ));
    }
    let mut passed = BTreeSet::new();
    if let Some(twice) = nodes.iter().find(|node| !passed.insert(**node)) {
        let site = names.site(*twice);
        return Some(format!("it passes {site} twice: leave out the loop"));
    }
    let hops = nodes.iter().zip(nodes.iter().skip(1));
    let mut missing = hops.filter(|(from, to)| !names.has_link(**from, **to));
    let (from, to) = missing.next()?;
    Some(format!(
        "no link of the map leads from {} to {}: name the sites between them",
        names.site(*from),
        names.site(*to)
    ))
}

fn unknown_element(what: &'static str, name: &str) -> InvalidReservation {
    InvalidReservation::Avoid {
        what,
        name: name.to_owned(),
    }
}
