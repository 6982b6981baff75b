//! Requests for reservations as they are received. Everything that does not depend on the book is
//! checked here, once; from here on, ends and sites have the names of the map.

use longhaul_circuits::path::MAX_VIA;
use longhaul_circuits::split::MAX_PATHS;
use longhaul_circuits::time::{MomentMs, Window};
use longhaul_control_api::reservations::{ReservationRequest, RouteConstraints};

use super::streams::{EndAddresses, addresses};
use super::wanted::{InvalidReservation, ReservationEnd, request_window};
use crate::places::MapIndex;

/// Maximum length of an end's, a site's or a link's name, in bytes.
const MAX_NAME_BYTES: usize = 253;
/// Maximum number of sites, and of links, to avoid.
const MAX_AVOIDED: usize = 100;
/// Maximum number of sites of a named path.
const MAX_PATH_SITES: usize = 100;
/// Maximum length of a description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 200;

/// Checked request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedRequest {
    /// The request, with sites of the map in its constraints.
    pub request: ReservationRequest,
    /// Source, as on the map.
    pub from: ReservationEnd,
    /// Destination, as on the map.
    pub to: ReservationEnd,
    /// The window; the first one, if the request recurs.
    pub window: Window,
}

/// Parses a request that arrives now. The operator may name any addresses. Others may name only
/// those that the map lists for the end, so that nobody can have another host's streams set up.
///
/// # Errors
/// [`InvalidReservation`].
pub fn parse(
    mut request: ReservationRequest,
    places: &MapIndex,
    is_operator: bool,
    now: MomentMs,
) -> Result<ParsedRequest, InvalidReservation> {
    check_fields(&request)?;
    request.check_options()?;
    let mut from = find_end(places, "from", &request.from)?;
    let mut to = find_end(places, "to", &request.to)?;
    let constraints = &mut request.constraints;
    resolve_sites(places, constraints)?;
    // A path that begins at the end's own site needs no right to begin elsewhere.
    constraints.ingress.take_if(|site| *site == from.site);
    constraints.egress.take_if(|site| *site == to.site);
    from.path_site.clone_from(&constraints.ingress);
    to.path_site.clone_from(&constraints.egress);
    let known = [&from, &to].map(|end| places.addresses(&end.name));
    let [of_from, of_to] = &known;
    let end = |option, asked, known| EndAddresses {
        option,
        asked,
        known,
        is_free: is_operator,
    };
    (from.address, to.address) = addresses(
        end("from_address", request.from_address.as_deref(), of_from),
        end("to_address", request.to_address.as_deref(), of_to),
    )?;
    let window = request_window(request.start_ms, request.end_ms, now)?;
    Ok(ParsedRequest {
        request,
        from,
        to,
        window,
    })
}

/// Checks the lengths of all fields.
fn check_fields(request: &ReservationRequest) -> Result<(), InvalidReservation> {
    let fault = |fields, limit| Err(InvalidReservation::Field { fields, limit });
    let is_name = |name: &String| {
        (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
    };
    let ends = [&request.from, &request.to].into_iter();
    let avoided = request.avoid_sites.iter().chain(&request.avoid_links);
    if !ends.chain(avoided).all(is_name) {
        let limit = format!("1 to {MAX_NAME_BYTES} bytes");
        return fault("from, to, avoid_sites, avoid_links", limit);
    }
    let RouteConstraints {
        via,
        only_links,
        ingress,
        egress,
        paths,
        ..
    } = &request.constraints;
    let of_paths = paths.iter().flat_map(|path| &path.sites);
    let named = via.iter().chain(only_links).chain(ingress).chain(egress);
    if !named.chain(of_paths).all(is_name) {
        let limit = format!("names have 1 to {MAX_NAME_BYTES} bytes");
        return fault("constraints", limit);
    }
    let is_long = paths
        .iter()
        .any(|path| !(2..=MAX_PATH_SITES).contains(&path.sites.len()));
    if via.len() > MAX_VIA || only_links.len() > MAX_AVOIDED || paths.len() > MAX_PATHS || is_long {
        let limit = format!(
            "at most {MAX_VIA} sites in via, {MAX_AVOIDED} links, and {MAX_PATHS} paths of 2 to \
             {MAX_PATH_SITES} sites"
        );
        return fault("constraints", limit);
    }
    if request.avoid_sites.len() > MAX_AVOIDED || request.avoid_links.len() > MAX_AVOIDED {
        return fault("avoid_sites, avoid_links", format!("at most {MAX_AVOIDED}"));
    }
    let is_long =
        |text: &String| text.len() > MAX_DESCRIPTION_BYTES || text.chars().any(char::is_control);
    if request.description.as_ref().is_some_and(is_long) {
        let limit = format!("one line of at most {MAX_DESCRIPTION_BYTES} bytes");
        return fault("description", limit);
    }
    Ok(())
}

/// Replaces the names of hosts and depots in constraints by those of their sites. Neighbours on a
/// named path that are at the same site are one.
fn resolve_sites(
    places: &MapIndex,
    constraints: &mut RouteConstraints,
) -> Result<(), InvalidReservation> {
    let RouteConstraints {
        via,
        ingress,
        egress,
        paths,
        ..
    } = constraints;
    let named = via.iter_mut().map(|name| ("via", name));
    let named = named.chain(ingress.iter_mut().map(|name| ("ingress", name)));
    let named = named.chain(egress.iter_mut().map(|name| ("egress", name)));
    let of_paths = paths.iter_mut().flat_map(|path| &mut path.sites);
    for (option, name) in named.chain(of_paths.map(|name| ("path", name))) {
        *name = find_end(places, option, name)?.site;
    }
    for path in paths {
        path.sites.dedup();
    }
    Ok(())
}

fn find_end(
    places: &MapIndex,
    option: &'static str,
    name: &str,
) -> Result<ReservationEnd, InvalidReservation> {
    places.place(name).ok_or_else(|| InvalidReservation::NoEnd {
        option,
        name: name.to_owned(),
    })
}
