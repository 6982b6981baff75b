//! Requests in the terms of the network.

use longhaul_circuits::network::{LinkId, NodeId};
use longhaul_circuits::path::{self, Diversity, Ends};
use longhaul_circuits::request::{self, Elements, Request};
use longhaul_circuits::time::{Moment, Window};
use longhaul_control_api::reservations::{
    Disjoint, Pace, Preference, ReservationChange, ReservationRequest, Wish,
};
use longhaul_setup::streams::Prefix;
use serde::{Deserialize, Serialize};

use super::book_moment;
use super::names::Names;

/// Maximum age of a window's start that is moved to now, in milliseconds. It covers the time in
/// transit and clock differences.
pub const CLOCK_TOLERANCE_MS: i64 = 60_000;

/// The request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WantedFault {
    /// An end has no site.
    #[error("{0} stands at no site that has links: name a host, a depot or a site of the map")]
    Site(String),
    /// Both ends are at one site.
    #[error("both ends are at site {0}: there is no link between them to reserve")]
    OneSite(String),
    /// A site or a link to avoid is not on the map.
    #[error("avoid: there is no {what} {name} on the map: leave it out")]
    Avoid {
        /// Kind: a site or a link.
        what: &'static str,
        /// Name of the site or link.
        name: String,
    },
    /// An end is slower than the requested rate.
    #[error("the ends send and take at most {most} bit/s: ask for less")]
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
    /// `pin` was requested, but the addresses of the ends are unknown.
    #[error(
        "pin: the map knows no addresses of the ends: name them with from_address and to_address"
    )]
    Unaddressed,
    /// All source ports are taken.
    #[error(
        "all source ports for circuits between {from} and {to} are taken in that time: ask for \
        another time, or cancel what is not needed"
    )]
    Ports {
        /// Source of the streams.
        from: String,
        /// Destination of the streams.
        to: String,
    },
    /// Another reservation has the same source ports in the changed window.
    #[error(
        "reservation {0} has the same source ports at that time: ask for it anew, in place of the \
        change"
    )]
    SamePorts(u64),
    /// The window is empty or out of range.
    #[error(
        "the window ends before it begins, or lies too far away: write start_ms and end_ms in \
        milliseconds"
    )]
    Window,
    /// The window began too long ago.
    #[error("the window began {} s ago: let it begin now or later", .0 / 1000)]
    Past(i64),
}

/// End of a reservation, as on the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
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
}

/// Returns the window of a request that arrives now. A start just before now is moved to now.
///
/// # Errors
/// [`WantedFault`].
pub fn window(start: Option<u64>, end: u64, now: Moment) -> Result<Window, WantedFault> {
    let asked = start.map_or(now, book_moment);
    if asked < now - CLOCK_TOLERANCE_MS {
        return Err(WantedFault::Past(now - asked));
    }
    let window = Window::new(asked.max(now), book_moment(end));
    if window.is_empty() || !window.in_range() {
        return Err(WantedFault::Window);
    }
    Ok(window)
}

/// Returns the maximum rate between both ends.
#[must_use]
pub fn access(from: &Place, to: &Place) -> Option<u64> {
    from.access.into_iter().chain(to.access).min()
}

/// Converts a request for one window.
///
/// # Errors
/// [`WantedFault`].
pub fn request(
    names: &Names,
    asked: &ReservationRequest,
    from: &Place,
    to: &Place,
    window: Window,
) -> Result<Request, WantedFault> {
    let node = |place: &Place| {
        let node = names.node(&place.site);
        node.ok_or_else(|| WantedFault::Site(place.name.clone()))
    };
    let ends = Ends {
        from: node(from)?,
        to: node(to)?,
    };
    if ends.from == ends.to {
        return Err(WantedFault::OneSite(from.site.clone()));
    }
    Ok(Request {
        ends,
        window,
        wish: wish(asked.wish, access(from, to))?,
        paths: usize::try_from(asked.paths).unwrap_or(usize::MAX),
        diversity: diversity(asked.disjoint),
        preference: preference(asked.preference),
        elements: elements(names, asked)?,
    })
}

/// Returns a request with a change applied.
///
/// # Errors
/// [`WantedFault`].
pub fn changed(
    before: &Request,
    change: &ReservationChange,
    most: Option<u64>,
    now: Moment,
) -> Result<Request, WantedFault> {
    let start = change
        .start_ms
        .map_or(before.window.start, book_moment)
        .max(now);
    let window = Window::new(start, change.end_ms.map_or(before.window.end, book_moment));
    if window.is_empty() || !window.in_range() {
        return Err(WantedFault::Window);
    }
    Ok(Request {
        window,
        wish: change
            .wish
            .map_or(Ok(before.wish), |asked| wish(asked, most))?,
        paths: change.paths.map_or(before.paths, |paths| {
            usize::try_from(paths).unwrap_or(usize::MAX)
        }),
        diversity: change.disjoint.map_or(before.diversity, diversity),
        preference: change.preference.map_or(before.preference, preference),
        ..before.clone()
    })
}

fn wish(asked: Wish, access: Option<u64>) -> Result<request::Wish, WantedFault> {
    match asked {
        Wish::Rate { rate_bps } => match access.filter(|most| rate_bps > *most) {
            Some(most) => Err(WantedFault::Access { most }),
            None => Ok(request::Wish::Rate(rate_bps)),
        },
        Wish::Volume {
            bytes,
            at_most_bps,
            pace,
        } => Ok(request::Wish::Volume {
            bytes,
            most: at_most_bps.into_iter().chain(access).min(),
            pace: match pace {
                Pace::Early => request::Pace::Early,
                Pace::Even => request::Pace::Even,
            },
        }),
    }
}

const fn diversity(asked: Disjoint) -> Diversity {
    match asked {
        Disjoint::No => Diversity::Any,
        Disjoint::Links => Diversity::Links,
        Disjoint::Sites => Diversity::Nodes,
    }
}

const fn preference(asked: Preference) -> path::Preference {
    match asked {
        Preference::FewestHops => path::Preference::FewestHops,
        Preference::LeastLatency => path::Preference::LeastLatency,
        Preference::MostRoom => path::Preference::MostRoom,
    }
}

fn elements(names: &Names, asked: &ReservationRequest) -> Result<Elements, WantedFault> {
    let mut elements = Elements::default();
    for site in &asked.avoid_sites {
        let node: Option<NodeId> = names.node(site);
        elements
            .no_nodes
            .insert(node.ok_or_else(|| none("site", site))?);
    }
    for link in &asked.avoid_links {
        let named: Vec<LinkId> = names.links_named(link).collect();
        if named.is_empty() {
            return Err(none("link", link));
        }
        elements.no_links.extend(named);
    }
    Ok(elements)
}

fn none(what: &'static str, name: &str) -> WantedFault {
    WantedFault::Avoid {
        what,
        name: name.to_owned(),
    }
}
