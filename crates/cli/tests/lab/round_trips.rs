//! Depots add no round trip (LH-CHAIN-3), and padding saves one (LH-STATUS-9), on sockets and over
//! real delays.

use wanbed::Overrides;

use crate::path::LongPath;

/// Round trip of each hop in seconds. The limit of every comparison is half of it, so it is long
/// enough that a busy machine is not mistaken for a round trip. All three hops together stay below
/// a second, after which TCP would repeat its first packet.
const HOP_RTT: f64 = 0.25;
/// Minimum and maximum copies of each file over each route before they are compared.
const MIN_COPIES: usize = 2;
const MAX_COPIES: usize = 30;

/// Starts the path with hops of [`HOP_RTT`].
fn long_path(hosts: &Overrides) -> Option<LongPath> {
    let delay = format!("\"{} ms\"", HOP_RTT * 500.0);
    LongPath::with(&hosts.clone().set("links.*.delay", &delay))
}

/// Returns the seconds of the fastest copies, each of a file over a route. They take turns until
/// `is_enough` accepts them, and at least [`MIN_COPIES`] times. A busy machine can only make a copy
/// slower, so more copies are made meanwhile.
fn fastest<const N: usize>(
    path: &LongPath,
    copies: [(&str, String); N],
    is_enough: impl Fn(&[f64; N]) -> bool,
) -> [f64; N] {
    let mut fastest = [f64::MAX; N];
    for made in 1..=MAX_COPIES {
        for ((file, route), fastest) in copies.iter().zip(&mut fastest) {
            *fastest = path.fetch(file, route).min(*fastest);
        }
        if made >= MIN_COPIES && is_enough(&fastest) {
            break;
        }
    }
    fastest
}

/// The time of a one-byte copy consists of round trips: TCP's, TLS's, and the request's. Through
/// depots on the same path it takes as long as direct. One more round trip on any single hop would
/// add `HOP_RTT`, so the limit is half of that.
#[test]
fn a_byte_arrives_as_soon_through_depots_as_direct() {
    let Some(path) = long_path(&Overrides::default()) else {
        return;
    };
    std::fs::write(path.root().join("byte"), "x").unwrap();
    let routes = [&[][..], &["near"], &["far"], &["near", "far"]];
    let is_as_soon = |through: f64, direct: f64| (through - direct).abs() < HOP_RTT / 2.0;
    let copies = routes.map(|depots| ("byte", path.route(depots)));
    let fastest = fastest(&path, copies, |fastest| {
        fastest
            .iter()
            .all(|through| is_as_soon(*through, fastest[0]))
    });
    let direct = fastest[0];
    let round_trip = 3.0 * HOP_RTT;
    assert!(
        direct >= 3.0 * round_trip,
        "{direct} s is less than the round trips of TCP, TLS and the request"
    );
    for (depots, through) in routes.iter().zip(fastest) {
        assert!(
            is_as_soon(through, direct),
            "direct {direct:.3} s, through {depots:?} {through:.3} s: more than half a hop's round \
             trip apart"
        );
    }
}

/// More than ten segments, the initial window (RFC 6928), and less than twice as much.
const TWO_WINDOWS_BYTES: usize = 22_000;

/// Data beyond the initial window takes a round trip more, unless the window has grown before there
/// was anything to send. Reno sends a window at once; BBR would spread it over the round trip. As
/// above, the limit is half of a hop's round trip.
///
/// The hops keep their grown windows while nothing is sent, as docs/operating.md configures depots.
/// Otherwise Linux halves a window for each retransmission timeout without data (RFC 2861). Over a
/// hop of 250 ms that is about 750 ms, rounded up to the kernel's next tick. The request takes
/// 750 ms over all three hops plus the time of the programs, so a busy machine would decide which
/// is longer.
#[test]
fn twenty_kilobytes_arrive_as_soon_as_one_byte() {
    let hosts = Overrides::default()
        .set("nodes.*.congestion", "\"reno\"")
        .set("nodes.*.sysctl", "{ tcp_slow_start_after_idle = 0 }");
    let Some(path) = long_path(&hosts) else {
        return;
    };
    std::fs::write(path.root().join("byte"), "x").unwrap();
    std::fs::write(
        path.root().join("two-windows"),
        vec![b'x'; TWO_WINDOWS_BYTES],
    )
    .unwrap();
    for depots in [&[][..], &["near", "far"]] {
        let copies = ["byte", "two-windows"].map(|file| (file, path.route(depots)));
        let are_as_soon = |[byte, kilobytes]: &[f64; 2]| kilobytes - byte < HOP_RTT / 2.0;
        let [byte, kilobytes] = fastest(&path, copies, are_as_soon);
        assert!(
            are_as_soon(&[byte, kilobytes]),
            "through {depots:?}: a byte in {byte:.3} s, {TWO_WINDOWS_BYTES} bytes in \
             {kilobytes:.3} s"
        );
    }
}
