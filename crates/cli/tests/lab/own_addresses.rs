//! A depot whose policy allows a network that it is in.

use crate::path::LongPath;

/// The policy allows 10.77.0.0/16, in which the depot's own addresses are, too: those only a rule
/// that names them allows.
#[test]
fn a_depot_is_no_part_of_the_networks_it_may_reach() {
    let Some(path) = LongPath::up() else { return };
    let own = path.refused("near", &["--route", &path.route(&["near"])]);
    assert!(
        own.contains("no rule allows"),
        "the depot must refuse, not dial: {own}"
    );
    let neighbour = path.refused("far", &["--route", &path.route(&["near"])]);
    assert!(
        !neighbour.contains("no rule allows"),
        "the neighbour is dialled: {neighbour}"
    );
}
