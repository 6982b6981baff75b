//! Comparison of splits with every choice of paths in small networks.

use proptest::prelude::*;

use super::{PathConstraints, RatedPath, find_routes, joint_rates, total_rate};
use crate::network::{CircuitNetwork, NodeId};
use crate::path::{BandwidthField, Disjoint, LinkPath, PathBounds, PathEnds, Preference};
use crate::proof::Proof;
use crate::testing::{network, simple_paths, small_networks};
use crate::time::BitsPerSecond;

/// Factor for the rates of small networks, so that they stay whole when the linear program divides.
const UNIT: BitsPerSecond = 5_040;

fn field(network: &CircuitNetwork) -> BandwidthField<'_> {
    BandwidthField::new(network, |link| {
        network.link(link).map(|link| link.capacity * UNIT)
    })
}

fn ask(network: &CircuitNetwork, paths: usize, diversity: Disjoint) -> PathConstraints {
    let ends = PathEnds {
        from: NodeId(0),
        to: NodeId(network.nodes() - 1),
    };
    PathConstraints {
        ends,
        paths,
        diversity,
        preference: Preference::FewestHops,
        bounds: PathBounds::default(),
    }
}

/// Returns the most that any choice of so many paths carries.
fn exact(field: &BandwidthField<'_>, ask: &PathConstraints) -> BitsPerSecond {
    fn on(
        field: &BandwidthField<'_>,
        ask: &PathConstraints,
        all: &[LinkPath],
        chosen: &mut Vec<LinkPath>,
    ) -> BitsPerSecond {
        let mut best = total_rate(&joint_rates(field, chosen));
        if chosen.len() == ask.paths {
            return best;
        }
        for (place, path) in all.iter().enumerate() {
            let mut left = field.clone();
            for other in chosen.iter() {
                left.remove_conflicts(other, ask.diversity);
            }
            if left.width(path) > 0 {
                chosen.push(path.clone());
                best = best.max(on(field, ask, &all[place + 1..], chosen));
                chosen.pop();
            }
        }
        best
    }
    let mut all = simple_paths(field.network(), ask.ends);
    all.retain(|path| field.width(path) > 0);
    on(field, ask, &all, &mut Vec::new())
}

fn holds(field: &BandwidthField<'_>, ask: &PathConstraints, routes: &[RatedPath]) {
    let mut left = field.clone();
    assert!(routes.len() <= ask.paths, "{routes:?}");
    for route in routes {
        assert!(
            route.rate > 0 && left.width(&route.path) >= route.rate,
            "{routes:?}"
        );
        left.deduct(&route.path, route.rate);
        left.remove_conflicts(&route.path, ask.diversity);
    }
}

#[test]
fn the_linear_program_finds_what_greedy_misses() {
    // The widest path goes through the middle, and uses up what two others need.
    let network = network(
        4,
        &[(0, 1, 10), (0, 2, 9), (1, 3, 9), (2, 3, 10), (1, 2, 10)],
    );
    let ask = ask(&network, 2, Disjoint::No);
    let routes = find_routes(&field(&network), &ask, 18 * UNIT).unwrap();
    assert_eq!(total_rate(&routes), 18 * UNIT);
    let short = find_routes(&field(&network), &ask, 19 * UNIT + 1).unwrap_err();
    assert!(matches!(short.proof, Proof::Cut { .. }), "{short:?}");
}

proptest! {
    #[test]
    fn feasible_rates_are_found_and_others_proved_infeasible(
        network in small_networks(),
        paths in 1..4_usize,
        diversity in 0..3_u8,
        part in 1..13_u64,
    ) {
        let diversity = [
            Disjoint::No,
            Disjoint::Links,
            Disjoint::Sites
        ][usize::from(diversity)];
        let field = field(&network);
        let ask = ask(&network, paths, diversity);
        let most = exact(&field, &ask);
        // From a tenth of the maximum to just above it.
        for want in [(most * part / 10).max(1), most.max(1), most + 5] {
            match find_routes(&field, &ask, want) {
                Ok(routes) => {
                    prop_assert!(want <= most);
                    prop_assert_eq!(total_rate(&routes), want);
                    holds(&field, &ask, &routes);
                }
                Err(short) => {
                    prop_assert!(
                        want > most,
                        "{} go, and {} were refused: {:?}",
                        most,
                        want,
                        short
                    );
                    holds(&field, &ask, &short.found);
                    match short.proof {
                        Proof::Cut { rate, .. } => prop_assert!(rate < want),
                        Proof::Searched { all } => prop_assert!(all >= want),
                        _ => prop_assert!(
                            false,
                            "small networks are searched through"
                        ),
                    }
                }
            }
        }
        // A known reachable rate only changes how soon the narrowest cut is found.
        let narrowest = super::narrowest_cut(&field, ask.ends, paths, 0).rate;
        for reached in [most * part.min(10) / 10, most] {
            let found = super::narrowest_cut_above(&field, ask.ends, paths, 0, reached).rate;
            prop_assert_eq!(found, narrowest);
        }
        let (routes, limit) = super::max_rate_routes(&field, &ask, BitsPerSecond::MAX >> 1);
        holds(&field, &ask, &routes);
        prop_assert!(limit >= most);
        prop_assert!(total_rate(&routes) == most, "{} of {}", total_rate(&routes), most);
    }
}
