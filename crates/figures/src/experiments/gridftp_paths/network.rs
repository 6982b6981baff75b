//! The network: the sender behind a router that selects the path, as at Sunnyvale, and the receiver
//! behind the paths.
//!
//! Data goes forward over a path, and everything back over C, as in the paper. So the delay of each
//! path is its round trip less C's way back.

use super::plan::{Cell, HOST_LIMIT, Hosts, Path, RATE_DIVISOR};

/// Round trips of A, B and C in the paper, in ms.
const RTT_MS: [f64; 3] = [57.0, 75.0, 48.0];
/// The paper's TCP buffers, in bytes.
pub const PAPER_BUFFER_BYTES: f64 = 62_500_000.0;
/// Rate of hosts' links that limit nothing, in bit/s.
const UNLIMITED_BPS: f64 = 1e9;

/// Returns the scenario of a transfer.
pub fn text(cell: &Cell) -> String {
    let lan = match cell.hosts {
        Hosts::Limited => HOST_LIMIT * Path::A.link_bps(),
        Hosts::Unlimited => UNLIMITED_BPS,
    };
    let buffers = PAPER_BUFFER_BYTES / RATE_DIVISOR / 1024.0;
    let mut text =
        format!("title = \"the multi-path paper's network at 1:{RATE_DIVISOR}\"\n[nodes.west]\n");
    for host in ["client", "server", "other-a", "other-c"] {
        text += &format!("[nodes.{host}]\ncongestion = \"cubic\"\nbuffers = \"{buffers:.0} KB\"\n");
    }
    for (host, rate) in [
        ("client", lan),
        ("other-a", UNLIMITED_BPS),
        ("other-c", UNLIMITED_BPS),
    ] {
        text += &format!(
            "[links.{host}-lan]\nends = [\"{host}\", \"west\"]\ndelay = \"50 us\"\n\
             rate = \"{rate} bit/s\"\nqueue = \"1 bdp of {} ms\"\n",
            RTT_MS[2]
        );
    }
    let [_, _, back] = RTT_MS.map(|rtt| rtt / 2.0);
    for (path, rtt) in Path::ALL.into_iter().zip(RTT_MS) {
        text += &format!(
            "[links.{}]\nends = [\"west\", \"server\"]\ndelay = \"{} ms\"\nrate = \"{} bit/s\"\n\
             queue = \"1 bdp of {rtt} ms\"\n",
            path.link(),
            rtt - back,
            path.link_bps()
        );
    }
    // All others take the shortest path, which is C.
    text + "[[route]]\nfrom = \"other-a\"\nto = \"server\"\nvia = [\"other-a-lan\", \"a\"]\none_way = true\n"
}
