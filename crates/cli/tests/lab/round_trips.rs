//! Depots add no round trip (LH-CHAIN-3), on sockets and over real delays.

use crate::path::{HOP_RTT, LongPath};

/// Copies by each route before they are compared, and at most.
const MIN_COPIES: usize = 5;
const MAX_COPIES: usize = 30;

/// A copy of one byte is nothing but round trips: TCP's, TLS's, and the request's. Through depots on the same path it takes
/// as long as direct. One round trip more on any single hop would show as `HOP_RTT`, so half of that is the line.
/// The fastest of a few copies is compared, by all routes in turns: a busy machine can only add to it, so there are more of them while it does.
#[test]
fn a_byte_arrives_as_soon_through_depots_as_direct() {
    let Some(path) = LongPath::up() else { return };
    std::fs::write(path.root().join("byte"), "x").unwrap();
    let routes = [&[][..], &["near"], &["far"], &["near", "far"]];
    let mut fastest = routes.map(|_| f64::MAX);
    let is_as_soon = |through: f64, direct: f64| (through - direct).abs() < HOP_RTT / 2.0;
    for copies in 1..=MAX_COPIES {
        for (depots, fastest) in routes.iter().zip(&mut fastest) {
            *fastest = path.fetch("byte", &path.route(depots)).min(*fastest);
        }
        if copies >= MIN_COPIES && fastest.iter().all(|through| is_as_soon(*through, fastest[0])) {
            break;
        }
    }
    let direct = fastest[0];
    let round_trip = 3.0 * HOP_RTT;
    assert!(
        direct >= 3.0 * round_trip,
        "{direct} s is less than the round trips of TCP, TLS and the request"
    );
    for (depots, through) in routes.iter().zip(fastest) {
        assert!(
            is_as_soon(through, direct),
            "direct {direct:.3} s, through {depots:?} {through:.3} s: more than half a hop's round trip apart"
        );
    }
}
