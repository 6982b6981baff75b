//! Recognition of a reservation's streams: by the addresses of its ends, and by source ports of
//! each path if that is not enough. Pure.
//!
//! Each reservation between known addresses has a *block* of source ports. No other reservation
//! with which it shares addresses and time has the same block. It is used with several paths at
//! once, if the request says so, and if another reservation has all other streams between the ends.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::path::LinkPath;
use longhaul_circuits::request::ReservationPlan;
use longhaul_circuits::split::MAX_PATHS;
use longhaul_control_api::reservations::SourcePortRange;
use longhaul_provisioning::streams::Prefix;

use super::record::ReservationDetail;
use super::wanted::InvalidReservation;

/// Number of source ports of one path.
pub const PORTS_OF_PATH: u16 = 64;
/// Number of source ports of one reservation, enough for the maximum number of paths.
pub const PORTS_OF_BLOCK: u16 = PORTS_OF_PATH * MAX_PATHS as u16;
/// First source port of the first block.
pub const FIRST_PORT: u16 = 10_240;
/// End of the last block, exclusive. From here on, Linux assigns source ports itself
/// (`ip_local_port_range`).
pub const PORTS_END: u16 = 32_768;

const _: () = assert!((PORTS_END - FIRST_PORT).is_multiple_of(PORTS_OF_BLOCK));

/// Addresses of one end of a request.
#[derive(Debug, Clone, Copy)]
pub struct EndAddresses<'a> {
    /// Name of the field: `from_address` or `to_address`.
    pub option: &'static str,
    /// Requested address or prefix.
    pub asked: Option<&'a str>,
    /// Addresses on the map.
    pub known: &'a [Prefix],
    /// If true, the caller may name addresses that are not on the map.
    pub is_free: bool,
}

impl EndAddresses<'_> {
    /// Returns the possible addresses, the best first.
    fn candidates(&self) -> Result<Vec<Prefix>, InvalidReservation> {
        let fault = |why: String| InvalidReservation::Address {
            option: self.option,
            why,
        };
        let Some(text) = self.asked else {
            return Ok(self.known.to_vec());
        };
        let asked: Prefix = text.parse().map_err(|error| fault(format!("{error}")))?;
        if self.is_free || self.known.iter().any(|known| known.contains(asked)) {
            return Ok(vec![asked]);
        }
        let known: Vec<String> = self.known.iter().map(ToString::to_string).collect();
        Err(fault(match known.is_empty() {
            true => {
                format!("{asked} is not an address of that end: the map lists none")
            }
            false => format!(
                "{asked} is not an address of that end: the map lists {}",
                known.join(", ")
            ),
        }))
    }
}

/// Returns the addresses of both ends: the first two of the same IP version. `None` if unknown.
///
/// # Errors
/// A requested address is malformed, or is not one of that end's.
pub fn addresses(
    from: EndAddresses<'_>,
    to: EndAddresses<'_>,
) -> Result<(Option<Prefix>, Option<Prefix>), InvalidReservation> {
    let (froms, tos) = (from.candidates()?, to.candidates()?);
    let pairs = froms
        .iter()
        .flat_map(|from| tos.iter().map(move |to| (*from, *to)));
    let mut alike = pairs.filter(|(from, to)| from.family() == to.family());
    if let Some((from, to)) = alike.next() {
        return Ok((Some(from), Some(to)));
    }
    if from.asked.is_some() && to.asked.is_some() {
        return Err(InvalidReservation::Address {
            option: to.option,
            why: "both ends must be IPv4, or both IPv6".to_owned(),
        });
    }
    Ok((froms.first().copied(), tos.first().copied()))
}

/// Returns the first port of the first block that is not taken.
#[must_use]
pub fn free_block(taken: &BTreeSet<u16>) -> Option<u16> {
    let mut blocks = (FIRST_PORT..PORTS_END).step_by(usize::from(PORTS_OF_BLOCK));
    blocks.find(|block| !taken.contains(block))
}

/// Returns the blocks that contain ports of a range.
pub fn blocks_within(range: SourcePortRange) -> impl Iterator<Item = u16> {
    let blocks = (FIRST_PORT..PORTS_END).step_by(usize::from(PORTS_OF_BLOCK));
    blocks.filter(move |block| range.first < block + PORTS_OF_BLOCK && *block <= range.last)
}

/// Returns the source ports of each route of each piece of a reservation's plan: those that its
/// request names, or those of its block.
#[must_use]
pub fn ports_of_plan(
    plan: &ReservationPlan,
    detail: &ReservationDetail,
) -> Vec<Vec<Option<SourcePortRange>>> {
    let packets = detail.packets.as_ref();
    match packets.and_then(|packets| Some((packets.source_ports?, packets.paths))) {
        Some((range, paths)) => path_places(plan)
            .into_iter()
            .map(|places| {
                let ports = places.into_iter();
                ports
                    .map(|place| divided_range(range, paths, place?))
                    .collect()
            })
            .collect(),
        None => path_ports(plan, detail.ports, detail.pinned),
    }
}

/// Returns the part of a range of ports that belongs to the path at a place.
fn divided_range(range: SourcePortRange, paths: u16, place: u16) -> Option<SourcePortRange> {
    let count = u32::from(range.last.saturating_sub(range.first)) + 1;
    let paths = u32::from(paths.max(1));
    let port = |place: u32| u32::from(range.first) + count * place / paths;
    let (first, end) = (port(place.into()), port(u32::from(place) + 1));
    Some(SourcePortRange {
        first: u16::try_from(first).ok()?,
        last: u16::try_from(end.checked_sub(1)?).ok()?,
    })
    .filter(|ports| ports.last <= range.last && ports.first <= ports.last)
}

/// Returns the source ports of each route of each piece of a plan. A path that continues in the
/// next piece keeps its ports.
#[must_use]
pub fn path_ports(
    plan: &ReservationPlan,
    block: Option<u16>,
    pinned: bool,
) -> Vec<Vec<Option<SourcePortRange>>> {
    let Some(block) = block else {
        let none = plan.0.iter().map(|piece| vec![None; piece.routes.len()]);
        return none.collect();
    };
    let pieces = plan.0.iter().zip(path_places(plan));
    let all = pieces.map(|(piece, places)| {
        let is_distinguished = pinned || piece.routes.len() > 1;
        let places = places.into_iter();
        let ports = places.map(|place| place.filter(|_| is_distinguished));
        ports.map(|place| Some(range(block, place?))).collect()
    });
    all.collect()
}

/// Returns a number for each route of each piece, different within a piece. A path that continues
/// in the next piece keeps its number.
fn path_places(plan: &ReservationPlan) -> Vec<Vec<Option<u16>>> {
    let mut places: BTreeMap<&LinkPath, u16> = BTreeMap::new();
    let mut all = Vec::with_capacity(plan.0.len());
    for piece in &plan.0 {
        let before = std::mem::take(&mut places);
        let kept = piece
            .routes
            .iter()
            .filter_map(|route| before.get(&route.path));
        let mut taken: BTreeSet<u16> = kept.copied().collect();
        let mut of_piece = Vec::with_capacity(piece.routes.len());
        for route in &piece.routes {
            let place = before.get(&route.path).copied();
            let place =
                place.or_else(|| (0..MAX_PATHS as u16).find(|place| !taken.contains(place)));
            if let Some(place) = place {
                taken.insert(place);
                places.insert(&route.path, place);
            }
            of_piece.push(place);
        }
        all.push(of_piece);
    }
    all
}

const fn range(block: u16, place: u16) -> SourcePortRange {
    let first = block + place * PORTS_OF_PATH;
    SourcePortRange {
        first,
        last: first + (PORTS_OF_PATH - 1),
    }
}

#[cfg(test)]
mod tests;
