//! Comparison of link assignments with every choice of links.

use proptest::prelude::*;

use super::{assign_links, explicit_routes};
use crate::network::{CircuitNetwork, NodeId};
use crate::path::{
    BandwidthField, Disjoint, ExplicitPath, LinkPath, PathBounds, PathEnds, Preference,
};
use crate::split::{PathConstraints, total_rate};
use crate::testing::network;
use crate::time::BitsPerSecond;

fn ask(explicit: Vec<ExplicitPath>) -> PathConstraints {
    PathConstraints {
        ends: PathEnds {
            from: NodeId(0),
            to: NodeId(2),
        },
        paths: explicit.len(),
        diversity: Disjoint::No,
        preference: Preference::FewestHops,
        bounds: PathBounds {
            explicit,
            ..PathBounds::default()
        },
    }
}

fn path(nodes: &[u32], rate: BitsPerSecond) -> ExplicitPath {
    ExplicitPath {
        nodes: nodes.iter().copied().map(NodeId).collect(),
        rate,
    }
}

fn whole_field(network: &CircuitNetwork) -> BandwidthField<'_> {
    BandwidthField::new(network, |link| network.link(link).map(|link| link.capacity))
}

#[test]
fn each_path_has_exactly_its_rate() {
    let network = network(4, &[(0, 1, 5), (0, 1, 4), (1, 2, 9), (0, 3, 3), (3, 2, 3)]);
    let field = whole_field(&network);
    let both = ask(vec![path(&[0, 3, 2], 3), path(&[0, 1, 2], 5)]);
    let routes = explicit_routes(&field, &both).unwrap();
    let rates: Vec<BitsPerSecond> = routes.iter().map(|route| route.rate).collect();
    assert_eq!((rates, total_rate(&routes)), (vec![5, 3], 8));
    let full = assign_links(&field, &ask(vec![path(&[0, 1, 2], 6)])).unwrap_err();
    assert_eq!(
        (full.from, full.to, full.needed, full.left),
        (NodeId(0), NodeId(1), 6, 9)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn links_are_assigned_if_and_only_if_some_choice_fits(
        capacities in prop::collection::vec(1..12_u64, 1..4),
        // Paths of the same nodes occur only here; requests name each path once.
        rates in prop::collection::vec(1..9_u64, 1..5),
    ) {
        let links: Vec<_> = capacities.iter().map(|capacity| (0, 1, *capacity)).collect();
        let network = network(3, &[links, vec![(1, 2, 100)]].concat());
        let field = whole_field(&network);
        let paths = rates.iter().map(|rate| path(&[0, 1, 2], *rate)).collect();
        let found = assign_links(&field, &ask(paths));
        let count = capacities.len().pow(u32::try_from(rates.len()).unwrap());
        let fits = (0..count).any(|choice| {
            let mut left = capacities.clone();
            let mut rest = choice;
            rates.iter().all(|rate| {
                let link = rest % left.len();
                rest /= left.len();
                let fits = left[link] >= *rate;
                left[link] = left[link].saturating_sub(*rate);
                fits
            })
        });
        prop_assert_eq!(found.is_ok(), fits);
        if let Ok(routes) = found {
            let mut left = field.clone();
            for (route, rate) in routes.iter().zip(rates) {
                prop_assert_eq!(route.rate, rate);
                prop_assert!(left.width(&route.path) >= rate);
                left.deduct(&LinkPath(route.path.0.clone()), rate);
            }
        }
    }
}
