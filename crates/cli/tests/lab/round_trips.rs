//! Depots add no round trip (LH-CHAIN-3), and padding saves one (LH-STATUS-9), on sockets and over real delays.

use wanbed::Overrides;

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

/// More than ten segments, the initial window (RFC 6928), and less than twice as much.
const TWO_WINDOWS_BYTES: usize = 22_000;

/// What does not fit the initial window takes a round trip more, unless the window has grown before there was anything to send. Reno sends a window at once; BBR
/// would spread it over the round trip. As above, half of a hop's round trip is the line, and a busy machine can only add to the fastest copy.
#[test]
fn twenty_kilobytes_arrive_as_soon_as_one_byte() {
    let reno = Overrides::default().set("nodes.*.congestion", "\"reno\"");
    let Some(path) = LongPath::with(&reno) else {
        return;
    };
    std::fs::write(path.root().join("byte"), "x").unwrap();
    std::fs::write(path.root().join("two-windows"), vec![b'x'; TWO_WINDOWS_BYTES]).unwrap();
    for depots in [&[][..], &["near", "far"]] {
        let route = path.route(depots);
        let (mut byte, mut kilobytes) = (f64::MAX, f64::MAX);
        let is_as_soon = |kilobytes: f64, byte: f64| kilobytes - byte < HOP_RTT / 2.0;
        for copies in 1..=MAX_COPIES {
            byte = path.fetch("byte", &route).min(byte);
            kilobytes = path.fetch("two-windows", &route).min(kilobytes);
            if copies >= MIN_COPIES && is_as_soon(kilobytes, byte) {
                break;
            }
        }
        assert!(
            is_as_soon(kilobytes, byte),
            "through {depots:?}: a byte in {byte:.3} s, {TWO_WINDOWS_BYTES} bytes in {kilobytes:.3} s"
        );
    }
}
