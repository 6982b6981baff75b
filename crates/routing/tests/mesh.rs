//! Simulation of the mesh with a development seed: the policy against what it has to beat.

#[path = "../examples/mesh/simulation.rs"]
mod simulation;

use simulation::{SITES, Trouble, run};

#[test]
fn routed_transfers_beat_the_other_policies() {
    assert_eq!(SITES, 6);
    for trouble in [Trouble::None, Trouble::All] {
        let totals = run(1, 200, trouble);
        let others = [totals.direct, totals.best_depot, totals.by_bandwidth];
        for other in others {
            assert!(totals.routed < other, "{trouble:?} {totals:?}");
        }
        assert!(
            totals.routed < 1.15 * totals.oracle,
            "{trouble:?} {totals:?}"
        );
        assert!(totals.lsl.is_finite() && totals.by_depots > 0);
        assert!(totals.explored as f64 <= 0.02 * totals.bulk as f64);
        for (count, routed, direct, best) in &totals.classes {
            assert!(
                *routed <= direct * 1.03 && *best <= direct * 1.000_001,
                "{trouble:?} {count} {totals:?}"
            );
        }
    }
}
