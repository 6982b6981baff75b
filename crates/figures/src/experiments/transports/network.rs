//! Networks of the runs.

use anyhow::Result;

use super::cells::{Cell, FASP_LINK_MBPS, PerfWay};
use super::run::GATEWAYS;
use crate::network::Network;
use crate::tools::Tools;

const HOSTS: &str = include_str!("../../../labs/transports-hosts.toml");
const LOSSY_GATEWAYS: &str = include_str!("../../../labs/transports-gateways.toml");

/// Returns the network of a run. Nodes of depots that the run does not use are routers.
///
/// # Errors
/// The scenario cannot be read.
pub fn network(tools: &Tools, cell: &Cell) -> Result<Network> {
    match *cell {
        Cell::RandomLoss { way } if way.has_depots() => {
            Ok(Network::of_text("transports-gateways", LOSSY_GATEWAYS).relays(&GATEWAYS))
        }
        Cell::RandomLoss { .. } => Ok(hosts()),
        Cell::Fasp { rtt_ms, loss } => Ok(hosts()
            .set("links.wan.delay", quoted(half_ms(rtt_ms)))
            .set("links.wan.rate", quoted(format!("{FASP_LINK_MBPS} Mbit/s")))
            .set("links.wan.queue", quoted(format!("1 bdp of {rtt_ms} ms")))
            .set("links.wan.loss", quoted(loss.text()))),
        Cell::Gateways {
            lan_loss,
            windows,
            congestion,
            way,
        } => {
            let relays = match way {
                PerfWay::Direct => &[][..],
                _ => &GATEWAYS[..],
            };
            let mut network = Network::load(tools, "mnemonic-10-50-10.toml")?
                .relays(relays)
                .set("nodes.*.congestion", quoted(congestion.name()));
            for lan in ["lan1", "lan2"] {
                network = network.set(format!("links.{lan}.loss"), quoted(lan_loss.text()));
            }
            for host in ["client", "server"] {
                network = network.set(format!("nodes.{host}.buffers"), quoted(windows.text()));
            }
            Ok(network)
        }
    }
}

fn hosts() -> Network {
    Network::of_text("transports-hosts", HOSTS).relays(&[])
}

/// Returns the delay of one direction.
fn half_ms(rtt_ms: u32) -> String {
    format!("{} ms", f64::from(rtt_ms) / 2.0)
}

/// Returns a text as a value of a scenario.
fn quoted(text: impl std::fmt::Display) -> String {
    format!("\"{text}\"")
}
