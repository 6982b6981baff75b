//! The networks: the paths of `scenarios/lsr.toml`, `scenarios/mnemonic-25-100-25.toml` and
//! `scenarios/mnemonic-10-50-10.toml`, scaled down in rate, with two more hosts whose flows share
//! the narrow link.

use super::Path;

/// Hosts and their links, besides the links of the circuit and the hosts' buffers.
const HOSTS: &str = include_str!("../../../labs/circuit-hosts.toml");

/// The record's path at a tenth of its rate: the STM-16 is the shared link, with depots before it
/// and before the last host.
const LSR: &str = include_str!("../../../labs/circuit-lsr.toml");

/// MNEMONIC's path at a quarter of its rate: the WAN is the shared link.
const MNEMONIC: &str = include_str!("../../../labs/circuit-mnemonic.toml");

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
