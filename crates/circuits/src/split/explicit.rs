//! Paths that a request names itself. Between two nodes there may be several links, so each hop of
//! each path is given one that has the rate left.
//!
//! Hops between different nodes use different links, so each pair of nodes is solved by itself. It
//! has at most [`MAX_PATHS`](super::MAX_PATHS) paths, and all choices are tried.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{PathConstraints, RatedPath};
use crate::network::{LinkId, NodeId};
use crate::path::{BandwidthField, LinkPath};
use crate::proof::{PartialFit, Proof};
use crate::time::BitsPerSecond;

/// Maximum number of choices to try between two nodes.
const MAX_CHOICES: usize = 100_000;

/// A hop that the explicit paths cannot take together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FullHop {
    /// Index of the first path that takes the hop.
    pub(crate) path: usize,
    /// Node at which the hop begins.
    pub(crate) from: NodeId,
    /// Node at which it ends.
    pub(crate) to: NodeId,
    /// Rate of all paths over the hop, in bit/s.
    pub(crate) needed: BitsPerSecond,
    /// Rate left on all links of the hop, in bit/s.
    pub(crate) left: BitsPerSecond,
}

/// Returns the routes of the explicit paths, each at exactly its rate.
pub(super) fn explicit_routes(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
) -> Result<Vec<RatedPath>, PartialFit<Vec<RatedPath>>> {
    match assign_links(field, ask) {
        Ok(mut routes) => {
            routes.sort_by_key(|route| std::cmp::Reverse(route.rate));
            Ok(routes)
        }
        Err(_) => Err(PartialFit {
            found: Vec::new(),
            proof: Proof::Constrained {
                found: 0,
                complete: true,
            },
        }),
    }
}

/// Assigns a link to each hop of each explicit path, in the order of the request.
pub(crate) fn assign_links(
    field: &BandwidthField<'_>,
    ask: &PathConstraints,
) -> Result<Vec<RatedPath>, FullHop> {
    let explicit = &ask.bounds.explicit;
    // Paths and positions in them that use each hop.
    let mut users: BTreeMap<(NodeId, NodeId), Vec<usize>> = BTreeMap::new();
    for (place, path) in explicit.iter().enumerate() {
        for hop in path.nodes.windows(2) {
            if let [from, to] = hop {
                users.entry((*from, *to)).or_default().push(place);
            }
        }
    }
    let rate = |place: usize| explicit.get(place).map_or(0, |path| path.rate);
    let mut links: BTreeMap<(NodeId, NodeId, usize), LinkId> = BTreeMap::new();
    for ((from, to), places) in users {
        let between = field.network().links_from(from);
        let mut rooms: Vec<(LinkId, BitsPerSecond)> = between
            .filter(|(_, link)| link.to == to)
            .map(|(id, _)| (id, field.room(id)))
            .collect();
        let rates: Vec<BitsPerSecond> = places.iter().map(|place| rate(*place)).collect();
        let left = rooms.iter().map(|(_, room)| *room);
        let left = left.fold(0, BitsPerSecond::saturating_add);
        let Some(chosen) = pack_rates(&rates, &mut rooms) else {
            return Err(FullHop {
                path: places.first().copied().unwrap_or_default(),
                from,
                to,
                needed: rates.into_iter().fold(0, BitsPerSecond::saturating_add),
                left,
            });
        };
        for (place, link) in places.into_iter().zip(chosen) {
            links.insert((from, to, place), link);
        }
    }
    let routes = explicit.iter().enumerate().map(|(place, path)| RatedPath {
        path: LinkPath(
            path.nodes
                .windows(2)
                .filter_map(|hop| match hop {
                    [from, to] => links.get(&(*from, *to, place)).copied(),
                    _ => None,
                })
                .collect(),
        ),
        rate: path.rate,
    });
    Ok(routes.collect())
}

/// Chooses a link for each rate so that none carries more than it has left.
fn pack_rates(
    rates: &[BitsPerSecond],
    rooms: &mut [(LinkId, BitsPerSecond)],
) -> Option<Vec<LinkId>> {
    fn choose(
        rates: &[BitsPerSecond],
        order: &[usize],
        rooms: &mut [(LinkId, BitsPerSecond)],
        chosen: &mut [Option<LinkId>],
        choices: &mut usize,
    ) -> bool {
        let Some((first, rest)) = order.split_first() else {
            return true;
        };
        let rate = rates.get(*first).copied().unwrap_or_default();
        for at in 0..rooms.len() {
            *choices += 1;
            let Some((link, room)) = rooms.get_mut(at).filter(|(_, room)| *room >= rate) else {
                continue;
            };
            if *choices > MAX_CHOICES {
                return false;
            }
            *room -= rate;
            if let Some(chosen) = chosen.get_mut(*first) {
                *chosen = Some(*link);
            }
            if choose(rates, rest, rooms, chosen, choices) {
                return true;
            }
            if let Some((_, room)) = rooms.get_mut(at) {
                *room += rate;
            }
        }
        false
    }
    // The highest rates have the fewest choices.
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(rates.get(*place)));
    let mut chosen = vec![None; rates.len()];
    choose(rates, &order, rooms, &mut chosen, &mut 0)
        .then(|| chosen.into_iter().collect())
        .flatten()
}
