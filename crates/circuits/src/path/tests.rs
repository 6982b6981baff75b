//! Comparison of paths with all simple paths of small networks.

use proptest::prelude::*;

use super::{
    BandwidthField, Disjoint, LinkPath, PathEnds, Preference, disjoint_paths, k_best_paths,
};
use crate::network::NodeId;
use crate::testing::{network, simple_paths, small_networks};

fn ends(from: u32, to: u32) -> PathEnds {
    PathEnds {
        from: NodeId(from),
        to: NodeId(to),
    }
}

/// Returns the network in which the shortest path alone leaves no second one: 0-1-2-5 in the middle
/// of two longer ones.
fn trap() -> crate::network::CircuitNetwork {
    network(
        6,
        &[
            (0, 1, 10),
            (1, 2, 10),
            (2, 5, 10),
            (0, 3, 10),
            (3, 2, 10),
            (1, 4, 10),
            (4, 5, 10),
        ],
    )
}

#[test]
fn a_pair_is_found_though_the_shortest_path_blocks_it() {
    let network = trap();
    let field = BandwidthField::new(&network, |link| {
        network.link(link).map(|link| link.capacity)
    });
    let shortest = field
        .best_path(ends(0, 5), 1, Preference::FewestHops)
        .unwrap();
    assert_eq!(shortest.0.len(), 3);
    let pair = disjoint_paths(
        &field,
        ends(0, 5),
        1,
        Preference::FewestHops,
        Disjoint::Links,
        3,
    );
    assert_eq!(pair.len(), 2, "{pair:?}");
    let pair = disjoint_paths(
        &field,
        ends(0, 5),
        1,
        Preference::FewestHops,
        Disjoint::Sites,
        2,
    );
    assert_eq!(pair.len(), 2);
}

fn shares(
    network: &crate::network::CircuitNetwork,
    one: &LinkPath,
    other: &LinkPath,
    diversity: Disjoint,
) -> bool {
    let link = |id| *network.link(id).unwrap();
    let inner = |path: &LinkPath| -> Vec<NodeId> {
        path.0.iter().skip(1).map(|id| link(*id).from).collect()
    };
    one.0
        .iter()
        .any(|a| other.0.iter().any(|b| link(*a).cable == link(*b).cable))
        || (diversity == Disjoint::Sites
            && inner(one).iter().any(|node| inner(other).contains(node)))
}

proptest! {
    #[test]
    fn paths_are_the_best_of_all_simple_paths(
        network in small_networks(),
        preference in 0..3_u8,
        at_least in 1..8_u64,
    ) {
        let preference = [
            Preference::FewestHops,
            Preference::LeastLatency,
            Preference::MostRoom
        ][usize::from(preference)];
        let field =
            BandwidthField::new(&network, |link| network.link(link).map(|link| link.capacity));
        let ends = ends(0, network.nodes() - 1);
        let mut all = simple_paths(&network, ends);
        let widest = all.iter().map(|path| field.width(path)).max().filter(|width| *width > 0);
        prop_assert_eq!(field.widest_path(ends).map(|(path, width)| {
            assert_eq!(field.width(&path), width);
            width
        }), widest);
        all.retain(|path| field.width(path) >= at_least);
        let best = field.best_path(ends, at_least, preference);
        prop_assert_eq!(best.is_some(), !all.is_empty());
        if preference == Preference::MostRoom {
            return Ok(());
        }
        let mut costs: Vec<_> = all.iter().map(|path| field.cost_of(path, preference)).collect();
        costs.sort_unstable();
        prop_assert_eq!(best.map(|path| field.cost_of(&path, preference)), costs.first().copied());
        let several = k_best_paths(&field, ends, at_least, preference, 5);
        let found: Vec<_> = several.iter().map(|path| field.cost_of(path, preference)).collect();
        costs.truncate(5);
        prop_assert_eq!(found, costs);
    }

    #[test]
    fn disjoint_paths_are_maximal_in_number_and_shortest(
        network in small_networks(),
        nodes in any::<bool>(),
    ) {
        let diversity = if nodes { Disjoint::Sites } else { Disjoint::Links };
        let field =
            BandwidthField::new(&network, |link| network.link(link).map(|link| link.capacity));
        let ends = ends(0, network.nodes() - 1);
        let mut all = simple_paths(&network, ends);
        all.retain(|path| field.width(path) > 0);
        let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (one, other)));
        let shortest = pairs
            .filter(|(one, other)| !shares(&network, one, other, diversity))
            .map(|(one, other)| one.0.len() + other.0.len())
            .min();
        let pair = disjoint_paths(&field, ends, 1, Preference::FewestHops, diversity, 2);
        if let Some(shortest) = shortest {
            prop_assert_eq!(pair.len(), 2);
            prop_assert!(!shares(&network, &pair[0], &pair[1], diversity));
            prop_assert_eq!(pair[0].0.len() + pair[1].0.len(), shortest);
        } else {
            prop_assert_eq!(pair.len(), usize::from(!all.is_empty()));
        }
    }
}
