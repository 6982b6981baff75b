//! How the streams of a reservation are recognised: by the addresses of its ends, and by source
//! ports that are each path's own where that is not enough. Pure.
//!
//! Every reservation between known addresses has a *block* of source ports, which no other one has
//! that shares addresses and time with it. It is used where there are several paths at once, where
//! the request says so, and where another reservation has all other streams between the ends.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::path::Path;
use longhaul_circuits::request::Plan;
use longhaul_circuits::split::MAX_PATHS;
use longhaul_control_api::reservations::SourcePortRange;
use longhaul_setup::streams::Prefix;

use super::wanted::WantedFault;

/// Source ports of one path.
pub const PORTS_OF_PATH: u16 = 64;
/// Source ports of one reservation: those of as many paths as there may be.
pub const PORTS_OF_BLOCK: u16 = PORTS_OF_PATH * MAX_PATHS as u16;
/// The first source port of the first block.
pub const FIRST_PORT: u16 = 10_240;
/// The first source port behind the last block: from here on Linux chooses source ports by itself
/// (`ip_local_port_range`).
pub const PORTS_END: u16 = 32_768;

const _: () = assert!((PORTS_END - FIRST_PORT).is_multiple_of(PORTS_OF_BLOCK));

/// Which addresses a request means.
#[derive(Debug, Clone, Copy)]
pub struct AskedEnd<'a> {
    /// `from_address` or `to_address`.
    pub option: &'static str,
    /// What the request says.
    pub asked: Option<&'a str>,
    /// What the map knows the end by.
    pub known: &'a [Prefix],
    /// Whether the asker may name what the map does not know.
    pub is_free: bool,
}

impl AskedEnd<'_> {
    /// What may be meant, the best first.
    fn candidates(&self) -> Result<Vec<Prefix>, WantedFault> {
        let fault = |why: String| WantedFault::Address {
            option: self.option,
            why,
        };
        let Some(text) = self.asked else {
            return Ok(self.known.to_vec());
        };
        let asked: Prefix = text.parse().map_err(|error| fault(format!("{error}")))?;
        if self.is_free || self.known.iter().any(|known| known.holds(asked)) {
            return Ok(vec![asked]);
        }
        let known: Vec<String> = self.known.iter().map(ToString::to_string).collect();
        Err(fault(match known.is_empty() {
            true => {
                format!("{asked} is no address that the map knows that end by, and it knows none")
            }
            false => format!(
                "{asked} is no address that the map knows that end by: {}",
                known.join(", ")
            ),
        }))
    }
}

/// The addresses of both ends: the first two of one version of IP. None where they are not known.
///
/// # Errors
/// What the request names is no address, or none of that end's.
pub fn addresses(
    from: AskedEnd<'_>,
    to: AskedEnd<'_>,
) -> Result<(Option<Prefix>, Option<Prefix>), WantedFault> {
    let (froms, tos) = (from.candidates()?, to.candidates()?);
    let pairs = froms
        .iter()
        .flat_map(|from| tos.iter().map(move |to| (*from, *to)));
    let mut alike = pairs.filter(|(from, to)| from.family() == to.family());
    if let Some((from, to)) = alike.next() {
        return Ok((Some(from), Some(to)));
    }
    if from.asked.is_some() && to.asked.is_some() {
        return Err(WantedFault::Address {
            option: to.option,
            why: "both ends must be IPv4, or both IPv6".to_owned(),
        });
    }
    Ok((froms.first().copied(), tos.first().copied()))
}

/// The first port of the first block that is not among those.
#[must_use]
pub fn free_block(taken: &BTreeSet<u16>) -> Option<u16> {
    let mut blocks = (FIRST_PORT..PORTS_END).step_by(usize::from(PORTS_OF_BLOCK));
    blocks.find(|block| !taken.contains(block))
}

/// The source ports of each route of each piece of a plan. A path that goes on from one piece to
/// the next keeps its own.
#[must_use]
pub fn ports(plan: &Plan, block: Option<u16>, pinned: bool) -> Vec<Vec<Option<SourcePortRange>>> {
    let Some(block) = block else {
        let none = plan.0.iter().map(|piece| vec![None; piece.routes.len()]);
        return none.collect();
    };
    let mut places: BTreeMap<&Path, u16> = BTreeMap::new();
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
            let is_distinguished = pinned || piece.routes.len() > 1;
            of_piece.push(
                place
                    .filter(|_| is_distinguished)
                    .map(|place| range(block, place)),
            );
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
