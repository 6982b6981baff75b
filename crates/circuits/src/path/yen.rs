//! The k best paths (Yen, 1971).

use std::collections::BTreeSet;

use super::{BandwidthField, LinkPath, PathCost, PathEnds, Preference};
use crate::network::{LinkId, NodeId};
use crate::time::BitsPerSecond;

/// Returns up to `count` loop-free paths whose links have at least `at_least` bit/s left, the best
/// first. [`Preference::MostRoom`] counts hops here.
#[must_use]
pub fn k_best_paths(
    field: &BandwidthField<'_>,
    ends: PathEnds,
    at_least: BitsPerSecond,
    preference: Preference,
    count: usize,
) -> Vec<LinkPath> {
    let wide = |link: LinkId| field.room(link) >= at_least.max(1);
    let mut found: Vec<LinkPath> = Vec::new();
    found.extend(field.cheapest_path(ends, preference, wide));
    let mut candidates: BTreeSet<(PathCost, LinkPath)> = BTreeSet::new();
    while let Some(last) = found.last().filter(|_| found.len() < count).cloned() {
        for (place, link) in last.0.iter().enumerate() {
            let root = last.0.get(..place).unwrap_or_default();
            let Some(spur) = field.network().link(*link).map(|link| link.from) else {
                continue;
            };
            // Links that continue this root in a known path, and the nodes of the root.
            let taken: BTreeSet<LinkId> = found
                .iter()
                .filter(|path| path.0.starts_with(root))
                .filter_map(|path| path.0.get(place).copied())
                .collect();
            let passed: BTreeSet<NodeId> = root
                .iter()
                .filter_map(|link| Some(field.network().link(*link)?.from))
                .collect();
            let may = |link: LinkId| {
                let leads_back = field
                    .network()
                    .link(link)
                    .is_none_or(|link| passed.contains(&link.to));
                wide(link) && !taken.contains(&link) && !leads_back
            };
            let rest = field.cheapest_path(
                PathEnds {
                    from: spur,
                    to: ends.to,
                },
                preference,
                may,
            );
            if let Some(rest) = rest {
                let path = LinkPath([root, &rest.0].concat());
                candidates.insert((field.cost_of(&path, preference), path));
            }
        }
        loop {
            match candidates.pop_first() {
                Some((_, path)) if found.contains(&path) => {}
                Some((_, path)) => {
                    found.push(path);
                    break;
                }
                None => return found,
            }
        }
    }
    found
}
