//! Comparison of bounded paths with all simple paths of small networks.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{PathBounds, latency_of};
use crate::network::{CircuitNetwork, NodeId};
use crate::path::{BandwidthField, LinkPath, PathEnds, Preference};
use crate::testing::{network, simple_paths, small_networks};

fn whole_field(network: &CircuitNetwork) -> BandwidthField<'_> {
    BandwidthField::new(network, |link| network.link(link).map(|link| link.capacity))
}

/// Returns true if a path satisfies the constraints, without the code under test.
fn satisfies(network: &CircuitNetwork, bounds: &PathBounds, path: &LinkPath) -> bool {
    let links: Vec<_> = path.0.iter().map(|id| network.link(*id).unwrap()).collect();
    let latency: u64 = links.iter().map(|link| link.latency).sum();
    let nodes: Vec<NodeId> = links.iter().map(|link| link.to).collect();
    let mut from = 0;
    for via in &bounds.via {
        match nodes.iter().skip(from).position(|node| node == via) {
            Some(place) => from += place + 1,
            None => return false,
        }
    }
    bounds
        .max_hops
        .is_none_or(|most| path.0.len() <= most as usize)
        && bounds.max_latency.is_none_or(|most| latency <= most)
}

/// Generates networks with constraints for a path from the first node to the last.
fn worlds() -> impl Strategy<Value = (CircuitNetwork, PathBounds)> {
    small_networks().prop_flat_map(|network| {
        let inner: Vec<NodeId> = (1..network.nodes() - 1).map(NodeId).collect();
        let count = inner.len().min(3);
        let via = prop::sample::subsequence(inner, 0..=count).prop_shuffle();
        let bounds = (
            prop_oneof![Just(Vec::new()), via],
            prop::option::of(1..6_u32),
            prop::option::of(1..16_u64),
        );
        let bounds = bounds.prop_map(|(via, max_hops, max_latency)| PathBounds {
            via,
            max_hops,
            max_latency,
            explicit: Vec::new(),
        });
        (Just(network), bounds)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn bounded_paths_are_those_of_an_enumeration(
        (network, bounds) in worlds(),
        preference in 0..3_usize,
        at_least in 1..8_u64,
    ) {
        let preference = [
            Preference::FewestHops,
            Preference::LeastLatency,
            Preference::MostRoom,
        ][preference];
        let field = whole_field(&network);
        let ends = PathEnds { from: NodeId(0), to: NodeId(network.nodes() - 1) };
        let mut all = simple_paths(&network, ends);
        all.retain(|path| field.width(path) > 0 && satisfies(&network, &bounds, path));
        let widest = all.iter().map(|path| field.width(path)).max();
        prop_assert_eq!(bounds.widest_path(&field, ends).map(|(path, width)| {
            assert_eq!(field.width(&path), width);
            assert!(satisfies(&network, &bounds, &path) && bounds.allows(&field, &path));
            width
        }), widest);
        all.retain(|path| field.width(path) >= at_least);
        let best = bounds.best_path(&field, ends, at_least, preference);
        prop_assert_eq!(best.is_some(), !all.is_empty(), "{:?}", bounds);
        if let Some(path) = &best {
            prop_assert!(satisfies(&network, &bounds, path) && field.width(path) >= at_least);
        }
        if preference != Preference::MostRoom {
            let least = all.iter().map(|path| field.cost_of(path, preference)).min();
            prop_assert_eq!(best.map(|path| field.cost_of(&path, preference)), least);
        }
        let found = bounds.all_paths(&field, ends, at_least, preference);
        prop_assert!(found.complete);
        let distinct: BTreeSet<LinkPath> = found.paths.iter().cloned().collect();
        prop_assert_eq!(distinct.len(), found.paths.len());
        prop_assert_eq!(distinct, all.into_iter().collect());
    }
}

#[test]
fn a_short_slow_path_gives_way_to_a_long_fast_one() {
    // Latencies go from 1 to 5 in the order of the links: 0-3 takes 4, and 0-1-2-3 takes 6.
    let network = network(4, &[(0, 1, 9), (1, 2, 9), (2, 3, 9), (0, 3, 9)]);
    let field = whole_field(&network);
    let ends = PathEnds {
        from: NodeId(0),
        to: NodeId(3),
    };
    let bounds = |max_hops, max_latency| PathBounds {
        max_hops,
        max_latency,
        ..PathBounds::default()
    };
    let best = |bounds: PathBounds| {
        let path = bounds.best_path(&field, ends, 1, Preference::FewestHops);
        path.map(|path| (path.0.len(), latency_of(&field, &path)))
    };
    assert_eq!(best(bounds(Some(3), None)), Some((1, 4)));
    assert_eq!(best(bounds(None, Some(3))), None);
    let via = PathBounds {
        via: vec![NodeId(2)],
        ..bounds(Some(3), Some(6))
    };
    assert_eq!(best(via.clone()), Some((3, 6)));
    assert_eq!(
        best(PathBounds {
            max_latency: Some(5),
            ..via.clone()
        }),
        None
    );
    assert_eq!(
        best(PathBounds {
            max_hops: Some(2),
            ..via
        }),
        None
    );
}

#[test]
fn a_search_that_is_too_large_says_so() {
    // A ladder of 24 rungs has more paths than are followed.
    let rung = |at: u32| {
        [
            (2 * at, 2 * at + 1, 9),
            (2 * at, 2 * at + 2, 9),
            (2 * at + 1, 2 * at + 3, 9),
        ]
    };
    let links: Vec<_> = (0..24).flat_map(rung).chain([(48, 49, 9)]).collect();
    let network = network(50, &links);
    let field = whole_field(&network);
    let ends = PathEnds {
        from: NodeId(0),
        to: NodeId(49),
    };
    let bounds = PathBounds {
        max_hops: Some(49),
        ..PathBounds::default()
    };
    let found = bounds.all_paths(&field, ends, 1, Preference::FewestHops);
    assert!(!found.complete && !found.paths.is_empty());
    // A single path within hops is exact all the same.
    let path = bounds.best_path(&field, ends, 1, Preference::FewestHops);
    assert_eq!(path.map(|path| path.0.len()), Some(25));
}
