//! Routes that are reused from one stretch to the next equal those that a new search finds.

use proptest::prelude::*;

use super::filling::PreviousStretch;
use crate::network::{CircuitNetwork, LinkId, NodeId};
use crate::path::{BandwidthField, Disjoint, PathBounds, PathEnds, Preference};
use crate::split::{PathConstraints, widest_behind, widest_first};
use crate::testing::small_networks;
use crate::time::BitsPerSecond;

/// Generates networks with the rates left on each link in two stretches.
fn stretches() -> impl Strategy<Value = (CircuitNetwork, Vec<(BitsPerSecond, BitsPerSecond)>)> {
    small_networks().prop_flat_map(|network| {
        let links = network.links().len();
        let alike = (0..12_u64).prop_map(|room| (room, room));
        let rooms = prop_oneof![4 => alike, 1 => (0..12_u64, 0..12_u64)];
        prop::collection::vec(rooms, links).prop_map(move |rooms| (network.clone(), rooms))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn reused_paths_are_still_the_widest(
        (network, rooms) in stretches(),
        paths in 1..4_usize,
        diversity in 0..3_u8,
        (want, other) in (1..40_u64, 1..40_u64),
    ) {
        let field = |of: fn(&(BitsPerSecond, BitsPerSecond)) -> BitsPerSecond| {
            BandwidthField::new(&network, |link: LinkId| rooms.get(link.index()).map(of))
        };
        let ask = PathConstraints {
            ends: PathEnds { from: NodeId(0), to: NodeId(network.nodes() - 1) },
            paths,
            diversity: [Disjoint::No, Disjoint::Links, Disjoint::Sites][usize::from(diversity)],
            preference: Preference::FewestHops,
            bounds: PathBounds::default(),
        };
        let (one, next) = (field(|rooms| rooms.0), field(|rooms| rooms.1));
        let before = PreviousStretch::record(&one, want, widest_first(&one, &ask, want));
        let known = before.reusable_in(&next, other);
        let routes = widest_behind(known, &next, &ask, other);
        prop_assert_eq!(routes, widest_first(&next, &ask, other));
    }
}
