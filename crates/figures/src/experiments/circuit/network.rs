//! The networks: the paths of `scenarios/lsr.toml`, `scenarios/mnemonic-25-100-25.toml` and
//! `scenarios/mnemonic-10-50-10.toml`, scaled down in rate, with two more hosts whose flows share
//! the narrow link.

use super::Path;

/// Hosts and their links, besides the links of the circuit and the hosts' buffers.
const HOSTS: &str = r#"
[links.others-in]
ends = ["other", "west"]
delay = "1 ms"
rate = "1 Gbit/s"
MTU
[links.others-out]
ends = ["east", "sink"]
delay = "1 ms"
rate = "1 Gbit/s"
MTU
"#;

/// The record's path at a tenth of its rate: the STM-16 is the shared link, with depots before it
/// and before the last host.
const LSR: &str = r#"
title = "the Land Speed Record's path at a tenth, shared"
[nodes.client]
congestion = "reno"
buffers = "5.4 MB"
[nodes.west]
congestion = "reno"
buffers = "5.4 MB"
[nodes.middle]
[nodes.east]
congestion = "reno"
buffers = "5.4 MB"
[nodes.server]
congestion = "reno"
buffers = "5.4 MB"
[nodes.other]
congestion = "cubic"
buffers = "5.4 MB"
[nodes.sink]
congestion = "cubic"
buffers = "5.4 MB"
[links.first]
ends = ["client", "west"]
delay = "50 us"
rate = "1 Gbit/s"
mtu = 9000
queue = "4 MB"
[links.shared]
ends = ["west", "middle"]
delay = "60 ms"
rate = "240 Mbit/s"
mtu = 9000
queue = "400 KB"
[links.wide]
ends = ["middle", "east"]
delay = "30 ms"
rate = "1 Gbit/s"
mtu = 9000
queue = "4 MB"
[links.last]
ends = ["east", "server"]
delay = "50 us"
rate = "1 Gbit/s"
mtu = 9000
queue = "4 MB"
"#;

/// MNEMONIC's path at a quarter of its rate: the WAN is the shared link.
const MNEMONIC: &str = r#"
title = "MNEMONIC's path at a quarter, shared"
[nodes.client]
congestion = "reno"
buffers = "16 MB"
[nodes.west]
congestion = "reno"
buffers = "16 MB"
[nodes.east]
congestion = "reno"
buffers = "16 MB"
[nodes.server]
congestion = "reno"
buffers = "16 MB"
[nodes.other]
congestion = "cubic"
buffers = "16 MB"
[nodes.sink]
congestion = "cubic"
buffers = "16 MB"
[links.first]
ends = ["client", "west"]
delay = "LAN ms"
rate = "250 Mbit/s"
queue = "1 bdp of WHOLE ms"
loss = "0.001%"
[links.shared]
ends = ["west", "east"]
delay = "WAN ms"
rate = "250 Mbit/s"
queue = "1 bdp of WHOLE ms"
[links.last]
ends = ["east", "server"]
delay = "LAN ms"
rate = "250 Mbit/s"
queue = "1 bdp of WHOLE ms"
loss = "0.001%"
"#;

/// Returns the scenario of a path.
pub fn text(path: Path) -> String {
    let mnemonic = |lan: &str, wan: &str, whole: &str| {
        let own = MNEMONIC
            .replace("LAN", lan)
            .replace("WAN", wan)
            .replace("WHOLE", whole);
        own + &HOSTS.replace("MTU", "")
    };
    match path {
        Path::Lsr => LSR.to_owned() + &HOSTS.replace("MTU", "mtu = 9000"),
        Path::Mnemonic25 => mnemonic("12.5", "50", "150"),
        Path::Mnemonic10 => mnemonic("5", "25", "70"),
    }
}
