//! A depot whose policy permits a network that it is in.

use crate::path::LongPath;

/// The policy permits 10.77.0.0/16, which includes the depot's own addresses. Those need a rule
/// that names them.
#[test]
fn a_depot_refuses_its_own_addresses_in_allowed_networks() {
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
