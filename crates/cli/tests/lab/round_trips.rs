//! Depots add no round trip (LH-CHAIN-3), on sockets and over real delays.

use crate::path::{HOP_RTT, LongPath};

/// A copy of one byte is nothing but round trips: TCP's, TLS's, and the request's. Through depots on the same path it takes
/// as long as direct. One round trip more on any single hop would show as `HOP_RTT`, so half of that is the line.
/// The fastest of a few copies is compared: a busy machine can only add to it.
#[test]
fn a_byte_arrives_as_soon_through_depots_as_direct() {
    let Some(path) = LongPath::up() else { return };
    std::fs::write(path.root().join("byte"), "x").unwrap();
    let fastest = |depots: &[&str]| {
        let route = path.route(depots);
        (0..5)
            .map(|_| path.fetch("byte", &route))
            .fold(f64::MAX, f64::min)
    };
    let direct = fastest(&[]);
    let round_trip = 3.0 * HOP_RTT;
    assert!(
        direct >= 3.0 * round_trip,
        "{direct} s is less than the round trips of TCP, TLS and the request"
    );
    for depots in [&["near"][..], &["far"], &["near", "far"]] {
        let through = fastest(depots);
        assert!(
            (through - direct).abs() < HOP_RTT / 2.0,
            "direct {direct:.3} s, through {depots:?} {through:.3} s: more than half a hop's round trip apart"
        );
    }
}
